"""Registering the agents of an application: functions, classes, and agents that call a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

from heliograph.app_checks import check_tools, hooks_of, name_of_function, named
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.agent import (
    CONTEXT_BYTES,
    HISTORY_TOKENS,
    AfterUntrusted,
    AgentSpec,
    Effect,
    Priority,
    define_agent,
)
from heliograph.definitions.hooks import Agent
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.type_variables import AppDeps, AppState, Deps_contra, Output, State_contra
from heliograph.types import NOT_GIVEN, NotGiven

if TYPE_CHECKING:
    from types import UnionType
    from typing import Unpack, _SpecialForm

    from heliograph.definitions.agent_options import FunctionAgentOptions, PromptAgentOptions
    from heliograph.definitions.circuit_breakers import CircuitBreaker
    from heliograph.definitions.lifecycle import Lifecycle
    from heliograph.definitions.signal_definition import SignalDefinition
    from heliograph.execution.context import Context
    from heliograph.execution.phase_context import PhaseContext
    from heliograph.policy.retry import RetryPolicy
    from heliograph.signals.model import Signal

    Hook: TypeAlias = Callable[[PhaseContext[AppState, AppDeps]], Any]

T = TypeVar("T")
A = TypeVar("A", bound=Agent)
A_contra = TypeVar("A_contra", bound=Agent, contravariant=True)


class AgentClass(Protocol[A_contra, State_contra, Deps_contra]):
    """For type checkers: a class whose hooks take the context of an application. `Agent` declares the hooks that it does not define."""

    def init(self, agent: A_contra, context: PhaseContext[State_contra, Deps_contra], /) -> Any: ...
    def plan(self, agent: A_contra, context: PhaseContext[State_contra, Deps_contra], /) -> Any: ...
    def act(self, agent: A_contra, context: PhaseContext[State_contra, Deps_contra], /) -> Any: ...
    def reflect(self, agent: A_contra, context: PhaseContext[State_contra, Deps_contra], /) -> Any: ...
    def terminate(self, agent: A_contra, context: PhaseContext[State_contra, Deps_contra], /) -> Any: ...


class Register(Protocol[AppState, AppDeps]):
    """What `@app.agent(...)` returns: it registers a function of the context, or a class, and returns it unchanged."""

    @overload
    def __call__(self, function: AgentClass[A, AppState, AppDeps], /) -> type[A]: ...
    @overload  # one for both contexts: of two that match a `Context[Post]`, mypy would return Any
    def __call__(
        self, function: Callable[[PhaseContext[AppState, AppDeps]], T], /
    ) -> Callable[[Context[AppState, AppDeps]], T]: ...


class AgentRegistry(Generic[AppState, AppDeps]):
    """The agents of an application, by name. `Heliograph` is one."""

    name: str

    def __init__(self) -> None:
        self._agents: dict[str, AgentSpec] = {}

    @overload
    def agent(
        self, *, name: str | None = None, when: Callable[[AppState], bool] | None = None, **options: Unpack[FunctionAgentOptions[Hook[AppState, AppDeps]]]
    ) -> Register[AppState, AppDeps]: ...  # fmt: skip

    @overload
    def agent(
        self, *, name: str | None = None, when: Callable[[AppState, Signal[Any]], bool], **options: Unpack[FunctionAgentOptions[Hook[AppState, AppDeps]]]
    ) -> Register[AppState, AppDeps]: ...  # fmt: skip

    def agent(
        self, *misplaced: object, name: str | None = None, activate_on: Sequence[str | SignalDefinition[Any]] = (),
        activate_when_all: Sequence[str | SignalDefinition[Any]] = (), emits: Sequence[str | SignalDefinition[Any]] = (),
        when: Callable[..., bool] | None = None,
        updates: str | Sequence[str] = (), priority: Priority = "normal", pool: str = DEFAULT_POOL,
        effect: Effect = "idempotent", timeout_seconds: float | NotGiven = NOT_GIVEN, ttl_seconds: float | NotGiven = NOT_GIVEN,
        max_attempts: int = 5,
        retries: int | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
        control_signals: Mapping[str, Any] | None = None, result_fields: Sequence[Mapping[str, Any]] = (),
        on_request: bool = False, budget: Mapping[str, int | float] | None = None,
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None, rate_limit: str | None = None,
        trusted: bool = False, version: str = "1",
        init: Callable[[Any], Any] | None = None, plan: Callable[[Any], Any] | None = None,
        reflect: Callable[[Any], Any] | None = None, terminate: Callable[[Any], Any] | None = None,
        lifecycle: Lifecycle | None = None, credentials: Sequence[str] = (), task_schema: Any = None,
        tools: Sequence[Any] = (), agents: Sequence[str] = (), model: Any = None,
    ) -> Register[AppState, AppDeps]:  # fmt: skip
        """Register a plain or async function as an agent. It takes a `Context` and returns the agent's output.

        Or register a class with a method per phase, see `Agent`. Without the method `act`, the runtime executes the plan with
        the agent's `tools`, `agents` and `model`. init, plan, reflect, terminate: hooks around a function; `Lifecycle` has
        their limits. credentials: the names of secrets or environment variables without which no turn starts. task_schema: a type or
        a JSON Schema for `ctx.task`; a turn with another task fails with INIT_FAILED.

        name: by default the function's name; required for a lambda or an object.
        activate_on: any of these signals activates the agent: patterns, or definitions of `define_signal`; by default the start of the run. activate_when_all: all of these together activate it.
        when: a guard, called with the state, or with state and signal. Its types, and that of the context, are checked against the
            application's `state` and `deps`.
        emits: the signals that the agent emits, see `Context.emit`.
        updates: the state key, or keys, that receive its output.
        on_request: other agents delegate to it or send it messages; no signal has to activate it.
        version: the version in the `ready` signal of each turn.
        `AgentSpec` describes the other options. Raises InvalidInput naming the argument and the rule.
        """
        options = {k: v for k, v in locals().items() if k not in ("self", "name", "misplaced")}
        if misplaced:
            raise InvalidInput(f"the arguments of agent must be passed by name, not {named(misplaced[0])}; write "
                               "@app.agent(activate_on=[...])", code="wrong_type", path="/agents")  # fmt: skip

        def register(function: Any) -> Any:
            given: dict[str, Any] = {**options, "run": function}
            if isinstance(function, type) and issubclass(function, Agent):
                given |= {"run": None, **hooks_of(function, options)}
            self.add(define_agent(name_of_function(function) if name is None else name, **given))
            return function

        return register

    @overload
    def prompt_agent(
        self, name: str, prompt: str | Callable[[Context[AppState, AppDeps]], str], *, model: Any = None,
        output: type[Output] | None = None, system: str | None = None, when: Callable[[AppState], bool] | None = None,
        **options: Unpack[PromptAgentOptions[Hook[AppState, AppDeps]]],
    ) -> AgentSpec[Output]: ...  # fmt: skip

    @overload
    def prompt_agent(
        self, name: str, prompt: str | Callable[[Context[AppState, AppDeps]], str], *, model: Any = None,
        output: type[Output] | None = None, system: str | None = None, when: Callable[[AppState, Signal[Any]], bool],
        **options: Unpack[PromptAgentOptions[Hook[AppState, AppDeps]]],
    ) -> AgentSpec[Output]: ...  # fmt: skip

    @overload
    def prompt_agent(
        self, name: str, prompt: str | Callable[[Context[AppState, AppDeps]], str], *, model: Any = None,
        output: UnionType | _SpecialForm, system: str | None = None, when: Callable[..., bool] | None = None,
        **options: Unpack[PromptAgentOptions[Hook[AppState, AppDeps]]],
    ) -> AgentSpec[Any]: ...  # fmt: skip

    def prompt_agent(
        self, name: str, prompt: str | Callable[[Any], str], *, model: Any = None, output: Any = None, system: str | None = None,
        activate_on: Sequence[str | SignalDefinition[Any]] = (), activate_when_all: Sequence[str | SignalDefinition[Any]] = (),
        emits: Sequence[str | SignalDefinition[Any]] = (), when: Callable[..., bool] | None = None,
        updates: str | Sequence[str] = (), tools: Sequence[Any] = (), agents: Sequence[str] = (), on_request: bool = False,
        contexts: Mapping[str, str] | Callable[[Any], Mapping[str, str | None]] | None = None, max_steps: int = 20,
        must_end_with: str | None = None, asks_human: bool | float = False, model_timeout_seconds: float | None = None,
        max_output_tokens: int | None = None, temperature: float | None = None, price: Mapping[str, float] | None = None,
        budget: Mapping[str, int | float] | None = None, after_untrusted: AfterUntrusted = "confirm", trusted: bool = False,
        context_bytes_max: int = CONTEXT_BYTES, history_tokens: int = HISTORY_TOKENS, priority: Priority = "normal", pool: str = DEFAULT_POOL,
        effect: Effect = "idempotent", timeout_seconds: float | NotGiven = NOT_GIVEN, ttl_seconds: float | NotGiven = NOT_GIVEN,
        max_attempts: int = 5, retries: int | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
        control_signals: Mapping[str, Any] | None = None, circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None,
        rate_limit: str | None = None, result_fields: Sequence[Mapping[str, Any]] = (), version: str = "1",
        init: Callable[[Any], Any] | None = None, plan: Any = None, reflect: Any = None,
        terminate: Callable[[Any], Any] | None = None, lifecycle: Lifecycle | None = None, credentials: Sequence[str] = (),
        task_schema: Any = None, **unknown: Any,
    ) -> AgentSpec:  # fmt: skip
        """Add an agent that calls a model. The type of the result, `AgentSpec[Review]`, has the type of its output.

        prompt: text with {state.key}, {signal.name}, {signal.payload} and {message}, the text of a message, or a function of the Context.
        model: a pydantic-ai model or its name, a Harness, or None for HELIOGRAPH_MODEL; or a list of these, each used
            when the one before it fails.
        output: the type that the reply is validated into; None for text.
        system: the instructions for the model, in the same form as a text of `prompt`.
        tools: functions, the results of `@tool` and `external_tool`, and MCP servers. agents: the names of the agents that it may
            delegate to. contexts: the context boxes that it may pass on, by name.
        max_steps: the largest number of model calls in a turn. must_end_with: the tool whose call must end the turn. asks_human: whether
            it may ask a person, True or a timeout in seconds.
        model_timeout_seconds, max_output_tokens, temperature: of each model call. price: dollars per million `input` and `output` tokens.
        after_untrusted: whether calls with an effect require an approval after untrusted content, "confirm" or "allow".
        context_bytes_max: the largest text of the context box. history_tokens: how much of a session the model receives, see
            `Heliograph.session`.

        The other options are those of `agent`. Raises InvalidInput naming the argument and the rule.
        """
        options = {k: v for k, v in locals().items() if k not in ("self", "name", "unknown")}
        return self.add(define_agent(name, **options, **unknown))

    def add(self, spec: AgentSpec) -> AgentSpec:
        """Add an agent that was defined elsewhere. Raises InvalidInput (`duplicate_agent`, `wrong_type`, `invalid_schema`)."""
        if not isinstance(spec, AgentSpec):
            raise InvalidInput(f"the argument of add must be the result of define_agent, not {safe_repr(repr_of(spec))}", code="wrong_type",
                               path="/agents")  # fmt: skip
        if spec.name in self._agents:
            raise InvalidInput(f"application {self.name} has two agents named {spec.name}; rename one", code="duplicate_agent",
                               path=f"/agents/{spec.name}")  # fmt: skip
        check_tools(spec)
        self._agents[spec.name] = spec
        self.__dict__.pop("_workflow", None)
        return spec
