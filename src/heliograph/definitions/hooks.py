"""The hooks of an agent: functions, or the methods of a class, that run in its phases."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, get_origin

from heliograph.definitions.agent_checks import raise_invalid
from heliograph.definitions.forms import schema_of
from heliograph.definitions.functions import check_function
from heliograph.definitions.lifecycle import HOOKS
from heliograph.error_text import format_exception, repr_of, safe_repr


class Agent:
    """The base class of an agent with hooks, which `@app.agent(...)` registers.

    Its hooks are the methods `init`, `plan`, `act`, `reflect` and `terminate`, plain or async, with a `PhaseContext` as the only
    argument. It needs `act` or `plan`. Each run of a hook creates an object of the class without arguments, so attributes do not
    reach the next hook: pass values in `ctx.working_memory`, which survives a crash. At `@app.agent`, type checkers
    compare the types of their contexts with the application's `state` and `deps`.
    """

    if TYPE_CHECKING:  # for checkers, any application accepts a hook that a class does not define; see decisions/0179

        def init(self, *context: Any, **nothing: Any) -> Any: ...
        def plan(self, *context: Any, **nothing: Any) -> Any: ...
        def act(self, *context: Any, **nothing: Any) -> Any: ...
        def reflect(self, *context: Any, **nothing: Any) -> Any: ...
        def terminate(self, *context: Any, **nothing: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class MethodHook:
    """A hook that is a method: each call runs it on a new object of its class."""

    kind: type[Agent]
    phase: str

    @property
    def method(self) -> Callable[..., Any]:
        """The function of the class, plain or async."""
        function: Callable[..., Any] = getattr(self.kind, self.phase)
        return function

    def __call__(self, context: Any) -> Any:
        return getattr(self.kind(), self.phase)(context)


@dataclass(frozen=True, slots=True)
class ModelHook:
    """A plan or reflect phase that is a model call. schema: the type of the reply; None for that of the runtime."""

    schema: Any = None


Hook: TypeAlias = Callable[[Any], Any] | ModelHook


def methods_of(kind: type[Agent]) -> dict[str, Callable[[Any], Any]]:
    """The hooks of a class, by phase. Raises InvalidInput for a method that resembles a hook, and for a class without act and plan."""
    name = kind.__name__
    for method, function in vars(kind).items():
        similar = difflib.get_close_matches(method, HOOKS, 1, cutoff=0.75)
        if callable(function) and not method.startswith("_") and method not in HOOKS and similar:
            raise_invalid(name, method, f"is not a hook; did you mean {similar[0]}?", "unknown_field")
    hooks: dict[str, Callable[[Any], Any]] = {
        phase: _method(kind, phase) for phase in HOOKS if callable(getattr(kind, phase, None))
    }
    if "act" not in hooks and "plan" not in hooks:
        raise_invalid(
            name, "act", "is missing: write the method act, or plan, whose steps the runtime executes", "required_field"
        )
    return hooks


def _method(kind: type[Agent], phase: str) -> MethodHook:
    try:
        agent = kind()
    except Exception as error:
        raise_invalid(kind.__name__, "__init__", f"raised {format_exception(error, 200)}; each run of a hook creates the class without "
                      "arguments, so open connections in the hook, or keep them in the application's deps", "wrong_type")  # fmt: skip
    check_function(getattr(agent, phase), f"agent {kind.__name__}: {phase}", f"/agents/{kind.__name__}/{phase}", "the context",
                   waits=True)  # fmt: skip
    return MethodHook(kind, phase)


def check_hooks(name: str, given: Mapping[str, Any], *, has_model: bool) -> dict[str, Hook]:
    """The hooks of an agent, by phase, without those that are not given. Raises InvalidInput."""
    hooks: dict[str, Hook] = {}
    for phase, hook in given.items():
        if hook is None or hook is False:
            continue
        if callable(hook) and not isinstance(hook, type) and get_origin(hook) is None:
            check_function(hook, f"agent {name}: {phase}", f"/agents/{name}/{phase}", "the context", waits=True)
            hooks[phase] = hook
        elif phase not in ("plan", "reflect"):
            raise_invalid(name, phase, f"must be a function of the context, not {safe_repr(hook)}", "wrong_type")
        elif not has_model:
            raise_invalid(name, phase, "must be a function of the context; only a prompt agent can leave it to its model: use app.prompt_agent",
                   "wrong_type")  # fmt: skip
        else:
            hooks[phase] = ModelHook(None if hook is True else _checked_form(name, phase, hook))
    return hooks


def _checked_form(name: str, phase: str, form: Any) -> Any:
    """The form of a model's plan or decision. Raises InvalidInput for other values, and for a decision without `goal_achieved`."""
    what, path = f"agent {name}: {phase}", f"/agents/{name}/{phase}"
    if not isinstance(form, Mapping) and not isinstance(form, type) and get_origin(form) is None:
        raise_invalid(name, phase, f"must be True, a type, a JSON Schema or a function of the context, not {safe_repr(repr_of(form))}",
                      "wrong_type")  # fmt: skip
    schema = schema_of(what, form, path)
    if phase == "reflect" and not _may_have(schema, "goal_achieved"):
        raise_invalid(name, phase, "has no field goal_achieved; add a boolean field with this name, which decides whether another round "
                      "is needed, or write reflect=True", "required_field")  # fmt: skip
    return form


def _may_have(schema: Mapping[str, Any], name: str) -> bool:
    """Whether a value of the schema may have a field. A schema that refers to others or combines them may."""
    fields = schema.get("properties")
    return name in fields if isinstance(fields, dict) else bool(schema.keys() & {"$ref", "anyOf", "oneOf", "allOf"})
