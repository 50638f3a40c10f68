"""The calls of a turn: requests, recorded results, and the journal that matches them. Pure.

A turn that waits releases its worker. When a result arrives, its function runs again from its start, and each call finds
its recorded result, up to the first call without one. So the function has to make the same calls each time. The place of a
call in the order of calls identifies it, unless the agent gives it an id. A recorded call of another tool fails the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from heliograph.codes import ACTION_FAILED, BUDGET_EXCEEDED, CANCELED, NOT_DETERMINISTIC, RESOURCE_EXHAUSTED
from heliograph.errors import AgentFailed, InvalidInput, repr_of, safe_repr
from heliograph.records import CallKind, CallStatus, Wait
from heliograph.turn.call_id import CALL_ID_MAX, CallCounter
from heliograph.turn.deliverable import read_output
from heliograph.turn.interruptions import check_seconds
from heliograph.types import Json, JsonObject

After: TypeAlias = Literal["suspend", "terminate"]
CallEffect: TypeAlias = Literal["pure", "idempotent", "transactional", "once"]
Join: TypeAlias = Literal["all", "each"]
OutputValidator: TypeAlias = Callable[[Json], Sequence[str]]
ResultStatus: TypeAlias = CallStatus | Literal["partial"]

CALL_EFFECTS: tuple[CallEffect, ...] = ("pure", "idempotent", "transactional", "once")
AFTERS: tuple[After, ...] = ("suspend", "terminate")
DELEGATION = "delegation"  # the signal that activates a child turn
RESPONSE = "delegation_response"  # the signals about its progress
TOOL_NAME_MAX = 64
BOX_ID_MAX = 200
CALLS_MAX = 10_000  # far above any limit of a project: only a loop that swallows its own suspension makes so many calls

_WORST_FIRST: tuple[ResultStatus, ...] = ("failed", "timeout", "unknown", "canceled", "partial", "success")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an external tool among several, for `Context.calls` and `Context.as_completed`; see Context.call."""

    tool: str
    arguments: Mapping[str, Any] | None = None
    timeout: float | None = 60.0
    call_id: str | None = None
    after: After = "suspend"
    effect: CallEffect = "once"
    may_override: bool = False
    needs_token: bool = True
    result_schema: Any = None
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Delegation:
    """One child turn among several, for `Context.delegates` and `Context.as_completed`; see Context.delegate."""

    agent: str
    payload: Any = None
    timeout: float | None = None
    instance: str | None = None
    call_id: str | None = None
    context_box_id: str | None = None
    budget: Mapping[str, int | float] | None = None
    priority: str | None = None
    callback_url: str | None = None
    context: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call ended: `output` of a success, and of a partial one, else `error` with code and message.

    status: success, partial (a limit cut a child short), failed, timeout, unknown (the call may or may not have taken
    effect) or canceled.
    """

    call_id: str
    status: ResultStatus
    output: Json = None
    error: JsonObject | None = None

    @property
    def is_good(self) -> bool:
        return self.status in ("success", "partial")


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as the kernel stores it. tool: for a child, the name of its agent; for an inline call, the name of the step.

    output_problems: lists the problems of an output; the kernel does not store it. is_trusted: the author vouches for the
    result.
    """

    call_id: str
    step_id: str
    tool: str
    kind: CallKind
    input: Json = None
    timeout_seconds: float | None = None
    effect: CallEffect = "once"
    after: After = "suspend"
    may_override: bool = False
    needs_token: bool = True
    instance: str | None = None
    context_box_id: str | None = None
    budget: Mapping[str, int] | None = None
    output_problems: OutputValidator | None = field(default=None, compare=False)
    is_trusted: bool = True
    priority: int | None = None
    fails_fast: bool = False
    callback_url: str | None = None
    context: JsonObject | None = None


