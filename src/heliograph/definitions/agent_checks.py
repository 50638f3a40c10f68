"""Check the options of `define_agent`. Each error names the agent, the option and the rule."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from heliograph.definitions.functions import check_function, naming
from heliograph.definitions.templates import SIGNAL_NAMES, check_known, placeholders
from heliograph.definitions.tool import ASK_HUMAN, DELEGATE, SUBMIT_RESULT, Tool
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

SECONDS_MAX = 31_622_400
OUTPUT_TOKENS_MAX = 10_000_000
TEMPERATURE_MAX = 2.0

_NAME_MAX = 64
_BOX_ID_MAX = 200
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MODELS = (("stream", "model"), ("request", "model_name"))  # the attributes of a Harness, and of a pydantic-ai model

T = TypeVar("T")


def check_name(name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > _NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(
            f"an agent's name must be 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(name))}",
            code="invalid_identifier", path="/agents",
        )  # fmt: skip


def check_options(name: str, unknown: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise InvalidInput for the first unknown option, with the most similar one of the function's parameters."""
    known = [each for each in inspect.signature(function).parameters if each not in ("name", "unknown")]
    for argument in unknown:
        similar = difflib.get_close_matches(argument, known, 1)
        suggestion = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(known)}"
        raise InvalidInput(f"agent {name} has no option {safe_repr(argument)}; {suggestion}", code="unknown_field",
                           path=f"/agents/{name}/{argument}")  # fmt: skip


def each_of(name: str, argument: str, values: Sequence[Any], check: Callable[[Any], T]) -> tuple[T, ...]:
    """Check a list, and return what `check` returns for each of its values."""
    if isinstance(values, str):
        raise_invalid(
            name, argument, f"takes a list, not one string; write [{safe_repr(repr_of(values))}]", "wrong_type"
        )
    if not isinstance(values, list | tuple):  # the order of a set differs between processes
        raise_invalid(name, argument, f"must be a list of strings, not {safe_repr(values)}", "wrong_type")
    with naming(f"agent {name}: {argument}", f"/agents/{name}/{argument}"):
        return tuple(check(value) for value in values)


def check_on_request(name: str, on_request: object) -> None:
    if not isinstance(on_request, bool):
        raise InvalidInput(f"agent {name}: on_request must be True or False, not {safe_repr(repr_of(on_request))}", code="wrong_type",
                           path=f"/agents/{name}/on_request")  # fmt: skip


def check_work(
    name: str, run: object, prompt: object, model: object, system: object, *, has_plan: bool = False
) -> None:
    """Check that the agent has either a function or a prompt, or a plan to execute, and check the options of that one."""
    if (run is None) == (prompt is None) and not (run is None and has_plan):
        raise InvalidInput(f"agent {name} needs either a function or a prompt, and not both", code="required_field",
                           path=f"/agents/{name}")  # fmt: skip
    if run is not None:
        _check_run(name, run)
    else:
        if prompt is not None:
            _check_prompt(name, prompt)
        _check_model(name, model, system)


def check_seconds_of(name: str, **given: Any) -> None:
    for argument, value in given.items():
        check_number(name, argument, value, 0.001, SECONDS_MAX)


def check_limits(
    name: str, timeout_seconds: float, ttl_seconds: float, max_attempts: int, retries: int, max_steps: int
) -> None:
    check_seconds_of(name, timeout_seconds=timeout_seconds, ttl_seconds=ttl_seconds)
    check_number(name, "max_attempts", max_attempts, 1, 1000, whole=True)
    check_number(name, "retries", retries, 0, 1000, whole=True)
    check_number(name, "max_steps", max_steps, 1, 10_000, whole=True)


def check_answers(
    name: str, model_timeout_seconds: float | None, asks_human: bool | float, max_output_tokens: int | None, temperature: float | None
) -> None:  # fmt: skip
    """Check the limits of answers from models and from people, and the temperature of models."""
    if model_timeout_seconds is not None:
        check_seconds_of(name, model_timeout_seconds=model_timeout_seconds)
    if not isinstance(asks_human, bool):
        check_seconds_of(name, asks_human=asks_human)
    if max_output_tokens is not None:
        check_number(name, "max_output_tokens", max_output_tokens, 1, OUTPUT_TOKENS_MAX, whole=True)
    if temperature is not None:
        check_number(name, "temperature", temperature, 0, TEMPERATURE_MAX)


