"""Fork a run: start a new one that continues its log after one of its signals; and retry a run from its failed turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.error_text import safe_repr
from heliograph.errors import Conflict, HeliographError, InvalidInput, NotFound, Rejected
from heliograph.ids import signal_id, split_signal_id
from heliograph.ledger.fork_reader import SharedPrefix
from heliograph.ledger.message_options import message_options
from heliograph.ledger.rows import ActivatedTurn, LeaseRow, WaitRow
from heliograph.reactive.fork import Fate, ForkRequest, TurnInProgress, react_to_fork
from heliograph.reactive.shared_log import SharedLog, collected_names
from heliograph.reactive.workflow import Workflow, hint_of_agents
from heliograph.recording.start import recorded_fork
from heliograph.run_options import check_run_id, request_hash
from heliograph.signals.model import LogEntry
from heliograph.turn.drafts import draft_items
from heliograph.types import JsonObject

if TYPE_CHECKING:
    from heliograph.runtime import Runtime

_MODEL = "model"  # the tool name of recorded model calls


@dataclass(frozen=True)
class ForkedTurn:
    """A turn that was in progress at the signal of a fork.

    fate: `restarted`: a new turn starts from its activation. `continued`: a new turn starts from there and has `results` recorded
    results; `unknown` of its calls had begun and have an unknown result. `in_doubt`: it ends as failed with IN_DOUBT, because its agent
    must not run twice. `delegated`: the turn that delegated it decides. waiting: its open questions, approvals and timers, by call id;
    the new turn asks and waits again. is_message: a message activated it, and the new turn has the options of that message.
    """

    turn_id: str
    agent: str
    fate: Fate
    new_turn_id: str | None = None
    results: int = 0
    unknown: int = 0
    waiting: tuple[str, ...] = ()
    is_message: bool = False


@dataclass(frozen=True)
class Fork:
    """A new run that continues the log of another run after `signal`. is_new: False if an earlier call has made it."""

    run_id: str
    origin: str
    signal: str
    turns: tuple[ForkedTurn, ...]
    is_new: bool = True


async def fork_run(
    runtime: Runtime, workflow: Workflow, run_id: str, at: str | int, state: Any = None, new_run_id: str | None = None
) -> Fork:
    """See `Heliograph.fork`."""
    document = None if state is None else workflow.shape.dump(state)
    given = None if state is None else workflow.shape.as_given(state)
    prefix = await _prefix_at(runtime, workflow, run_id, at)
    return await _start(runtime, workflow, run_id, prefix, (document, given), new_run_id, is_retry=False)


async def retry_run(runtime: Runtime, workflow: Workflow, run_id: str, new_run_id: str | None = None) -> Fork:
    """See `Heliograph.retry`."""
    row = await runtime.reader.run(run_id)
    if row.status != "ended":
        raise Rejected(f"run {run_id} has not ended, so there is nothing to retry: stop it first, or fork it at a signal",
                       code="run_active")  # fmt: skip
    failure = await runtime.reader.forks.first_failure(run_id)
    if failure is None:
        raise Rejected(f"run {run_id} ended as {row.outcome}, and none of its turns failed: fork it at a signal instead", code="no_failed_turn")  # fmt: skip
    prefix = await _prefix_at(runtime, workflow, run_id, failure - 1)
    return await _start(runtime, workflow, run_id, prefix, (None, None), new_run_id, is_retry=True)


async def _prefix_at(runtime: Runtime, workflow: Workflow, run_id: str, at: str | int) -> SharedPrefix:
    """Read what a fork at a signal shares. Raises NotFound (`unknown_run`, `unknown_signal`, `pruned_signal`), InvalidInput."""
    if isinstance(at, str):
        parts = split_signal_id(at)
        seq = 0 if parts is None else parts[1]
    elif isinstance(at, int) and not isinstance(at, bool):
        seq = at
    else:
        raise InvalidInput(
            f"at must be the id or the seq of a signal, not {safe_repr(at)}", code="wrong_type", path="/at"
        )
    names = collected_names(workflow)
    prefix = await runtime.reader.forks.shared_prefix(run_id, seq, names) if 1 <= seq < 2**63 else None
    if prefix is not None and (isinstance(at, int) or at == signal_id(prefix.run_id, seq)):
        return prefix
    row = await runtime.reader.run(run_id)
    is_pruned = prefix is None and 1 <= seq <= row.signal_count
    raise NotFound(
        f"run {run_id} has no signal {safe_repr(at)}{' any more: it is pruned' if is_pruned else ''}; it has {row.signal_count} signals, "
        f"and helio signal tail --run {run_id} shows their ids",
        code="pruned_signal" if is_pruned else "unknown_signal",
    )  # fmt: skip


def fold_prefix(workflow: Workflow, run_id: str, prefix: SharedPrefix) -> SharedLog:
    """Return the fold of a shared prefix. Raises Rejected (`run_ended`)."""
    log = SharedLog(workflow)
    if prefix.checkpoint is not None:
        log = SharedLog.after(workflow, prefix.checkpoint, prefix.open_entries)
    for entry in prefix.entries:
        log.add(entry)
    if log.ending is not None:
        raise Rejected(f"run {run_id} had begun to end when signal {prefix.seq} was recorded, so a fork there has nothing to do: fork it at a "
                       f"signal before {log.ending.commit_seq}", code="run_ended")  # fmt: skip
    return log


async def _start(
    runtime: Runtime, workflow: Workflow, run_id: str, prefix: SharedPrefix, state: tuple[JsonObject | None, Any],
    new_run_id: str | None, *, is_retry: bool,
) -> Fork:  # fmt: skip
    log, last = fold_prefix(workflow, run_id, prefix), signal_id(prefix.run_id, prefix.seq)
    name = check_run_id(new_run_id) if new_run_id is not None else runtime.world.new_id("run")
    rows = await runtime.reader.turns_of_activations([*log.in_progress, *log.ended])
    log.partial += sum(row.outcome == "partial" for row in rows if row.activation_id not in log.in_progress)
    turns = await _turns_in_progress(runtime, workflow, log, prefix, rows, is_retry=is_retry)
    request = ForkRequest(name, run_id, last, turns, state[0])
    reaction, started = react_to_fork(workflow, log, request, runtime.world.now(), runtime.world.new_id)
    recorded = recorded_fork(reaction, await runtime.reader.recording(run_id))
    given = {"fork": last, "state": state[1], "is_retry": is_retry}
    answer = await runtime.ledger.start_run({
        "run_id": name, "target": workflow.name, "request_hash": request_hash(workflow.name, given, None),
        "agents": sorted(workflow.agents), "signals": draft_items(reaction.drafts), "reaction": reaction.to_item(),
        "wakes_on_results": workflow.wakes_on_results, **recorded,
        "fork": {
            "run_id": run_id, "seq": prefix.seq, "activations": log.activations - len(log.in_progress),
            "turns": [{"turn_id": new, "origin": origin} for origin, new in started.items()], "repeats_failed": is_retry,
        },
    })  # fmt: skip
    if answer["outcome"] == "rejected":
        raise _rejected(name, answer)
    if answer["outcome"] == "conflict":
        raise Conflict(f"run {name} exists and is not this fork; choose another run id", code="id_conflict")
    if answer["outcome"] == "duplicate":
        return await _earlier(runtime, name, run_id, last, prefix.seq)
    runtime.tracer.started(workflow.name, name, reaction)
    return Fork(name, run_id, last, _forked_turns(reaction.drafts[0].payload))


def _rejected(name: str, answer: dict[str, Any]) -> HeliographError:
    kind = NotFound if answer["code"] in ("unknown_run", "unknown_signal") else Rejected
    code = "pruned_turn" if answer["code"] == "unknown_turn" else answer["code"]  # it was there when this call read it
    return kind(f"run {name} cannot start: {answer['message']}", code=code)


async def _earlier(runtime: Runtime, name: str, origin: str, last: str, seq: int) -> Fork:
    """The fork as an earlier call has made it: its first signal describes it."""
    found = await runtime.reader.signals(name, seq, 1)
    payload = found[0].payload if found else {}
    return Fork(name, origin, last, _forked_turns(payload), is_new=False)


def _forked_turns(payload: Any) -> tuple[ForkedTurn, ...]:
    lines = payload.get("turns", ())
    return tuple(ForkedTurn(**{**line, "waiting": tuple(line.get("waiting", ()))}) for line in lines)


async def _turns_in_progress(
    runtime: Runtime,
    workflow: Workflow,
    log: SharedLog,
    prefix: SharedPrefix,
    rows: Sequence[ActivatedTurn],
    *,
    is_retry: bool,
) -> list[TurnInProgress]:
    """What becomes of the turns that were in progress. Raises NotFound (`unknown_agent`), Rejected (`pruned_turn`)."""
    if missing := log.in_progress.keys() - {row.activation_id for row in rows}:
        raise Rejected(f"the turn that {min(missing)} activated is pruned, so it cannot start again: fork the run at an earlier signal",
                       code="pruned_turn")  # fmt: skip
    until = _Until(prefix, is_retry=is_retry)
    return [
        await _in_progress(runtime, workflow, log.in_progress[row.activation_id], row, until)
        for row in rows
        if row.activation_id in log.in_progress
    ]


async def _in_progress(
    runtime: Runtime, workflow: Workflow, activation: LogEntry, row: ActivatedTurn, until: _Until
) -> TurnInProgress:
    if row.parent_turn_id is not None:
        return TurnInProgress(row.turn_id, activation, "delegated")
    spec = workflow.agents.get(row.agent)
    if spec is None:
        raise NotFound(f"turn {row.turn_id} was in progress, and application {workflow.name} has no agent {row.agent}; "
                       f"{hint_of_agents(row.agent, workflow.agents)}", code="unknown_agent")  # fmt: skip
    if spec.effect == "once" and any(map(until.has_lease, await runtime.reader.leases(row.turn_id))):
        return TurnInProgress(row.turn_id, activation, "in_doubt")
    waits = [wait for wait in await runtime.reader.waits(row.turn_id) if until.has_call(wait)]
    results = _results(waits, until)
    unknown = sum(not until.has_result(wait) and _may_have_happened(wait) for wait in waits)
    waiting = tuple(wait.call_id for wait in waits if wait.kind in ("human", "timer") and not until.has_result(wait))
    fate: Fate = "continued" if results or unknown else "restarted"
    options = await message_options(runtime.reader, activation, row)
    return TurnInProgress(row.turn_id, activation, fate, row.context_box_id, results, unknown, waiting, options)


class _Until:
    """What belongs to a shared log, as the kernel's `_calls_before` decides: a position decides, and the time alone for older calls.

    Everything that a failed turn did belongs to the log that its retry shares.
    """

    def __init__(self, prefix: SharedPrefix, *, is_retry: bool):
        self._seq = prefix.seq + is_retry
        self._at = prefix.recorded_at
        self.is_retry = is_retry

    def has_lease(self, lease: LeaseRow) -> bool:
        """Whether the owner may have begun. It began after `started_seq`, so not before the next signal."""
        if self.is_retry:
            return True
        return lease.started_at <= self._at if lease.started_seq is None else lease.started_seq < self._seq

    def has_call(self, wait: WaitRow) -> bool:
        return wait.opened_at <= self._at if wait.opened_seq is None else wait.opened_seq <= self._seq

    def has_result(self, wait: WaitRow) -> bool:
        if wait.state != "resolved" or wait.resolved_at is None:
            return False
        return wait.resolved_at <= self._at if wait.resolved_seq is None else wait.resolved_seq <= self._seq


def _results(waits: Sequence[WaitRow], until: _Until) -> int:
    """The number of calls with a result that the fork keeps, as the kernel's `_calls_before` decides."""
    kept = list(waits)
    while until.is_retry and kept and kept[-1].status == "failed":
        kept.pop()  # made again
    return sum(map(until.has_result, kept))


def _may_have_happened(wait: WaitRow) -> bool:
    return wait.effect != "pure" and wait.tool != _MODEL and wait.kind in ("inline", "tool", "child")
