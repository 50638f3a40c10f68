"""The context of an agent's function: the inputs and actions of its turn, with calls of tools, steps and other agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.circuit_breakers import CircuitBreaker
from heliograph.definitions.hooks import Agent
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.child_outputs import delegated, mapped, typed_each, typed_results
from heliograph.execution.delegation_checks import check_delegations, check_limit, shared_policy
from heliograph.execution.turn_actions import TurnActions
from heliograph.execution.typed_results import result_type_of, typed_result
from heliograph.policy.retry import RetryPolicy, retry_policy
from heliograph.turn.calls import (
    CALL_EFFECTS,
    After,
    AgentOf,
    CallEffect,
    CallResult,
    Fallback,
    check_one_of,
    check_timeout,
)
from heliograph.turn.described_calls import Call, Delegation, DescribedCall
from heliograph.turn.step_options import PlainEffect, Step
from heliograph.type_variables import Deps_co, State_co
from heliograph.types import NOT_GIVEN, Timeout

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

A = ParamSpec("A")
R = TypeVar("R")


class Context(TurnActions[State_co, Deps_co]):
    """One turn, as its agent sees it.

    A turn that waits releases its worker. When a result arrives, some worker runs the function again from its start, and
    each call that has a recorded result returns it. Between calls, a function may depend only on its context and on results.

    Write `Context[Post]` for an application with the state Post, and `Context[Post, Clients]` if it has deps of this type.

    state: the run's state when a worker claimed this turn, as the application's type. It is a copy; only `updates` change it.
    deps: the object of `Heliograph(deps=...)`, which the process made; it is not recorded.
    document: the same state as a JSON object.
    signal: the signal that woke the agent: `.name`, `.payload`, `.agent`, `.id`.
    task: the agent's task: the payload of its delegation, otherwise the payload of `signal`.
    task_context: the object `context` of a delegation; otherwise empty.
    idempotency_key: `project/application/turn`, the same for every attempt of this turn and for no other turn. Pass it to
        every receiver that must not act twice.
    attempt: 1, and one more each time the turn lost its worker.
    deferrals: how often the turn was deferred.
    context_box_id: the box that this turn may read, or None. See `context`.
    phase: the current phase: act, or that of the hook.
    """

    @overload
    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: Timeout = NOT_GIVEN,
        call_id: str | None = None, after: After = "suspend", effect: CallEffect = "once", may_override: bool = False,
        needs_token: bool = True, result_schema: type[R], trusted: bool = False,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None, rate_limit: str | None = None,
        fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip

    @overload
    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: Timeout = NOT_GIVEN,
        call_id: str | None = None, after: After = "suspend", effect: CallEffect = "once", may_override: bool = False,
        needs_token: bool = True, result_schema: Mapping[str, Any] | UnionType | _SpecialForm | None = None, trusted: bool = False,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None, rate_limit: str | None = None,
        fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: Timeout = NOT_GIVEN,
        call_id: str | None = None, after: After = "suspend", effect: CallEffect = "once", may_override: bool = False,
        needs_token: bool = True, result_schema: Any = None, trusted: bool = False,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None, rate_limit: str | None = None,
        fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Call a tool that runs elsewhere, and wait for its result. The turn is suspended meanwhile.

        timeout: seconds until the call fails, by default those of `control_signals` or 60; None waits as long as the turn
        lives. call_id: an id of your own, in place of its place in the order of calls.
        after: "terminate" ends the turn with the result, without running the function again. may_override: the tool may
        choose that in its result. needs_token: False accepts a report without the call's token, also before the call
        is made. result_schema: a type, which the result is returned as, or a JSON Schema; any
        other result fails with the code `result_schema`. trusted: you
        vouch for the result; an untrusted result makes everything that this turn writes untrusted. retry: how often and when a
        failed call is repeated, as a RetryPolicy or an object of the specification; the timeout applies to each attempt. A
        `once` call that timed out is not repeated. circuit_breaker: see CircuitBreaker. rate_limit: the most calls of this tool
        that all workers make together, for example "10/s". fallback: a plain or async function. If the breaker or the limit
        rejects the call, the function runs instead, as an idempotent step. It receives the error, CircuitOpen or RateLimited,
        and its result becomes that of the call. Raises ToolFailed, ToolTimedOut, CircuitOpen, RateLimited, InvalidInput.
        """
        call = Call(
            tool, arguments, timeout, call_id=call_id, after=after, effect=effect, may_override=may_override, needs_token=needs_token,
            result_schema=result_schema, trusted=trusted, retry=retry, circuit_breaker=circuit_breaker, fallback=fallback,
            rate_limit=rate_limit,
        )  # fmt: skip
        [request], [kind] = self._requests.all([call]), self._requests.output_types([call])
        if kind is Any:
            return self._replay.value(request)
        return typed_result(partial(self._replay.value, request), tool, kind)

    def calls(
        self, calls: Sequence[DescribedCall[R]], *, fail_fast: bool = False, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[CallResult[R]]]:
        """Make several calls at once, and wait for all results, in the order of `calls`. Raises InvalidInput.

        Each output has the type that its call names: as `result_schema`, or as the output of the agent. One of another type is a
        failure with the code `result_schema`.

        fail_fast: the first failure cancels the other calls; their `error` names it in `first_failed_call`. timeout: seconds for
        all calls together, beside the timeout of each call.
        """
        requests = self._requests.fork(calls, fail_fast=fail_fast, timeout=timeout)
        kinds = self._requests.output_types(calls)
        return typed_results(self._replay, requests, None, kinds)

    def as_completed(self, calls: Sequence[DescribedCall[R]]) -> AsyncIterator[CallResult[R]]:
        """Make several calls at once, and yield each result when it arrives. Later runs yield them in the same order."""
        requests = self._requests.all(calls)
        kinds = self._requests.output_types(calls)
        return typed_each(self._replay.each(requests), requests, kinds)

    @overload
    def step(
        self, step: Step[Literal["transactional"]], function: Callable[Concatenate[Any, A], Coroutine[Any, Any, R]], /,
        *args: A.args, **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip

    @overload
    def step(
        self,
        step: str | Step[PlainEffect],
        function: Callable[A, Coroutine[Any, Any, R]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def step(
        self, step: str | Step[PlainEffect], function: Callable[A, R], /, *args: A.args, **kwargs: A.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    def step(
        self, step: str | Step[CallEffect], function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run `function(*args, **kwargs)`, plain or async, once in this turn, and record its result as JSON.

        step: its name, or a Step with options. Later runs of the turn return the recorded result. Each run returns it as the
        type that the function is annotated to return, or as JSON without an annotation. `control_signals` do not apply to steps:
        a step has only its own timeout, retry, circuit_breaker and rate_limit. Raises ToolFailed with the error of the function,
        or with the code `result_schema` for a result of another type; StepInDoubt, ToolTimedOut, CircuitOpen, RateLimited,
        InvalidInput.
        """
        self._requests.check_may_wait("step")
        options = step if isinstance(step, Step) else Step(step)
        check_one_of(options.effect, "the effect of a step", CALL_EFFECTS)
        if not callable(function):
            raise InvalidInput(f"step {safe_repr(options.name)} must be given a function and its arguments, not "
                               f"{safe_repr(function)}", code="wrong_type")  # fmt: skip
        kind = result_type_of(function, f"the function of step {safe_repr(options.name)}")
        request = self._requests.step(
            options.name, options.effect, check_timeout(options.timeout), options.call_id, options.retry,
            options.circuit_breaker, options.fallback, rate_limit=options.rate_limit,
            arguments=(*args, kwargs) if kwargs else args,
        )  # fmt: skip
        given = partial(function, **kwargs) if kwargs else function
        if kind is Any:
            return self._replay.step(request, given, args)
        return typed_result(partial(self._replay.step, request, given, args), request.tool, kind)

    @overload
    def delegate(
        self, agent: AgentSpec[R], payload: Any = None, *, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip

    @overload
    def delegate(
        self, agent: Callable[[Context[Any, Any]], Coroutine[Any, Any, R]], payload: Any = None, *, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip

    @overload
    def delegate(
        self, agent: Callable[[Context[Any, Any]], R], payload: Any = None, *, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip

    @overload
    def delegate(
        self, agent: str | type[Agent], payload: Any = None, *, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip

    def delegate(
        self, agent: AgentOf, payload: Any = None, *, timeout: Timeout = NOT_GIVEN, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Run another agent of the application in a child turn, and wait for its output.

        agent: the function or the AgentSpec of the agent, whose output has the declared type; its class or its name; or its id in this
        run: `<run id>/<name>`, or `<run id>/<name>/<instance>`. The child finds `payload`
        in `ctx.task`, and the object `context` in `ctx.task_context`. instance: turns of one instance run one after another;
        by default, each child is an instance of its own. timeout: seconds until the child is stopped, by default those of
        `control_signals`; None sets no limit. context_box_id: the box that the child may read; pass `ctx.context_box_id` to hand
        on your own. priority: low, normal, high or critical, in place of the agent's. callback_url: receives a signed
        POST when the child ends. budget: a limit for the child, beside the budgets of its agent and of this turn. retry: as for
        `call`; each attempt is a new child. fallback: as for `call`; the error is a DelegationFailed. Raises DelegationFailed, InvalidInput (`unknown_agent`, `payload_too_large`, or the
        problem of the budget or the URL).
        """
        child: Delegation[Any] = Delegation(agent, payload, timeout, instance, context_box_id=context_box_id, priority=priority,
                           callback_url=callback_url, budget=budget, context=context, retry=retry, fallback=fallback)  # fmt: skip
        [request], [kind] = self._requests.all([child]), self._requests.output_types([child])
        return delegated(self._replay, request, kind)

    def delegates(
        self, delegations: Sequence[Delegation[R]], *, fail_fast: bool = False, timeout: float | None = None, retries: int = 0,
        retry: RetryPolicy | Mapping[str, Any] | None = None, limit: int | None = None,
    ) -> Coroutine[Any, Any, list[CallResult[R]]]:  # fmt: skip
        """Run several children at once, and wait for all results, in the order of `delegations`. Raises InvalidInput.

        fail_fast, timeout: as for `calls`. retries: how often failed children run again, as new turns; with fail_fast, also
        the children that it canceled. Each round has the whole `timeout`. Children that hit it are not retried. retry: a
        complete policy for children without one of their own; with `retries`, the smaller number counts. limit: the most children
        that run at once; with it, give each Delegation its own timeout.
        """
        check_delegations(delegations)
        check_limit(limit, timeout)
        shared = shared_policy(retries, retry_policy(retry, "/retry"))
        requests = self._requests.fork(delegations, fail_fast=fail_fast, timeout=timeout, retry=shared)
        self._requests.check_room("delegates", requests)
        kinds = self._requests.output_types(delegations)
        return typed_results(self._replay, requests, limit, kinds)

    @overload
    def map(
        self, agent: AgentSpec[R], items: Iterable[Any], *, limit: int | None = None, timeout: Timeout = NOT_GIVEN, priority: str | None = None,
        context: Mapping[str, Any] | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip

    @overload
    def map(
        self, agent: Callable[[Context[Any, Any]], Coroutine[Any, Any, R]], items: Iterable[Any], *, limit: int | None = None, timeout: Timeout = NOT_GIVEN, priority: str | None = None,
        context: Mapping[str, Any] | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip

    @overload
    def map(
        self, agent: Callable[[Context[Any, Any]], R], items: Iterable[Any], *, limit: int | None = None, timeout: Timeout = NOT_GIVEN, priority: str | None = None,
        context: Mapping[str, Any] | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip

    @overload
    def map(
        self, agent: str | type[Agent], items: Iterable[Any], *, limit: int | None = None, timeout: Timeout = NOT_GIVEN, priority: str | None = None,
        context: Mapping[str, Any] | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, list[Any]]: ...  # fmt: skip

    def map(
        self, agent: AgentOf, items: Iterable[Any], *, limit: int | None = None, timeout: Timeout = NOT_GIVEN, priority: str | None = None,
        context: Mapping[str, Any] | None = None, retry: RetryPolicy | Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, list[Any]]:  # fmt: skip
        """Delegate each item to an agent, and return the outputs in the order of the items.

        agent, timeout, priority, context, retry: as for `delegate`, for each item. limit: the most children that run at once. After
        a failure no further child starts. Those that run are awaited, and the first of the failures, by index, is raised. For the
        result of each child, also of those that fail, use `delegates`. Raises DelegationFailed, InvalidInput (also `out_of_range`, for
        more children than the `max_activations` of the run allow).
        """
        check_limit(limit)
        children: list[Delegation[Any]] = [
            Delegation(agent, item, timeout, priority=priority, context=context, retry=retry) for item in items
        ]
        requests = self._requests.all(children)
        self._requests.check_room("map", requests)
        [kind] = self._requests.output_types([Delegation(agent)])
        return mapped(self._replay, requests, limit, kind)
