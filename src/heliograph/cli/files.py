"""Read files that arguments name. Each reason why a file cannot be read has its own error."""

from __future__ import annotations

import stat
from pathlib import Path

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.signals.json_parser import parse_json
from heliograph.types import Json, JsonObject

FILE_BYTES_MAX = 16 * 1024 * 1024

_KINDS = (
    (stat.S_ISDIR, "a directory", "is_directory"),
    (stat.S_ISCHR, "a device", "is_device"),
    (stat.S_ISBLK, "a device", "is_device"),
    (stat.S_ISFIFO, "a pipe", "is_pipe"),
    (stat.S_ISSOCK, "a socket", "is_socket"),
)


def read_file(path: Path) -> bytes:
    """Read a plain file.

    Raises NotFound (`file_not_found`), InvalidInput (`is_directory`, `is_device`, `is_pipe`, `is_socket`,
    `unreadable_file`, `file_too_large`).
    """
    name = safe_repr(str(path), 300)
    try:
        mode = path.stat().st_mode
        for is_kind, kind, code in _KINDS:
            if is_kind(mode):
                raise InvalidInput(f"{name} is {kind}, not a file", code=code, path=name)
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no file {name}; check the path", code="file_not_found", path=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {name}: {reason}", code="unreadable_file", path=name) from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidInput(
            f"{name} is larger than {FILE_BYTES_MAX // 2**20} MiB; pass a smaller file",
            code="file_too_large",
            path=name,
        )
    return data


def read_state(argument: str) -> JsonObject:
    """Parse the object of `--state`: JSON, or @FILE."""
    source, text = "--state", argument.encode("utf-8", "surrogateescape")
    if argument.startswith("@"):
        source = safe_repr(argument[1:], 300)
        text = read_file(Path(argument[1:]))
    value = _parse(text, source, argument)
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{source}: the state must be a JSON object, not {safe_repr(value)}", code="invalid_state", path="/state"
        )
    return value


def read_value(option: str, argument: str) -> Json:
    """Parse the value of an option: JSON, or @FILE. Raises InvalidInput, NotFound."""
    if argument.startswith("@"):
        return _parse(read_file(Path(argument[1:])), safe_repr(argument[1:], 300), argument)
    return _parse(argument.encode("utf-8", "surrogateescape"), option, argument)


def read_result(text: str | None, path: str | None) -> Json:
    """Parse the JSON of `--result` or `--result-file`. Raises InvalidInput, NotFound."""
    try:
        if path is None:
            return parse_json((text or "").encode("utf-8", "surrogateescape"))
        return parse_json(read_file(Path(path)))
    except InvalidInput as error:
        where = "--result" if path is None else safe_repr(path, 300)
        code, hint = error.code, error.hint
        if code in ("file_too_large", "encoding"):
            hint = "store it elsewhere, and report its location"
            code = "payload_too_large" if code == "file_too_large" else code
        elif code == "invalid_json":
            hint = "a result is JSON; write a text in quotes: '\"done\"'"
        raise InvalidInput(f"{where}: {error.message}", code=code, path=error.path or where, hint=hint) from None


def _parse(text: bytes, source: str, argument: str) -> Json:
    try:
        return parse_json(text)
    except InvalidInput as error:
        hint = error.hint
        if error.code == "invalid_json" and not argument.startswith("@"):
            quoted = f"quote it: {source} '{{...}}'"
            hint = quoted if "{" in argument else f"to read it from a file, write {source} @FILE"
        raise InvalidInput(
            f"{source}: {error.message}", code=error.code, path=error.path or source, hint=hint
        ) from None
