"""All errors that Heliograph raises on purpose.

    HeliographError
    ├── InvalidInput        an argument is malformed or invalid           exit 2
    ├── NotFound            no object has this id or name                 exit 3
    ├── Rejected            the request is valid, but not allowed         exit 4
    │   └── Conflict        the id belongs to an object with other content
    ├── SetupError          the installation or the environment lacks something
    ├── KernelRejected      a kernel function rejected a call: the data or the order of calls is wrong
    ├── StoreUnavailable    PostgreSQL cannot be reached; a retry may help
    ├── AgentFailed         an agent's code raised, or returned an invalid output
    ├── HarnessError        a model call failed, or its reply cannot be used
    ├── ToolFailed          a tool or a step failed; raised in the agent that called it
    │   ├── ToolTimedOut    it had no result by its deadline
    │   ├── BudgetExceeded  it was not called, because too little remains of a budget
    │   ├── CircuitOpen     it was not called, because its circuit breaker is open
    │   ├── RateLimited     it was not called, because its rate limit admits it too late
    │   └── Denied          a person denied it
    ├── StepInDoubt         a step started, and it is unknown whether its effect happened
    ├── DelegationFailed    a delegated turn did not succeed
    ├── TurnTimedOut        an agent ran longer than its timeout
    ├── RecoverableError    a signal handler failed; another handler may succeed
    └── UnrecoverableError  a signal handler failed; no other handler helps

Each error has a `code` for programs: lower case for input, and the specification's upper-case codes for the end of a turn. Its
message names the problem, the object and the next step. It may have a `path` into the input and a `hint`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from heliograph.codes import (
    ACTION_FAILED,
    BUDGET_EXCEEDED,
    CIRCUIT_OPEN,
    DELEGATION_ERROR,
    DENIED,
    IN_DOUBT,
    RATE_LIMITED,
    TIMEOUT,
    TOOL_ERROR,
    TOOL_TIMEOUT,
    UNKNOWN,
)

__all__ = [
    "AgentFailed",
    "BudgetExceeded",
    "CircuitOpen",
    "Conflict",
    "DelegationFailed",
    "Denied",
    "HarnessError",
    "HeliographError",
    "InvalidInput",
    "KernelRejected",
    "NotFound",
    "RateLimited",
    "RecoverableError",
    "Rejected",
    "SetupError",
    "StepInDoubt",
    "StoreUnavailable",
    "ToolFailed",
    "ToolTimedOut",
    "TurnTimedOut",
    "UnrecoverableError",
]


class HeliographError(Exception):
    """The base class of all errors.

    code: for programs. path: a JSON pointer into the input. hint: a possible remedy. exit_code: the exit code of the command line.
    details: JSON for programs, recorded with the error of a turn or a call.
    """

    default_code: ClassVar[str] = UNKNOWN
    exit_code: ClassVar[int] = 1
    recoverable: bool = False  # a retry may help; an instance may override its class

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.path = path
        self.hint = hint
        self.details = dict(details or {})

    def envelope(self) -> dict[str, dict[str, Any]]:
        """Return the error as JSON for programs: `{"error": {code, message, path, hint}}`, without missing parts."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.path is not None:
            body["path"] = self.path
        if self.hint is not None:
            body["hint"] = self.hint
        return {"error": body}


class InvalidInput(HeliographError):
    """The input is malformed or invalid; nothing was done."""

    default_code = "invalid_input"
    exit_code = 2


class NotFound(HeliographError):
    """No object has this id or name."""

    default_code = "not_found"
    exit_code = 3


EGRESS_REJECTED = "egress_rejected"  # a code of Rejected: the egress policy forbids an address


class Rejected(HeliographError):
    """The request is valid, but not allowed; nothing was done."""

    default_code = "rejected"
    exit_code = 4


class Conflict(Rejected):
    """The id belongs to an object with other content; nothing was done."""

    default_code = "conflict"


class SetupError(HeliographError):
    """The installation or the environment lacks something that the message names."""

    default_code = "setup"


class KernelRejected(HeliographError):
    """A kernel function rejected a call: the data or the order of calls is wrong, and a retry does not help."""

    default_code = "kernel_rejected"


class StoreUnavailable(HeliographError):
    """PostgreSQL cannot be reached or is overloaded; the same call may succeed later."""

    default_code = "store_unavailable"
    recoverable = True


class AgentFailed(HeliographError):
    """An agent's output is invalid for the state that it updates, or a reducer raised."""

    default_code = ACTION_FAILED


