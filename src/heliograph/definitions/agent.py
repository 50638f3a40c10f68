"""The definition of an agent: the signals that activate it, the signals that it emits, the state that it updates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.agent_checks import (
    arity,
    check_answers,
    check_credentials,
    check_delegate,
    check_for_models,
    check_limits,
    check_must_end_with,
    check_name,
    check_number,
    check_on_request,
    check_once,
    check_one_of,
    check_options,
    check_shared_contexts,
    check_text,
    check_tool_names,
    check_work,
    each_of,
)
from heliograph.definitions.budgets import amounts_of, check_budget, check_price
from heliograph.definitions.call_settings import NO_SETTINGS, SignalSettings
from heliograph.definitions.circuit_breakers import (
    CircuitBreaker,
    check_circuit_breaker,
)
from heliograph.definitions.fields import check_fields
from heliograph.definitions.forms import problems_in, schema_of, validator_of
from heliograph.definitions.functions import naming
from heliograph.definitions.hooks import Hook, ModelHook, check_hooks
from heliograph.definitions.lifecycle import Lifecycle, check_lifecycle
from heliograph.definitions.pools import check_pool
from heliograph.definitions.rate_limits import check_rate_limit
from heliograph.definitions.signal_definition import SignalDefinition, name_of
from heliograph.definitions.signal_settings import read_agent_settings
from heliograph.definitions.tool import ASK_HUMAN, DELEGATE, as_tools
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy, retry_policy
from heliograph.signals.names import check_emit_name, check_key
from heliograph.signals.pattern import Pattern, check_agent_pattern
from heliograph.type_variables import Output_co
from heliograph.types import NOT_GIVEN, Json, JsonObject, NotGiven

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit

Effect = Literal["idempotent", "once"]
Priority = Literal["low", "normal", "high", "critical"]
PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high", "critical")
EFFECTS = ("idempotent", "once")
AfterUntrusted = Literal["confirm", "allow"]
AFTER_UNTRUSTED: tuple[AfterUntrusted, ...] = ("confirm", "allow")

CONTEXT_BYTES = 262_144  # about 60,000 tokens of English, half the context of common models
CONTEXT_BYTES_MAX = 16_777_216
HISTORY_TOKENS = 16_000  # of the earlier messages of a conversation
HISTORY_TOKENS_MAX = 4_000_000

RETRIES = 3
TIMEOUT_SECONDS = 300.0
TTL_SECONDS = 3600.0

RUN_START = "workflow:start"

_MODELS_SHARE = 0.8  # the part of timeout_seconds that all models of an agent share


@dataclass(frozen=True, slots=True)
class AgentSpec(Generic[Output_co]):
    """One agent of a workflow.

    Either `run` or `prompt` is set, or neither if the runtime executes the plan of a hook. `run` is a function of the turn's
    context. `prompt` is a template, or a function of the context that returns a prompt. `updates` names the state key that
    receives the output, or several keys of an object.
    `effect` decides what happens after a crash: an `idempotent` agent runs again from the start. The turn of a `once` agent
    fails with code IN_DOUBT instead. `pool` names the workers that may run the agent: those that serve this pool. `timeout_seconds` bounds one run. `ttl_seconds` bounds the turn's whole life, which
    includes queueing, waiting and recoveries. `retries` limits how often one model call, or a run of the function, that fails with a
    recoverable error defers the turn. `retry` is a complete policy for that; with both, the smaller number of retries counts.
    Without both, a function runs once.
    `control_signals` has the timeouts, retries, circuit breakers and rate limits of the calls and delegations that the agent makes,
    `circuit_breaker` guards delegations to it, and `rate_limit` limits them, for example to "10/s". `result_fields` lists the fields that the deliverable must contain.

    For agents with a model: `model` may be a list, in which each model is the fallback of the one before. `tools` lists the
    tools that the model may call, and `agents` the agents that it may delegate to. `temperature` is that of each model call, from 0 to 2. `contexts` maps names to the context boxes
    that it may pass on; a function of the context may return that mapping. `max_steps` limits the model calls of one turn. At
    that limit the turn ends as partial, with the model's last text, or fails if the agent requires another result.
    `must_end_with` names the tool whose call must end the turn. `asks_human` allows questions to persons: True, or a timeout
    in seconds. `model_timeout_seconds` and `max_output_tokens` bound one model call. Without `model_timeout_seconds`, several
    models share most of `timeout_seconds` equally. `price` gives dollars per million input and output tokens, for models
    whose price the harness cannot look up. `context_bytes_max` bounds the text of the context box, in bytes.
    `history_tokens` bounds the earlier messages of a session, in tokens as `turn.earlier_turns` estimates them.

    `budget` limits what each turn uses, including its delegations: tokens, usd, model_calls, tool_calls.
    `after_untrusted` applies once the turn has read untrusted content (see `Tool.trusted`): calls with an effect require the
    approval of a person ("confirm"), or run without it ("allow"). `trusted`: the author vouches for everything that the agent
    writes, even after untrusted content. Its output, state, signals, memories and tasks are not marked as untrusted.
    `hooks` run in the phases init, plan, reflect and terminate, around `run` or `prompt`; `lifecycle` has their limits.
    `credentials` names the secrets or environment variables without which no turn starts. `task_problems` lists the problems of a
    task that does not match `task_schema`.
    `version` is chosen by the author; the signal `ready` contains it, beside `capabilities`.
    `own_limits` has those of `timeout_seconds`, `ttl_seconds` and `lifecycle` that code gives: a runtime specification does not
    change them. `signals` has the definitions among the signals that it names.
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
    pool: str = DEFAULT_POOL
    timeout_seconds: float = TIMEOUT_SECONDS
    ttl_seconds: float = TTL_SECONDS
    max_attempts: int = 5
    retries: int = RETRIES
    retry: RetryPolicy | None = None
    signal_settings: SignalSettings = NO_SETTINGS
    result_fields: tuple[JsonObject, ...] = ()
    tools: tuple[Any, ...] = ()
    agents: tuple[str, ...] = ()
    contexts: Mapping[str, str] | Callable[[Any], Mapping[str, str | None]] = field(default_factory=dict)
    max_steps: int = 20
    must_end_with: str | None = None
    asks_human: bool | float = False
    model_timeout_seconds: float | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    price: tuple[float, float] | None = None
    budget: Mapping[str, int | float] | None = None
    after_untrusted: str = "confirm"
    trusted: bool = False
    context_bytes_max: int = CONTEXT_BYTES
    history_tokens: int = HISTORY_TOKENS
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    credentials: tuple[str, ...] = ()
    task_problems: Callable[[Json], Sequence[str]] | None = None
    version: str = "1"
    circuit_breaker: CircuitBreaker | None = None
    rate_limit: RateLimit | None = None
    when_arity: int = field(default=1)
    own_limits: frozenset[str] = frozenset()
    signals: tuple[SignalDefinition[Any], ...] = ()

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the kernel records for each turn of the agent, and its pool unless that is the default one."""
        limits: dict[str, Any] = {
            "priority": self.priority, "max_attempts": self.max_attempts, "ttl_seconds": self.ttl_seconds,
        }  # fmt: skip
        if self.pool != DEFAULT_POOL:
            limits["pool"] = self.pool
        if self.budget is not None:
            limits["budget"] = amounts_of(self.budget)
        return {**limits, "result_fields": list(self.result_fields)} if self.result_fields else limits

    @property
    def executes_plan(self) -> bool:
        """Whether the runtime executes the steps of its plan in the act phase."""
        plan = self.hooks.get("plan")
        if self.prompt is None:
            return self.run is None
        return isinstance(plan, ModelHook) and plan.schema is None

    @property
    def uses_tools(self) -> bool:
        """Whether a turn needs the agent's tools: for its model, or for the steps of a plan."""
        return self.prompt is not None or self.executes_plan

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The names of the agent's tools, delegations, questions and signals. An MCP server counts as one tool."""
        tools = [str(getattr(each, "name", None) or type(each).__name__) for each in self.tools]
        questions = [ASK_HUMAN] if self.asks_human else []
        return (*tools, *(f"{DELEGATE}{agent}" for agent in self.agents), *questions, *self.emits)

    @property
    def models(self) -> list[Any]:
        """The agent's models, in the order in which they are tried."""
        return list(self.model) if isinstance(self.model, list | tuple) else [self.model]

    @property
    def model_call_timeout_seconds(self) -> float | None:
        """The timeout of one model call; None for no timeout of its own. It leaves time for the fallback models."""
        if self.model_timeout_seconds is None and len(self.models) > 1:
            return _MODELS_SHARE * self.timeout_seconds / len(self.models)
        return self.model_timeout_seconds

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.activate_on + self.activate_when_all


