"""What an agent is, before it runs: when it wakes, what it may say, what it changes. Source: SIG-40 to SIG-46."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar

from heliograph.errors import InvalidInput, shown
from heliograph.reactive.fields import check_fields
from heliograph.reactive.function import check_function, naming
from heliograph.reactive.state import check_key
from heliograph.reactive.template import SIGNAL_NAMES, check_known, placeholders
from heliograph.reactive.tool import ASK_HUMAN, DELEGATE, SUBMIT_RESULT, Tool, as_tools
from heliograph.signals.names import check_emit_name
from heliograph.signals.pattern import Pattern, check_agent_pattern
from heliograph.types import JsonObject

Effect = Literal["idempotent", "once"]
PRIORITIES = ("low", "normal", "high", "critical")
EFFECTS = ("idempotent", "once")

_NAME_MAX = 64
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MODELS = (("stream", "model"), ("request", "model_name"))  # what tells a Harness, and a model of pydantic-ai

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent of a workflow.

    Exactly one of `run` (a function of one argument, the turn's context) and `prompt` (a template, or a function of
    the context that returns one) is set. `updates` names the state key that takes the output, or several keys of an
    output that is an object. `effect` says what a second run after a crash may do: `idempotent` agents are run again
    from the start, `once` agents are not: their turn ends as failed with code IN_DOUBT. `timeout_seconds` bounds one
    run, `ttl_seconds` the turn's whole life, queueing, waiting and recoveries included. `retries` is how often one question
    to its model puts the turn off when it fails in a way that may pass. `result_fields` are what its deliverable must have (L0-85).

    Of those that ask a model: `model` may be several, each asked where the one before fails. `tools` are what it may call,
    `agents` whom it may delegate to. `max_steps` is how often it asks in one turn; then the turn ends as partial, with what
    there is. `must_end_with` names the tool that has to be its last call. `asks_human` lets it ask people: True, or how
    many seconds an answer may take.
    `model_timeout_seconds` bounds one answer.
    """

    name: str
    activate_on: tuple[Pattern, ...]
    activate_when_all: tuple[Pattern, ...] = ()
    emits: tuple[str, ...] = ()
    when: Callable[..., bool] | None = None
    updates: tuple[str, ...] = ()
    updates_one: bool = True
    run: Callable[[Any], Any] | None = None
    prompt: str | Callable[[Any], str] | None = None
    model: Any = None
    output: Any = None
    system: str | None = None
    effect: Effect = "idempotent"
    priority: int = 1
    timeout_seconds: float = 300.0
    ttl_seconds: float = 3600.0
    max_attempts: int = 5
    retries: int = 3
    result_fields: tuple[JsonObject, ...] = ()
    tools: tuple[Any, ...] = ()
    agents: tuple[str, ...] = ()
    max_steps: int = 20
    must_end_with: str | None = None
    asks_human: bool | float = False
    model_timeout_seconds: float | None = None
    version: str = "1"
    when_arity: int = field(default=1)

    @property
    def limits(self) -> dict[str, Any]:
        """What the kernel is told of each of its turns."""
        told: dict[str, Any] = {
            "priority": self.priority, "max_attempts": self.max_attempts, "ttl_seconds": self.ttl_seconds,
        }  # fmt: skip
        return {**told, "result_fields": list(self.result_fields)} if self.result_fields else told

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.activate_on + self.activate_when_all


