"""Tokens for bells on a wire that others can listen to: keyed hashes, which reveal no names.

Each project has a key of its own, which the kernel returns to logins of that project (`bell_key`). A login without it
sees that something rings and can replay that ring, but it cannot read the name or ring for another one.
"""

from __future__ import annotations

import hmac

from heliograph.records import Event
from heliograph.world.seam import BellKey

_DIGITS = 32  # 128 bits: collisions cannot be found, and a ring stays short


class Tokens:
    """The keys of the projects that this process has fetched, and the tokens that follow from them."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    def add(self, project: str, secret: str) -> None:
        """Add a project's key. `secret`: the result of the kernel function bell_key."""
        self._secrets[project] = bytes.fromhex(secret)

    def has(self, project: str) -> bool:
        return project in self._secrets

    def of(self, key: BellKey) -> str:
        """The token of a key. Raises KeyError for a project whose secret was not added."""
        return hmac.digest(self._secrets[key.project], key.name.encode(), "sha256").hex()[:_DIGITS]

    def opaque(self, project: str, event: Event) -> Event:
        """A task event for a shared channel: only its key, as a token. Consumers with the project's key read the ledger."""
        return Event(0, self.of(BellKey(project, f"event:{event.key}")), "heliograph.event", {})
