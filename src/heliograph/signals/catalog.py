"""Every standard signal: its name, its payload, who emits it, what it means, and which requirement asks for it.

Payloads are the superset that G-42 and G-43 ask for. A key without `?` is always
there; a key with `?` may be left out, because it is unknown at times, large, or a
second name for another. More keys than these are no problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES
from heliograph.signals.pattern import PatternTable
from heliograph.types import Json

# Key to type; a nested mapping is an object with keys of its own.
Shape: TypeAlias = "Mapping[str, str | Shape]"

# "any" is in no need of a check; a bool is no number here, though Python's is.
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "list": (list,),
    "string or null": (str, type(None)),
}


class Entry(Struct, frozen=True):
    """A standard signal. `name` is a pattern where a segment is free; `source` lists requirement ids."""

    name: str
    payload: Shape
    emitter: str
    meaning: str
    source: str


_CONTENT: Shape = {"content": "string"}
_CHUNK: Shape = {"content": "string", "offset?": "integer"}
_FAILURE: Shape = {"code": "string", "message": "string", "recoverable": "boolean"}

CATALOG: tuple[Entry, ...] = (
    Entry("workflow:start", {"state": "object"}, "runtime", "A run begins, with this state.", "SIG-20"),
    Entry(
        "workflow:terminating",
        {"reason": "string"},
        "runtime",
        "A run wakes no more agents; those at work still end.",
        "G-42",
    ),
    Entry("workflow:end", {"state": "object", "metrics": "object"}, "runtime", "A run is over.", "SIG-21"),
    Entry("agent:activated", {"agent": "string"}, "runtime", "A signal woke an agent; it is the parent.", "SIG-22"),
    Entry(
        "agent:skipped",
        {"agent": "string", "reason": "string"},
        "runtime",
        "A signal matched, and the agent was not woken.",
        "SIG-23, SIG-45",
    ),
    Entry(
        "agent:progress",
        {"agent": "string", "fraction": "number", "message?": "string"},
        "agent",
        "How far a turn is, from 0 to 1.",
        "ours",
    ),
    Entry(
        "agent:completed",
        {"agent": "string", "output": "any"},
        "runtime",
        "A turn ended with success.",
        "SIG-24, G-42",
    ),
    Entry(
        "agent:failed",
        {"agent": "string", "outcome": "string", "error": _FAILURE, "deliverable_card_id": "string or null"},
        "runtime",
        "A turn ended in another way; its deliverable tells the rest.",
        "ours",
    ),
    Entry("harness:start", {"model": "string", "input?": "any"}, "harness", "A model is asked.", "SIG-25, G-43"),
    Entry(
        "harness:end",
        {
            "usage": {"inputTokens": "integer", "outputTokens": "integer"},
            "output?": "any",
            "durationMs?": "number",
        },
        "harness",
        "The model has answered.",
        "SIG-26, G-43",
    ),
    Entry(
        "harness:error",
        {"error": "string", **_FAILURE},
        "harness",
        "The model could not answer; `error` and `message` say the same.",
        "SIG-27, G-43",
    ),
    Entry("text:delta", _CHUNK, "harness", "More text; `offset` counts characters from its start.", "SIG-28, G-48"),
    Entry("text:complete", _CONTENT, "harness", "The whole text, equal to its deltas joined.", "SIG-29"),
    Entry("thinking:delta", _CHUNK, "harness", "More of the model's thinking.", "SIG-30, G-48"),
    Entry("thinking:complete", _CONTENT, "harness", "The whole of the thinking.", "SIG-31"),
    Entry(
        "tool:call",
        {"id": "string", "name": "string", "input": "any"},
        "agent",
        "An agent, or its model, calls a tool, a step or a timer; `id` joins the call and its result.",
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
        "A call is answered: `output` of a success, else `error`; too large for a log, the card has it.",
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
        },
        "agent",
        "A turn wants another agent to do something, and waits. It is accepted; `task_id` is the turn that is to do it.",
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
        "How a delegation stands: `in_progress`, then `completed` or `failed` with its `outcome`; too large for a log, the card has it.",
        "CTL-25, CTL-26, G-22",
    ),
    Entry(
        "state:*:changed",
        {
            "value": "any",
            "key?": "string",
            "previousValue?": "any",
            "oldValue?": "any",
            "newValue?": "any",
            "agent?": "string or null",
        },
        "runtime",
        "A key of the state has a new value; the name has the key.",
        "SIG-34, G-43",
    ),
    Entry(
        "ready",
        {"capabilities": "list", "version": "string", "metadata?": "object"},
        "agent",
        "init is done. `capabilities`: the agent's tools, the agents it delegates to, `ask_human`, the signals it emits.",
        "LC-15, CTL-55",
    ),
    Entry("plan_ready", {"steps": "integer", "tools_required": "list"}, "agent", "plan is done.", "LC-25"),
    Entry("action_complete", {"steps_executed": "integer", "success": "boolean"}, "agent", "act is done.", "LC-35"),
    Entry(
        "reflection_complete",
        {"decision": "string", "confidence?": "number", "reason?": "string", "resume_at?": "string"},
        "agent",
        "reflect is done: `goal_achieved`, or `iteration_needed` where a limit cut the turn short, with the `reason`.",
        "LC-43, G-01",
    ),
    Entry(
        "terminated",
        {"status": "string", "outputs": "list", "limit?": "object"},
        "agent",
        "terminate is done. `status` is the outcome; `outputs` has the output, or null where it is too large for a log.",
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
        "An error condition.",
        "CTL-45",
    ),
    Entry(
        "halt",
        {"reason": "string", "graceful?": "boolean", "message?": "string", "actor?": "string"},
        "runtime",
        "A turn is told to stop.",
        "CTL-30",
    ),
    Entry(
        "heartbeat",
        {"timestamp": "string", "phase": "string", "metrics?": "object", "status?": "string"},
        "runtime",
        "A turn is alive.",
        "CTL-60",
    ),
)

_TABLE: PatternTable[Entry] = PatternTable((entry.name, entry) for entry in CATALOG)


def check_standard(name: str, payload: Json) -> list[str]:
    """What is wrong with the payload of a standard signal; empty for a sound one and for a custom signal.

    A reserved name that is not in the catalog is a problem, too.
    """
    entries = _TABLE.match(name)
    if entries:
        return [problem for entry in entries for problem in _compare(payload, entry.payload, name)]
    if name in RESERVED_NAMES or name.partition(":")[0] in RESERVED_FIRST_SEGMENTS:
        return [f"{name}: a reserved name that is not in the catalog"]
    return []


def render_catalog() -> str:
    """The catalog as the Markdown table of docs/reference/signals.md, with a newline at its end."""
    lines = ["| Signal | Payload | Emitted by | Meaning | Source |", "|---|---|---|---|---|"]
    for entry in CATALOG:
        name = entry.name.replace("*", "<key>")
        lines.append(f"| `{name}` | `{_spell(entry.payload)}` | {entry.emitter} | {entry.meaning} | {entry.source} |")
    return "\n".join(lines) + "\n"


def _compare(value: Json, shape: Shape, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: an object is needed, not {type(value).__name__}"]
    problems: list[str] = []
    for spelled, expected in shape.items():
        key = spelled.removesuffix("?")
        if key not in value:
            if key == spelled:
                problems.append(f"{where}: '{key}' is missing")
        elif isinstance(expected, str):
            problems += _compare_scalar(value[key], expected, f"{where}.{key}")
        else:
            problems += _compare(value[key], expected, f"{where}.{key}")
    return problems


def _compare_scalar(value: Json, expected: str, where: str) -> list[str]:
    if expected == "any" or type(value) in _TYPES[expected]:
        return []
    return [f"{where}: {expected} is needed, not {type(value).__name__}"]


def _spell(shape: Shape) -> str:
    """A shape in one line: `agent: string, error{code: string}, message?: string`."""
    parts = (
        f"{key}: {expected}" if isinstance(expected, str) else f"{key}{_spell(expected)}"
        for key, expected in shape.items()
    )
    return "{" + ", ".join(parts) + "}"