def define_agent(
    name: str,
    *,
    run: Callable[[Any], Any] | None = None,
    prompt: str | Callable[[Any], str] | None = None,
    model: Any = None,
    output: Any = None,
    system: str | None = None,
    activate_on: Sequence[str] = (),
    activate_when_all: Sequence[str] = (),
    emits: Sequence[str] = (),
    when: Callable[..., bool] | None = None,
    updates: str | Sequence[str] = (),
    priority: str = "normal",
    effect: Effect = "idempotent",
    timeout_seconds: float = 300.0,
    ttl_seconds: float = 3600.0,
    max_attempts: int = 5,
    retries: int = 3,
    result_fields: Sequence[Mapping[str, Any]] = (),
    on_request: bool = False,
    tools: Sequence[Any] = (),
    agents: Sequence[str] = (),
    max_steps: int = 20,
    must_end_with: str | None = None,
    asks_human: bool | float = False,
    model_timeout_seconds: float | None = None,
    version: str = "1",
    **unknown: Any,
) -> AgentSpec:
    """An agent from what its author wrote; everything is checked here, before anything runs.

    on_request: it may do without a signal that wakes it, for others delegate to it or send it messages.
    Raises InvalidInput naming the agent, the argument and the rule; Refused for a reserved signal name.
    """
    _check_name(name)
    _check_options(name, unknown)
    any_of = _each(name, "activate_on", activate_on, check_agent_pattern)
    all_of = _each(name, "activate_when_all", activate_when_all, check_agent_pattern)
    said = _each(name, "emits", emits, check_emit_name)
    changed = _each(name, "updates", (updates,) if isinstance(updates, str) else updates, check_key)
    _check_once(name, "emits", said)
    _check_once(name, "updates", changed)
    if not any_of and not all_of and on_request is not True:
        raise InvalidInput(
            f"agent {name} would never wake: give activate_on or activate_when_all, such as ['workflow:start'], or "
            "on_request=True where others delegate to it", code="required_field", path=f"/agents/{name}/activate_on",
        )  # fmt: skip
    if (run is None) == (prompt is None):
        raise InvalidInput(f"agent {name} needs either a function or a prompt, and not both", code="required_field",
                           path=f"/agents/{name}")  # fmt: skip
    if run is not None:
        _check_run(name, run)
    else:
        _check_prompt(name, prompt)
        _check_model(name, model, system)
    _check_one_of(name, "priority", priority, PRIORITIES)
    _check_one_of(name, "effect", effect, EFFECTS)
    _check_number(name, "timeout_seconds", timeout_seconds, 0.001, 31_622_400)
    _check_number(name, "ttl_seconds", ttl_seconds, 0.001, 31_622_400)
    _check_number(name, "max_attempts", max_attempts, 1, 1000, whole=True)
    _check_number(name, "retries", retries, 0, 1000, whole=True)
    _check_number(name, "max_steps", max_steps, 1, 10_000, whole=True)
    if model_timeout_seconds is not None:
        _check_number(name, "model_timeout_seconds", model_timeout_seconds, 0.001, 31_622_400)
    if not isinstance(asks_human, bool):
        _check_number(name, "asks_human", asks_human, 0.001, 31_622_400)
    has_tools = as_tools(name, tools)
    asked = _each(name, "agents", agents, str)
    if run is not None and (has_tools or asked or must_end_with or asks_human):
        _refuse(
            name,
            "tools",
            "are for an agent that asks a model; a function calls what it wants by its context",
            "wrong_type",
        )
    if must_end_with is not None:
        _check_must(name, must_end_with, has_tools, asked, output, asks_human=bool(asks_human))
    _check_text(name, "version", version)
    with naming(f"agent {name}", f"/agents/{name}/result_fields"):
        wanted = check_fields(result_fields)
    return AgentSpec(
        name=name, run=run, prompt=prompt, model=model, output=output, system=system,
        activate_on=any_of, activate_when_all=all_of, emits=said,
        when=when, when_arity=_arity(name, when), updates=changed, updates_one=isinstance(updates, str),
        priority=PRIORITIES.index(priority), effect=effect, timeout_seconds=float(timeout_seconds),
        ttl_seconds=float(ttl_seconds), max_attempts=max_attempts, retries=retries, result_fields=tuple(wanted),
        tools=has_tools, agents=asked, max_steps=max_steps, must_end_with=must_end_with, asks_human=asks_human,
        model_timeout_seconds=model_timeout_seconds, version=version,
    )  # fmt: skip


