"""The definition of a tool: a function of the application, or an external tool that another process runs."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

from typing_extensions import ParamSpec, TypeVar  # before Python 3.13, those of `typing` know no defaults

from heliograph.definitions.circuit_breakers import CircuitBreaker, check_circuit_breaker
from heliograph.definitions.functions import check_function
from heliograph.definitions.rate_limits import check_rate_limit
from heliograph.error_text import format_exception, repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy, retry_policy
from heliograph.types import NOT_GIVEN, JsonObject, Timeout

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit

log = logging.getLogger("heliograph.tools")

ToolEffect: TypeAlias = Literal["pure", "idempotent", "transactional", "once"]
Approval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]
ToolFallback: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]

InDoubt: TypeAlias = Literal["return_error", "fail", "ask"]

TOOL_EFFECTS: tuple[ToolEffect, ...] = ("pure", "idempotent", "transactional", "once")
IN_DOUBT: tuple[InDoubt, ...] = ("return_error", "fail", "ask")
SUBMIT_RESULT = "submit_result"
ASK_HUMAN = "ask_human"
DELEGATE = "delegate_to_"  # followed by the name of an agent
RESERVED = (SUBMIT_RESULT, "final_result")

_NAME_MAX = 64
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_SECONDS_MAX = 31_622_400

Arguments = ParamSpec("Arguments", default=...)
Result_co = TypeVar("Result_co", covariant=True, default=Any)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Tool(Generic[Arguments, Result_co]):
    """One tool of an agent. A Tool can be called like its function.

    function: plain or async. Its signature and docstring give the schema; a parameter annotated with `ToolContext` receives
        the context of the call. None for an external tool, which takes commands and reports results from another process.
    parameters: the JSON Schema of the arguments, in place of the signature.
    effect: whether a call is repeated if its worker dies. `pure` and `idempotent` calls are repeated, `once` calls are not. A
        `transactional` tool writes to Heliograph's database through `ToolContext.connection`. Its writes commit together
        with its result, so a call either happened as a whole or is repeated.
    in_doubt: the reaction to a `once` call that started and whose outcome is unknown. "return_error" returns an
        error to the model, "fail" ends the turn, and "ask" lets a person decide: repeat the call (grant), skip it (deny)
        or enter its result (answer).
    timeout_seconds: the timeout of one attempt, by default that of `control_signals` or 60 seconds; None waits as long as the turn
        lives. concurrency: the number of parallel calls in one process.
    retries: how often a failed call is repeated, for effects that may be repeated. retry: a complete policy, as a
        RetryPolicy or an object of the specification; with both, the smaller number of retries counts.
    approval: True, or a function of the arguments that returns True: a person must approve the call first. A function that
        raises counts as True. may_edit: the person may change the arguments. approval_seconds: the timeout of the approval.
    result_schema: a type or a JSON Schema for the result. A call whose result does not match it fails.
    trusted: False if results contain text from outside, such as web pages and mail. Such results reach the model in a frame,
        and later calls with an effect follow the agent's `after_untrusted`. External tools and MCP servers are untrusted by
        default.
    secrets: the names of the secrets that its arguments may contain as `secret://name`. They are resolved where the function
        runs, and never stored.
    circuit_breaker: see CircuitBreaker; an object with its fields will do. All calls of a tool of this name share it.
    rate_limit: the most calls that all workers make together, for example "10/s". A call over the limit waits. If it would wait
        longer than its timeout, it fails at once with RATE_LIMITED.
    fallback: a plain or async function of the error and the arguments. If the circuit breaker or the rate limit rejects a call,
        the function runs instead, and the model receives its result as that of the tool.
    isolated: the function runs in its own process, without the environment, files, network and processes of the worker. It
        must be defined in a module, and take and return JSON.
    """

    name: str
    function: Callable[Arguments, Result_co] | None = None
    description: str = ""
    parameters: JsonObject | None = None
    effect: ToolEffect = "once"
    timeout_seconds: Timeout = NOT_GIVEN
    retries: int = 0
    concurrency: int | None = None
    approval: Approval = False
    may_edit: bool = False
    approval_seconds: float | None = None
    in_doubt: InDoubt = "return_error"
    result_schema: Any = None
    trusted: bool = True
    secrets: Sequence[str] = ()
    isolated: bool = False
    retry: RetryPolicy | Mapping[str, Any] | None = None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None
    rate_limit: str | None = None
    fallback: ToolFallback | None = None

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result_co:
        if self.function is None:
            raise InvalidInput(
                f"tool {self.name} is an external tool; only its own process can call it", code="wrong_type"
            )
        return self.function(*args, **kwargs)

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """The tool's own policy; None without `retry` and `retries`."""
        policy = retry_policy(self.retry, f"/tools/{self.name}/retry")
        if not self.retries:
            return policy
        return (
            RetryPolicy(self.retries + 1, retryable_errors="recoverable")
            if policy is None
            else policy.at_most(self.retries)
        )

    @property
    def breaker(self) -> CircuitBreaker | None:
        given = self.circuit_breaker  # checked already, unless it is an object
        return (
            given
            if isinstance(given, CircuitBreaker)
            else check_circuit_breaker(given, f"/tools/{self.name}/circuit_breaker")
        )

    @property
    def limit(self) -> RateLimit | None:
        return check_rate_limit(self.rate_limit, f"/tools/{self.name}/rate_limit")

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these checked arguments requires an approval. If the rule raises, it does."""
        if not callable(self.approval):
            return self.approval
        try:
            return bool(self.approval(copy.deepcopy(arguments)))
        except Exception as error:
            log.warning(
                "the approval rule of tool %s raised, so the call requires approval: %s",
                self.name,
                format_exception(error),
            )
            return True


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, effect: ToolEffect = "once",
    timeout_seconds: Timeout = NOT_GIVEN, retries: int = 0, concurrency: int | None = None, approval: Approval = False,
    may_edit: bool = False, approval_seconds: float | None = None, in_doubt: InDoubt = "return_error",
    result_schema: Any = None, trusted: bool = True, secrets: Sequence[str] = (),
    isolated: bool = False, retry: RetryPolicy | Mapping[str, Any] | None = None,
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None,
    rate_limit: str | None = None, fallback: ToolFallback | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...  # fmt: skip
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a tool: `@tool`, or `@tool(effect="idempotent", ...)` with the options of `Tool`.

    Raises InvalidInput.
    """
    if function is not None:
        return _of_function(function, {})
    return lambda function: _of_function(function, options)


