"""The first reaction of a fork: it starts the turns again that were in progress, and reacts to what had no reaction. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from heliograph.codes import IN_DOUBT
from heliograph.ids import split_signal_id
from heliograph.reactive.joined_signals import placed
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.reaction_builder import ReactionBuilder
from heliograph.reactive.run_memory import ACTIVATIONS_BEFORE, OPEN, SESSION, new_memory
from heliograph.reactive.shared_log import SharedLog
from heliograph.reactive.state_taint import mark_untrusted
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.signals.model import Draft, LogEntry
from heliograph.types import JsonObject

Fate: TypeAlias = Literal["restarted", "continued", "in_doubt", "delegated"]


@dataclass(frozen=True, slots=True)
class TurnInProgress:
    """A turn that was in progress at the signal of a fork, and what becomes of it.

    fate: `restarted` from its activation, or `continued` from there with the results that it had; `in_doubt`: it ends as failed,
    because it must not run twice; `delegated`: the turn that delegated it continues, and finds its result or makes the call again.
    results, unknown: the numbers of its calls with a result, and of those whose result is unknown. waiting: its open questions,
    approvals and timers, which begin again. message_options: the limits that the sender of its message gave; None for a turn that a
    reaction activated: it has those of its agent.
    """

    turn_id: str
    activation: LogEntry
    fate: Fate
    context_box_id: str | None = None
    results: int = 0
    unknown: int = 0
    waiting: tuple[str, ...] = ()
    message_options: JsonObject | None = None

    @property
    def agent(self) -> str:
        return str(self.activation.agent)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A fork to be made.

    run_id: its id. origin: the run that is forked. signal: the last signal that it shares. turns: those in progress. state: replaces
    that of the log.
    """

    run_id: str
    origin: str
    signal: str
    turns: Sequence[TurnInProgress]
    state: JsonObject | None = None


def react_to_fork(
    workflow: Workflow, log: SharedLog, request: ForkRequest, now: datetime, new_id: Callable[[str], str]
) -> tuple[Reaction, dict[str, str]]:
    """The reaction, and the ids of the turns that start again by those of the turns in progress."""
    turns, state, place = request.turns, request.state, split_signal_id(request.signal)
    assert place is not None
    memory = {**new_memory(workflow, now), "joins": dict(log.joins), "join_signals": log.join_signals, "turns": log.turns, "failed": log.failed,
              "partial": log.partial, "skipped": log.skipped}  # fmt: skip
    if log.is_session:
        memory[SESSION] = OPEN
    activations = log.activations - len(log.in_progress)
    memory[ACTIVATIONS_BEFORE] = activations  # a fork may activate as many turns as a new run
    if state is None and log.untrusted:
        mark_untrusted(memory, log.untrusted)
    view = RunView(request.run_id, "running", 0, log.state if state is None else state, memory, 0, 0, activations)
    builder = ReactionBuilder(workflow, view, now, new_id, closing=0, base=place[1])
    builder.reaction.state = view.state
    started = {turn.turn_id: new_id("turn") for turn in turns if turn.fate in ("restarted", "continued")}
    forked: JsonObject = {
        "run_id": request.origin,
        "signal": request.signal,
        "turns": [_line(turn, started) for turn in turns],
        **({SESSION: True} if log.is_session else {}),
    }
    builder.add(
        Draft("workflow:forked", forked if state is None else {**forked, "state": state}, None, request.signal, now)
    )
    for turn in turns:
        if turn.turn_id in started:
            _start_again(builder, turn, started[turn.turn_id], now)
        elif turn.fate == "in_doubt":
            _end_as_unknown(builder, turn, now)
    for entry in log.deferred.values():
        builder.matched.append((entry.id, {"seq": entry.seq}, entry.name, entry.payload, entry.agent))
    return builder.finished(), started


def _line(turn: TurnInProgress, started: dict[str, str]) -> JsonObject:
    line: JsonObject = {"turn_id": turn.turn_id, "agent": turn.agent, "fate": turn.fate}
    if turn.turn_id in started:
        line["new_turn_id"] = started[turn.turn_id]
    counts: dict[str, Any] = {"results": turn.results, "unknown": turn.unknown, "waiting": list(turn.waiting)}
    if turn.message_options is not None:
        line["is_message"] = True
    return line | {key: count for key, count in counts.items() if count}


def _start_again(builder: ReactionBuilder, turn: TurnInProgress, turn_id: str, now: datetime) -> None:
    """Activate the agent once more for the same cause. No agent reacts to it: they have reacted to the first activation."""
    cause = split_signal_id(str(turn.activation.parent))
    assert cause is not None
    index = len(builder.reaction.drafts)
    first: Any = turn.activation.payload
    joined = placed(first.get("joined"), turn.activation.run_id, turn.activation.seq) if isinstance(first, dict) else {}
    builder.reaction.drafts.append(
        Draft("agent:activated", {"agent": turn.agent, **joined}, turn.agent, turn.activation.parent, now)
    )
    context = {} if turn.context_box_id is None else {"context_box_id": turn.context_box_id}
    options = turn.message_options
    if options is None:
        options = builder.workflow.agents[turn.agent].limits
    builder.reaction.activations.append({
        "agent": turn.agent, "cause": {"seq": cause[1]}, "activation": index, **options,
        **context, "turn_id": turn_id,
    })  # fmt: skip


def _end_as_unknown(builder: ReactionBuilder, turn: TurnInProgress, now: datetime) -> None:
    message = f"agent {turn.agent} must not run twice, and its turn {turn.turn_id} had begun when its run was forked"
    error: JsonObject = {"code": IN_DOUBT, "message": message, "recoverable": False}
    builder.memory["turns"] += 1
    builder.memory["failed"] += 1
    failed: JsonObject = {"agent": turn.agent, "outcome": "failed", "error": error, "deliverable_card_id": None}
    builder.add(Draft("agent:failed", failed, turn.agent, turn.activation.id, now))
