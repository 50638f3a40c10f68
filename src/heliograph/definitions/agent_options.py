"""The options of agents as types, for `Heliograph.agent`, `Heliograph.prompt_agent` and `tool_agent`. `AgentSpec` describes each.

Their type parameter is the type of a hook: the context of hooks is defined above this module, so applications pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from heliograph.definitions.agent import AfterUntrusted, Effect, Priority
from heliograph.definitions.lifecycle import Lifecycle
from heliograph.policy.retry import RetryPolicy
from heliograph.types import NotGiven

if TYPE_CHECKING:
    from types import UnionType
    from typing import TypeAlias, _SpecialForm

    from heliograph.definitions.circuit_breakers import CircuitBreaker
    from heliograph.definitions.signal_definition import SignalDefinition

    Form: TypeAlias = type[object] | UnionType | _SpecialForm | Mapping[str, Any]


Hook = TypeVar("Hook")


class SharedOptions(TypedDict, Generic[Hook], total=False):
    """The options that every agent may have."""

    activate_on: Sequence[str | SignalDefinition[Any]]
    activate_when_all: Sequence[str | SignalDefinition[Any]]
    emits: Sequence[str | SignalDefinition[Any]]
    updates: str | Sequence[str]
    on_request: bool
    priority: Priority
    pool: str
    effect: Effect
    timeout_seconds: float | NotGiven
    ttl_seconds: float | NotGiven
    max_attempts: int
    retries: int | None
    retry: RetryPolicy | Mapping[str, Any] | None
    control_signals: Mapping[str, Any] | None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None
    rate_limit: str | None
    result_fields: Sequence[Mapping[str, Any]]
    budget: Mapping[str, int | float] | None
    trusted: bool
    version: str
    init: Hook | None
    terminate: Hook | None
    lifecycle: Lifecycle | None
    credentials: Sequence[str]
    task_schema: Any
    tools: Sequence[Any]
    agents: Sequence[str]


class FunctionAgentOptions(SharedOptions[Hook], total=False):
    """The options of an agent that is a function or a class."""

    plan: Hook | None
    reflect: Hook | None
    model: Any


class PromptAgentOptions(SharedOptions[Hook], total=False):
    """The options of an agent that calls a model, beside its prompt, model, output and system text."""

    plan: Hook | Form | bool | None  # True, a type or a JSON Schema: the model writes the plan
    reflect: Hook | Form | bool | None
    contexts: Mapping[str, str] | Callable[[Any], Mapping[str, str | None]] | None
    max_steps: int
    must_end_with: str | None
    asks_human: bool | float
    model_timeout_seconds: float | None
    max_output_tokens: int | None
    temperature: float | None
    price: Mapping[str, float] | None
    after_untrusted: AfterUntrusted
    context_bytes_max: int
    history_tokens: int