def define_agent(
    name: str, *, run: Callable[[Any], Any] | None = None, prompt: str | Callable[[Any], str] | None = None,
    model: Any = None, output: Any = None, system: str | None = None,
    activate_on: Sequence[str | SignalDefinition[Any]] = (), activate_when_all: Sequence[str | SignalDefinition[Any]] = (),
    emits: Sequence[str | SignalDefinition[Any]] = (), when: Callable[..., bool] | None = None,
    updates: str | Sequence[str] = (), priority: str = "normal", pool: str = DEFAULT_POOL, effect: Effect = "idempotent",
    timeout_seconds: float | NotGiven = NOT_GIVEN, ttl_seconds: float | NotGiven = NOT_GIVEN, max_attempts: int = 5,
    retries: int | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None, control_signals: Mapping[str, Any] | None = None,
    result_fields: Sequence[Mapping[str, Any]] = (), on_request: bool = False, tools: Sequence[Any] = (),
    agents: Sequence[str] = (), contexts: Mapping[str, str] | Callable[[Any], Mapping[str, str | None]] | None = None,
    max_steps: int = 20, must_end_with: str | None = None, asks_human: bool | float = False,
    model_timeout_seconds: float | None = None, max_output_tokens: int | None = None, temperature: float | None = None,
    price: Mapping[str, float] | None = None, budget: Mapping[str, int | float] | None = None,
    after_untrusted: AfterUntrusted = "confirm", trusted: bool = False, context_bytes_max: int = CONTEXT_BYTES,
    history_tokens: int = HISTORY_TOKENS, version: str = "1",
    init: Any = None, plan: Any = None, reflect: Any = None, terminate: Any = None, lifecycle: Lifecycle | None = None,
    credentials: Sequence[str] = (), task_schema: Any = None, circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None,
    rate_limit: str | None = None, **unknown: Any,
) -> AgentSpec:  # fmt: skip
    """Define an agent, and check all of its options; `AgentSpec` describes them.

    on_request: no signal has to activate the agent, because other agents delegate to it or programs send it messages.
    Raises InvalidInput with the agent, the argument and the rule; Rejected for a reserved signal name.
    """
    own_limits, timeout_seconds, ttl_seconds = _limits(timeout_seconds, ttl_seconds, lifecycle)
    check_name(name)
    check_options(name, unknown, define_agent)
    any_of, all_of = _waking(name, activate_on, activate_when_all, on_request)
    hooks = check_hooks(name, {"init": init, "plan": plan, "reflect": reflect, "terminate": terminate}, has_model=prompt is not None)  # fmt: skip
    check_work(name, run, prompt, model, system, has_plan="plan" in hooks)
    _check_choices(name, priority, effect, after_untrusted, trusted)
    check_pool(f"agent {name}: pool", pool, f"/agents/{name}/pool")
    check_limits(name, timeout_seconds, ttl_seconds, max_attempts, RETRIES if retries is None else retries, max_steps)
    own_policy = _own_policy(retry_policy(retry, f"/agents/{name}/retry", of_function=run is not None), retries)
    check_answers(name, model_timeout_seconds, asks_human, max_output_tokens, temperature)
    own_tools, delegates = as_tools(name, tools), each_of(name, "agents", agents, check_delegate)
    check_for_models(name, run is not None, [own_tools, delegates, contexts, must_end_with, asks_human, max_output_tokens, temperature is not None, price])  # fmt: skip
    _check_contexts(name, contexts, delegates, context_bytes_max, history_tokens)
    check_tool_names(name, own_tools, delegates, asks_human=bool(asks_human))
    check_must_end_with(name, must_end_with, own_tools, delegates, output, asks_human=bool(asks_human))
    check_text(name, "version", version)
    return AgentSpec(
        name=name, run=run, prompt=prompt, model=model, output=output, system=system,
        activate_on=any_of, activate_when_all=all_of, emits=_once(name, "emits", emits, lambda signal: check_emit_name(name_of(signal))),
        when=when, when_arity=arity(name, when), updates_one=isinstance(updates, str),
        updates=_once(name, "updates", (updates,) if isinstance(updates, str) else updates, check_key),
        priority=PRIORITIES.index(cast(Priority, priority)), pool=pool, effect=effect, timeout_seconds=float(timeout_seconds),
        ttl_seconds=float(ttl_seconds), max_attempts=max_attempts,
        retries=RETRIES if own_policy is None else own_policy.retries, retry=own_policy,
        signal_settings=read_agent_settings(control_signals, f"/agents/{name}/control_signals"),
        result_fields=_fields(name, result_fields), tools=own_tools, agents=delegates, contexts=contexts or {}, max_steps=max_steps,
        must_end_with=must_end_with, asks_human=asks_human, model_timeout_seconds=model_timeout_seconds, max_output_tokens=max_output_tokens,
        temperature=temperature, price=check_price(price, f"agent {name}: price", f"/agents/{name}/price"),
        budget=check_budget(budget, f"agent {name}: budget", f"/agents/{name}/budget"), after_untrusted=after_untrusted,
        trusted=trusted, context_bytes_max=context_bytes_max, history_tokens=history_tokens, version=version, hooks=hooks,
        lifecycle=check_lifecycle(name, lifecycle, ttl_seconds, hooks), credentials=check_credentials(name, credentials),
        task_problems=_task_problems(name, task_schema), rate_limit=check_rate_limit(rate_limit, f"/agents/{name}/rate_limit"),
        circuit_breaker=check_circuit_breaker(circuit_breaker, f"/agents/{name}/circuit_breaker"), own_limits=own_limits,
        signals=tuple(each for each in (*activate_on, *activate_when_all, *emits) if isinstance(each, SignalDefinition)),
    )  # fmt: skip


