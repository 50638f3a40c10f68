"""Validate the calls of an agent's function, and build their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import amounts_of, check_budget
from heliograph.definitions.circuit_breakers import CircuitBreaker, breaker_among, check_circuit_breaker
from heliograph.definitions.rate_limits import check_rate_limit, rates_of
from heliograph.error_text import safe_repr
from heliograph.errors import AgentFailed, InvalidInput
from heliograph.execution.call_routes import check_delegation
from heliograph.execution.delegation_checks import check_room
from heliograph.execution.delegation_targets import Target, name_of_agent, output_type_of, target_of
from heliograph.execution.step_outcome import is_inside_step
from heliograph.policy.egress import parse
from heliograph.policy.retry import RetryPolicy, narrowest, retry_policy
from heliograph.reactive.workflow import Workflow
from heliograph.records import Claimed
from heliograph.signals.payload import check_payload
from heliograph.signals.values import to_json
from heliograph.turn.call_id import instance_of
from heliograph.turn.call_results import output_validator
from heliograph.turn.calls import (
    AFTERS,
    BOX_ID_MAX,
    CALL_EFFECTS,
    CallEffect,
    CallRequest,
    Fallback,
    check_name,
    check_one_of,
    check_timeout,
)
from heliograph.turn.described_calls import Call, Delegation, DescribedCall
from heliograph.turn.fallbacks import with_fallback
from heliograph.turn.human_tasks import Question
from heliograph.turn.interruptions import check_seconds
from heliograph.turn.journal import Journal
from heliograph.turn.retries import check_retry_id
from heliograph.types import JsonObject


class CallRequests(Struct, frozen=True, eq=False):
    """Builds the requests of one run of a function, and numbers them in the order of its calls."""

    _journal: Journal
    _workflow: Workflow
    _claimed: Claimed

    def check_may_wait(self, what: str) -> None:
        """Raise AgentFailed inside a step, in a plain function, and after the function has ended."""
        why = (
            "a step runs without interruption, so nothing can wait inside it"
            if is_inside_step()
            else self._journal.wait_forbidden
        )
        if why is not None:
            raise AgentFailed(f"agent {self._claimed.agent} cannot {what}: {why}")

    def step(
        self, name: str, effect: CallEffect, timeout: float | None = None, call_id: str | None = None, retry: Any = None,
        circuit_breaker: CircuitBreaker | Mapping[str, Any] | None = None, fallback: Fallback | None = None,
        *, rate_limit: str | None = None, arguments: tuple[Any, ...] = (),
    ) -> CallRequest:  # fmt: skip
        """A step that runs now. Raises InvalidInput."""
        policy = narrowest(retry_policy(retry, "/retry"))
        return with_fallback(check_retry_id(CallRequest(
            self._journal.new_call(call_id), self._journal.new_step(), check_name(name, "a step's name"), "inline", None, timeout,
            effect, retry=policy, circuit_breaker=breaker_among(check_circuit_breaker(circuit_breaker, "/circuit_breaker")),
            rates=rates_of("tool", name, check_rate_limit(rate_limit, "/rate_limit")), arguments=arguments,
        )), fallback)  # fmt: skip

    def pause(self, seconds: float) -> CallRequest:
        """A pause of the turn. Raises InvalidInput (`out_of_range`)."""
        check_seconds("the length of a pause", seconds)
        return CallRequest(self._journal.new_call(), self._journal.new_step(), "timer", "timer", {"seconds": float(seconds)},
                     float(seconds), "pure")  # fmt: skip

    def human(self, tool: str, question: Question, timeout: float | None, call_id: str | None) -> CallRequest:
        """A question to a person. Raises InvalidInput."""
        return CallRequest(self._journal.new_call(call_id), self._journal.new_step(), tool, "human", question.record(),
                     check_timeout(timeout), needs_token=False)  # fmt: skip

    def fork(
        self,
        calls: Sequence[DescribedCall[Any]],
        *,
        fail_fast: bool,
        timeout: float | None,
        retry: RetryPolicy | None = None,
    ) -> list[CallRequest]:
        """The requests of one step that share `fail_fast`, a timeout and a policy. Raises InvalidInput."""
        overall = check_timeout(timeout)
        return [
            replace(each, fails_fast=bool(fail_fast), timeout_seconds=_shorter(each.timeout_seconds, overall),
                    has_shared_deadline=overall is not None and (each.timeout_seconds or overall) >= overall)
            for each in self.all(calls, retry)
        ]  # fmt: skip

    def all(self, calls: Sequence[DescribedCall[Any]], retry: RetryPolicy | None = None) -> list[CallRequest]:
        """The requests of one step; retry: the policy of those without their own. Raises InvalidInput."""
        self.check_may_wait("call")
        step_id = self._journal.new_step()
        return [self._described(each, step_id, retry) for each in calls]

    def _described(self, call: DescribedCall[Any], step_id: str, shared: RetryPolicy | None) -> CallRequest:
        if isinstance(call, Delegation):
            request = self._delegation(call, step_id, shared)
        elif isinstance(call, Call):
            request = self._call(call, step_id, shared)
        else:
            raise InvalidInput(
                f"the argument of calls must be a list of Call and Delegation, not {safe_repr(call)}", code="wrong_type"
            )
        return with_fallback(check_retry_id(request), call.fallback)

    def check_room(self, action: str, requests: Sequence[CallRequest]) -> None:
        """Check that the run may have a turn for each new child. Raises InvalidInput (`out_of_range`)."""
        if not any(
            self._journal.has_call(each.call_id) for each in requests
        ):  # a run of the function before this one has checked
            new = sum(not self._workflow.is_remote(each.tool) for each in requests)
            check_room(action, new, self._claimed.run, self._workflow)

    def output_types(self, described: Sequence[DescribedCall[Any]]) -> list[Any]:
        """The types of the outputs of calls, see `_output_type`. Call this before the coroutines are made: those of a rejected type would never be awaited."""
        return [self._output_type(each) for each in described]

    def _output_type(self, described: DescribedCall[Any]) -> Any:
        """The type of the output of a call; Any for JSON. Raises InvalidInput for one that cannot be resolved."""
        if isinstance(described, Delegation):
            return output_type_of(described.agent, self._workflow)
        schema = described.result_schema if isinstance(described, Call) else None
        return Any if schema is None or isinstance(schema, Mapping) else schema

    def _call(self, call: Call[Any], step_id: str, shared: RetryPolicy | None) -> CallRequest:
        tool = check_name(call.tool, "the name of a tool")
        check_one_of(call.after, "after", AFTERS)
        check_one_of(call.effect, "the effect of a call", CALL_EFFECTS)
        if self._journal.prefix and (call.after == "terminate" or call.may_override):
            raise InvalidInput(f"a hook cannot end its turn with the result of tool {tool}; let the reflect hook decide",
                               code="invalid_enum", path="/after")  # fmt: skip
        arguments = {} if call.arguments is None else call.arguments
        if not isinstance(arguments, Mapping):
            raise InvalidInput(f"the arguments of tool {tool} must be an object, not {safe_repr(arguments)}", code="wrong_type",
                               path="/arguments")  # fmt: skip
        settings = self._workflow.tool_calls[self._claimed.agent]
        return CallRequest(self._journal.new_call(call.call_id), step_id, tool, "tool", to_json(dict(arguments), "/arguments"),
                     check_timeout(settings.timeout_of(call.timeout)), call.effect, call.after, bool(call.may_override),
                     bool(call.needs_token), is_trusted=bool(call.trusted),
                     output_problems=output_validator(tool, call.result_schema, "/result_schema"),
                     retry=_tool_policy(call, shared, settings.retry),
                     circuit_breaker=breaker_among(check_circuit_breaker(call.circuit_breaker, "/circuit_breaker"),
                                                   settings.circuit_breaker),
                     rates=rates_of("tool", tool, check_rate_limit(call.rate_limit, "/rate_limit"), settings.rate_limit))  # fmt: skip

    def _delegation(self, child: Delegation, step_id: str, shared: RetryPolicy | None) -> CallRequest:
        call_id = self._journal.new_call(child.call_id)
        is_known = self._journal.has_call(call_id)
        agent = name_of_agent(child.agent, self._workflow)
        is_remote = isinstance(agent, str) and self._is_remote(agent, is_known)
        target = Target(agent) if is_remote else target_of(agent, self._workflow, self._claimed.run_id)
        box = None if child.context_box_id is None else check_name(child.context_box_id, "a box id", BOX_ID_MAX)
        if child.priority is not None:
            check_one_of(child.priority, "priority", PRIORITIES)
        own_budget = check_budget(child.budget)
        task, context = to_json(child.payload, "/payload"), _context_of(child)
        check_payload(task if context is None else {"task": task, "context": context}, "/payload")
        settings = self._workflow.delegation_settings(self._claimed.agent, target.agent)
        timeout = check_timeout(settings.timeout_of(child.timeout))
        request = CallRequest(call_id, step_id, target.agent, "child", task, timeout, "idempotent",
                     instance=child.instance if is_remote else self._instance(child, target, call_id), context_box_id=box, context=context,
                     priority=None if child.priority is None else PRIORITIES.index(child.priority),
                     budget=None if own_budget is None else amounts_of(own_budget),
                     callback_url=None if child.callback_url is None else parse(child.callback_url).url,
                     retry=narrowest(retry_policy(child.retry, "/retry"), shared, settings.retry),
                     circuit_breaker=settings.circuit_breaker, rates=rates_of("agent", target.agent, settings.rate_limit))  # fmt: skip
        return request if is_known else check_delegation(self._workflow, request)

    def _is_remote(self, agent: str, is_known: bool) -> bool:
        """Whether another system has the agent. A known call may have gone through a gateway that no route leads to any more."""
        return self._workflow.is_remote(agent) or (is_known and "/" not in agent and agent not in self._workflow.agents)

    def _instance(self, child: Delegation, target: Target, call_id: str) -> str | None:
        if child.instance is not None:
            return check_name(child.instance, "an instance")
        if target.is_by_id:
            return None if target.instance is None else check_name(target.instance, "an instance")
        return instance_of(self._claimed.turn_id, call_id)


def _tool_policy(call: Call, shared: RetryPolicy | None, wider: RetryPolicy | None) -> RetryPolicy | None:
    own = retry_policy(call.retry, "/retry")
    if call.after != "terminate":
        return narrowest(own, shared, wider)
    if own is not None and own.retries:
        raise InvalidInput(f"the call of {call.tool} has after='terminate', so its first result ends the turn; remove retry",
                           code="out_of_range", path="/retry")  # fmt: skip
    return None


def _context_of(child: Delegation) -> JsonObject | None:
    if child.context is None:
        return None
    if not isinstance(child.context, Mapping):
        raise InvalidInput(f"the context of a delegation must be an object, not {safe_repr(child.context)}", code="wrong_type",
                           path="/context")  # fmt: skip
    context = to_json(dict(child.context), "/context")
    assert isinstance(context, dict)
    return context


def _shorter(own: float | None, overall: float | None) -> float | None:
    return own if overall is None else overall if own is None else min(own, overall)
