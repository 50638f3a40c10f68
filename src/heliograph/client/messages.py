"""The messages of a session as payloads of signals, and the ids of their turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from heliograph.client.arguments import check_id
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.ports import FileReference
from heliograph.types import JsonObject
from heliograph.world.seam import World


def message_payload(text: Any, files: Sequence[str | FileReference] = ()) -> JsonObject:
    """The payload of a message: its text, and its files by reference. Raises InvalidInput (`wrong_type`, `invalid_url`)."""
    if not isinstance(text, str):
        raise InvalidInput(f"a message must be a text, not {safe_repr(repr_of(text))}", code="wrong_type", path="/text")
    if not files:
        return {"text": text}
    return {"text": text, "files": [_file(each, at) for at, each in enumerate(files)]}


def turn_of_message(world: World, run_id: str, message_id: str | None) -> str:
    """The id of the turn that answers a message: the same for a message that is sent again under its id. Raises InvalidInput (`invalid_id`)."""
    if message_id is None:
        return world.new_id("turn")
    return f"turn_{run_id}_{check_id(message_id, 'a message id', '/message_id')}"


def _file(file: str | FileReference, at: int) -> JsonObject:
    found = FileReference(file) if isinstance(file, str) else file
    if not isinstance(found, FileReference) or not isinstance(found.url, str) or not _is_https(found.url):
        quoted = repr_of(file)
        raise InvalidInput(f"a file of a message must be an https URL without user, password, blanks and control characters, not "
                           f"{'one with @, which may be a password' if '@' in quoted else safe_repr(quoted)}",
                           code="invalid_url", path=f"/files/{at}")  # fmt: skip
    return {"url": found.url} if found.media_type is None else {"url": found.url, "media_type": found.media_type}


def _is_https(url: str) -> bool:
    """Whether it is an https URL of a host, without a password, which the log would keep, and without blanks and control characters."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme == "https"
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and all(each.isprintable() and each != " " for each in url)
        )
    except ValueError:  # for example, an IPv6 address without its closing bracket
        return False
