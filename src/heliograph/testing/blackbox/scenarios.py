"""The runs that the checks observe. Each one is an agents file, which the system under test executes, and how the run is disturbed.

An agents file is JSON: {"name", "routing", "agents": [{"name", "activate_on", "emits", "updates", "runs_if", "on_request",
"control_signals", "steps"}]}. runs_if: false for a guard that is never true. control_signals: as in a RuntimeSpec, for the calls that this
agent makes. routing: null, or a MessageRouting with pools of workers as its queues. The steps of an agent run in order, and the last one
may set its output:

    {"tool": NAME, "result": VALUE}        a tool call with this result
    {"tool": NAME, "error": MESSAGE}       a tool call that fails; the agent continues
    {"tool": NAME, "appends": FILE}        a tool call that appends a line with its name to a file
    {"tool": NAME, "waits_for": FILE}      a tool call that ends when the file exists
    {"delegate": AGENT, "task": OBJECT}    a delegation; the agent continues after a failure, unless "required" is true
    {"report_error": CODE, "message": TEXT}  a recoverable error
    {"fail": MESSAGE}                      the agent fails with an error from which it does not recover
    {"busy": MESSAGE}                      the agent fails with the recoverable error NETWORK_ERROR
    {"busy": MESSAGE, "if_task": KEY}      the same, if its task has this key
    {"pause": SECONDS}                     the agent waits
    {"output": VALUE}                      the output of the agent
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

START = ["workflow:start"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run. state: its initial state. disturbance: what happens to it when the tool call `middle` has started, or for `pool`, when
    the other pool has its worker. routing: a MessageRouting.
    """

    name: str
    agents: tuple[dict[str, Any], ...]
    state: dict[str, Any]
    disturbance: Literal["none", "kill", "stop", "pool"] = "none"
    routing: dict[str, Any] | None = None


CHAIN = Scenario(
    "chain",
    (
        {"name": "writer", "activate_on": START, "emits": ["draft:ready"], "updates": "draft",
         "steps": [{"tool": "measure", "result": {"words": 3}}, {"output": "three short words"}]},
        {"name": "critic", "activate_on": ["nothing:ready", "draft:ready"], "emits": ["verdict:ready"], "updates": "verdict",
         "steps": [{"output": "good"}]},
        {"name": "censor", "activate_on": ["draft:ready"], "runs_if": False, "steps": [{"output": "never"}]},
        {"name": "printer", "activate_on": ["state:verdict:changed"], "updates": "printed", "steps": [{"output": True}]},
        {"name": "one-segment", "activate_on": ["draft:*"], "steps": [{"output": 1}]},
        {"name": "leading", "activate_on": ["*:ready"], "steps": [{"output": 1}]},
        {"name": "many-segments", "activate_on": ["verdict:**"], "steps": [{"output": 1}]},
        {"name": "bystander", "activate_on": ["draft:removed"], "steps": [{"output": "never"}]},
    ),
    {"title": "words"},
)  # fmt: skip
CALLS = Scenario(
    "calls",
    (
        {"name": "editor", "activate_on": START, "updates": "text", "steps": [
            {"tool": "weather", "result": {"celsius": 3}}, {"tool": "printer", "error": "no ink"},
            {"delegate": "author", "task": {"topic": "ink"}}, {"delegate": "critic", "task": {"topic": "ink"}},
            {"report_error": "NETWORK_ERROR", "message": "no line"}, {"output": "done"}]},
        {"name": "author", "on_request": True, "steps": [{"output": "all about ink"}]},
        {"name": "critic", "on_request": True, "steps": [{"fail": "too short"}]},
    ),
    {},
)  # fmt: skip
FAILURE = Scenario(
    "failure",
    (
        {"name": "writer", "activate_on": START, "emits": ["draft:ready"], "steps": [{"fail": "no paper"}]},
        {"name": "critic", "activate_on": ["draft:ready"], "steps": [{"output": "never"}]},
        {"name": "editor", "activate_on": START, "steps": [{"delegate": "author", "task": {"topic": "ink"}, "required": True}]},
        {"name": "author", "on_request": True, "steps": [{"fail": "no idea"}]},
    ),
    {},
)  # fmt: skip
_LONG = {"name": "writer", "activate_on": START, "emits": ["draft:ready"], "updates": "draft", "steps": [
    {"tool": "first", "appends": "effects"}, {"tool": "middle", "waits_for": "gate"},
    {"tool": "last", "appends": "effects"}, {"output": "done"}]}  # fmt: skip
