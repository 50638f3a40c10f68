"""The records of the oracles. They are made only from calls and their results, never from stored rows. Times are in virtual microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.testing.kernel.tables import interval

ANSWERED = ("tool", "human")  # from outside
GRACE_SECONDS = 10.0
CLOSING = "closing"  # the status of a closed session: it takes no messages, and its agents continue


@dataclass(frozen=True, slots=True)
class Violation:
    """`kind` is what shrinking preserves; `detail` is for people."""

    kind: str
    detail: str


@dataclass(slots=True)
class WaitBook:
    """One call of a turn. is_delivered: the owner of the turn has received its result."""

    call_id: str
    kind: str
    effect: str
    epoch: int
    token: str | None = None
    deadline: int | None = None
    child: str | None = None
    step: str | None = None  # the step that fails fast with its other calls; None: it fails alone
    state: str = "open"
    status: str | None = None
    position: int = 0  # in the order of the results
    is_delivered: bool = False
    resolved_at: int = 0
    is_waiting: bool = False  # its owner waits for a token
    tool: str = ""
    opened_at: int = 0

    @property
    def is_awaited(self) -> bool:
        return self.state == "open" and self.kind != "inline"


@dataclass(slots=True)
class TurnBook:
    """One turn. ready_at: its first dispatch (K22). join: set while it is suspended."""

    turn_id: str
    agent_id: str
    run_id: str
    priority: int
    max_attempts: int
    expires_at: int
    pool: str = DEFAULT_POOL  # chosen when it was enqueued
    fields: tuple[str, ...] = ()  # required in its deliverable (L0-84)
    depth: int = 0
    parent: tuple[str, str] | None = None  # the turn and the call that wait for it
    ready_at: int | None = None
    recoveries: int = 0
    defer_count: int = 0
    ended_by: str | None = None  # the id of its deliverable
    ended_at: int = 0
    outcome: str | None = None
    join: str | None = None
    waits: dict[str, WaitBook] = field(default_factory=dict)
    early: list[tuple[str, str | None, str]] = field(default_factory=list)  # call, token, status of reports kept for it
    stop_requested_at: int | None = None  # by the first graceful stop that gave it time
    force_at: int | None = None  # a graceful stop, forced from then on
    terminates: bool = False  # an owner has set it when it recorded a phase or released the turn
    order: tuple[str, float | None, int] | None = None  # a stop on its way: mode, grace, since when
    was_ordered: bool = False  # a stop is or was on its way
    cards: set[str] = field(default_factory=set)  # that it has written
    is_delivered: bool = True  # its end has reached its parent
    calls_most: int | None = None  # of tools that it may call, with all that it delegates
    calls: int = 0  # and has called
    suspended_at: int = 0
    human_wait_since: int | None = None  # since when it has waited for people only
    human_wait: int = 0  # how long it has waited for people before, which its time to live was extended by

    @property
    def name(self) -> str:
        """The name of its agent."""
        return self.agent_id.split("/")[1]

    @property
    def grace_seconds(self) -> float | None:
        """The time that its graceful stop gave it, if one is pending."""
        if self.force_at is None or self.stop_requested_at is None:
            return None
        return max(self.force_at - self.stop_requested_at, 0) / 1_000_000

    def awaited(self) -> list[WaitBook]:
        return [wait for wait in self.waits.values() if wait.is_awaited]

    def is_due(self) -> bool:
        """Whether a suspended turn resumes after a result (K15)."""
        return self.join == "each" or not self.awaited()


@dataclass(slots=True)
class Token:
    turn_id: str
    epoch: int
    lease_until: int


@dataclass(slots=True)
class Books:
    turns: dict[str, TurnBook] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)  # by agent, in the order of their enqueueing
    tokens: dict[str, Token] = field(default_factory=dict)  # by agent, while it is owned
    given: dict[str, int] = field(default_factory=dict)  # by agent, the newest epoch given
    runs: dict[str, str] = field(default_factory=dict)  # run id to status
    sessions: set[str] = field(default_factory=set)  # the runs that are sessions
    targets: dict[str, str] = field(default_factory=dict)  # run id to target
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged enqueues by turn id
    limits: dict[str, int | None] = field(default_factory=dict)  # in force
    small: set[str] = field(default_factory=set)  # limits that an administrator has set
    unlogged: set[tuple[str, str]] = field(default_factory=set)  # calls whose results nobody logs
    origins: dict[str, tuple[str, int]] = field(
        default_factory=dict
    )  # by turn of a fork: its origin, and the time of the fork's signal
    effect_times: dict[str, int] = field(default_factory=dict)  # by effect: the time of the last kernel call before it
    now: int = 0  # the time of the last kernel call
    published: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(
        default_factory=Counter
    )  # effects outside the ledger, by the turn or call that may have each only once

    def first_origin(self, turn_id: str) -> str:
        """The turn that no fork has started again, of which this one is a repetition; else the turn itself."""
        while turn_id in self.origins:
            turn_id = self.origins[turn_id][0]
        return turn_id

    def open_turns(self) -> Iterator[TurnBook]:
        return (turn for turn in self.turns.values() if turn.ended_by is None)

    def owner_of(self, turn: TurnBook) -> Token | None:
        token = self.tokens.get(turn.agent_id)
        return token if token is not None and token.turn_id == turn.turn_id else None

    def add_turn(
        self, run_id: str, item: Any, now: int, *, parent: tuple[str, str] | None = None, depth: int = 0
    ) -> None:
        parts = (run_id, item["agent"], item.get("instance"))
        agent_id = "/".join(part for part in parts if part is not None)
        turn_id = item["turn_id"]
        fields = tuple(field["name"] for field in item.get("result_fields") or () if field.get("required", True))
        self.turns[turn_id] = TurnBook(turn_id, agent_id, run_id, item["priority"], item["max_attempts"],
                                       now + interval(item["ttl_seconds"]), item.get("pool") or DEFAULT_POOL, fields, depth, parent,
                                       calls_most=(item.get("budget") or {}).get("tool_calls"))  # fmt: skip
        self.queues.setdefault(agent_id, []).append(turn_id)

    def upwards(self, turn: TurnBook) -> Iterator[TurnBook]:
        """The turn, the one that waits for it, and so on."""
        yield turn
        while turn.parent is not None:
            turn = self.turns[turn.parent[0]]
            yield turn

    def end_turn(
        self, turn: TurnBook, outcome: str, now: int, child_stop: tuple[str, float | None] | None = None
    ) -> None:
        """Record the end: close the calls, stop the children, and report to the parent.

        child_stop: mode and grace of a stop that ended the turn at once; any other end stops the children gracefully.
        """
        mode, grace = child_stop or ("graceful", turn.grace_seconds)
        turn.ended_by, turn.outcome, turn.ended_at = f"card:{turn.turn_id}:end", outcome, now
        turn.join = turn.force_at = turn.order = None
        turn.is_delivered = turn.parent is None
        if self.owner_of(turn) is not None:
            del self.tokens[turn.agent_id]
        for wait in turn.waits.values():
            if wait.state == "open":
                wait.state = "closed"
                if wait.child is not None and (
                    mode == "force" or not (wait.child in self.turns and self.turns[wait.child].was_ordered)
                ):
                    self.order_stop(wait.child, mode, grace, now)

    def order_stop(self, turn_id: str, mode: str, grace: float | None, now: int) -> None:
        """Record a stop for an open turn, unless a forced one is on its way."""
        turn = self.turns.get(turn_id)
        if turn is not None and turn.ended_by is None and (turn.order is None or turn.order[0] != "force"):
            turn.order, turn.was_ordered = (mode, grace, now), True

    def gets_grace(self, turn: TurnBook) -> bool:
        """Whether a graceful stop gives the turn time: it runs, or it terminates."""
        return turn.terminates or self.owner_of(turn) is not None

    def request_stop(self, turn: TurnBook, grace: float | None, now: int) -> int:
        """Record a graceful stop of a turn that gets grace, and return when it is forced: the earlier time wins."""
        force_at = now + interval(GRACE_SECONDS if grace is None else grace)
        turn.stop_requested_at = now if turn.stop_requested_at is None else turn.stop_requested_at
        turn.force_at = force_at if turn.force_at is None else min(turn.force_at, force_at)
        return turn.force_at
