"""Tokens for bells on a wire that others can listen to: keyed hashes, which reveal no names.

Each project has a key of its own, which the kernel returns to logins of that project (`bell_key`). A login without it
sees that something rings and can replay that ring, but it cannot read the name or ring for another one. A login that may
only subscribe has no key: `subscribe` returns the tokens of the bells for its patterns.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from heliograph.records import Event
from heliograph.world.seam import BellKey

_DIGITS = 32  # 128 bits: collisions cannot be found, and a ring stays short


class Tokens:
    """The keys of the projects that this process has fetched, and the tokens that follow from them."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}
        self._given: dict[str, dict[str, str]] = {}  # by project: the tokens of a login that may only subscribe

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
        return hmac.digest(self._secrets[key.project], key.name.encode(), "sha256").hex()[:_DIGITS]

    def opaque(self, project: str, event: Event) -> Event:
        """A task event for a shared channel: only its key, as a token. Consumers with the project's key read the ledger."""
        return Event(0, self.of(BellKey(project, f"event:{event.key}")), "heliograph.event", {})