RETRY_AFTER_SECONDS_MAX = 31_622_400.0


class HarnessError(HeliographError):
    """A model call failed, or its reply cannot be used.

    recoverable: the turn is deferred and repeats the call, at most as often as the agent's `retries`.
    retry_after_seconds: how long the provider asks callers to wait; 366 days if it asks for more, 0 for no number.
    tokens: the tokens that the provider bills anyway: 0 if it rejected the request, None if unknown. model: its name, once known.
    """

    default_code = ACTION_FAILED

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        recoverable: bool = False, retry_after_seconds: float = 0.0, tokens: int | None = None,
        details: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint, details=details)
        self.recoverable = recoverable
        self.tokens = tokens
        # a provider may send any number, and a time that cannot be stored would fail the turn
        self.retry_after_seconds = min(retry_after_seconds, RETRY_AFTER_SECONDS_MAX) if retry_after_seconds > 0 else 0.0
        self.model: str | None = None


class ToolFailed(HeliographError):
    """A tool call failed. `error`: the tool's error; `code`: the tool's own code, if it has one."""

    default_code = TOOL_ERROR

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        tool: str = "", call_id: str = "", error: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint, details=details)
        self.tool = tool
        self.call_id = call_id
        self.error = dict(error or {})
        if isinstance(recorded := self.error.get("details"), Mapping):
            self.details = {**recorded, **self.details}
        self.recoverable = bool(self.error.get("recoverable", self.recoverable))


class ToolTimedOut(ToolFailed):
    """A call had no result by its deadline; a later result is only logged."""

    default_code = TOOL_TIMEOUT


class BudgetExceeded(ToolFailed):
    """A call was not made, because it may use more than the rest of a budget of its turn.

    budget: {turn_id, kind, most, used, reserved, over}: the turn that has the budget, and its figures.
    """

    default_code = BUDGET_EXCEEDED

    @property
    def budget(self) -> Mapping[str, Any]:
        return self.error.get("budget") or {}


class CircuitOpen(ToolFailed):
    """A call was not made, because its target fails and its circuit breaker is open, or half open with all trials under way.

    circuit: {type, target, state, until, retry_seconds}: the breaker, and when it may admit a call again.
    """

    default_code = CIRCUIT_OPEN

    @property
    def circuit(self) -> Mapping[str, Any]:
        return self.error.get("circuit") or {}


class RateLimited(ToolFailed):
    """A call was not made, because its rate limit admits it only after its timeout.

    rate: {kind, name, count, seconds, amount, retry_seconds}: the limit, and the delay after which it may admit the call, or None
    if it never does.
    """

    default_code = RATE_LIMITED

    @property
    def rate(self) -> Mapping[str, Any]:
        return self.error.get("rate") or {}


class Denied(ToolFailed):
    """A person denied the call, or nobody granted it in time. by, reason: None if they were not given."""

    default_code = DENIED

    @property
    def by(self) -> str | None:
        return self.error.get("by")

    @property
    def reason(self) -> str | None:
        return self.error.get("reason")


class StepInDoubt(HeliographError):
    """A step started, and it is unknown whether its effect happened. It is not retried: check the effect, or ask a person."""

    default_code = IN_DOUBT

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        step: str = "", call_id: str = "",
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint)
        self.step = step
        self.call_id = call_id


class DelegationFailed(HeliographError):
    """A delegated turn failed, was canceled or timed out. `outcome` and `error` are those of the turn.

    details: those of `error`, and `reason`: the code of `error`, if it is not that of this exception.
    """

    default_code = DELEGATION_ERROR

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        agent: str = "", call_id: str = "", outcome: str = "failed", error: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint)
        self.agent = agent
        self.call_id = call_id
        self.outcome = outcome
        self.error = dict(error or {})
        if isinstance(recorded := self.error.get("details"), Mapping):
            self.details = dict(recorded)
        if self.error.get("code") not in (None, self.code):
            self.details["reason"] = str(self.error["code"])
        self.recoverable = bool(self.error.get("recoverable", self.recoverable))


class TurnTimedOut(HeliographError):
    """An agent ran longer than its timeout."""

    default_code = TIMEOUT


class RecoverableError(HeliographError):
    """A signal handler failed, and another one may succeed: a `FallbackHandler` calls it."""

    recoverable = True


class UnrecoverableError(HeliographError):
    """A signal handler failed, and no other one helps: a `FallbackHandler` returns an error response."""