_AFTER = {"name": "critic", "activate_on": ["draft:ready"], "steps": [{"output": "good"}]}
KILL = Scenario("kill", (_LONG, _AFTER), {}, "kill")
STOP = Scenario("stop", (_LONG, _AFTER), {}, "stop")
POOL = "other"
ROUTES = Scenario(
    "routes",
    (
        {"name": "editor", "activate_on": START, "updates": "text", "steps": [
            {"delegate": "plain", "task": {}}, {"delegate": "slow-printer", "task": {}}, {"output": "done"}]},
        {"name": "plain", "on_request": True, "steps": [{"output": "plain"}]},
        {"name": "slow-printer", "on_request": True, "steps": [{"output": "slow"}]},
    ),
    {},
    "pool",
    {"apiVersion": "ossa/v0.4.9", "kind": "MessageRouting", "routes": [
        {"match": {"signal_type": "tool_call"}, "destination": {"queue": "nowhere"}},
        {"match": {"signal_type": "delegation", "target_agent": "slow-*"}, "destination": {"queue": POOL, "priority": "high"}}]},
)  # fmt: skip

_RETRIED = {"jitter": False, "retryable_errors": ["NETWORK_ERROR", "DELEGATION_ERROR"]}
RETRIES: dict[str, dict[str, Any]] = {  # the control signals of the agents that delegate, by the names of their delegates
    "default": {"delegation": {"retry": _RETRIED}},
    "off": {"delegation": {"retry": {**_RETRIED, "enabled": False}}},
    "constant": {"delegation": {"retry": {**_RETRIED, "strategy": "constant", "max_attempts": 4}}},
    "linear": {"delegation": {"retry": {**_RETRIED, "strategy": "linear", "max_attempts": 4}}},
    "exponential": {"delegation": {"retry": {**_RETRIED, "strategy": "exponential", "max_attempts": 4}}},
    "capped": {"delegation": {"retry": {**_RETRIED, "strategy": "exponential", "max_attempts": 4, "max_delay_ms": 1000}}},
    "other-code": {"delegation": {"retry": {"jitter": False, "retryable_errors": ["TOOL_TIMEOUT"]}}},
    "other-type": {"tool_call": {"retry": _RETRIED}},
}  # fmt: skip
BREAKERS: dict[str, tuple[dict[str, Any], list[Any]]] = {  # with the delegations, which fail for "busy", and pauses
    "moody": ({"delegation": {"circuit_breaker": {"failure_threshold": 2, "timeout_seconds": 2, "half_open_max_calls": 2, "success_threshold": 2}}},
              ["busy", "busy", "well", 2.5, "well", "well", "busy", "well"]),
    "stubborn": ({"delegation": {"circuit_breaker": {"failure_threshold": 1, "timeout_seconds": 2, "half_open_max_calls": 1, "success_threshold": 1}}},
                 ["busy", "well", 2.5, "busy", "well"]),
    "unguarded": ({"delegation": {"circuit_breaker": {"enabled": False, "failure_threshold": 1}}}, ["busy", "well"]),
    "tool-guarded": ({"tool_call": {"circuit_breaker": {"failure_threshold": 1}}}, ["busy", "well"]),
}  # fmt: skip


def _step(delegate: str, each: str | float) -> dict[str, Any]:
    return {"delegate": delegate, "task": {each: True}} if isinstance(each, str) else {"pause": each}


RETRY = Scenario(
    "retry",
    tuple(agent for name, signals in RETRIES.items() for agent in (
        {"name": f"caller-{name}", "activate_on": START, "control_signals": signals, "steps": [_step(name, "busy"), {"output": "done"}]},
        {"name": name, "on_request": True, "steps": [{"busy": "try again"}]})),
    {},
)  # fmt: skip
BREAKER = Scenario(
    "breaker",
    tuple(agent for name, (signals, steps) in BREAKERS.items() for agent in (
        {"name": f"caller-{name}", "activate_on": START, "control_signals": signals,
         "steps": [*(_step(name, each) for each in steps), {"output": "done"}]},
        {"name": name, "on_request": True, "steps": [{"busy": "try again", "if_task": "busy"}, {"output": "well"}]})),
    {},
)  # fmt: skip

SCENARIOS = {each.name: each for each in (CHAIN, CALLS, FAILURE, KILL, STOP, ROUTES, RETRY, BREAKER)}
