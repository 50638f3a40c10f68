"""What rings for a key on a wire that others can listen to: a keyed hash, which names nothing (S25).

Each project has a key of its own, which the kernel gives to logins of that project (`bell_key`). A login without it
sees that something rings, and can ring it again, but neither reads what it is nor rings anything else.
"""

from __future__ import annotations

import hmac

from heliograph.records import Event
from heliograph.world import BellKey

_DIGITS = 32  # 128 bits: nobody finds a second name, and a ring stays short


class Tokens:
    """The keys of those projects that this process has asked for."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    def add(self, project: str, secret: str) -> None:
        """`secret`: what the kernel function bell_key answers."""
        self._secrets[project] = bytes.fromhex(secret)

    def has(self, project: str) -> bool:
        return project in self._secrets

    def of(self, key: BellKey) -> str:
        """Raises KeyError for a project whose secret was not added."""
        return hmac.digest(self._secrets[key.project], key.name.encode(), "sha256").hex()[:_DIGITS]

    def veiled(self, project: str, event: Event) -> Event:
        """A task event as a shared channel carries it: its key as a token. Consumers that know the key read the ledger."""
        return Event(0, self.of(BellKey(project, f"event:{event.key}")), "heliograph.event", {})
