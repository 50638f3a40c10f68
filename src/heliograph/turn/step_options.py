"""The options of a step, which `Context.step` takes in place of its name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeAlias

from msgspec import Struct
from typing_extensions import TypeVar  # before Python 3.13, that of `typing` knows no defaults

from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.policy.retry import RetryPolicy
from heliograph.turn.calls import CallEffect, Fallback

Effect_co = TypeVar("Effect_co", bound=CallEffect, covariant=True, default=Literal["once"])
PlainEffect: TypeAlias = Literal["pure", "idempotent", "once"]  # of functions that receive no connection


class Step(Struct, Generic[Effect_co], frozen=True):
    """A step with options, for `Context.step`: `await ctx.step(Step("charge", timeout=5), charge, order)`.

    effect: what happens after a worker died in the middle. `pure` and `idempotent` steps run again; a `once` step raises
        StepInDoubt. A `transactional` function is async and receives a database connection as its first argument. Its writes
        and its result commit together or not at all, so it runs again.
    timeout: the seconds of one attempt. call_id: an id of your own, in place of its place in the order of calls.
    retry: as for `Context.call`; the turn is suspended between attempts. circuit_breaker, rate_limit: all steps of this name
        share them; see CircuitBreaker. fallback: as for `Context.call`; its result has the type of the function's.
    """

    name: str
    effect: Effect_co = "once"  # type: ignore[assignment]  # the default of the type
    timeout: float | None = None
    call_id: str | None = None
    retry: RetryPolicy | Mapping[str, Any] | None = None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None
    rate_limit: str | None = None
    fallback: Fallback | None = None
