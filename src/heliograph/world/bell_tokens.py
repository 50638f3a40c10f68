"""Tokens for bells on a wire that others can listen to: keyed hashes, which reveal no names.

Each project has a key of its own, which the kernel returns to logins of that project (`bell_key`). A login without it
sees that something rings and can replay that ring, but it cannot read the name or ring for another one. A login that may
only subscribe has no key: `subscribe` returns the tokens of the bells for its patterns.

The token of a signal, or of a subscriber's pattern, keeps its segments: the token of its kind, and a short hash of each segment, joined by
':'. `*` and `**` stand for themselves, so a masked pattern matches the masked names of the signals that the pattern matches.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from heliograph.outbox_records import Event
from heliograph.signals.pattern import MANY, ONE
from heliograph.world.seam import SIGNALS, SUBSCRIBERS, BellKey

_DIGITS = 32  # 128 bits: collisions cannot be found, and a ring stays short
_SEGMENT_DIGITS = 10  # a collision wakes a subscriber in vain; a masked name is at most as long as a name may be
_TEXTS_MAX = 10_000


class Tokens:
    """The keys of the projects that this process has fetched, and the tokens that follow from them."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}
        self._given: dict[str, dict[str, str]] = {}  # by project: the tokens of a login that may only subscribe
        self._masked: dict[BellKey, str] = {}  # tokens with segments that were needed before

    def add(self, project: str, secret: str | Mapping[str, str]) -> None:
        """Add a project's key, or some of its tokens by name, as the kernel functions bell_key and subscribe return them."""
        if isinstance(secret, str):
            self._secrets[project] = bytes.fromhex(secret)
        else:
            self._given.setdefault(project, {}).update(secret)

    def has(self, project: str) -> bool:
        return project in self._secrets or project in self._given

    def has_token(self, key: BellKey) -> bool:
        """Whether the token of a key is known."""
        return key.project in self._secrets or key.name in self._given.get(key.project, ())

    def of(self, key: BellKey) -> str:
        """The token of a key. Raises KeyError for one that is not known."""
        if key.project not in self._secrets:
            return self._given[key.project][key.name]
        if key.name.startswith((SIGNALS, SUBSCRIBERS)):
            return self._masked.get(key) or self._mask(key)
        return self._digest(key.project, key.name)

    def of_kind(self, project: str, kind: str) -> str | None:
        """The first part of the tokens of SIGNALS or SUBSCRIBERS; None if it is not known."""
        if project in self._secrets:
            return self._digest(project, kind)
        found = (text for name, text in self._given.get(project, {}).items() if name.startswith(kind))
        return next((text.partition(":")[0] for text in found), None)

    def _mask(self, key: BellKey) -> str:
        if len(self._masked) >= _TEXTS_MAX:
            self._masked.clear()
        kind, _, name = key.name.partition(":")
        segments = [
            each if each in (ONE, MANY) else self._digest(key.project, f"segment:{each}")[:_SEGMENT_DIGITS]
            for each in name.split(":")
        ]
        text = self._masked[key] = ":".join([self._digest(key.project, f"{kind}:"), *segments])
        return text

    def _digest(self, project: str, name: str) -> str:
        return hmac.digest(self._secrets[project], name.encode(), "sha256").hex()[:_DIGITS]

    def opaque(self, project: str, event: Event) -> Event:
        """A task event for a shared channel: only its key, as a token. Consumers with the project's key read the ledger."""
        return Event(0, self.of(BellKey(project, f"event:{event.key}")), "heliograph.event", {})
