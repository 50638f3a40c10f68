"""What a tool is, before anybody calls it: a function of the application, or work that is done elsewhere."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, overload

from heliograph.errors import InvalidInput, format_exception, repr_of, safe_repr
from heliograph.types import JsonObject

log = logging.getLogger("heliograph.tools")

ToolEffect: TypeAlias = Literal["pure", "idempotent", "transactional", "once"]
Approval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]

InDoubt: TypeAlias = Literal["tell", "fail", "ask"]

TOOL_EFFECTS: tuple[ToolEffect, ...] = ("pure", "idempotent", "transactional", "once")
IN_DOUBT: tuple[InDoubt, ...] = ("tell", "fail", "ask")
SUBMIT_RESULT = "submit_result"
ASK_HUMAN = "ask_human"
DELEGATE = "delegate_to_"  # and the name of an agent
RESERVED = (SUBMIT_RESULT, "final_result")

_NAME_MAX = 64
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_SECONDS_MAX = 31_622_400

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One tool of an agent. Called, it is its function.

    function: plain or async; its signature and docstring are the schema, and a parameter annotated `ToolContext` is
        given the call. None for a tool that works elsewhere: it takes the command and reports (L0-51).
    parameters: the JSON Schema of the arguments, in place of the signature.
    effect: what may happen if a worker dies in the middle: `pure` and `idempotent` are done again, `once` is not. A
        `transactional` tool writes to our own database by `ToolContext.connection`, and what it writes is committed
        together with its result: if a worker dies, both are there or neither, and then it is done again.
    in_doubt: what follows when a `once` tool began and nobody knows whether it happened: "tell" the model, "fail" the
        turn, or "ask" somebody, who may have it made again (grant), leave it (deny), or say its result (answer).
    timeout_seconds: of one call; None waits as long as the turn lives. retries: how often a call that failed is made
        again at once, where its effect may be repeated. concurrency: how many calls of it one process makes at a time.
    approval: True, or a rule on the arguments: somebody has to grant the call first. The rule gets them as the function
        does, as JSON; where it raises, somebody is asked. may_edit: who grants may change the arguments.
        approval_seconds: how long that may take.
    result_schema: what its result has to be, a type or a JSON Schema; one that is not counts as failed.
    trusted: False where its results hold what strangers wrote, as web pages and mails do: they reach a model in a frame,
        and what has an effect after that follows the agent's `after_untrusted`. Tools that work elsewhere and MCP servers are
        not trusted unless that is said.
    secrets: the names of those that its arguments may refer to, as `secret://name`: resolved where the function runs,
        and stored nowhere.
    isolated: the function runs in a process of its own, without the environment, files, network and processes of the
        worker. It is a function of a module, and takes and returns JSON.
    """

    name: str
    function: Callable[..., Any] | None = None
    description: str = ""
    parameters: JsonObject | None = None
    effect: ToolEffect = "once"
    timeout_seconds: float | None = 60.0
    retries: int = 0
    concurrency: int | None = None
    approval: Approval = False
    may_edit: bool = False
    approval_seconds: float | None = None
    in_doubt: InDoubt = "tell"
    result_schema: Any = None
    trusted: bool = True
    secrets: Sequence[str] = ()
    isolated: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            raise InvalidInput(f"tool {self.name} works elsewhere, and cannot be called here", code="wrong_type")
        return self.function(*args, **kwargs)

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """What its approval says of checked arguments. A rule that raises has not said that nobody is to be asked."""
        if not callable(self.approval):
            return self.approval
        try:
            return bool(self.approval(copy.deepcopy(arguments)))
        except Exception as error:
            log.warning(
                "the approval rule of tool %s raised, so somebody is asked: %s", self.name, format_exception(error)
            )
            return True


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, effect: ToolEffect = "once",
    timeout_seconds: float | None = 60.0, retries: int = 0, concurrency: int | None = None, approval: Approval = False,
    may_edit: bool = False, approval_seconds: float | None = None, in_doubt: InDoubt = "tell",
    result_schema: Any = None, trusted: bool = True, secrets: Sequence[str] = (),
    isolated: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...  # fmt: skip
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(effect="idempotent", ...)`; see Tool. Raises InvalidInput."""
    if function is not None:
        return _of_function(function, {})
    return lambda function: _of_function(function, options)


def external_tool(name: str, description: str, parameters: Mapping[str, Any] | None = None, **options: Any) -> Tool:
    """A tool that works elsewhere, in any process and language: it takes the command and reports the result.

    parameters: the JSON Schema of its arguments. The rest: see Tool. Raises InvalidInput.
    """
    schema: dict[str, Any] = {"type": "object", "properties": {}} if parameters is None else dict(parameters)
    return check_tool(Tool(name, None, description, schema, **{"trusted": False, **options}))


def as_tools(agent: str, tools: Sequence[Any]) -> tuple[Any, ...]:
    """What an agent's author gave as tools: functions become tools, toolsets stay. Raises InvalidInput."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise InvalidInput(f"agent {agent}: tools takes a list, not {safe_repr(tools)}", code="wrong_type",
                           path=f"/agents/{agent}/tools")  # fmt: skip
    made: list[Any] = []
    for given in tools:
        if isinstance(given, Tool) or hasattr(given, "open_tools"):
            made.append(given)
        elif callable(given) and not isinstance(given, type):
            made.append(_of_function(given, {}))
        else:
            raise InvalidInput(f"agent {agent}: a tool is a function, what @tool or external_tool made, or an MCP server, "
                               f"not {safe_repr(given)}", code="wrong_type", path=f"/agents/{agent}/tools")  # fmt: skip
    names = [each.name for each in made if isinstance(each, Tool)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"agent {agent} has two tools named {twice}", code="duplicate_entry",
                           path=f"/agents/{agent}/tools")  # fmt: skip
    return tuple(made)


def _of_function(function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    if not callable(function):
        raise InvalidInput(f"a tool is a function, not {safe_repr(function)}", code="wrong_type", path="/tools")
    name = options.get("name") or _name_of(function)
    description = options.get("description") or _description_of(function)
    more = {key: value for key, value in options.items() if key not in ("name", "description")}
    return check_tool(Tool(name, function, description, **more))


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _description_of(function: Any) -> str:
    """The docstring of a function; of an object with __call__ its class's own, else that of __call__."""
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__name__"):
        function = type(function) if type(function).__doc__ else type(function).__call__
    return inspect.getdoc(function) or ""


def check_tool(made: Tool) -> Tool:
    """`made`, checked. Raises InvalidInput naming the tool and the rule."""
    name = made.name
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(f"a tool's name is 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(name))}",
                           code="invalid_identifier", path="/tools")  # fmt: skip
    if name in RESERVED:
        raise InvalidInput(f"the name {name} belongs to the runtime; give the tool another", code="reserved_name",
                           path=f"/tools/{name}")  # fmt: skip
    _check(name, "effect", made.effect in TOOL_EFFECTS, f"is one of {', '.join(TOOL_EFFECTS)}", made.effect)
    _check(name, "in_doubt", made.in_doubt in IN_DOUBT, f"is one of {', '.join(IN_DOUBT)}", made.in_doubt)
    for option in ("timeout_seconds", "approval_seconds"):
        value = getattr(made, option)
        _check(name, option, value is None or _is_number(value, 0.001, _SECONDS_MAX),
               f"is None or a number of seconds from 0.001 to {_SECONDS_MAX}", value)  # fmt: skip
    _check(
        name, "retries", _is_number(made.retries, 0, 100, whole=True), "is a whole number from 0 to 100", made.retries
    )
    _check(name, "concurrency", made.concurrency is None or _is_number(made.concurrency, 1, 10_000, whole=True),
           "is None or a whole number from 1 to 10000", made.concurrency)  # fmt: skip
    _check(name, "approval", isinstance(made.approval, bool) or callable(made.approval),
           "is True, False or a function of the arguments", made.approval)  # fmt: skip
    _check(name, "secrets", not isinstance(made.secrets, str) and all(isinstance(each, str) for each in made.secrets),
           "is a list of names", made.secrets)  # fmt: skip
    _check(name, "trusted", isinstance(made.trusted, bool), "is True or False", made.trusted)
    is_waiting = inspect.iscoroutinefunction(made.approval) or inspect.iscoroutinefunction(
        getattr(made.approval, "__call__", None)  # noqa: B004  not whether it can be called, but how
    )
    _check(name, "approval", not is_waiting, "is a plain function: the answer is wanted at once", made.approval)
    if made.retries and made.effect not in ("pure", "idempotent"):
        raise InvalidInput(f"tool {name}: what may happen only {made.effect} cannot have retries; say effect='idempotent' "
                           "where it may be repeated", code="out_of_range", path=f"/tools/{name}/retries")  # fmt: skip
    return made


def _check(name: str, option: str, is_right: bool, rule: str, value: object) -> None:
    if not is_right:
        raise InvalidInput(f"tool {name}: {option} {rule}, not {safe_repr(repr_of(value))}", code="out_of_range",
                           path=f"/tools/{name}/{option}")  # fmt: skip


def _is_number(value: Any, low: float, high: float, *, whole: bool = False) -> bool:
    kind = int if whole else int | float
    return not isinstance(value, bool) and isinstance(value, kind) and low <= value <= high
