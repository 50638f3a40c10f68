"""Convert the kernel's results for the client: commands, results of stops, and rejections as errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput, NotFound, Rejected
from heliograph.records import Reported


class ResultReporter(Protocol):
    """Reports the result of a call, as `Client.report` does."""

    async def report(
        self,
        turn_id: str,
        call_id: str,
        *,
        token: str | None = None,
        result: Any = None,
        error: str | Mapping[str, Any] | None = None,
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Command:
    """A call that another process has to execute. It can be delivered more than once, so compare its `call_id`.

    deadline: when the call times out; None for no deadline. delivery: the number of this delivery, from 1. trace: the headers by which
    the requests of the tool continue the trace of the run; empty without telemetry.
    """

    turn_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    deadline: datetime | None
    delivery: int
    token: str | None = field(repr=False)
    client: ResultReporter = field(repr=False, compare=False)
    trace: Mapping[str, str] = field(default_factory=dict)

    async def report(self, *, result: Any = None, error: str | Mapping[str, Any] | None = None) -> str:
        """See `Client.report`."""
        return await self.client.report(self.turn_id, self.call_id, token=self.token, result=result, error=error)


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of a stop.

    outcome: `stopped`, `stopping` (within the grace period) or `already_done`. ended_as: the outcome of a turn or run that had
    already ended.
    """

    outcome: str
    ended_as: str | None = None


def command_of(row: Mapping[str, Any], client: ResultReporter) -> Command:
    """Convert a row of `take_commands`."""
    body = row["body"]
    deadline = datetime.fromisoformat(row["deadline"]) if row["deadline"] is not None else None
    return Command(row["turn_id"], row["call_id"], row["tool"], body.get("arguments") or {}, deadline, row["delivery"],
                   body.get("token"), client, body.get("trace") or {})  # fmt: skip


def unknown_turn(turn_id: str, project: str) -> NotFound:
    """Build the error for a turn that does not exist."""
    return NotFound(f"no turn {safe_repr(turn_id)} in project {project}; helio turn list lists the newest",
                    code="unknown_turn")  # fmt: skip


def report_rejection(reported: Reported, project: str) -> HeliographError:
    """Build the error for a rejected report."""
    if reported.outcome == "unknown_turn":
        return unknown_turn(reported.turn_id, project)
    if reported.outcome == "unknown_call":
        return NotFound(f"turn {reported.turn_id} has no call {safe_repr(reported.call_id)}; helio turn show {reported.turn_id} "
                        "shows its calls", code="unknown_call")  # fmt: skip
    if reported.outcome == "bad_token":
        return Rejected(f"the token for call {reported.call_id} of {reported.turn_id} is missing, wrong or no longer valid; use the token "
                       "of the newest command", code="bad_signature")  # fmt: skip
    if reported.outcome == "rejected":
        return Rejected(reported.message, code=reported.code)
    return InvalidInput(reported.message, code=reported.code or "invalid_result")


def enqueue_rejection(result: Mapping[str, Any], run_id: str, agent: str, project: str) -> HeliographError | None:
    """Build the error for a rejected message; None for a queued one."""
    outcome, turn_id = result["outcome"], result["turn_id"]
    if outcome in ("queued", "duplicate"):
        return None
    if outcome == "unknown_agent":
        return NotFound(f"project {project} has no run {run_id} with an agent {agent}; helio run list lists the newest runs",
                        code="unknown_agent")  # fmt: skip
    if outcome == "rejected" and result["code"] == "unknown_turn":
        return NotFound(f"{result['message']} in project {project} to send the message; helio turn list lists the newest",
                        code="unknown_turn")  # fmt: skip
    if outcome == "rejected" and result["code"] == "payload_too_large":
        return InvalidInput(result["message"], code=result["code"], path="/payload")
    code, message = {
        "conflict": ("id_conflict", f"turn {turn_id} exists with another message; choose another turn id"),
        "busy": ("agent_busy", f"agent {agent} of run {run_id} is busy, and actions are not queued; try again later"),
        "ended": ("run_ended", f"run {run_id} takes no more messages, because it is ending or has ended; start a new run"),
    }.get(outcome, (result.get("code", outcome), result.get("message", outcome)))  # fmt: skip
    return Rejected(message, code=code)
