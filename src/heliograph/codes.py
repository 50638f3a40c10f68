"""All codes with which turns and calls end, and all reasons of a stop.

Codes of the OSSA specification keep its spelling. A tool may return a code of its own, which is passed on unchanged.
`make docs` generates the tables of docs/reference/errors.md from here; the kernel's SQL uses the same codes (tests/rules/test_codes.py).
"""

from __future__ import annotations

from typing import NamedTuple

INIT_FAILED = "INIT_FAILED"
ACTION_FAILED = "ACTION_FAILED"
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
EXTERNAL_SIGNAL = "external_signal"
PARENT_TERMINATION = "parent_termination"


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
        "the turn could not begin: its inbox holds no message for it, or its context box is too large or malformed",
    ),
    Code(ACTION_FAILED, "act", False, "the agent's function raised, or its output does not fit"),
    Code(TOOL_ERROR, "act", False, "a tool or a step answered with an error"),
    Code(TOOL_TIMEOUT, "act", True, "a call or a step was not answered before its deadline"),
    Code(DELEGATION_ERROR, "act", False, "a turn that was delegated to another agent did not succeed"),
    Code(DELEGATION_TIMEOUT, "act", True, "a turn that was delegated did not end before its deadline"),
    Code(IN_DOUBT, "act", False, "an effect began that may happen once, and nobody knows whether it did"),
    Code(RESULT_SCHEMA, "act", False, "the result of a call does not fit the `result_schema` of its tool"),
    Code(
        RESULT_MISSING,
        "act",
        False,
        "the turn ended without the result, or without the fields, that it has to deliver",
    ),
    Code(DENIED, "act", False, "somebody who was asked said no, or nobody answered in time"),
    Code(MODEL_TIMEOUT, "act", True, "a model did not answer within `model_timeout_seconds`"),
    Code(MCP_UNAVAILABLE, "act", True, "a server of tools could not be reached"),
    Code(NOT_DETERMINISTIC, "act", False, "run again, a function asked for other calls than before"),
    Code(
        TIMEOUT,
        "any",
        False,
        "the agent ran longer than `timeout_seconds`, the turn lived longer than `ttl_seconds`, or no worker claimed it "
        "within `dispatch_seconds_max`",
    ),
    Code(RESOURCE_EXHAUSTED, "any", False, "a limit: attempts, deferrals, calls, depth, or the size of what was said"),
    Code(
        BUDGET_EXCEEDED,
        "act",
        False,
        "a call would have cost more than the budget of its turn, or of one above it, has left",
    ),
    Code(
        UNDECODABLE, "any", False, "a stored value that the turn needs cannot be decoded; the message says where it is"
    ),
    Code(CANCELED, "any", False, "the turn was stopped; its message is the reason"),
    Code(INTERNAL_ERROR, "any", False, "the store refused what would have ended the turn; the worker's log says why"),
    Code(UNKNOWN, "any", False, "an error without a code of its own"),
)

# Codes of `workflow:end`: why a run ended as failed although no turn of it may have.
RUN_CODES = (
    (
        MAX_ACTIVATIONS,
        "the run reached `max_activations` turns, counted since it began or since its last message from outside",
    ),
    (
        RESOURCE_EXHAUSTED,
        "the state of the run and the signals it has to react to exceed the 128 MiB that a worker reads",
    ),
    (UNDECODABLE, "the stored state or memory of the run cannot be decoded; the reason says where"),
    (INTERNAL_ERROR, "the store refused what the run had to write; the worker's log says why"),
    (NOTHING_RAN, "the run ended and no agent ever ran: no signal activated one, or every guard refused"),
)

# A stop is a halt with a reason (G-70): free text, and these where nobody gives another.
REASONS = (
    (USER_INTERRUPT, "somebody stopped it, by `helio` or by a program that says no other reason"),
    (EXTERNAL_SIGNAL, "a caller of the kernel's `stop` that says no reason"),
    (PARENT_TERMINATION, "the turn that waited for it has ended"),
)