class Journal:
    """Matches the calls of one run of an agent's function with the recorded calls of its turn.

    awaited: the calls without a result that the function waits for. error: why the turn cannot continue. wait_forbidden:
    why the function may not wait now. deferrals_before: the deferrals before the agent last made progress. tokens: the input
    and output tokens of its models. task_name: returns the name of the current task; each task counts its own calls.
    """

    def __init__(self, agent: str, waits: Sequence[Wait], task_name: Callable[[], str] = str):
        self._agent = agent
        self._counter = CallCounter(task_name)
        self._recorded = {wait.call_id: wait for wait in waits}
        self._requested: set[str] = set()
        self._is_streaming = False
        self.awaited: dict[str, CallRequest] = {}
        self.error: AgentFailed | None = None
        self.wait_forbidden: str | None = None
        self.deferrals_before = 0
        self.tokens = (0, 0)

    @property
    def is_replaying(self) -> bool:
        """Whether the function repeats an earlier run: it has not reached all recorded calls yet."""
        return not self._recorded.keys() <= self._requested

    def knows(self, call_id: str) -> bool:
        """Whether a call of this id is recorded, with or without a result."""
        return call_id in self._recorded

    def new_step(self) -> str:
        """The id of the next step."""
        return self._counter.next_step()

    def new_call(self, given: str | None = None) -> str:
        """The id of the next call: `given`, or its place in the order of calls of its task. Raises InvalidInput (`invalid_id`)."""
        by_place = self._counter.next_call()  # a chosen id also takes a place, so the ids of later calls stay the same
        return by_place if given is None else check_name(given, "a call id", CALL_ID_MAX)

    def find(self, request: CallRequest) -> Wait | None:
        """The record of a call; None for a new call.

        Raises InvalidInput (`duplicate_call_id`), AgentFailed (NOT_DETERMINISTIC) where another call is recorded.
        """
        if request.call_id in self._requested:
            raise InvalidInput(f"agent {self._agent} uses the call id {request.call_id!r} twice; each call has its own",
                               code="duplicate_call_id")  # fmt: skip
        if len(self._requested) >= CALLS_MAX:
            raise self._fail(RESOURCE_EXHAUSTED, f"it has asked for {CALLS_MAX} calls in one run")
        self._requested.add(request.call_id)
        wait = self._recorded.get(request.call_id)
        if (
            wait is not None
            and (wait.kind, wait.tool) != (request.kind, request.tool)
            and not _is_not_made(wait, request)
        ):
            raise self._fail(
                NOT_DETERMINISTIC,
                f"call {request.call_id} was {_call_label(wait.kind, wait.tool)} when it was recorded and is now "
                f"{_call_label(request.kind, request.tool)}: between calls the function may depend on nothing but its context and "
                "the results; give calls ids of their own where their order changes",
            )  # fmt: skip
        return wait

    def wait_for(self, requests: Iterable[CallRequest], *, each: bool = False) -> None:
        """Wait for all of these calls or, with `each`, for each one."""
        self.awaited |= {call.call_id: call for call in requests}
        self._is_streaming |= each

    @property
    def new_calls(self) -> tuple[CallRequest, ...]:
        """The awaited calls that are not recorded yet, in the order of the function."""
        return tuple(call for call in self.awaited.values() if call.call_id not in self._recorded)

    @property
    def join(self) -> Join:
        """'each' while a stream waits, or while calls are open that nothing awaits, which must not delay the turn."""
        open_calls = {
            wait.call_id for wait in self._recorded.values() if wait.state == "open" and wait.kind != "inline"
        }
        return "each" if self._is_streaming or open_calls - self.awaited.keys() else "all"

    def check_not_waiting(self) -> None:
        """Check that a function that ended does not wait.

        Raises AgentFailed for a function that caught its own suspension, or continued after an error of the journal.
        """
        if self.error is not None:
            raise self.error
        if self.awaited:
            raise self._fail(
                ACTION_FAILED,
                f"it caught the exception that suspends its turn for call {next(iter(self.awaited))}: an except clause "
                "around a call must not take BaseException, and a bare except: does, as gather(return_exceptions=True) does; "
                "catch Exception, or ToolFailed",
            )

    def _fail(self, code: str, why: str) -> AgentFailed:
        self.error = self.error or AgentFailed(f"agent {self._agent}: {why}", code=code)
        return self.error


