"""Every error that Heliograph raises on purpose.

    HeliographError
    ├── InvalidInput        the caller gave something malformed           exit 2
    ├── NotFound            the thing named does not exist                exit 3
    ├── Refused             understood, and not allowed                   exit 4
    ├── SetupError          the installation or the environment is short of something
    ├── KernelRejected       a kernel function raised: the data or the order of calls is wrong
    ├── StoreUnavailable    PostgreSQL cannot be reached; trying again may help
    ├── AgentFailed         an agent's own code raised, or answered what it may not
    ├── HarnessError        a model, its provider or its answer went wrong
    ├── ToolFailed          a tool or a step that an agent called has failed, told to the agent
    │   ├── ToolTimedOut    it did not answer in time
    │   ├── BudgetExceeded  it was not called: a budget has too little left
    │   └── Denied          a person who was asked has said no
    ├── StepInDoubt         nobody knows whether a step that may happen once has happened
    ├── DelegationFailed    a turn that an agent waited for ended otherwise than with success
    └── TurnTimedOut        an agent ran longer than its timeout

Each carries a `code` for programs (lower case for input, the specification's
upper-case codes for a turn's end), a message for people (what, which, and what
next), and where it helps a `path` into the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from heliograph.codes import (
    ACTION_FAILED,
    BUDGET_EXCEEDED,
    DELEGATION_ERROR,
    DENIED,
    IN_DOUBT,
    TIMEOUT,
    TOOL_ERROR,
    TOOL_TIMEOUT,
    UNKNOWN,
)
from heliograph.redaction import redacted_text


class HeliographError(Exception):
    """The root; `exit_code` is what the command line ends with."""

    default_code: ClassVar[str] = UNKNOWN
    exit_code: ClassVar[int] = 1
    recoverable: bool = False  # trying again may help; of a class, unless one error says otherwise

    def __init__(self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None):
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.path = path
        self.hint = hint

    def envelope(self) -> dict[str, dict[str, str]]:
        """The error as every machine-readable face prints it; absent parts are left out."""
        body = {"code": self.code, "message": self.message}
        if self.path is not None:
            body["path"] = self.path
        if self.hint is not None:
            body["hint"] = self.hint
        return {"error": body}


class InvalidInput(HeliographError):
    """What was given is malformed or does not fit; nothing was done."""

    default_code = "invalid_input"
    exit_code = 2


class NotFound(HeliographError):
    """The id or name means nothing here."""

    default_code = "not_found"
    exit_code = 3


class Rejected(HeliographError):
    """Understood, and not allowed; nothing was done."""

    default_code = "refused"
    exit_code = 4


class SetupError(HeliographError):
    """The installation or the environment lacks something that the message names."""

    default_code = "setup"


class KernelRejected(HeliographError):
    """A kernel function raised: the data or the order of the calls is wrong, and trying again will not help."""

    default_code = "kernel_refused"


class StoreUnavailable(HeliographError):
    """PostgreSQL cannot be reached or asked to wait; the same call may succeed later."""

    default_code = "store_unavailable"
    recoverable = True


class AgentFailed(HeliographError):
    """An agent's output does not fit what it updates, or its reducer raised."""

    default_code = ACTION_FAILED


class HarnessError(HeliographError):
    """A model could not be asked, or answered what cannot be used.

    recoverable: the turn is put off and asks again, at most as often as the agent's `retries` say.
    retry_after_seconds: how long the provider asked to be left alone.
    tokens: what the provider counts for it all the same: 0 where it refused to answer, None where nobody knows.
    """

    default_code = ACTION_FAILED

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        recoverable: bool = False, retry_after_seconds: float = 0.0, tokens: int | None = None,
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint)
        self.recoverable = recoverable
        self.tokens = tokens
        self.retry_after_seconds = retry_after_seconds


class ToolFailed(HeliographError):
    """A call answered with an error; `error` is what the tool sent, `code` the tool's own where it gave one."""

    default_code = TOOL_ERROR

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        tool: str = "", call_id: str = "", error: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint)
        self.tool = tool
        self.call_id = call_id
        self.error = dict(error or {})
        self.recoverable = bool(self.error.get("recoverable", self.recoverable))


class ToolTimedOut(ToolFailed):
    """A call was not answered before its deadline; a later answer is only logged."""

    default_code = TOOL_TIMEOUT


class BudgetExceeded(ToolFailed):
    """A call was not made: a budget that holds for its turn has less left than it may use.

    budget: {turn_id, kind, most, used, reserved, over}: whose it is, and how it stood.
    """

    default_code = BUDGET_EXCEEDED

    @property
    def budget(self) -> Mapping[str, Any]:
        return self.error.get("budget") or {}


class Denied(ToolFailed):
    """A person has said no, or nothing that counts as yes; `by` and `reason` where they were told."""

    default_code = DENIED

    @property
    def by(self) -> str | None:
        return self.error.get("by")

    @property
    def reason(self) -> str | None:
        return self.error.get("reason")


class StepInDoubt(HeliographError):
    """A step began and nobody knows whether it happened: it is not tried again blindly. Ask, verify, or give up."""

    default_code = IN_DOUBT

    def __init__(
        self, message: str, *, code: str | None = None, path: str | None = None, hint: str | None = None,
        step: str = "", call_id: str = "",
    ):  # fmt: skip
        super().__init__(message, code=code, path=path, hint=hint)
        self.step = step
        self.call_id = call_id


class DelegationFailed(HeliographError):
    """A turn that was delegated failed, was canceled or timed out; `outcome` says which, `error` is its own."""

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


class TurnTimedOut(HeliographError):
    """Work ran longer than it may."""

    default_code = TIMEOUT


def safe_repr(value: object, limit: int = 80) -> str:
    """`value` as an error message may carry it: one line, control characters escaped, cut at `limit`."""
    text = redacted_text(value if isinstance(value, str) else repr_of(value))  # before it is cut: half a secret is one
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def with_hint(error: HeliographError) -> str:
    """The message and the hint as one text, for records that have no field for the hint."""
    return error.message if error.hint is None else f"{error.message}; {error.hint}"


def is_recoverable(error: BaseException) -> bool:
    """Whether another try may help: the exception's own `recoverable`, or True where it has no such attribute."""
    value = getattr(error, "recoverable", True)
    return value if isinstance(value, bool) else True


def format_exception(error: BaseException, limit: int = 2000) -> str:
    """A foreign exception as a text that the ledger can hold, whatever its author put into it or left out of it."""
    text = exception_text(error)
    return safe_repr(f"{type(error).__name__}: {text}" if text else type(error).__name__, limit)


def exception_text(error: BaseException) -> str:
    """The text of a foreign exception, whose `str` may raise itself, for example for a value that is nested too deep."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def repr_of(value: object) -> str:
    """The repr of a foreign value, whose `__repr__` may raise itself."""
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