def check_for_models(name: str, is_function: bool, given: Sequence[object]) -> None:
    """Reject the options of model agents for an agent that is a function."""
    if is_function and any(given):
        raise_invalid(name, "tools", "is for agents with a model; a function calls tools and agents through its context",
                      "wrong_type")  # fmt: skip


def check_credentials(name: str, given: Any) -> tuple[str, ...]:
    """Return the names of the credentials. Raises InvalidInput."""
    values = each_of(name, "credentials", given, lambda value: check_id(name, "credentials", value))
    check_once(name, "credentials", values)
    return values


def check_id(name: str, argument: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_MAX or not _NAME_CHARACTERS.issuperset(value):
        raise_invalid(name, argument, f"has {safe_repr(repr_of(value))}, and a name is 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-'",
               "invalid_id")  # fmt: skip
    return value


def check_once(name: str, argument: str, values: Sequence[str]) -> None:
    twice = next((value for n, value in enumerate(values) if value in values[:n]), None)
    if twice is not None:
        raise_invalid(name, argument, f"has {safe_repr(repr_of(twice))} twice; remove one of them", "duplicate_entry")


def check_delegate(agent: str) -> str:
    if not isinstance(agent, str) or len(agent) > _NAME_MAX - len(DELEGATE):
        raise InvalidInput(f"the name of an agent that a model delegates to has at most {_NAME_MAX - len(DELEGATE)} "
                           f"characters, because its tool is {DELEGATE}<name> and providers accept {_NAME_MAX} characters; not "
                           f"{safe_repr(repr_of(agent))}", code="invalid_identifier")  # fmt: skip
    return agent


def check_shared_contexts(name: str, contexts: object, agents: Sequence[str]) -> None:
    """Check the context boxes that a model may pass on: a mapping from names, or a function of the context that returns it."""
    if not agents:
        raise_invalid(
            name, "contexts", "are context boxes for delegations; list the other agents in agents", "required_field"
        )
    if callable(contexts):
        check_function(contexts, f"agent {name}: contexts", f"/agents/{name}/contexts", "the context")
    else:
        check_contexts(name, contexts)


def check_contexts(name: str, contexts: object) -> dict[str, str]:
    """Check a mapping from names to box ids, and return it without the names that have no box."""
    if not isinstance(contexts, Mapping):
        raise_invalid(
            name, "contexts", f"must be an object of names and box ids, not {safe_repr(contexts)}", "wrong_type"
        )
    boxes = {key: box for key, box in contexts.items() if box is not None}
    for key, box in boxes.items():
        for what, value, most in (("a name", key, _NAME_MAX), ("a box id", box, _BOX_ID_MAX)):
            if not isinstance(value, str) or not 0 < len(value) <= most or not _NAME_CHARACTERS.issuperset(value):
                raise_invalid(name, "contexts", f"has {safe_repr(repr_of(value))}, and {what} is 1 to {most} ASCII letters, digits, '_' or '-'",
                              "invalid_id")  # fmt: skip
    return boxes


def _check_run(name: str, run: object) -> None:
    if isinstance(run, type):
        hooks = [hook for hook in ("act", "plan") if callable(getattr(run, hook, None))]
        do = "derive it from heliograph.agents.Agent" if hooks else "give a function, or an object with __call__"
        raise_invalid(name, "run", f"is the class {run.__name__}; {do}", "wrong_type")
    check_function(run, f"agent {name}", f"/agents/{name}/run", "the context", waits=True)


def arity(name: str, when: object) -> int:
    """Return the number of arguments of a guard: 1 for the state, 2 for the state and the signal."""
    if when is None:
        return 1
    return check_function(when, f"agent {name}: when", f"/agents/{name}/when", "the state", "the signal", least=1)


def _check_prompt(name: str, prompt: object) -> None:
    if isinstance(prompt, str):
        check_text(name, "prompt", prompt)
        with naming(f"agent {name}: prompt", f"/agents/{name}/prompt"):
            for used in placeholders(prompt):
                if not used.startswith("state."):  # the workflow checks the keys of the state
                    check_known(used, (*SIGNAL_NAMES, "state.<key>"))
    elif callable(prompt):
        check_function(prompt, f"agent {name}: prompt", f"/agents/{name}/prompt", "the context")
    else:
        raise_invalid(
            name, "prompt", f"must be text or a function of the context, not {safe_repr(prompt)}", "wrong_type"
        )


def _check_model(name: str, model: object, system: object) -> None:
    if system is not None:
        check_text(name, "system", system)
    if isinstance(model, list | tuple):
        if not model:
            raise_invalid(name, "model", "is an empty list; name at least one model", "required_field")
        for each in model:
            _check_model(name, each, None)
        return
    is_model = not isinstance(model, type) and any(all(hasattr(model, a) for a in known) for known in _MODELS)
    if isinstance(model, str):
        check_text(name, "model", model)
    elif model is not None and not is_model:
        raise_invalid(name, "model", "must be a name such as 'openai-chat:gpt-5', a pydantic-ai model, a Harness, or None for "
                      f"HELIOGRAPH_MODEL, not {safe_repr(model)}", "wrong_type")  # fmt: skip


def check_tool_names(name: str, tools: Sequence[Any], agents: Sequence[str], *, asks_human: bool) -> None:
    """Check that no tool of an agent has the name of a delegation, or of a question to a person."""
    taken = {*(f"{DELEGATE}{agent}" for agent in agents), *([ASK_HUMAN] if asks_human else [])}
    if twice := next((each.name for each in tools if isinstance(each, Tool) and each.name in taken), None):
        raise_invalid(
            name,
            "tools",
            f"has the name {twice} of a tool of the runtime; give the tool another name",
            "duplicate_entry",
        )


def check_must_end_with(
    name: str, must: object, tools: Sequence[Any], agents: Sequence[str], output: object, *, asks_human: bool
) -> None:
    """Check that `must_end_with`, if it is given, is a tool of the agent, whose result replaces an output type."""
    if must is None:
        return
    check_text(name, "must_end_with", must)
    if output is not None:
        raise_invalid(
            name,
            "output",
            "and must_end_with exclude each other, because the result of that tool is the output",
            "wrong_type",
        )
    if all(isinstance(each, Tool) for each in tools):  # the tools of a toolset are unknown until it is opened
        known = [SUBMIT_RESULT, *(each.name for each in tools), *(f"{DELEGATE}{agent}" for agent in agents)]
        known += [ASK_HUMAN] if asks_human else []
        if must not in known:
            raise_invalid(name, "must_end_with", f"must name one of the agent's tools, {', '.join(known)}, not {safe_repr(must)}",
                          "invalid_enum")  # fmt: skip


def check_text(name: str, argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise_invalid(name, argument, f"must be a string, not {safe_repr(value)}", "wrong_type")
    if not value.strip():
        raise_invalid(name, argument, "is empty; give it some text", "required_field")


def check_one_of(name: str, argument: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise_invalid(name, argument, f"must be one of {', '.join(known)}, not {safe_repr(value)}", "invalid_enum")


def check_number(name: str, argument: str, value: float, low: float, high: float, *, whole: bool = False) -> None:
    if whole and isinstance(value, float):
        raise_invalid(name, argument, f"must be a whole number, not {value}", "wrong_type")
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise_invalid(
            name, argument, f"must be a number from {low} to {high}, not {safe_repr(repr_of(value))}", "out_of_range"
        )


def raise_invalid(name: str, argument: str, problem: str, code: str) -> NoReturn:
    """Raise InvalidInput for an invalid option of an agent."""
    raise InvalidInput(
        f"agent {name}: {argument} {problem}", code=code, path=f"/agents/{name}/{argument.replace('.', '/')}"
    )