def external_tool(name: str, description: str, parameters: Mapping[str, Any] | None = None, **options: Any) -> Tool:
    """Define a tool that another process runs, in any language: it takes commands and reports results.

    parameters: the JSON Schema of its arguments. options: those of `Tool`. Raises InvalidInput.
    """
    schema: dict[str, Any] = {"type": "object", "properties": {}} if parameters is None else dict(parameters)
    return check_tool(Tool(name, None, description, schema, **{"trusted": False, **options}))


def as_tools(agent: str, tools: Sequence[Any]) -> tuple[Any, ...]:
    """Return the tools of an agent: functions are converted to tools, toolsets are kept. Raises InvalidInput."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise InvalidInput(f"agent {agent}: tools must be a list, not {safe_repr(tools)}", code="wrong_type",
                           path=f"/agents/{agent}/tools")  # fmt: skip
    converted: list[Any] = []
    for given in tools:
        if isinstance(given, Tool) or hasattr(given, "open_tools"):
            converted.append(given)
        elif callable(given) and not isinstance(given, type):
            converted.append(_of_function(given, {}))
        else:
            raise InvalidInput(f"agent {agent}: a tool must be a function, a result of @tool or external_tool, or an MCP server, "
                               f"not {safe_repr(given)}", code="wrong_type", path=f"/agents/{agent}/tools")  # fmt: skip
    names = [each.name for each in converted if isinstance(each, Tool)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"agent {agent} has two tools named {twice}; give one of them another name", code="duplicate_entry",
                           path=f"/agents/{agent}/tools")  # fmt: skip
    return tuple(converted)


def _of_function(function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    if not callable(function):
        raise InvalidInput(f"a tool must be a function, not {safe_repr(function)}", code="wrong_type", path="/tools")
    name = options.get("name") or _name_of(function)
    description = options.get("description") or _description_of(function)
    others = {key: value for key, value in options.items() if key not in ("name", "description")}
    return check_tool(Tool(name, function, description, **others))


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _description_of(function: Any) -> str:
    """Return the docstring of a function; for an object with `__call__`, that of its class or else of `__call__`."""
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__name__"):
        function = type(function) if type(function).__doc__ else type(function).__call__
    return inspect.getdoc(function) or ""


def check_tool(made: Tool) -> Tool:
    """Return the tool, with its retry policy read, if its options are valid. Raises InvalidInput with the tool, the option and the rule."""
    name = made.name
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidInput(f"a tool's name must be 1 to {_NAME_MAX} ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(name))}",
                           code="invalid_identifier", path="/tools")  # fmt: skip
    if name in RESERVED:
        raise InvalidInput(f"the name {name} belongs to the runtime; give the tool another name", code="reserved_name",
                           path=f"/tools/{name}")  # fmt: skip
    _check(name, "effect", made.effect in TOOL_EFFECTS, f"must be one of {', '.join(TOOL_EFFECTS)}", made.effect)
    _check(name, "in_doubt", made.in_doubt in IN_DOUBT, f"must be one of {', '.join(IN_DOUBT)}", made.in_doubt)
    for option in ("timeout_seconds", "approval_seconds"):
        value = getattr(made, option)
        is_right = (
            value is None or _is_number(value, 0.001, _SECONDS_MAX) or (option, value) == ("timeout_seconds", NOT_GIVEN)
        )
        _check(name, option, is_right,
               f"must be None or a number of seconds from 0.001 to {_SECONDS_MAX}", value)  # fmt: skip
    _check(
        name,
        "retries",
        _is_number(made.retries, 0, 100, whole=True),
        "must be a whole number from 0 to 100",
        made.retries,
    )
    _check(name, "concurrency", made.concurrency is None or _is_number(made.concurrency, 1, 10_000, whole=True),
           "must be None or a whole number from 1 to 10000", made.concurrency)  # fmt: skip
    _check(name, "approval", isinstance(made.approval, bool) or callable(made.approval),
           "must be True, False or a function of the arguments", made.approval)  # fmt: skip
    _check(name, "secrets", not isinstance(made.secrets, str) and all(isinstance(each, str) for each in made.secrets),
           "must be a list of names", made.secrets)  # fmt: skip
    _check(name, "trusted", isinstance(made.trusted, bool), "must be True or False", made.trusted)
    is_waiting = inspect.iscoroutinefunction(made.approval) or inspect.iscoroutinefunction(
        getattr(made.approval, "__call__", None)  # noqa: B004  the method itself is inspected
    )
    _check(name, "approval", not is_waiting, "must be a plain function that returns without waiting", made.approval)
    if made.retries and made.effect not in ("pure", "idempotent"):
        raise InvalidInput(f"tool {name}: a tool with effect='{made.effect}' cannot have retries; set effect='idempotent' "
                           "if a call may be repeated", code="out_of_range", path=f"/tools/{name}/retries")  # fmt: skip
    check_rate_limit(made.rate_limit, f"/tools/{name}/rate_limit")
    if made.fallback is not None:
        check_function(
            made.fallback, f"tool {name}: fallback", f"/tools/{name}/fallback", "the error", "the arguments", waits=True
        )
    if made.retry is not None:
        made = replace(made, retry=made.retry_policy, retries=0)
    return replace(made, circuit_breaker=check_circuit_breaker(made.circuit_breaker, f"/tools/{name}/circuit_breaker"))


def _check(name: str, option: str, is_right: bool, rule: str, value: object) -> None:
    if not is_right:
        raise InvalidInput(f"tool {name}: {option} {rule}, not {safe_repr(repr_of(value))}", code="out_of_range",
                           path=f"/tools/{name}/{option}")  # fmt: skip


def _is_number(value: Any, low: float, high: float, *, whole: bool = False) -> bool:
    kind = int if whole else int | float
    return not isinstance(value, bool) and isinstance(value, kind) and low <= value <= high