def _limits(timeout: float | NotGiven, ttl: float | NotGiven, lifecycle: object) -> tuple[frozenset[str], float, float]:
    """Return the names of the limits that are given, and the timeout and the time to live of the agent."""
    given = {"timeout_seconds": timeout, "ttl_seconds": ttl, "lifecycle": NOT_GIVEN if lifecycle is None else lifecycle}
    names = frozenset(name for name, value in given.items() if not isinstance(value, NotGiven))
    return (names, TIMEOUT_SECONDS if isinstance(timeout, NotGiven) else timeout,
            TTL_SECONDS if isinstance(ttl, NotGiven) else ttl)  # fmt: skip


def _waking(
    name: str, any_of: Sequence[str | SignalDefinition[Any]], all_of: Sequence[str | SignalDefinition[Any]], on_request: bool
) -> tuple[tuple[Pattern, ...], tuple[Pattern, ...]]:  # fmt: skip
    """Return the patterns of `activate_on` and `activate_when_all`. An agent without both starts with the run, unless it is on request."""
    check_on_request(name, on_request)
    found = each_of(name, "activate_on", any_of, _pattern), each_of(name, "activate_when_all", all_of, _pattern)
    return found if on_request or any(found) else ((_pattern(RUN_START),), ())


def _check_choices(name: str, priority: object, effect: object, after_untrusted: object, trusted: object) -> None:
    check_one_of(name, "priority", priority, PRIORITIES)
    check_one_of(name, "effect", effect, EFFECTS)
    check_one_of(name, "after_untrusted", after_untrusted, AFTER_UNTRUSTED)
    if not isinstance(trusted, bool):
        raise InvalidInput(f"agent {name}: trusted must be True or False, not {safe_repr(trusted)}", code="wrong_type",
                           path=f"/agents/{name}/trusted")  # fmt: skip