def decided(value: object) -> bool:
    """What a guard or an `end_when` has answered. Raises TypeError for an awaitable, which is no answer yet."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
        raise TypeError("it returned an awaitable: it must answer at once, so it can wait for nothing")
    return bool(value)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > _NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(
            f"an agent's name is 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-', not {shown(repr(name))}",
            code="invalid_identifier", path="/agents",
        )  # fmt: skip


def _check_options(name: str, unknown: dict[str, Any]) -> None:
    known = [p for p in inspect.signature(define_agent).parameters if p not in ("name", "unknown")]
    for argument in unknown:
        near = difflib.get_close_matches(argument, known, 1)
        says = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise InvalidInput(f"agent {name} has no option {shown(argument)}; {says}", code="unknown_field",
                           path=f"/agents/{name}/{argument}")  # fmt: skip


def _each(name: str, argument: str, values: Sequence[str], check: Callable[[str], T]) -> tuple[T, ...]:
    if isinstance(values, str):
        _refuse(name, argument, f"takes a list, not one string; write [{shown(repr(values))}]", "wrong_type")
    if not isinstance(values, list | tuple):  # a set has another order in each process
        _refuse(name, argument, f"takes a list of strings, not {shown(values)}", "wrong_type")
    with naming(f"agent {name}: {argument}", f"/agents/{name}/{argument}"):
        return tuple(check(value) for value in values)


def _check_once(name: str, argument: str, values: Sequence[str]) -> None:
    twice = next((value for n, value in enumerate(values) if value in values[:n]), None)
    if twice is not None:
        _refuse(name, argument, f"has {shown(repr(twice))} twice; take one of them out", "duplicate_entry")


def _check_run(name: str, run: object) -> None:
    if isinstance(run, type):
        _refuse(name, "run", f"is the class {run.__name__}; give a function, or an object with __call__", "wrong_type")
    check_function(run, f"agent {name}", f"/agents/{name}/run", "the context", waits=True)


def _arity(name: str, when: object) -> int:
    """1 for a guard of the state, 2 for a guard of the state and the signal."""
    if when is None:
        return 1
    return check_function(when, f"agent {name}: when", f"/agents/{name}/when", "the state", "the signal", least=1)


def _check_prompt(name: str, prompt: object) -> None:
    if isinstance(prompt, str):
        _check_text(name, "prompt", prompt)
        with naming(f"agent {name}: prompt", f"/agents/{name}/prompt"):
            for used in placeholders(prompt):
                if not used.startswith("state."):  # which keys there are, the workflow knows
                    check_known(used, (*SIGNAL_NAMES, "state.<key>"))
    elif callable(prompt):
        check_function(prompt, f"agent {name}: prompt", f"/agents/{name}/prompt", "the context")
    else:
        _refuse(name, "prompt", f"is text or a function of the context, not {shown(prompt)}", "wrong_type")


def _check_model(name: str, model: object, system: object) -> None:
    if system is not None:
        _check_text(name, "system", system)
    if isinstance(model, list | tuple):
        if not model:
            _refuse(name, "model", "is an empty list; name at least one", "required_field")
        for each in model:
            _check_model(name, each, None)
        return
    is_model = not isinstance(model, type) and any(all(hasattr(model, a) for a in known) for known in _MODELS)
    if isinstance(model, str):
        _check_text(name, "model", model)
    elif model is not None and not is_model:
        _refuse(name, "model", "is a name such as 'openai-chat:gpt-5', a pydantic-ai model, a Harness, or None for "
                f"HELIOGRAPH_MODEL, not {shown(model)}", "wrong_type")  # fmt: skip


def _check_must(
    name: str, must: object, tools: Sequence[Any], agents: Sequence[str], output: object, *, asks_human: bool
) -> None:
    """The last call has to be one that the agent can make, and makes its output; a type of its own cannot, too."""
    _check_text(name, "must_end_with", must)
    if output is not None:
        _refuse(
            name, "output", "and must_end_with exclude each other: the result of that tool is the output", "wrong_type"
        )
    if all(isinstance(each, Tool) for each in tools):  # what a toolset has is known when it is opened
        known = [SUBMIT_RESULT, *(each.name for each in tools), *(f"{DELEGATE}{agent}" for agent in agents)]
        known += [ASK_HUMAN] if asks_human else []
        if must not in known:
            _refuse(name, "must_end_with", f"names one of the agent's tools, {', '.join(known)}, not {shown(must)}",
                    "invalid_enum")  # fmt: skip


def _check_text(name: str, argument: str, value: object) -> None:
    if not isinstance(value, str):
        _refuse(name, argument, f"is a string, not {shown(value)}", "wrong_type")
    if not value.strip():
        _refuse(name, argument, "is empty; give it some text", "required_field")


def _check_one_of(name: str, argument: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        _refuse(name, argument, f"is one of {', '.join(known)}, not {shown(value)}", "invalid_enum")


def _check_number(name: str, argument: str, value: float, low: float, high: float, *, whole: bool = False) -> None:
    if whole and isinstance(value, float):
        _refuse(name, argument, f"is a whole number, not {value}", "wrong_type")
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        _refuse(name, argument, f"is a number from {low} to {high}, not {shown(value)}", "out_of_range")


def _refuse(name: str, argument: str, why: str, code: str) -> NoReturn:
    raise InvalidInput(f"agent {name}: {argument} {why}", code=code, path=f"/agents/{name}/{argument}")
