"""The codes with which turns, calls and runs end, and the default reasons of a stop.

Codes of the OSSA specification keep its spelling. A tool may return a code of its own, which is recorded unchanged.
`make docs` generates the tables of docs/reference/errors.md from here; the kernel's SQL uses the same codes (tests/rules/test_codes.py).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

INIT_FAILED = "INIT_FAILED"
PLAN_FAILED = "PLAN_FAILED"
ACTION_FAILED = "ACTION_FAILED"
REFLECTION_ERROR = "REFLECTION_ERROR"
MAX_ITERATIONS = "MAX_ITERATIONS"
TOOL_ERROR = "TOOL_ERROR"
TOOL_TIMEOUT = "TOOL_TIMEOUT"
DELEGATION_ERROR = "DELEGATION_ERROR"
DELEGATION_TIMEOUT = "DELEGATION_TIMEOUT"
TIMEOUT = "TIMEOUT"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
MEMORY_ERROR = "MEMORY_ERROR"
NETWORK_ERROR = "NETWORK_ERROR"
AUTH_ERROR = "AUTH_ERROR"
RATE_LIMITED = "RATE_LIMITED"
IN_DOUBT = "IN_DOUBT"
NOT_DETERMINISTIC = "NOT_DETERMINISTIC"
RESULT_MISSING = "RESULT_MISSING"
RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
DENIED = "DENIED"
MODEL_TIMEOUT = "MODEL_TIMEOUT"
MCP_UNAVAILABLE = "MCP_UNAVAILABLE"
BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
CIRCUIT_OPEN = "CIRCUIT_OPEN"
RESULT_SCHEMA = "result_schema"  # lower case, like the codes that tools themselves return
UNDECODABLE = "UNDECODABLE"
CANCELED = "CANCELED"
INTERNAL_ERROR = "INTERNAL_ERROR"
MAX_ACTIVATIONS = "MAX_ACTIVATIONS"
NOTHING_RAN = "NOTHING_RAN"
UNKNOWN = "UNKNOWN"

USER_INTERRUPT: Final = "user_interrupt"
RESOURCE_LIMIT: Final = "resource_limit"
POLICY_VIOLATION: Final = "policy_violation"
EXTERNAL_SIGNAL: Final = "external_signal"
PARENT_TERMINATION: Final = "parent_termination"

# The reasons of a halt on the wire.
HaltReason: TypeAlias = Literal[
    "user_interrupt", "resource_limit", "policy_violation", "external_signal", "parent_termination"
]


class Code(NamedTuple):
    """The code of a failure. phase: the phase that raises it. recoverable: whether a retry may help, unless an error has its own value."""

    code: str
    phase: str
    recoverable: bool
    meaning: str


CODES = (
    Code(
        INIT_FAILED,
        "init",
        False,
        "the turn could not start: its init hook failed, a credential is missing, its inbox has no message for it, or its "
        "context box is too large or malformed",
    ),
    Code(
        PLAN_FAILED,
        "plan",
        False,
        "the plan hook raised an exception, or returned something other than a plan, or the plan names a tool, an agent or a model "
        "that does not exist",
    ),
    Code(ACTION_FAILED, "act", False, "the agent's function raised an exception, or its output is invalid"),
    Code(REFLECTION_ERROR, "reflect", False, "the reflect hook raised an exception, or returned no decision"),
    Code(MAX_ITERATIONS, "reflect", False, "the agent has not reached its goal after `max_iterations` rounds"),
    Code(TOOL_ERROR, "act", False, "a tool or a step failed"),
    Code(TOOL_TIMEOUT, "act", True, "a call or a step did not finish before its deadline"),
    Code(DELEGATION_ERROR, "act", False, "another agent's turn, to which this turn delegated a task, did not succeed"),
    Code(
        DELEGATION_TIMEOUT,
        "act",
        True,
        "another agent's turn, to which this turn delegated a task, missed its deadline",
    ),
    Code(MEMORY_ERROR, "any", False, "the memory could not store or search"),
    Code(
        NETWORK_ERROR,
        "any",
        True,
        "a model, an MCP server or a callback could not be reached, or a function raised a connection error",
    ),
    Code(
        AUTH_ERROR,
        "any",
        False,
        "a model's provider or an MCP server rejected the credentials (HTTP status 401 or 403)",
    ),
    Code(
        RATE_LIMITED,
        "any",
        True,
        "a model's provider or an MCP server rejected a request because of its rate limit (HTTP status 429), or a rate limit "
        "of the application admits a call only after its timeout; `details.retry_after_ms` is the delay, if it is known",
    ),
    Code(IN_DOUBT, "any", False, "a side effect that must not be repeated had started, and its result is unknown"),
    Code(RESULT_SCHEMA, "any", False, "the result of a call does not match the `result_schema` of its tool"),
    Code(
        RESULT_TOO_LARGE,
        "any",
        False,
        "the result of a model's tool call is too large to be recorded; the message states whether its effect happened",
    ),
    Code(
        RESULT_MISSING,
        "any",
        False,
        "the turn ended without the required result, or without one of its required fields",
    ),
    Code(DENIED, "any", False, "a person denied the approval or the question, or nobody answered in time"),
    Code(MODEL_TIMEOUT, "any", True, "a model call did not finish within `model_timeout_seconds`"),
    Code(MCP_UNAVAILABLE, "any", True, "the program of an MCP server ended, or the server broke the protocol"),
    Code(NOT_DETERMINISTIC, "any", False, "when the agent's function ran again, it made other calls than before"),
    Code(
        TIMEOUT,
        "any",
        False,
        "a limit of time; `details.scope` names it: `turn` for `timeout_seconds` of the agent and for `dispatch_seconds_max`, "
        "`phase` for a phase of the lifecycle, `total` for `ttl_seconds`",
    ),
    Code(
        RESOURCE_EXHAUSTED,
        "any",
        False,
        "the turn reached a limit: attempts, deferrals, calls, depth, or the size of its signals or values",
    ),
    Code(
        BUDGET_EXCEEDED,
        "any",
        False,
        "a call could have cost more than the rest of a budget: that of its turn, or one that contains it",
    ),
    Code(CIRCUIT_OPEN, "any", True, "a call was not made, because the circuit breaker of its target is open"),
    Code(
        UNDECODABLE,
        "any",
        False,
        "a stored value that the turn needs cannot be decoded; the message names its place in the database",
    ),
    Code(CANCELED, "any", False, "the turn was stopped; its message is the reason"),
    Code(INTERNAL_ERROR, "any", False, "the database rejected the end of the turn; the worker's log has the reason"),
    Code(UNKNOWN, "any", False, "an error without a code of its own"),
)

CODE_NAMES = tuple(each.code for each in CODES)
_BY_CODE = {each.code: each for each in CODES}
# The codes of the specification's table. All others are our own.
SPECIFIED_CODES = (
    INIT_FAILED, PLAN_FAILED, ACTION_FAILED, TOOL_ERROR, TOOL_TIMEOUT, DELEGATION_ERROR, DELEGATION_TIMEOUT, REFLECTION_ERROR,
    MEMORY_ERROR, NETWORK_ERROR, AUTH_ERROR, RESOURCE_EXHAUSTED, TIMEOUT, UNKNOWN,
)  # fmt: skip
CODE_OF_PHASE = {"init": INIT_FAILED, "plan": PLAN_FAILED, "act": ACTION_FAILED, "reflect": REFLECTION_ERROR}
CALL_TIMEOUTS = (TOOL_TIMEOUT, DELEGATION_TIMEOUT, MODEL_TIMEOUT)


def code_in_phase(code: str, phase: str) -> str:
    """Return the code of an error in this phase: `code`, or the phase's own code in place of one of another phase.

    A code that is not in the table is the tool's or the agent's own, and stays. So does any code in phase terminate, which
    has none of its own. Credentials that are rejected in phase init have its code, like missing ones.
    """
    if code == AUTH_ERROR and phase == "init":
        return INIT_FAILED
    known = _BY_CODE.get(code)
    return code if known is None or known.phase in ("any", phase) else CODE_OF_PHASE.get(phase, code)


# Codes of `workflow:end`: why a run ended as failed, although perhaps none of its turns did.
RUN_CODES = (
    (
        MAX_ACTIVATIONS,
        "the run reached `max_activations` turns, counted from its start or from its last message from outside",
    ),
    (
        RESOURCE_EXHAUSTED,
        "the state of the run and its unprocessed signals exceed the 128 MiB that a worker reads at once, or the state does "
        "not fit into `workflow:end` (`blob_bytes_max`), which then has an empty state",
    ),
    (
        UNDECODABLE,
        "the stored state or memory of the run cannot be decoded; the reason names its place in the database",
    ),
    (INTERNAL_ERROR, "the database rejected what the run had to write; the worker's log has the reason"),
    (NOTHING_RAN, "no agent ever ran: no signal activated one, or every guard was false"),
)

# The reason of a stop is free text (G-70). A halt on the wire has one of these five reasons, and the text as its message.
REASONS = (
    (USER_INTERRUPT, "a person stopped it with `helio`, or a program stopped it without giving a reason"),
    (
        RESOURCE_LIMIT,
        "the caller gave this reason: a quota is exceeded. Also of a turn that the runtime itself halts at a budget",
    ),
    (
        POLICY_VIOLATION,
        "the caller gave this reason: a rule of security or compliance is violated. Also of a turn that the runtime itself halts at a "
        "rule about egress or untrusted content",
    ),
    (EXTERNAL_SIGNAL, "a caller of the kernel function `stop` gave no reason"),
    (PARENT_TERMINATION, "the turn that waited for it has ended"),
)
