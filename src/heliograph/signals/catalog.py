"""The catalog of standard signals: name, payload, emitter, meaning, and the requirement that each one comes from.

A key without `?` is in every payload. A key with `?` may be missing: it is sometimes unknown, it may be large, or it is a second
name for another key. Payloads may contain further keys. They are the supersets that G-42 and G-43 require.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

# Key to type; a nested mapping describes an inner object.
Shape: TypeAlias = "Mapping[str, str | Shape]"


class Entry(Struct, frozen=True):
    """One standard signal.

    name: contains `*` for a variable segment. source: ids of requirements; "Heliograph" for a signal that no specification has.
    """

    name: str
    payload: Shape
    emitter: str
    meaning: str
    source: str


_CONTENT: Shape = {"content": "string"}
_CHUNK: Shape = {"content": "string", "offset?": "integer"}
_FAILURE: Shape = {"code": "string", "message": "string", "recoverable": "boolean"}

CATALOG: tuple[Entry, ...] = (
    Entry(
        "workflow:start",
        {"state": "object", "session?": "boolean"},
        "runtime",
        "A run starts with this state.",
        "SIG-20",
    ),
    Entry(
        "workflow:forked",
        {
            "run_id": "string",
            "signal": "string",
            "turns": "list",
            "state?": "object",
            "session?": "boolean",
        },
        "runtime",
        "A run continues the log of another run after one of its signals, perhaps with another state; "
        "`turns` says what becomes of the turns that were in progress there.",
        "Heliograph",
    ),
    Entry(
        "workflow:terminating",
        {"reason": "string"},
        "runtime",
        "The run activates no more agents; running turns still finish.",
        "G-42",
    ),
    Entry(
        "workflow:end",
        {"state": "object", "metrics": "object"},
        "runtime",
        "The run has ended with this state.",
        "SIG-21",
    ),
    Entry(
        "agent:activated",
        {"agent": "string", "joined?": "list", "guard?": "object"},
        "runtime",
        "A signal activated an agent; that signal is the parent.",
        "SIG-22",
    ),
    Entry(
        "agent:skipped",
        {"agent": "string", "reason": "string", "joined?": "list", "guard?": "object"},
        "runtime",
        "A signal matched an agent's subscription, but did not activate the agent.",
        "SIG-23, SIG-45",
    ),
    Entry(
        "agent:progress",
        {"agent": "string", "fraction": "number", "message?": "string"},
        "agent",
        "The progress of a turn, from 0 to 1.",
        "Heliograph",
    ),
    Entry(
        "agent:completed",
        {"agent": "string", "output": "any"},
        "runtime",
        "A turn succeeded.",
        "SIG-24, G-42",
    ),
    Entry(
        "agent:failed",
        {"agent": "string", "outcome": "string", "error": _FAILURE, "deliverable_card_id": "string or null"},
        "runtime",
        "A turn ended without success; its deliverable has the details.",
        "Heliograph",
    ),
    Entry("harness:start", {"model": "string", "input?": "any"}, "harness", "A model call starts.", "SIG-25, G-43"),
    Entry(
        "harness:end",
        {
            "usage": {"inputTokens": "integer", "outputTokens": "integer"},
            "output?": "any",
            "durationMs?": "number",
            "marks?": "object",
        },
        "harness",
        "A model call succeeded. `marks` has short hashes of the texts of the request, if the reply may have ended its turn.",
        "SIG-26, G-43",
    ),
    Entry(
        "harness:error",
        {"error": "string", **_FAILURE},
        "harness",
        "A model call failed; `error` and `message` are equal.",
        "SIG-27, G-43",
    ),
    Entry(
        "text:delta",
        _CHUNK,
        "harness",
        "A piece of a text; `offset` counts characters from the start of the text.",
        "SIG-28, G-48",
    ),
    Entry("text:complete", _CONTENT, "harness", "The complete text, equal to all its deltas joined.", "SIG-29"),
    Entry("thinking:delta", _CHUNK, "harness", "A piece of the model's thinking.", "SIG-30, G-48"),
    Entry("thinking:complete", _CONTENT, "harness", "The model's complete thinking.", "SIG-31"),
    Entry(
        "tool:call",
        {
            "id": "string",
            "name": "string",
            "input": "any",
            "timeout_seconds?": "number",
            "attempt?": "integer",
            "gateway?": "string",
            "input_hash?": "string",
        },
        "agent",
        "An agent or its model starts a tool call, a step or a timer; the result has the same `id`. `attempt` is the number of the "
        "attempt of a call with a retry policy. A step has a hash of its arguments, which replays compare, in place of `input`.",
        "SIG-32, G-43",
    ),
    Entry(
        "tool:result",
        {
            "id": "string",
            "name": "string",
            "status?": "string",
            "output?": "any",
            "error?": "object",
            "call_id?": "string",
            "card_id?": "string",
            "result?": "any",
        },
        "runtime",
        "A call has ended: `output` after a success, otherwise `error`."
        " A result that is too large for the log is only in the card.",
        "SIG-33, G-43",
    ),
    Entry(
        "delegation",
        {
            "id": "string",
            "target_agent": "string",
            "task": "any",
            "context?": "object",
            "task_id?": "string",
            "status?": "string",
            "priority?": "string",
            "timeout_seconds?": "number",
            "attempt?": "integer",
            "correlation_id?": "string",
            "parent_correlation_id?": "string",
            "envelope?": "object",
            "gateway?": "string",
        },
        "agent",
        "A turn delegated a task to another agent and waits for it; `task_id` is the turn that runs the task."
        " Or another system did, through a gateway: `envelope` names the sender and its trace.",
        "CTL-20, CTL-21, CTL-26, G-16",
    ),
    Entry(
        "delegation_response",
        {
            "id": "string",
            "target_agent": "string",
            "task_id": "string",
            "status": "string",
            "outcome?": "string",
            "duration_ms?": "number",
            "card_id?": "string",
            "result?": "any",
            "error?": "object",
        },
        "runtime",
        "The status of a delegation: `in_progress`, then `completed` or `failed` with its `outcome`."
        " A result that is too large for the log is only in the card.",
        "CTL-25, CTL-26, G-22",
    ),
    Entry(
        "state:*:changed",
        {
            "value": "any",
            "from_index?": "integer",
            "parts?": "boolean",
            "removed?": "list",
            "key?": "string",
            "previousValue?": "any",
            "oldValue?": "any",
            "newValue?": "any",
            "agent?": "string or null",
        },
        "runtime",
        "A key of the state has a new value; the signal's name contains the key."
        " With `from_index`, the value is a list that begins as it did before, and `value` has its items from that index on."
        " With `parts`, `value` has the new parts of a list or an object by their JSON pointers, and `removed` the pointers of what is gone.",
        "SIG-34, G-43",
    ),
    Entry(
        "ready",
        {"capabilities": "list", "version": "string", "metadata?": "object"},
        "agent",
        "The init phase is done. `capabilities`: the agent's tools, the agents it may delegate to, `ask_human`, the signals it may emit.",
        "LC-15, CTL-55",
    ),
    Entry(
        "plan_ready",
        {"steps": "integer", "tools_required": "list", "plan?": "any"},
        "agent",
        "The plan phase is done. `plan`: the plan of an agent with hooks, or null if it is too large for the log.",
        "LC-25",
    ),
    Entry(
        "action_complete",
        {"steps_executed": "integer", "success": "boolean", "actions?": "any"},
        "agent",
        "The act phase is done. `actions`: the results of an agent with hooks, or null if they are too large for the log.",
        "LC-35",
    ),
    Entry(
        "reflection_complete",
        {
            "decision": "string",
            "confidence?": "number",
            "reason?": "string",
            "resume_at?": "string",
            "learnings?": "any",
        },
        "agent",
        "The reflect phase is done: `goal_achieved`, or `iteration_needed` with the `reason`: another round follows, or a limit ended the turn.",
        "LC-43, G-01",
    ),
    Entry(
        "terminated",
        {"status": "string", "outputs": "list", "limit?": "object"},
        "agent",
        "The terminate phase is done. `status` is the outcome; `outputs` contains the output, or null if it is too large for the log.",
        "LC-55",
    ),
    Entry(
        "error",
        {
            "error_code": "string",
            "message": "string",
            "recoverable": "boolean",
            "details?": "object",
            "stack_trace?": "string",
        },
        "agent",
        "An error occurred in the turn.",
        "CTL-45",
    ),
    Entry(
        "halt",
        {"reason": "string", "graceful?": "boolean", "message?": "string", "actor?": "string"},
        "runtime",
        "A turn received a request to stop, or the runtime ends it at a budget (`resource_limit`), or at a rule about egress or untrusted"
        " content (`policy_violation`).",
        "CTL-30",
    ),
    Entry(
        "heartbeat",
        {
            "timestamp": "string",
            "phase": "string",
            "metrics?": "object",
            "status?": "string",
            "warnings?": "list",
            "interval_seconds?": "number",
            "worker?": "string",
        },
        "runtime",
        "A turn runs for longer than the interval of heartbeats, or the status of its worker has changed: `healthy`, `degraded` or"
        " `unhealthy`.",
        "CTL-60",
    ),
)