def result_of(wait: Wait) -> CallResult:
    """The recorded result of a resolved call."""
    assert wait.status is not None
    content = wait.content if isinstance(wait.content, dict) else {}
    if wait.status == "success":
        output = content.get("output")
        if wait.kind == "child" and isinstance(output, dict):  # its deliverable
            output = read_output(output)
        return CallResult(wait.call_id, "partial" if content.get("outcome") == "partial" else "success", output)
    error = content.get("error")
    return CallResult(wait.call_id, wait.status, None, error if isinstance(error, dict) else {"message": str(error)})


def closing_answer(waits: Sequence[Wait]) -> CallResult | None:
    """The result that ends its turn instead of resuming it: the first result of a call with after="terminate" (L0-56, L0-63).

    Of several such calls in one step, the worst result counts; of equal ones, the first to arrive. A result may choose
    otherwise only for a call with `may_override` (L0-57, S9).
    """
    results = [result_of(wait) for wait in _closing(waits)]
    return min(results, key=lambda result: _WORST_FIRST.index(result.status), default=None)


def awaits_closing(waits: Sequence[Wait]) -> bool:
    """Whether the turn has an ending result, but another ending call of that step has no result yet."""
    closing = _closing(waits)
    return bool(closing) and any(
        wait.state == "open" and wait.kind != "inline" and wait.after_execution == "terminate"
        and wait.step_id == closing[0].step_id and wait.step_id is not None
        for wait in waits
    )  # fmt: skip


def _closing(waits: Sequence[Wait]) -> list[Wait]:
    """The calls of one step whose results end the turn, in the order of their results."""
    resolved = sorted((w for w in waits if w.state == "resolved"), key=lambda w: w.resolved_position or 0)
    found = [wait for wait in resolved if _ends_turn(wait)]
    return [
        wait for wait in found if wait is found[0] or (wait.step_id == found[0].step_id and wait.step_id is not None)
    ]


def _ends_turn(wait: Wait) -> bool:
    asked_for = _override(result_of(wait)) if wait.may_override else None
    return (asked_for or wait.after_execution) == "terminate"


def check_name(value: Any, what: str, length_max: int = TOOL_NAME_MAX) -> str:
    """Raises InvalidInput (`invalid_id`)."""
    if not isinstance(value, str) or not 0 < len(value) <= length_max or not _NAME_CHARACTERS.issuperset(value):
        raise InvalidInput(f"{what} is 1 to {length_max} ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(value))}",
                           code="invalid_id")  # fmt: skip
    return value


def check_one_of(value: Any, what: str, known: Sequence[str]) -> None:
    """Raises InvalidInput (`invalid_enum`)."""
    if value not in known:
        raise InvalidInput(f"{what} is one of {', '.join(known)}, not {safe_repr(value)}", code="invalid_enum")


def check_timeout(seconds: Any) -> float | None:
    """Raises InvalidInput (`out_of_range`)."""
    return None if seconds is None else check_seconds("a timeout is None or", seconds)


def _override(result: CallResult) -> str | None:
    control = result.output.get("__cg_control") if isinstance(result.output, dict) else None
    after = control.get("after_execution") if isinstance(control, dict) else None
    return after if after in AFTERS else None


def failed_first_error(request: CallRequest) -> JsonObject:
    """The error of a call that is not made because `request`, of the same step, failed first; as the kernel words it."""
    return {"code": CANCELED, "recoverable": False, "failed_first": request.call_id,
            "message": f"call {request.call_id} ({request.tool}) failed first"}  # fmt: skip


def _is_not_made(wait: Wait, request: CallRequest) -> bool:
    """Whether this record says that the call was not made: a budget was too small, or another call failed first."""
    error = wait.content.get("error") if isinstance(wait.content, dict) else None
    is_it = isinstance(error, dict) and (error.get("code") == BUDGET_EXCEEDED or "failed_first" in error)
    return is_it and request.kind in ("tool", "child") and (wait.kind, wait.tool) == ("inline", request.tool)


def _call_label(kind: str, tool: str) -> str:
    return {"tool": f"tool {tool}", "child": f"a delegation to {tool}", "inline": f"step {tool}",
            "timer": "a pause", "human": f"an approval by {tool}"}.get(kind, kind)  # fmt: skip
