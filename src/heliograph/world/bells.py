"""The bells of this process: its subscriptions, and the wires that deliver rings to other processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.outbox_records import Event
from heliograph.world.bell_tokens import Tokens
from heliograph.world.follower_bells import ANNOUNCEMENT, ARRIVALS, SETTLED_SECONDS, FollowerBells, followed
from heliograph.world.seam import ANNOUNCE_SECONDS, BellKey
from heliograph.world.signal_bells import SignalBells
from heliograph.world.subscriptions import Subscription, Subscriptions

log = logging.getLogger("heliograph.world")

_LEARN_SECONDS = 5.0  # between two attempts to fetch the key of a project's bells
_LOCAL = "slot:"  # keys that begin so ring in this process only


class Store(Protocol):
    """Calls kernel functions; `heliograph.ledger.pool.Database` is one."""

    async def call(self, function: str, *args: object) -> Any: ...


class Doorbell(Protocol):
    """A wire to other processes; rings may be lost, events may arrive twice. Implemented by `heliograph.doorbell.base.Bell`."""

    @property
    def is_up(self) -> bool: ...

    @property
    def carries_names(self) -> bool: ...

    @property
    def carries_commands(self) -> bool: ...

    @property
    def has_observers(self) -> bool: ...

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None: ...

    def publish_event(self, subject: str, body: dict[str, Any]) -> None: ...

    async def publish(self, events: Sequence[Event]) -> None: ...


class Bells:
    """See `subscribe`, `ring` and `publish` of `heliograph.world.seam.World`.

    wires: they reach other processes, the preferred one first; any may be down. spawn: starts a task in the background.
    """

    def __init__(self, store: Store, spawn: Callable[[str, Coroutine[Any, Any, None]], object]):
        self._store = store
        self._spawn = spawn
        self.tokens = Tokens()
        self.subscriptions = Subscriptions(self.tokens)
        self.wires: list[Doorbell] = []
        self._learning: dict[str, asyncio.Lock] = {}
        self._keeps_learning: set[str] = set()  # projects: one task for each, for all its subscriptions
        self._signals: dict[str, SignalBells] = {}
        self._clock = asyncio.get_running_loop().time
        self._followers = FollowerBells(self.subscriptions, self._clock)
        self._announcing: set[str] = set()  # projects: one task for each, for all their followers

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        subscription = self.subscriptions.subscribe(keys)
        unknown = {key.project for key in subscription.keys if key.project and not self.tokens.has(key.project)}
        for project in unknown - self._keeps_learning:
            self._keeps_learning.add(project)
            self._spawn(f"bell key of {project}", self._keep_learning(project))
        for project in followed(subscription.keys) - self._announcing:
            self._announcing.add(project)
            self._spawn(f"followers of {project}", self._keep_announcing(project))
        return subscription

    def ring(self, keys: Sequence[BellKey], agents: Iterable[str] = ()) -> None:
        self.subscriptions.ring(keys)
        self._ring_wires(keys, agents)

    def _ring_wires(self, keys: Sequence[BellKey], agents: Iterable[str] = ()) -> None:
        if not self.wires:
            return
        remote = [key for key in keys if not key.name.startswith(_LOCAL)]
        if all(wire.is_up for wire in self.wires):  # no announcements arrive on a wire that is down
            remote = self._followers.to_send(remote)
        if not remote:
            return
        unknown = {key.project for key in remote if not self.tokens.has(key.project)}
        if unknown:
            self._spawn("ring", self._learn_and_send(unknown, remote, list(agents)))
        else:
            self._send(remote, agents)

    def called(self, function: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """Ring for the subscribers of the signals that a call of one of WRITERS has logged."""
        project = arguments[0]
        signals = self._signals.get(project)
        if signals is None:
            signals = self._signals[project] = SignalBells(project, self.subscriptions, self.tokens, self._clock)
        if keys := signals.after(function, arguments, answer):
            self._ring_wires(keys)

    def given(self, project: str, tokens: Mapping[str, str]) -> None:
        """Use the tokens that `subscribe` has returned to a login that may only subscribe."""
        self.tokens.add(project, tokens)
        self.subscriptions.learned(project)

    async def learn(self, project: str) -> bool:
        """Fetch the key of a project's bells, which rings to other processes need.

        Returns False for a login without access to the key.
        """
        async with self._learning.setdefault(project, asyncio.Lock()):
            if not self.tokens.has(project):
                try:
                    self.tokens.add(project, await self._store.call("bell_key", project))
                except HeliographError as error:
                    log.info(
                        "the bells of project %s cannot be used, work is found by polling: %s", project, error.message
                    )
                    return False
                self.subscriptions.learned(project)
        return True

    async def _keep_learning(self, project: str) -> None:
        try:
            while not await self.learn(project):  # noqa: ASYNC110  nothing announces that a login has got access
                await asyncio.sleep(_LEARN_SECONDS)
        finally:
            self._keeps_learning.discard(project)

    async def _keep_announcing(self, project: str) -> None:
        """Announce the followers of this process as long as there are any, on the wires only: its own commits reach them anyway."""
        arrivals, is_known = self.subscriptions.subscribe([BellKey(project, ARRIVALS)]), False
        try:
            while self._followers.own(project):
                arrivals.clear()
                self._send([BellKey(project, ANNOUNCEMENT)], ())
                if not is_known:
                    await asyncio.sleep(SETTLED_SECONDS)
                    self.subscriptions.ring(self._followers.own(project))
                is_known = not await arrivals.wait(ANNOUNCE_SECONDS)
        finally:
            arrivals.close()
            self._announcing.discard(project)

    async def _learn_and_send(self, projects: Iterable[str], keys: Sequence[BellKey], agents: Sequence[str]) -> None:
        if all([await self.learn(project) for project in projects]):
            self._send(keys, agents)

    def _send(self, keys: Sequence[BellKey], agents: Iterable[str]) -> None:
        for wire in self.wires:
            if wire.is_up:  # the first is enough, because every process listens on all of them
                known = [self._on_wire(key, wire) for key in keys if self.tokens.has_token(key)]
                if known:
                    wire.ring(known, agents)
                return

    def _on_wire(self, key: BellKey, wire: Doorbell) -> str:
        return key.name if wire.carries_names and key.name.startswith("work:") else self.tokens.of(key)

    @property
    def is_observed(self) -> bool:
        """Whether a wire may have observers of events."""
        for wire in self.wires:  # noqa: SIM110  a loop, because each turn asks several times
            if wire.has_observers:
                return True
        return False

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        for wire in self.wires:
            if wire.is_up:
                wire.publish_event(subject, body)

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        if not await self.learn(project):
            raise StoreUnavailable(f"{len(events)} events are not published yet: the bell key of the project is not known; "
                                   "the relay retries")  # fmt: skip
        try:
            for wire in self.wires:  # on all wires, or the event stays in the outbox
                accepted = [e for e in events if wire.carries_commands or not e.subject.startswith("cmd.")]
                if accepted and not wire.carries_names:
                    accepted = [self.tokens.opaque(project, event) for event in accepted]
                if accepted:
                    await wire.publish(accepted)
        except OSError as error:
            raise StoreUnavailable(f"{len(events)} events are not published yet: {error}") from error
