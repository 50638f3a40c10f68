"""Calls and delegations as a function describes them, to make several at once. Their results have the types that they name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, overload

from msgspec import Struct

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.definitions.hooks import Agent
from heliograph.policy.retry import RetryPolicy
from heliograph.turn.calls import After, AgentOf, CallEffect, Fallback
from heliograph.type_variables import Output_co
from heliograph.types import NOT_GIVEN, Timeout

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

    from typing_extensions import Unpack

R = TypeVar("R")


class _CallOptions(TypedDict, total=False):
    call_id: str | None
    after: After
    effect: CallEffect
    may_override: bool
    needs_token: bool
    trusted: bool
    retry: RetryPolicy | Mapping[str, Any] | None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None
    fallback: Fallback | None
    rate_limit: str | None


class _DelegationOptions(TypedDict, total=False):
    call_id: str | None
    context_box_id: str | None
    budget: Mapping[str, int | float] | None
    priority: str | None
    callback_url: str | None
    context: Mapping[str, Any] | None
    retry: RetryPolicy | Mapping[str, Any] | None
    fallback: Fallback | None


class DescribedCall(Struct, Generic[Output_co], frozen=True):
    """A Call or a Delegation: a list may have both."""


class Call(DescribedCall[Output_co], frozen=True):
    """One call of an external tool among several, for `Context.calls` and `Context.as_completed`; see Context.call."""

    tool: str
    arguments: Mapping[str, Any] | None = None
    timeout: Timeout = NOT_GIVEN
    call_id: str | None = None
    after: After = "suspend"
    effect: CallEffect = "once"
    may_override: bool = False
    needs_token: bool = True
    result_schema: Any = None
    trusted: bool = False
    retry: RetryPolicy | Mapping[str, Any] | None = None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None
    fallback: Fallback | None = None
    rate_limit: str | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Call[R], tool: str, arguments: Mapping[str, Any] | None = None, timeout: Timeout = NOT_GIVEN, *, result_schema: type[R],
            **options: Unpack[_CallOptions],
        ) -> None: ...  # fmt: skip

        @overload
        def __init__(
            self: Call[Any], tool: str, arguments: Mapping[str, Any] | None = None, timeout: Timeout = NOT_GIVEN, *,
            result_schema: Mapping[str, Any] | UnionType | _SpecialForm | None = None, **options: Unpack[_CallOptions],
        ) -> None: ...  # fmt: skip

        def __init__(self, tool: str, arguments: Any = None, timeout: Any = None, **options: Any) -> None: ...


class Delegation(DescribedCall[Output_co], frozen=True):
    """One child turn among several, for `Context.delegates` and `Context.as_completed`; see Context.delegate."""

    agent: AgentOf
    payload: Any = None
    timeout: Timeout = NOT_GIVEN
    instance: str | None = None
    call_id: str | None = None
    context_box_id: str | None = None
    budget: Mapping[str, int | float] | None = None
    priority: str | None = None
    callback_url: str | None = None
    context: Mapping[str, Any] | None = None
    retry: RetryPolicy | Mapping[str, Any] | None = None
    fallback: Fallback | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Delegation[R], agent: AgentSpec[R], payload: Any = None, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
            **options: Unpack[_DelegationOptions],
        ) -> None: ...  # fmt: skip

        @overload
        def __init__(
            self: Delegation[R], agent: Callable[[Any], Coroutine[Any, Any, R]], payload: Any = None, timeout: Timeout = NOT_GIVEN,
            instance: str | None = None, **options: Unpack[_DelegationOptions],
        ) -> None: ...  # fmt: skip

        @overload
        def __init__(
            self: Delegation[Any], agent: str | type[Agent], payload: Any = None, timeout: Timeout = NOT_GIVEN,
            instance: str | None = None, **options: Unpack[_DelegationOptions],
        ) -> None: ...  # fmt: skip

        @overload
        def __init__(
            self: Delegation[R], agent: Callable[[Any], R], payload: Any = None, timeout: Timeout = NOT_GIVEN,
            instance: str | None = None, **options: Unpack[_DelegationOptions],
        ) -> None: ...  # fmt: skip

        def __init__(
            self, agent: Any, payload: Any = None, timeout: Any = None, instance: Any = None, **options: Any
        ) -> None: ...
