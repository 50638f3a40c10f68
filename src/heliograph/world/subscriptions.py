"""The subscriptions of this process, found by key for its own rings and by token for rings from a wire.

A ring of this process is passed on at once. A ring from a wire may be forged by any login of the database: each
subscription passes on a few at once and then one per interval, however many come. Delayed rings are merged into one. A
wire without access rights rings by token only: a login that guesses the name of an application wakes no worker.
Keys that begin with SIGNALS are patterns: each ring of a signal's name finds those that match it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from heliograph.world.bell_tokens import Tokens
from heliograph.world.pattern_listeners import Listener, PatternListeners
from heliograph.world.ring_limit import TokenBucket
from heliograph.world.seam import SIGNALS, SUBSCRIBERS, BellKey

INTERVAL_SECONDS = 0.05
LONGEST_SECONDS = 0.5
BURST = 10


class Announcements(Protocol):
    """Receives the announcements of subscribers in other processes, as masked patterns. `ring`: some may have been missed."""

    def ring(self) -> None: ...

    def announced(self, masked: str) -> None: ...


class Subscription:
    """See `heliograph.world.seam.Subscription`."""

    def __init__(self, keys: tuple[BellKey, ...], subscriptions: Subscriptions):
        self.keys = keys
        self._subscriptions = subscriptions
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._pace = TokenBucket(INTERVAL_SECONDS, LONGEST_SECONDS, BURST)
        self._later: asyncio.TimerHandle | None = None

    def clear(self) -> None:
        self._bell.clear()

    def found(self) -> None:
        self._pace.refund()
        if self._later is not None:
            self._later.cancel()
            self._ring_late()

    def ring(self) -> None:
        self._bell.set()

    def ring_from_wire(self) -> None:
        if self._bell.is_set() or self._later is not None:
            return
        seconds = self._pace.take(self._loop.time())
        if seconds == 0:
            self._bell.set()
        else:
            self._later = self._loop.call_later(seconds, self._ring_late)

    def _ring_late(self) -> None:
        self._later = None
        self._bell.set()

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._subscriptions.forget(self)


class Subscriptions:
    """All subscriptions of a process."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._of_key: dict[BellKey, set[Listener]] = {}
        self._texts_of_key: dict[BellKey, set[str]] = {}  # the texts on a wire that ring for it
        self._keys_on_wire: dict[str, set[BellKey]] = {}
        self._of_signals: dict[str, PatternListeners] = {}  # by project
        self._announcements: dict[str, Announcements] = {}  # by project
        self._masked: dict[str, Callable[[str], None]] = {}  # by the first part of a text with a masked name

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        subscription = Subscription(tuple(keys), self)
        self.add(subscription)
        return subscription

    def of_signals(self, project: str) -> PatternListeners:
        """The listeners to the signals of a project."""
        if project not in self._of_signals:
            self._of_signals[project] = PatternListeners(project, self._tokens)
            self._learn_kinds(project)
        return self._of_signals[project]

    def observe(self, project: str, announcements: Announcements) -> None:
        """Pass on the announcements of the project's subscribers in other processes."""
        self._announcements[project] = announcements
        self._learn_kinds(project)

    def add(self, listener: Listener) -> None:
        for key in listener.keys:
            if key.name.startswith(SIGNALS):
                self.of_signals(key.project).add(key.name[len(SIGNALS) :], listener)
                continue
            if key not in self._of_key:
                self._of_key[key], self._texts_of_key[key] = set(), set()
                self._listen_on_wire(key)
            self._of_key[key].add(listener)

    def forget(self, listener: Listener) -> None:
        for key in listener.keys:
            if key.name.startswith(SIGNALS):
                self._of_signals[key.project].forget(key.name[len(SIGNALS) :], listener)
                continue
            self._of_key[key].discard(listener)
            if not self._of_key[key]:
                del self._of_key[key]
                for text in self._texts_of_key.pop(key):
                    self._keys_on_wire[text].discard(key)
                    if not self._keys_on_wire[text]:
                        del self._keys_on_wire[text]

    def learned(self, project: str) -> None:
        """Start listening for the project's tokens, now that its key is known, and ring once for rings that were missed."""
        keys = self.keys_of(project)
        for key in keys:
            self._listen_on_wire(key)
        self._learn_kinds(project)
        if project in self._of_signals:
            self._of_signals[project].learned()
        self.ring(keys)
        self._ring_all(project)

    def keys_of(self, project: str) -> list[BellKey]:
        """The keys of a project that somebody of this process listens to."""
        return [key for key in self._of_key if key.project == project]

    def ring(self, keys: Iterable[BellKey]) -> None:
        for key in keys:
            if key.name.startswith(SIGNALS):
                self.of_signals(key.project).ring(key.name[len(SIGNALS) :])
            for listener in self._of_key.get(key, ()):
                listener.ring()

    def ring_from_wire(self, texts: Sequence[str], *, carries_names: bool = False) -> None:
        """Pass on rings from a bell. The bell itself sends '*' when it may have missed rings: that rings every subscription.

        carries_names: the wire has access rights of its own, so `work:<pool>` rings as well as a token does.
        """
        if texts == ["*"]:
            self.ring(list(self._of_key))
            for project in {*self._of_signals, *self._announcements}:
                self._ring_all(project)
            return
        for text in texts:
            if text.startswith("work:") and not carries_names:
                continue
            kind, _, masked = text.partition(":")
            if kind in self._masked:
                self._masked[kind](masked)
            for key in self._keys_on_wire.get(text, ()):
                for listener in self._of_key[key]:
                    listener.ring_from_wire()

    def _ring_all(self, project: str) -> None:
        """Ring all listeners to signals of a project, since rings may have been missed."""
        if project in self._of_signals:
            self._of_signals[project].ring_all()
        if project in self._announcements:
            self._announcements[project].ring()

    def _learn_kinds(self, project: str) -> None:
        signals, announcements = self._of_signals.get(project), self._announcements.get(project)
        if signals is not None and (kind := self._tokens.of_kind(project, SIGNALS)) is not None:
            self._masked[kind] = signals.ring_from_wire
        if announcements is not None and (kind := self._tokens.of_kind(project, SUBSCRIBERS)) is not None:
            self._masked[kind] = announcements.announced

    def _listen_on_wire(self, key: BellKey) -> None:
        """Register the texts on a wire that ring for `key`: its token, once known, and for a pool its name, on wires that carry names."""
        token = [self._tokens.of(key)] if self._tokens.has_token(key) else []
        texts = [*token, *([key.name] if key.name.startswith("work:") else [])]
        self._texts_of_key[key].update(texts)
        for text in texts:
            self._keys_on_wire.setdefault(text, set()).add(key)