def _check_contexts(
    name: str, contexts: object, delegates: Sequence[str], context_bytes_max: int, history_tokens: int
) -> None:
    check_number(name, "history_tokens", history_tokens, 0, HISTORY_TOKENS_MAX, whole=True)
    check_number(name, "context_bytes_max", context_bytes_max, 1, CONTEXT_BYTES_MAX, whole=True)
    if contexts is not None:
        check_shared_contexts(name, contexts, delegates)


def _task_problems(name: str, schema: Any) -> Callable[[Json], Sequence[str]] | None:
    """A function that lists the problems of a task. Raises InvalidInput for an invalid schema."""
    if schema is None:
        return None
    what, path = f"agent {name}: task_schema", f"/agents/{name}/task_schema"
    validator = validator_of(what, schema_of(what, schema, path), path)
    return lambda task: problems_in(validator, task, "task")


def _own_policy(policy: RetryPolicy | None, retries: int | None) -> RetryPolicy | None:
    """The policy for the function or the model calls of the agent; None if the agent has no setting of its own."""
    if retries is None:
        return policy
    return RetryPolicy(retries + 1, retryable_errors="recoverable") if policy is None else policy.at_most(retries)


def _pattern(signal: str | SignalDefinition[Any]) -> Pattern:
    return check_agent_pattern(name_of(signal))


def _once(name: str, argument: str, given: Sequence[Any], check: Callable[[Any], str]) -> tuple[str, ...]:
    values = each_of(name, argument, given, check)
    check_once(name, argument, values)
    return values


def _fields(name: str, given: Sequence[Mapping[str, Any]]) -> tuple[JsonObject, ...]:
    with naming(f"agent {name}", f"/agents/{name}/result_fields"):
        return tuple(check_fields(given))


def decided(value: object) -> bool:
    """Convert the result of a guard or of `end_when` to a boolean. Raises TypeError for an awaitable."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # otherwise Python warns that it was never awaited
        raise TypeError("it returned an awaitable; it must be a plain function that returns a boolean")
    return bool(value)
