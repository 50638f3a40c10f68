"""Explore every reachable state of a model, and report broken properties.

Breadth first, so the trace of a broken property is a shortest one. A model is a set of transitions, each of a *kind*:

    system    an ordinary action of a client, worker or tool; happens sooner or later (fair)
    watchdog  a sweep of the kernel; happens sooner or later (fair)
    ttl       the watchdog's last resort, the expiry of a turn; fair, but progress may not depend on it
    people    a person answers; fair, also after everything else has died
    fault     crash, loss, duplicate, premature reap, lost reply; may happen, never needed for progress

Safety is judged on every transition and every state. Liveness is judged on the finished graph, by reachability
backwards from the good states:

    L1  from every state, quiet is reachable by system, people and watchdog steps alone: once the faults cease, all work
        ends
    L2  from every state in which all workers are idle, settled is reachable by people, watchdog and ttl steps alone:
        every turn ends although all workers and tools are dead forever

"Reachable from every state" (AG EF) equals "reached" (AF) when choices are strongly fair; nothing weaker is claimed.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

SYSTEM, WATCHDOG, TTL, FAULT, PEOPLE = "n", "w", "t", "f", "p"

S = TypeVar("S", bound=Hashable)
Transition = tuple[str, str, S, tuple[str, ...]]  # label, kind, next state, properties broken by this very step


class Model(Protocol[S]):
    def initial(self) -> S: ...
    def key(self, state: S) -> Hashable: ...  # states with equal keys behave alike, and are explored once
    def successors(self, state: S) -> Iterable[Transition[S]]: ...
    def broken(self, state: S) -> Iterable[str]: ...  # properties that this state violates
    def is_quiet(self, state: S) -> bool: ...  # the goal of L1
    def is_abandoned(self, state: S) -> bool: ...  # where L2 starts
    def is_settled(self, state: S) -> bool: ...  # the goal of L2


@dataclass(frozen=True, slots=True)
class Stuck:
    """States from which the goal cannot be reached any more: how many, and the shortest way into one."""

    states: int
    trace: list[str]


@dataclass(slots=True)
class Result:
    """`broken`: property -> shortest trace. `stuck`: "L1"/"L2" -> Stuck, absent when the property holds."""

    states: int = 0
    transitions: int = 0
    seconds: float = 0.0  # of one core
    is_complete: bool = True
    broken: dict[str, list[str]] = field(default_factory=dict)
    stuck: dict[str, Stuck] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.is_complete and not self.broken and not self.stuck


class Explorer(Generic[S]):
    """One exploration of one model. `explore()` is the usual way in."""

    def __init__(self, model: Model[S]) -> None:
        self.model = model
        self.states: list[S] = [model.initial()]
        self.parents = array("q", [-1])
        self.sources, self.targets, self.kinds = array("q"), array("q"), bytearray()  # edges that are not faults
        self.result = Result()

    def walk(self, states_max: int, stop_at: str | None) -> None:
        """Visit all states, or stop at the first that breaks `stop_at`, or past `states_max`."""
        states, result, model = self.states, self.result, self.model
        index = {model.key(states[0]): 0}
        at = 0
        while at < len(states):
            for label, kind, target, broken in model.successors(states[at]):
                result.transitions += 1
                key = model.key(target)
                to = index.get(key)
                if to is None:
                    if len(states) >= states_max:
                        result.is_complete = False
                        return
                    to = index[key] = len(states)
                    states.append(target)
                    self.parents.append(at)
                    self._note(model.broken(target), at, label)
                if broken:
                    self._note(broken, at, label)
                if kind != FAULT:
                    self.sources.append(at)
                    self.targets.append(to)
                    self.kinds.append(ord(kind))
            if stop_at in result.broken:
                result.is_complete = False
                return
            at += 1

    def judge_liveness(self) -> None:
        """Fill `result.stuck`; only meaningful after a complete walk."""
        model = self.model
        self._judge("L1", SYSTEM + PEOPLE + WATCHDOG, model.is_quiet, lambda _: True)
        self._judge("L2", PEOPLE + WATCHDOG + TTL, model.is_settled, model.is_abandoned)

    def _judge(self, name: str, kinds: str, is_goal: Callable[[S], bool], concerns: Callable[[S], bool]) -> None:
        can_end = self._backwards(bytearray(map(is_goal, self.states)), kinds)
        stuck = [at for at, good in enumerate(can_end) if not good and concerns(self.states[at])]
        if stuck:
            self.result.stuck[name] = Stuck(len(stuck), self._trace(stuck[0]))

    def _backwards(self, good: bytearray, kinds: str) -> bytearray:
        """Mark every state from which a good one can be reached by edges of these kinds."""
        wanted = frozenset(map(ord, kinds))
        edges = [edge for edge, kind in enumerate(self.kinds) if kind in wanted]
        first = array("q", bytes(8 * (len(good) + 1)))  # predecessors of n: before[first[n - 1] : first[n]], afterwards
        for edge in edges:
            first[self.targets[edge]] += 1
        total = 0
        for node, count in enumerate(first):
            first[node], total = total, total + count
        before = array("q", bytes(8 * total))
        for edge in edges:
            target = self.targets[edge]
            before[first[target]] = self.sources[edge]
            first[target] += 1
        todo = [node for node, is_good in enumerate(good) if is_good]
        while todo:
            node = todo.pop()
            for source in before[first[node - 1] if node else 0 : first[node]]:
                if not good[source]:
                    good[source] = 1
                    todo.append(source)
        return good

    def _note(self, names: Iterable[str], at: int, label: str) -> None:
        for name in names:
            if name not in self.result.broken:
                self.result.broken[name] = [*self._trace(at), label]

    def _trace(self, at: int) -> list[str]:
        """The labels from the initial state to state `at`; found again by a second look, so that none is stored."""
        labels: list[str] = []
        while at:
            parent = self.parents[at]
            labels.append(
                next(label for label, _, to, _ in self.model.successors(self.states[parent]) if to == self.states[at])
            )
            at = parent
        return labels[::-1]


@contextmanager
def no_collection() -> Iterator[None]:
    """States hold no cycles, and looking for some among a million of them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def explore(model: Model[S], states_max: int = 8_000_000, stop_at: str | None = None) -> Result:
    """Explore `model`; stop early once the property `stop_at` is found broken.

    Liveness is judged only after a complete walk. `result.is_complete` is False when the walk was cut short.
    """
    started = time.process_time()
    explorer = Explorer(model)
    with no_collection():
        explorer.walk(states_max, stop_at)
        if explorer.result.is_complete:
            explorer.judge_liveness()
    explorer.result.states = len(explorer.states)
    explorer.result.seconds = time.process_time() - started
    return explorer.result
