"""The calls that an agent makes: as its function describes them, as the kernel stores them, and their results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias

from msgspec import Struct

from heliograph.codes import CANCELED
from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.definitions.rate_limits import Rate
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy
from heliograph.records import CallKind, CallStatus, Cause, Wait
from heliograph.signals.payload import with_sorted_keys
from heliograph.turn.deliverable import read_output
from heliograph.turn.interruptions import check_seconds
from heliograph.type_variables import Output_co
from heliograph.types import Json, JsonObject

After: TypeAlias = Literal["suspend", "terminate"]
CallEffect: TypeAlias = Literal["pure", "idempotent", "transactional", "once"]
Join: TypeAlias = Literal["all", "each"]
OutputValidator: TypeAlias = Callable[[Json], Sequence[str]]
AgentOf: TypeAlias = Any  # the name, the AgentSpec, the function or the class of an agent
Fallback: TypeAlias = Callable[[Any], Any]  # receives the error of the rejected call
ResultStatus: TypeAlias = CallStatus | Literal["partial"]

CALL_EFFECTS: tuple[CallEffect, ...] = ("pure", "idempotent", "transactional", "once")
AFTERS: tuple[After, ...] = ("suspend", "terminate")
DELEGATION = "delegation"  # the signal that activates a child turn
RESPONSE = "delegation_response"  # the signals about its progress
# Of the error of a call that this runtime did not make. A tool that reports such a key has no effect with it.
_ONLY_OURS = ("budget", "circuit", "rate", "egress", "untrusted")
GATEWAY = "runtime:gateway"  # the tool of a call that a worker sends to a gateway; no name of a user has a ':'
TOOL_NAME_MAX = 64
WIRE_NAME_BYTES_MAX = (
    512  # of an id or a name in an envelope; a correlation id of ours consists of the ids of a turn and a call
)
BOX_ID_MAX = 200

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class CallResult(Struct, Generic[Output_co], frozen=True):
    """How one call ended: `output` of a success, and of a partial one, else `error` with code and message.

    The result of a `Delegation[Review]` or a `Call[Review]` is a `CallResult[Review]`: its output is a Review, or None without success.
    status: success, partial (a limit cut a child short), failed, timeout, unknown (the call may or may not have taken
    effect) or canceled.
    """

    call_id: str
    status: ResultStatus
    output: Output_co | None = None
    error: JsonObject | None = None

    @property
    def is_good(self) -> bool:
        return self.status in ("success", "partial")


class CallRequest(Struct, frozen=True):
    """A call as the kernel stores it. tool: for a child, the name of its agent; for an inline call, the name of the step.

    output_problems: lists the problems of an output; the kernel does not store it. is_trusted: the author vouches for the
    result. retry, attempt: the policy that decides whether the call is made again, and the number of this attempt, from 1.
    has_shared_deadline: the timeout is that of all calls of the step together. model: the target of the circuit breaker of a
    model call. fallback: called in place of a call that its circuit breaker rejects. arguments: of the function of a step; the log
    has only their hash.
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
    output_problems: OutputValidator | None = None
    is_trusted: bool = True
    priority: int | None = None
    fails_fast: bool = False
    callback_url: str | None = None
    context: JsonObject | None = None
    retry: RetryPolicy | None = None
    attempt: int = 1
    has_shared_deadline: bool = False
    circuit_breaker: CircuitBreaker | None = None
    model: str | None = None
    fallback: Fallback | None = None
    rates: tuple[Rate, ...] = ()
    arguments: tuple[Any, ...] = ()


def delegation_of(cause: Cause) -> JsonObject | None:
    """The payload of the delegation that activated a turn; None for a turn that another signal activated."""
    return cause.payload if cause.name == DELEGATION and isinstance(cause.payload, dict) else None


def task_of(cause: Cause) -> Any:
    """The task of a turn: that of its delegation, otherwise the payload of its signal."""
    delegation = delegation_of(cause)
    return cause.payload if delegation is None else delegation.get("task")


def result_of(wait: Wait) -> CallResult:
    """The recorded result of a resolved call."""
    assert wait.status is not None
    content = wait.content if isinstance(wait.content, dict) else {}
    if wait.status == "success":
        output = content.get("output")
        if wait.kind == "inline":
            output = with_sorted_keys(output)  # like the result of the run in which the call was made
        if wait.kind == "child" and isinstance(output, dict):  # its deliverable
            output = read_output(output)
        return CallResult(wait.call_id, "partial" if content.get("outcome") == "partial" else "success", output)
    error = content.get("error")
    if not isinstance(error, dict):
        error = {"message": str(error)}
    elif wait.kind == "tool":
        error = {
            key: value
            for key, value in error.items()
            if key not in _ONLY_OURS or (key, wait.tool) == ("egress", GATEWAY)
        }
    return CallResult(wait.call_id, wait.status, None, error)


def check_name(value: Any, what: str, length_max: int = TOOL_NAME_MAX) -> str:
    """Check a name or an id, and return it. Raises InvalidInput (`invalid_id`)."""
    if not isinstance(value, str) or not 0 < len(value) <= length_max or not _NAME_CHARACTERS.issuperset(value):
        raise InvalidInput(f"{what} must be 1 to {length_max} ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(value))}",
                           code="invalid_id")  # fmt: skip
    return value


def check_one_of(value: Any, what: str, known: Sequence[str]) -> None:
    """Check that a value is one of the known ones. Raises InvalidInput (`invalid_enum`)."""
    if value not in known:
        raise InvalidInput(f"{what} must be one of {', '.join(known)}, not {safe_repr(value)}", code="invalid_enum")


def check_timeout(seconds: Any) -> float | None:
    """Check a timeout, and return it in seconds; None for no timeout. Raises InvalidInput (`out_of_range`)."""
    return None if seconds is None else check_seconds("a timeout that is not None", seconds)


def attempt_of(request: CallRequest) -> JsonObject:
    """The timeout of an attempt in the signal of a call and, for a call with a retry policy, the number of the attempt."""
    timeout: JsonObject = {} if request.timeout_seconds is None else {"timeout_seconds": request.timeout_seconds}
    return timeout if request.retry is None else {**timeout, "attempt": request.attempt}


def failed_first_error(request: CallRequest) -> JsonObject:
    """The error of a call that is not made because `request`, of the same step, failed first; as the kernel words it."""
    return {"code": CANCELED, "recoverable": False, "first_failed_call": request.call_id,
            "message": f"call {request.call_id} ({request.tool}) failed first"}  # fmt: skip
