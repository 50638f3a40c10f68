"""A run without a database: the reactive core on top of the few rules that the kernel adds to it (K8, K24 to K27)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from heliograph.definitions.agent import AgentSpec, define_agent
from heliograph.ids import signal_id
from heliograph.reactive.ending import Ending
from heliograph.reactive.react import react_to_ending, react_to_pending, react_to_start
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.state import StateShape
from heliograph.reactive.workflow import Workflow, build_workflow
from heliograph.records import Outcome, PendingRun, PendingSignal, RunView
from heliograph.signals.model import Draft, Signal, Source

NOW = datetime(2030, 1, 1, tzinfo=UTC)
START = ["workflow:start"]


def nothing(_context: Any) -> None:
    """Do nothing: the test decides how each turn ends."""


def agent(name: str, activate_on: Any = (), **options: Any) -> AgentSpec:
    return define_agent(name, run=nothing, activate_on=activate_on, **options)


def workflow(*agents: AgentSpec, state: Any = None, **options: Any) -> Workflow:
    return build_workflow(Workflow("newsroom", {a.name: a for a in agents}, StateShape(state), **options))


@dataclass(frozen=True)
class Turn:
    turn_id: str
    agent: str
    cause: str
    activation: str


class Run:
    """A run in memory. signals: its log. open: its open turns by id, oldest first."""

    def __init__(self, definition: Workflow, state: Any = None, run_id: str = "run_a"):
        self.workflow = definition
        self.run_id = run_id
        self.signals: list[Signal] = []
        self.open: dict[str, Turn] = {}
        self.ended: list[Turn] = []
        self.pending: list[PendingSignal] = []
        self.view = RunView(run_id, "running", 0, {}, {}, 0, 0, 0)
        self._numbers = itertools.count(1)
        document = definition.shape.dump({} if state is None else state)
        self.commit(react_to_start(definition, run_id, document, NOW, self.new_id))

    def new_id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"

    # ── Events of turns ────────

    def end(
        self, turn: Turn | str, output: Any = None, *, outcome: Outcome = "success", view: RunView | None = None,
        emitted: tuple[tuple[str, Any], ...] = (), drafts: tuple[Draft, ...] = (), code: str = "ACTION_FAILED",
        is_untrusted: bool = False,
    ) -> Reaction | None:  # fmt: skip
        """End a turn, or the one open turn of an agent. Return None if `view` was too old and nothing happened (K24)."""
        ending = self.ending(
            turn, output, outcome=outcome, emitted=emitted, drafts=drafts, code=code, is_untrusted=is_untrusted
        )
        reaction = react_to_ending(self.workflow, view or self.view, ending, NOW, self.new_id)
        return reaction if self.commit(reaction, closing=self.open[ending.turn_id]) else None

    def ending(
        self, turn: Turn | str, output: Any = None, *, outcome: Outcome = "success", code: str = "ACTION_FAILED", **fields: Any
    ) -> Ending:  # fmt: skip
        turn = self.turn_of(turn) if isinstance(turn, str) else turn
        is_good = outcome in ("success", "partial")
        error: Any = None if is_good else {"code": code, "message": "no", "recoverable": False}
        return Ending(turn.agent, turn.turn_id, turn.activation, outcome, "card_a", output, error, **fields)

    def turn_of(self, name: str) -> Turn:
        (found,) = [turn for turn in self.open.values() if turn.agent == name]
        return found

    def end_by_kernel(self, turn: Turn, outcome: Outcome = "timeout") -> None:
        """End a turn like `_end_by_kernel` in 50_endings.sql: emit agent:failed, with a pending reaction."""
        error = {"code": outcome.upper(), "message": "too long", "recoverable": False}
        payload = {"agent": turn.agent, "outcome": outcome, "error": error, "deliverable_card_id": "card_a"}
        del self.open[turn.turn_id]
        self._add_pending(turn, "agent:failed", payload)

    def stream(self, turn: Turn, name: str, payload: Any) -> None:
        """Emit a signal during a turn, like append: it is pending if an agent subscribes to it."""
        if self.workflow.wakes.match(name):
            self._add_pending(turn, name, payload)
        else:
            self._log([Draft(name, payload, turn.agent, turn.activation)], turn.turn_id)

    def stop(self, reason: str) -> None:
        """Stop the run like `_stop_run` in 52_stop.sql: it wakes no more agents, and records the reason."""
        self._log([Draft("workflow:terminating", {"reason": reason}, None, signal_id(self.run_id, 1))], None)
        memory = self.view.memory
        if "stopped_by" not in memory:
            memory = memory | {"stopped_by": reason, "is_canceled": True}
        self.view = RunView(
            self.run_id, "terminating", self.view.version + 1, self.view.state, memory, len(self.open), len(self.pending),
            self.view.activations,
        )  # fmt: skip

    def pay(self) -> Reaction:
        """Commit the reaction to all pending signals, like the watchdog."""
        pending = PendingRun(self.workflow.name, self.view, self.pending)
        reaction = react_to_pending(self.workflow, pending, NOW, self.new_id)
        self.pending = []
        assert self.commit(reaction)
        return reaction

    # ── Commits ───────

    def commit(self, reaction: Reaction, closing: Turn | None = None) -> bool:
        """Commit a reaction; return False if its version is old. An ended run accepts no reaction (K26)."""
        if reaction.version != self.view.version:
            return False
        assert self.view.status != "ended"
        item = json.loads(json.dumps(reaction.to_item()))  # as the kernel takes it: JSON, and nothing else
        memory = item.get("memory", self.view.memory)
        if memory.get("join_base", 0) is None:
            memory["join_base"] = len(self.signals)
        placed = self._log(reaction.drafts, closing.turn_id if closing else None)
        if closing is not None:
            self.ended.append(self.open.pop(closing.turn_id))
        for each in item["activations"]:
            cause = each["cause"]["seq"] if isinstance(each["cause"], dict) else placed[each["cause"]].seq
            turn = Turn(each["turn_id"], each["agent"], signal_id(self.run_id, cause), placed[each["activation"]].id)
            self.open[turn.turn_id] = turn
        self.view = RunView(
            self.run_id, item.get("status", self.view.status), self.view.version + 1,
            item.get("state", self.view.state), memory, len(self.open), len(self.pending),
            self.view.activations + len(item["activations"]),
        )  # fmt: skip
        if self.view.status == "ended":
            assert not self.open
            assert not self.pending
        return True

    def _add_pending(self, turn: Turn, name: str, payload: Any) -> None:
        (signal,) = self._log([Draft(name, payload, turn.agent, turn.activation)], turn.turn_id)
        self.pending.append(PendingSignal(signal.seq, name, payload, turn.agent, turn.turn_id))
        self.view = RunView(
            self.run_id, self.view.status, self.view.version + 1, self.view.state, self.view.memory, len(self.open),
            len(self.pending), self.view.activations,
        )  # fmt: skip

    def _log(self, drafts: list[Draft], turn_id: str | None) -> list[Signal]:
        base = len(self.signals)
        for n, draft in enumerate(drafts):
            parent = draft.parent
            if isinstance(parent, int):
                assert 0 <= parent < n, f"{draft.name} has a parent that does not come before it"
                parent = self.signals[base + parent].id
            source = Source(draft.agent, parent) if draft.agent or parent else None
            seq = base + n + 1
            identifier = signal_id(self.run_id, seq)
            self.signals.append(Signal(identifier, draft.name, draft.payload, NOW, source, self.run_id, seq, turn_id))
        return self.signals[base:]

    # ── Looking ──

    def names(self) -> list[str]:
        return [signal.name for signal in self.signals]

    def named(self, name: str) -> list[Signal]:
        return [signal for signal in self.signals if signal.name == name]

    def awake(self) -> list[str]:
        """Return the names of the agents with open turns."""
        return sorted(turn.agent for turn in self.open.values())

    def payload(self, name: str) -> Any:
        """Return the payload of the first signal of this name."""
        return self.named(name)[0].payload

    @property
    def end_payload(self) -> Any:
        return self.payload("workflow:end")

    @property
    def status(self) -> str:
        return self.view.status


def until_ended(run: Run, choose: Callable[[list[Turn]], Turn], finish: Callable[[Run, Turn], None]) -> Run:
    """End turns until none is open. Each time, choose one of the agents' first turns (an agent runs one at a time)."""
    while run.open:
        first: dict[str, Turn] = {}
        for turn in run.open.values():
            first.setdefault(turn.agent, turn)
        finish(run, choose(list(first.values())))
    while run.pending:
        run.pay()
    return run
