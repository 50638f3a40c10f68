"""The codes with which turns, calls and runs end, and the default reasons of a stop.

Codes of the OSSA specification keep its spelling. A tool may return a code of its own, which is recorded unchanged.
`make docs` generates the tables of docs/reference/errors.md from here; the kernel's SQL uses the same codes (tests/rules/test_codes.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

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
IN_DOUBT = "IN_DOUBT"
NOT_DETERMINISTIC = "NOT_DETERMINISTIC"
RESULT_MISSING = "RESULT_MISSING"
DENIED = "DENIED"
MODEL_TIMEOUT = "MODEL_TIMEOUT"
MCP_UNAVAILABLE = "MCP_UNAVAILABLE"
BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
RESULT_SCHEMA = "result_schema"  # lower case, like the codes that tools themselves return
UNDECODABLE = "UNDECODABLE"
CANCELED = "CANCELED"
INTERNAL_ERROR = "INTERNAL_ERROR"
MAX_ACTIVATIONS = "MAX_ACTIVATIONS"
NOTHING_RAN = "NOTHING_RAN"
UNKNOWN = "UNKNOWN"

USER_INTERRUPT = "user_interrupt"
RESOURCE_LIMIT = "resource_limit"
POLICY_VIOLATION = "policy_violation"
EXTERNAL_SIGNAL = "external_signal"
PARENT_TERMINATION = "parent_termination"

# The reasons of a halt on the wire.
HaltReason: TypeAlias = Literal[
    "user_interrupt", "resource_limit", "policy_violation", "external_signal", "parent_termination"
]


class Code(NamedTuple):
    """phase: the phase that raises it. recoverable: whether a retry may help, unless an error has its own value."""

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
    Code(PLAN_FAILED, "plan", False, "the plan hook raised an exception, or returned something else than a plan"),
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
    Code(IN_DOUBT, "act", False, "a side effect that must not be repeated had started, and its result is unknown"),
    Code(RESULT_SCHEMA, "act", False, "the result of a call does not match the `result_schema` of its tool"),
    Code(
        RESULT_MISSING,
        "act",
        False,
        "the turn ended without the required result, or without one of its required fields",
    ),
    Code(DENIED, "act", False, "a person denied the approval or the question, or nobody answered in time"),
    Code(MODEL_TIMEOUT, "act", True, "a model call did not finish within `model_timeout_seconds`"),
    Code(MCP_UNAVAILABLE, "act", True, "an MCP server could not be reached"),
    Code(NOT_DETERMINISTIC, "act", False, "when the agent's function ran again, it made other calls than before"),
    Code(
        TIMEOUT,
        "any",
        False,
        "the agent ran longer than `timeout_seconds`, the turn lived longer than `ttl_seconds`, or no worker claimed it "
        "within `dispatch_seconds_max`",
    ),
    Code(
        RESOURCE_EXHAUSTED,
        "any",
        False,
        "the turn reached a limit: attempts, deferrals, calls, depth, or the size of its signals or values",
    ),
    Code(
        BUDGET_EXCEEDED,
        "act",
        False,
        "a call could have cost more than the rest of a budget: that of its turn, or one that contains it",
    ),
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

# The reason of a stop is free text (G-70). A halt on the wire has one of these five; the text is its message.
REASONS = (
    (USER_INTERRUPT, "a person stopped it with `helio`, or a program stopped it without giving a reason"),
    (RESOURCE_LIMIT, "the caller gave this reason: a quota is exceeded"),
    (POLICY_VIOLATION, "the caller gave this reason: a rule of security or compliance is violated"),
    (EXTERNAL_SIGNAL, "a caller of the kernel function `stop` gave no reason"),
    (PARENT_TERMINATION, "the turn that waited for it has ended"),
)
