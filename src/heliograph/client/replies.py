"""What the kernel answers, as those outside know it: calls to carry out, and refusals as errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from heliograph.errors import HeliographError, InvalidInput, NotFound, Rejected, safe_repr
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
    """A call that waits for somebody to carry it out. The same one may come twice: `call_id` tells (K18).

    deadline: when it counts as timed out; None for never. delivery: how often it was handed out, from 1.
    """

    turn_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    deadline: datetime | None
    delivery: int
    token: str | None = field(repr=False)
    client: ResultReporter = field(repr=False, compare=False)

    async def report(self, *, result: Any = None, error: str | Mapping[str, Any] | None = None) -> str:
        """See `Client.report`."""
        return await self.client.report(self.turn_id, self.call_id, token=self.token, result=result, error=error)


@dataclass(frozen=True, slots=True)
class StopResult:
    """outcome: `stopped`, `stopping` (its owner winds it up) or `already_done`; then `ended_as` says how it ended."""

    outcome: str
    ended_as: str | None = None


def command_of(row: Mapping[str, Any], client: ResultReporter) -> Command:
    """A row of take_commands."""
    body = row["body"]
    deadline = datetime.fromisoformat(row["deadline"]) if row.get("deadline") else None
    return Command(row["turn_id"], row["call_id"], row["tool"], body.get("arguments") or {}, deadline, row["delivery"],
                   body.get("token"), client)  # fmt: skip


def unknown_turn(turn_id: str, project: str) -> NotFound:
    return NotFound(f"no turn {safe_repr(turn_id)} in project {project}; helio turn list shows the newest",
                    code="unknown_turn")  # fmt: skip


def report_refused(answer: Reported, project: str) -> HeliographError:
    """Why a report was not taken."""
    if answer.outcome == "unknown_turn":
        return unknown_turn(answer.turn_id, project)
    if answer.outcome == "unknown_call":
        return NotFound(f"turn {answer.turn_id} has no call {safe_repr(answer.call_id)}; helio turn show {answer.turn_id} "
                        "shows its calls", code="unknown_call")  # fmt: skip
    if answer.outcome == "bad_token":
        return Rejected(f"the token does not open call {answer.call_id} of {answer.turn_id}: it is missing, wrong or no "
                       "longer valid", code="bad_signature")  # fmt: skip
    if answer.outcome == "refused":
        return Rejected(answer.message, code=answer.code)
    hint = "upload it, and report where it is" if answer.code == "payload_too_large" else None
    return InvalidInput(answer.message, code=answer.code or "invalid_result", hint=hint)


def enqueue_refused(answer: Mapping[str, Any], run_id: str, agent: str, project: str) -> HeliographError | None:
    """Why a message was not queued; None where it was."""
    outcome, turn_id = answer["outcome"], answer["turn_id"]
    if outcome in ("queued", "duplicate"):
        return None
    if outcome == "unknown_agent":
        return NotFound(f"project {project} has no run {run_id} with an agent {agent}; helio runs shows the newest runs",
                        code="unknown_agent")  # fmt: skip
    if outcome == "refused" and answer["code"] == "payload_too_large":
        return InvalidInput(answer["message"], code=answer["code"], path="/payload")
    code, message = {
        "conflict": ("id_conflict", f"turn {turn_id} exists and was another message; choose another turn id"),
        "busy": ("agent_busy", f"agent {agent} of run {run_id} is at work: an action is taken at once or not at all"),
        "ended": ("run_ended", f"run {run_id} takes no messages any more: it is ending or has ended"),
    }.get(outcome, (answer.get("code", outcome), answer.get("message", outcome)))  # fmt: skip
    return Rejected(message, code=code)
