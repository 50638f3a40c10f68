"""The judge beside the kernel: what may this call change, may this caller write at all, who is next?

It keeps books of its own, made of nothing but the arguments and answers of the
calls, and compares the heads with them after every call. What it checks needs no
luck: a broken rule shows at the call that breaks it, not when damage is done
(kernel.md section 8). `oracles_end` looks at what is left when all is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import KernelRefused, StoreUnavailable
from heliograph.testing.backend import Backend
from heliograph.testing.twin_tables import interval

# The state machine of a head, complete for turns without tools (kernel.md section 3): who may move it how.
MOVES: dict[str, frozenset[tuple[str, str]]] = {
    "start_runs": frozenset({("idle", "dispatched")}),
    "enqueue": frozenset({("idle", "dispatched")}),
    "react": frozenset({("idle", "dispatched")}),
    "claim": frozenset({("dispatched", "running")}),
    "finish": frozenset({("running", "idle"), ("idle", "dispatched")}),
    "sweep_leases": frozenset({("running", "dispatched"), ("running", "idle"), ("idle", "dispatched")}),
    "sweep_expired": frozenset({("running", "idle"), ("dispatched", "idle"), ("idle", "dispatched")}),
    "sweep_queued": frozenset({("idle", "dispatched")}),
}
OVERDUE_SECONDS = 80.0  # longer than any crash, freeze or cut lasts, with the sweep that follows it


@dataclass(frozen=True, slots=True)
class Violation:
    """`kind` is what shrinking preserves; `detail` is for people."""

    kind: str
    detail: str


@dataclass(slots=True)
class TurnBook:
    """What the calls said about one turn. Times in microseconds of virtual time."""

    turn_id: str
    agent_id: str
    run_id: str
    priority: int
    max_attempts: int
    expires_at: int
    ready_at: int | None = None  # when it was dispatched first (K22)
    recoveries: int = 0
    ended_by: str | None = None  # the id of its deliverable


@dataclass(slots=True)
class Token:
    turn_id: str
    epoch: int
    lease_until: int


@dataclass(frozen=True, slots=True)
class Head:
    status: str
    turn_id: str | None
    epoch: int


_NEW = Head("idle", None, 0)


@dataclass(slots=True)
class Books:
    turns: dict[str, TurnBook] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)  # by agent, in the order of their enqueueing
    tokens: dict[str, Token] = field(default_factory=dict)  # by agent, while it is owned
    given: dict[str, int] = field(default_factory=dict)  # by agent, the newest epoch given
    runs: dict[str, str] = field(default_factory=dict)  # run id to status
    targets: dict[str, str] = field(default_factory=dict)  # run id to target
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged enqueues by turn id
    published: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)  # external effects of `once` agents, by turn id


class Oracles:
    """Told everything by the stage; `violations` is what it found, `counters` what it saw."""

    def __init__(self, backend: Backend, project: str):
        self.backend = backend
        self.project = project
        self.books = Books()
        self.violations: list[Violation] = []
        self.counters: Counter[str] = Counter()
        self._heads: dict[str, Head] = {}

    def blame(self, kind: str, detail: str) -> None:
        self.violations.append(Violation(kind, detail))

    def effect(self, turn_id: str) -> None:
        """An agent that must not run twice has changed the outside world."""
        self.books.effects[turn_id] += 1
        if self.books.effects[turn_id] > 1:
            self.blame("effect_twice", f"{turn_id} sent {self.books.effects[turn_id]} times")

    def published(self, subject: str, key: str, body: dict[str, Any]) -> None:
        self.books.published[key] += 1
        turn = self.books.turns.get(body["agent_turn_id"])
        if turn is None or turn.ended_by is None:
            self.blame("event_before_end", key)
        elif (subject, key, body["deliverable_card_id"]) != (
            f"evt.agent.{turn.agent_id}.task", f"evt:{turn.turn_id}", turn.ended_by
        ):  # fmt: skip
            self.blame("event", f"{subject} {key} {body} for {turn.turn_id}, which ended by {turn.ended_by}")

    def task_died(self, name: str, error: BaseException) -> None:
        if isinstance(error, StoreUnavailable):
            self.counters["task gave up: StoreUnavailable"] += 1
        else:
            self.blame("task_died", f"{name}: {type(error).__name__}: {error}")

    def refused(self, who: str, function: str, error: KernelRefused) -> None:
        """The constraints are the last line of defence (K21): nothing that the runtime does may reach it."""
        self.blame("kernel_refused", f"{who} {function}: {error.message}")

    def called(self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int) -> None:
        before = self._heads
        for row in answer if isinstance(answer, list) else ():
            if isinstance(row, dict) and "outcome" in row:
                self.counters[f"{function} {row['outcome']}"] += 1
        if function in ("append", "finish") and len(answer) > 1:
            self.counters[f"{function} together"] += 1
        if function == "claim":
            self._check_order(args, answer)
        read = getattr(self, f"_{function}", None)
        if read is not None:
            read(args, answer, now)
        if function in MOVES and (function != "claim" or answer):
            self._heads = {
                row["agent_id"]: Head(row["status"], row["active_agent_turn_id"], row["turn_epoch"])
                for row in self.backend.heads(self.project)
            }
            for agent_id, after in self._heads.items():
                earlier = before.get(agent_id, _NEW)
                if earlier != after:
                    self._check_move(function, agent_id, earlier, after, now)

    def check_overdue(self, now: int) -> None:
        """Every way to be stuck has a sweep that finds it, in time."""
        late = now - interval(OVERDUE_SECONDS)
        for turn in self.books.turns.values():
            if turn.ended_by is None and turn.expires_at < late:
                self.blame("overdue_turn", f"{turn.turn_id} expired at {turn.expires_at} and is open at {now}")
        for agent_id, token in self.books.tokens.items():
            if token.lease_until < late:
                self.blame("overdue_lease", f"{agent_id} was leased until {token.lease_until}, and it is {now}")

    # ---- the heads ----

    def _check_move(self, function: str, agent_id: str, before: Head, after: Head, now: int) -> None:
        edges = list(_edges(before, after))
        for edge in edges:
            self.counters[f"{edge[0]} -> {edge[1]}"] += 1
            if edge not in MOVES[function]:
                self.blame("illegal_move", f"{function} moved {agent_id} from {edge[0]} to {edge[1]}")
        raised = after.epoch - before.epoch - len(edges)
        if raised < 0 or raised % 2:  # a sweep may end a turn that it has just dispatched: two more
            self.blame("epoch", f"{function} moved {agent_id} by {edges} from epoch {before.epoch} to {after.epoch}")
        if after.turn_id is not None and after.turn_id != before.turn_id:
            self._check_dispatch(agent_id, after.turn_id, now)

    def _check_dispatch(self, agent_id: str, turn_id: str, now: int) -> None:
        """First come, first served, for each agent."""
        waiting = [t for t in self.books.queues.get(agent_id, []) if self.books.turns[t].ended_by is None]
        if not waiting or waiting[0] != turn_id:
            self.blame("not_first_in_first_out", f"{agent_id} got {turn_id}, and {waiting[:1]} came first")
        if turn_id in self.books.turns:
            self.books.turns[turn_id].ready_at = now

    def _may_claim(self, targets: list[dict[str, Any]], run_id: str, agent_id: str) -> bool:
        name = agent_id.removeprefix(f"{run_id}/")
        return any(
            t["target"] == self.books.targets[run_id] and name in t["agents"] and t["run_id"] in (None, run_id)
            for t in targets
        )

    def _check_order(self, args: tuple[Any, ...], answer: Any) -> None:
        """Priority, then first ready time, then agent id (K22)."""
        _, targets, _, limit, _ = args
        turns = self.books.turns
        ready = []
        for agent_id, head in self._heads.items():
            turn = turns.get(head.turn_id or "")
            if head.status == "dispatched" and turn is not None and self._may_claim(targets, turn.run_id, agent_id):
                ready.append((-turn.priority, turn.ready_at or 0, agent_id))
        expected = [agent_id for _, _, agent_id in sorted(ready)[:limit]]
        if expected != [row["agent_id"] for row in answer]:
            self.blame("claim_order", f"expected {expected}, got {[row['agent_id'] for row in answer]}")

    # ---- the books, one entry for each function ----

    def _start_runs(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        items = {item["run_id"]: item for item in args[1]}
        for row in answer:
            if row["outcome"] == "started":
                item = items[row["run_id"]]
                self.books.targets[row["run_id"]] = item["target"]
                self._reacted(row["run_id"], item["reaction"], now)

    def _enqueue(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            is_known = item["turn_id"] in self.books.turns
            if row["outcome"] == "queued":
                if is_known:
                    self.blame("turn_twice", f"{item['turn_id']} was enqueued again")
                self.books.messages[item["turn_id"]] = item
                self._reacted(item["run_id"], {"activations": [item]}, now)
            elif is_known != (row["outcome"] in ("duplicate", "conflict")):
                self.blame("enqueue_answer", f"{item['turn_id']} known: {is_known}, answer: {row['outcome']}")

    def _react(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if row["outcome"] == "ok":
                self._reacted(item["run_id"], item["reaction"], now)

    def _reacted(self, run_id: str, reaction: Any, now: int) -> None:
        status = reaction.get("status", self.books.runs.get(run_id, "running"))
        if self.books.runs.get(run_id) == "ended":
            self.blame("run_ended_twice", f"{run_id} reacted after its end")
        self.books.runs[run_id] = status
        for item in reaction["activations"]:
            agent_id, turn_id = f"{run_id}/{item['agent']}", item["turn_id"]
            self.books.turns[turn_id] = TurnBook(
                turn_id, agent_id, run_id, item["priority"], item["max_attempts"], now + interval(item["ttl_seconds"])
            )
            self.books.queues.setdefault(agent_id, []).append(turn_id)

    def _claim(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        self.counters["claim some" if answer else "claim none"] += 1
        for row in answer:
            agent_id, epoch = row["agent_id"], row["epoch"]
            if epoch <= self.books.given.get(agent_id, 0) or agent_id in self.books.tokens:
                self.blame("token", f"{agent_id} epoch {epoch} after {self.books.given.get(agent_id)}, still owned: "
                           f"{agent_id in self.books.tokens}")  # fmt: skip
            self.books.given[agent_id] = epoch
            self.books.tokens[agent_id] = Token(row["turn_id"], epoch, now + interval(args[4]))

    def _owned(self, function: str, item: Any, outcome: str) -> bool:
        """Does the answer fit what the caller owns?"""
        token = self.books.tokens.get(item["agent_id"])
        is_owner = token is not None and (token.turn_id, token.epoch) == (item["turn_id"], item["epoch"])
        if is_owner != (outcome in ("ok", "conflict")):
            self.blame("stale_write" if not is_owner else "owner_refused",
                       f"{function} {item['turn_id']} at epoch {item['epoch']} was answered {outcome}")  # fmt: skip
        return outcome == "ok"

    def _renew(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if self._owned("renew", item, row["outcome"]) and item["agent_id"] in self.books.tokens:
                self.books.tokens[item["agent_id"]].lease_until = now + interval(args[2])

    def _append(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            self._owned("append", item, row["outcome"])

    def _finish(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            turn = self.books.turns[item["turn_id"]]
            if row["outcome"] == "duplicate" and turn.ended_by != item["card_id"]:
                self.blame("duplicate_of_nothing", f"{turn.turn_id} ended by {turn.ended_by}, not {item['card_id']}")
            if self._owned("finish", item, row["outcome"]):
                self._ended(turn, item["card_id"])
                self.counters[f"turn {item['outcome']}"] += 1
                self._reacted(turn.run_id, item["reaction"], now)

    def _ended(self, turn: TurnBook, by: str) -> None:
        if turn.ended_by is not None:
            self.blame("ended_twice", f"{turn.turn_id} by {turn.ended_by} and by {by}")
        turn.ended_by = by
        token = self.books.tokens.get(turn.agent_id)
        if token is not None and token.turn_id == turn.turn_id:
            del self.books.tokens[turn.agent_id]

    def _sweep_leases(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for key in ("recovered", "ended"):
            for turn_id in answer[key]:
                self.counters[f"sweep_leases {key}"] += 1
                turn = self.books.turns[turn_id]
                token = self.books.tokens.pop(turn.agent_id, None)
                if token is None or token.lease_until > now:
                    self.blame("reaped_alive", f"{turn_id}: lease {token}, and it is {now}")
                turn.recoveries += 1
                if turn.recoveries > turn.max_attempts or (key == "recovered") == (
                    turn.recoveries == turn.max_attempts
                ):
                    self.blame("attempts", f"{turn_id} was {key} at {turn.recoveries} of {turn.max_attempts}")
                if key == "ended":
                    self._ended(turn, _kernels_card(turn))

    def _sweep_expired(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for turn_id in answer["ended"]:
            self.counters["sweep_expired ended"] += 1
            turn = self.books.turns[turn_id]
            if turn.expires_at > now:
                self.blame("expired_early", f"{turn_id} at {now}, not {turn.expires_at}")
            self._ended(turn, _kernels_card(turn))

    def _sweep_bells(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        self.counters["sweep_bells some" if answer else "sweep_bells none"] += 1

    def _sweep_owed(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        self.counters["sweep_owed some" if answer else "sweep_owed none"] += 1

    def _read_outbox(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        self.counters["read_outbox some" if answer else "read_outbox none"] += 1


def _kernels_card(turn: TurnBook) -> str:
    """The deliverable of a turn that a sweep ended."""
    return f"card_{turn.turn_id}_end"


def _edges(before: Head, after: Head) -> Iterator[tuple[str, str]]:
    """The moves from one head to the next: a new turn means that it was idle in between."""
    if before.turn_id is not None and after.turn_id is not None and before.turn_id != after.turn_id:
        yield before.status, "idle"
        yield "idle", after.status
    else:
        yield before.status, after.status
