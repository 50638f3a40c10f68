"""What an agent can wait for: tools, child turns, pauses, and steps that happen once.

A call without a recorded result is noted in the journal, and the function is left by an exception; what comes of that
is the machine's and the drive's business. So nothing in here writes, but for steps, which happen while the turn runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import amounts_of, check_budget
from heliograph.errors import AgentFailed, InvalidInput, safe_repr
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.delegation_targets import Target, target_of
from heliograph.execution.human_tasks import ContextApprovals
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_outcome import is_inside_step
from heliograph.execution.steps import Steps
from heliograph.policy.egress import parse
from heliograph.signals.payload import check_payload
from heliograph.signals.values import to_json
from heliograph.turn.call_id import CALL_ID_MAX, instance_of, retry_id
from heliograph.turn.call_results import output_validator
from heliograph.turn.calls import (
    AFTERS,
    BOX_ID_MAX,
    CALL_EFFECTS,
    After,
    Call,
    CallEffect,
    CallRequest,
    CallResult,
    Delegation,
    Journal,
    check_name,
    check_one_of,
    check_timeout,
)
from heliograph.turn.interruptions import Defer, check_seconds
from heliograph.types import Json, JsonObject

RETRIES_MAX = 100


class Calls(ContextApprovals):
    """The part of a `Context` that waits. Between calls a function may depend only on its context and on results."""

    def __init__(self, owned: OwnedTurn, journal: Journal):
        self._journal = journal
        self._replay = CallReplay(journal, Steps(owned))
        self._workflow = owned.workflow
        self._agent = owned.claimed.agent
        self._run_id = owned.claimed.run_id
        self._turn_id = owned.claimed.turn_id
        self._ttl_seconds = owned.claimed.ttl_seconds

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = 60.0,
        call_id: str | None = None, after: After = "suspend", effect: CallEffect = "once", may_override: bool = False,
        needs_token: bool = True, result_schema: Any = None, trusted: bool = False,
    ) -> Coroutine[Any, Any, Json]:  # fmt: skip
        """Call a tool that works elsewhere, and wait for its result: the turn is suspended and holds nothing.

        When the result is reported, some worker runs the function again from its start, and this call returns what is
        recorded. timeout: seconds until it counts as failed. call_id: in place of its place in the order of calls.
        after: "terminate" makes the result the turn's own, without running the function again. may_override: the tool
        may decide that by its result. needs_token: False lets anybody report who may report at all and knows the turn
        and the call, also before it is made. result_schema: a type or a JSON Schema; a result that does not fit it is a
        failure with the code `result_schema`. trusted: you vouch for the result; an untrusted result makes everything that this
        turn writes untrusted. Raises ToolFailed or ToolTimedOut, InvalidInput for what is malformed.
        """
        call = Call(tool, arguments, timeout, call_id, after, effect, may_override, needs_token, result_schema, trusted)
        return self._replay.value(self._tools([call])[0])

    def calls(
        self, calls: Sequence[Call | Delegation], *, fail_fast: bool = False, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[CallResult]]:
        """Several at once: their results in the order of `calls`, when all are there. Raises InvalidInput.

        fail_fast: the first that does not succeed ends the wait: the others are canceled, and the `error` of each says
        in `failed_first` which call that was. timeout: seconds for all of them together, beside those of each.
        """
        return self._replay.all(self._fork(calls, fail_fast=fail_fast, timeout=timeout))

    def as_completed(self, calls: Sequence[Call | Delegation]) -> AsyncIterator[CallResult]:
        """Several at once: each result as it comes, in an order that is the same whenever the function runs again."""
        return self._replay.each(self._tools(calls))

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, effect: CallEffect = "once",
        timeout: float | None = None, call_id: str | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Do something here and now, once: run `function(*args)`, plain or async, and record its result as JSON.

        Run again, the turn gets the recorded result. effect: what may happen if a worker dies in the middle: `pure` and
        `idempotent` are done again, `once` is not: it raises StepInDoubt. A `transactional` function is async and gets a
        connection to the database before its arguments; what it does there is committed together with its result, and
        after a crash neither is there, and it is done again. Raises ToolFailed, which carries what the function raised;
        ToolTimedOut; InvalidInput.
        """
        self._check_may_wait("step")
        check_one_of(effect, "the effect of a step", CALL_EFFECTS)
        if not callable(function):
            raise InvalidInput(f"step {safe_repr(name)} is given a function and its arguments, not {safe_repr(function)}",
                               code="wrong_type")  # fmt: skip
        return self._replay.step(self._inline(name, effect, check_timeout(timeout), call_id), function, args)

    def pause(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait for so long, holding nothing; for waits of milliseconds there is `sleep`.

        Raises InvalidInput (`out_of_range`), also for a pause that the turn would not live to see the end of.
        """
        self._check_may_wait("pause")
        check_seconds("a pause is", seconds)
        request = CallRequest(self._journal.new_call(), self._journal.new_step(), "timer", "timer", {"seconds": float(seconds)},
                      float(seconds), "pure")  # fmt: skip
        return self._pause(request)

    def delegate(
        self, agent: str, payload: Any = None, *, timeout: float | None = None, instance: str | None = None,
        context_box_id: str | None = None, priority: str | None = None, callback_url: str | None = None,
        budget: Mapping[str, int | float] | None = None, context: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Json]:  # fmt: skip
        """Have another agent of the application do something, as a turn of its own, and wait for its output.

        agent: its name, or its id in this run: `<run id>/<name>`, or `<run id>/<name>/<instance>`.
        The child finds `payload` in `ctx.task` and the object `context` in `ctx.task_context`. It is an instance of its
        own unless `instance` or the id names one: turns of one instance run one after another. timeout: seconds after
        which the child is stopped. context_box_id: the box that it finds in `ctx.context()`; `ctx.context_box_id` hands on this turn's own. priority: in place of the agent's:
        low, normal, high or critical. callback_url: told of its end, too, by a signed POST. budget: what the child may
        use, beside what the agent's own budget and this turn's allow. Raises DelegationFailed, InvalidInput
        (`unknown_agent`, `payload_too_large`, what is wrong with the budget or the URL).
        """
        child = Delegation(agent, payload, timeout, instance, context_box_id=context_box_id, priority=priority,
                           callback_url=callback_url, budget=budget, context=context)  # fmt: skip
        return self._replay.value(self._tools([child])[0])

    def delegates(
        self,
        delegations: Sequence[Delegation],
        *,
        fail_fast: bool = False,
        timeout: float | None = None,
        retries: int = 0,
    ) -> Coroutine[Any, Any, list[CallResult]]:
        """Several children at once: their results in the order of `delegations`, when all have ended.

        fail_fast, timeout: see `calls`. retries: how often those that failed are delegated again, as new turns; with
        fail_fast also those that were canceled for it. Each round has the whole `timeout`; who ran out of it is not
        asked again. Raises InvalidInput.
        """
        if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
            raise InvalidInput(f"retries is from 0 to {RETRIES_MAX}, not {safe_repr(retries)}", code="out_of_range")
        for delegation in delegations:
            if not isinstance(delegation, Delegation):
                raise InvalidInput(
                    f"delegates takes a list of Delegation, not {safe_repr(delegation)}", code="wrong_type"
                )
        requests = self._fork(delegations, fail_fast=fail_fast, timeout=timeout)
        for each in requests if retries else ():  # before any child has run
            check_name(retry_id(each.call_id, retries), "the call id of a delegation that is asked again", CALL_ID_MAX)
        return self._delegates(list(delegations), requests, retries, {"fail_fast": fail_fast, "timeout": timeout})

    async def _delegates(
        self, delegations: list[Delegation], requests: list[CallRequest], retries: int, options: dict[str, Any]
    ) -> list[CallResult]:
        """What is asked again follows from what is recorded, and from nothing else: the function may run any time."""
        results = await self._replay.all(requests)
        for again in range(1, retries + 1):
            places = [n for n, result in enumerate(results) if _may_retry(result, delegations[n], options["timeout"])]
            if not places:
                break
            retried = [replace(delegations[n], call_id=retry_id(requests[n].call_id, again)) for n in places]
            told = await self._replay.all(self._fork(retried, **options))
            for n, result in zip(places, told, strict=True):
                results[n] = result
        return results

    def defer(self, reason: str, seconds: float) -> NoReturn:
        """Put the turn off, as `raise Defer(reason, seconds)` does: it is run again from its start after that time."""
        raise Defer(reason, seconds)

    # ── What is asked ──

    def _inline(
        self, name: str, effect: CallEffect, timeout: float | None = None, call_id: str | None = None
    ) -> CallRequest:  # fmt: skip
        return CallRequest(self._journal.new_call(call_id), self._journal.new_step(), check_name(name, "a step's name"), "inline",
                     None, timeout, effect)  # fmt: skip

    def _fork(self, calls: Sequence[Call | Delegation], *, fail_fast: bool, timeout: float | None) -> list[CallRequest]:
        whole = check_timeout(timeout)
        return [
            replace(each, fails_fast=bool(fail_fast), timeout_seconds=_shorter(each.timeout_seconds, whole))
            for each in self._tools(calls)
        ]

    def _tools(self, calls: Sequence[Call | Delegation]) -> list[CallRequest]:
        self._check_may_wait("call")
        step_id = self._journal.new_step()
        return [self._delegation(c, step_id) if isinstance(c, Delegation) else self._call(c, step_id) for c in calls]

    def _call(self, call: Call, step_id: str) -> CallRequest:
        if not isinstance(call, Call):
            raise InvalidInput(f"calls takes a list of Call and Delegation, not {safe_repr(call)}", code="wrong_type")
        tool = check_name(call.tool, "the name of a tool")
        check_one_of(call.after, "after", AFTERS)
        check_one_of(call.effect, "the effect of a call", CALL_EFFECTS)
        given = {} if call.arguments is None else call.arguments
        if not isinstance(given, Mapping):
            raise InvalidInput(f"the arguments of tool {tool} are an object, not {safe_repr(given)}", code="wrong_type",
                               path="/arguments")  # fmt: skip
        return CallRequest(self._journal.new_call(call.call_id), step_id, tool, "tool", to_json(dict(given), "/arguments"),
                     check_timeout(call.timeout), call.effect, call.after, bool(call.may_override),
                     bool(call.needs_token), is_trusted=bool(call.trusted),
                     output_problems=output_validator(tool, call.result_schema, "/result_schema"))  # fmt: skip

    def _delegation(self, child: Delegation, step_id: str) -> CallRequest:
        target = target_of(child.agent, self._workflow, self._run_id)
        call_id = self._journal.new_call(child.call_id)
        box = None if child.context_box_id is None else check_name(child.context_box_id, "a box id", BOX_ID_MAX)
        if child.priority is not None:
            check_one_of(child.priority, "priority", PRIORITIES)
        own_budget = check_budget(child.budget)
        task, context = to_json(child.payload, "/payload"), _context_of(child)
        check_payload(task if context is None else {"task": task, "context": context}, "/payload")
        return CallRequest(call_id, step_id, target.agent, "child", task, check_timeout(child.timeout), "idempotent",
                     instance=self._instance(child, target, call_id), context_box_id=box, context=context,
                     priority=None if child.priority is None else PRIORITIES.index(child.priority),
                     budget=None if own_budget is None else amounts_of(own_budget),
                     callback_url=None if child.callback_url is None else parse(child.callback_url).url)  # fmt: skip

    def _instance(self, child: Delegation, target: Target, call_id: str) -> str | None:
        if child.instance is not None:
            return check_name(child.instance, "an instance")
        if target.is_by_id:
            return None if target.instance is None else check_name(target.instance, "an instance")
        return instance_of(self._turn_id, call_id)

    def _check_may_wait(self, what: str) -> None:
        why = (
            "inside a step nothing can wait: a step is done in one go"
            if is_inside_step()
            else self._journal.wait_forbidden
        )
        if why is not None:
            raise AgentFailed(f"agent {self._agent} cannot {what}: {why}")

    async def _settled(self) -> None:
        """Return when no step is under way. For the worker: an agent's function knows its own."""
        await self._replay.steps.settled()

    async def _pause(self, request: CallRequest) -> None:
        wait = self._replay.find(request)
        if wait is None and request.timeout_seconds is not None and request.timeout_seconds > self._ttl_seconds:
            raise InvalidInput(f"a pause of {request.timeout_seconds:g} s is longer than this turn has left to live, "
                               f"{self._ttl_seconds:g} s; give agent {self._agent} a larger ttl_seconds",
                               code="out_of_range")  # fmt: skip
        if wait is None or wait.state != "resolved":
            await self._replay.suspend([request])


def _context_of(child: Delegation) -> JsonObject | None:
    if child.context is None:
        return None
    if not isinstance(child.context, Mapping):
        raise InvalidInput(f"the context of a delegation is an object, not {safe_repr(child.context)}", code="wrong_type",
                           path="/context")  # fmt: skip
    given = to_json(dict(child.context), "/context")
    assert isinstance(given, dict)
    return given


def _shorter(own: float | None, whole: float | None) -> float | None:
    return own if whole is None else whole if own is None else min(own, whole)


def _may_retry(result: CallResult, delegation: Delegation, whole: float | None) -> bool:
    """Not what somebody has stopped, and not what ran out of the time that there was for all."""
    if result.status == "timeout":
        return delegation.timeout is not None and (whole is None or delegation.timeout < whole)
    return result.status == "failed" or (result.status == "canceled" and "failed_first" in (result.error or {}))
