"""Model calls within budgets and rate limits, and behind circuit breakers: each attempt is recorded (decisions 0018, 0043, 0044).

With a budget, before each attempt its maximum usage is reserved: an upper bound of the input tokens, and the output tokens that the
provider receives as its limit. Each attempt is a recorded call (`m1`, `m1-try2`, ...). A failed attempt has used tokens, too,
and a resumed turn must not pay for it again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from heliograph.agent_loop.model_call import Models, decisive_failure
from heliograph.codes import RATE_LIMITED, RESOURCE_EXHAUSTED
from heliograph.definitions.budgets import MICROS_PER_USD
from heliograph.definitions.model_settings import ModelSettings, has_limits, limits_of_model, rates_of_model
from heliograph.error_text import safe_repr
from heliograph.errors import AgentFailed, BudgetExceeded, CircuitOpen, HarnessError, RateLimited
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_recorder import NextCall
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import Harness, ModelReply, ModelRequest, ToolCall
from heliograph.records import BudgetShortfall
from heliograph.signals.error_payload import details_of
from heliograph.signals.payload import cleaned
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.conversation import record_of, reply_of
from heliograph.turn.journal import Journal
from heliograph.turn.token_estimate import input_tokens_max
from heliograph.types import JsonObject

MODEL = "model"  # the tool name of recorded model calls
OUTPUT_TOKENS = 4096  # the default limit of one reply, so that turns that share a budget do not reserve all of it
RESERVE_WAIT_SECONDS = 60.0
_OUTPUT_TOKENS_LEAST = 64  # a smaller reply is not worth a model call
_BETWEEN = RetryPolicy(initial_delay_seconds=0.05, max_delay_seconds=1.0, jitter=False)
_MESSAGE_MAX = 2000
_KINDS = ("tokens", "micros", "model_calls")


FirstCalls = Callable[[Sequence[ToolCall]], Sequence[NextCall]]


def is_metered(owned: OwnedTurn) -> bool:
    """Whether a budget of the turn or a rate limit may count its model calls."""
    return any(kind in (owned.claimed.budget or {}) for kind in _KINDS) or has_limits(owned.workflow.model_settings)


def records_attempts(owned: OwnedTurn, models: Models) -> bool:
    """Whether each attempt is a recorded call: a budget or a rate limit counts model calls, or a model has a circuit breaker."""
    return is_metered(owned) or models.has_breakers


class ModelAttempts:
    """The models of one turn, called within its budgets, as far as their circuit breakers and rate limits admit it."""

    def __init__(self, owned: OwnedTurn, replay: CallReplay, models: Models):
        self._owned = owned
        self._models = models
        self._journal = replay.journal
        self._replay = replay
        self._kinds = [kind for kind in _KINDS if kind in (owned.claimed.budget or {})]

    async def call(self, step: int, request: ModelRequest, first_calls: FirstCalls = lambda _calls: ()) -> ModelReply:
        """The reply of model call `step`: the recorded one, or a new one, which is always recorded.

        first_calls: returns the calls that begin with the record of a reply with tool calls.
        Raises BudgetExceeded if a budget has too little left, and the errors of `Models.call`.
        """
        step_id = self._journal.new_step()
        tries, failed, marks = 1, list[HarnessError](), self._models.marks(request)
        while True:
            call_request = self._call_request(step, step_id, tries)
            self._replay.steps.inputs.prompted(call_request.call_id, marks)
            if (known := self._replay.recorded_result(call_request)) is None:
                break
            if known.status == "success":
                return reply_of(known.output)
            tries += 1
        for model in self._owned.spec.models:
            try:
                reply = await self._try(call_request, model, request, first_calls)
            except CircuitOpen as error:  # the attempt is not recorded, so its id remains free
                failed.append(self._models.rejected(error, model))
                continue
            except RateLimited as error:  # the call has not begun, so the next model has its id
                failed.append(_rate_error(error))
                continue
            if isinstance(reply, ModelReply):
                return reply
            failed.append(reply)
            tries += 1
            call_request = self._call_request(step, step_id, tries)
        raise decisive_failure(failed)

    async def _try(
        self, call_request: CallRequest, model: Any, request: ModelRequest, first_calls: FirstCalls
    ) -> ModelReply | HarnessError:
        """The reply of one model, or its error; both settle the reservation. Raises BudgetExceeded, CircuitOpen."""
        try:
            harness = self._models.harness_of(model)
        except Exception:  # there is no harness, so there is nothing to reserve; the call reports the reason
            return await self._call(model, request)
        price = self._price(harness)
        limits = limits_of_model(self._owned.workflow.model_settings, cleaned(str(harness.model)))
        granted = await self._reserve(self._models.guarded(call_request, model), request, price, limits)
        if isinstance(granted, CallResult):  # recorded meanwhile, by an abandoned run of the agent
            return reply_of(granted.output) if granted.status == "success" else HarnessError(_error_message(granted))
        reply = await self._call(model, granted)
        if isinstance(reply, HarnessError):
            used = self._used(reply.tokens, 0.0 if reply.tokens == 0 else None)
            return await self._failed(call_request, reply, used, reply.tokens)
        tokens = reply.input_tokens + reply.output_tokens
        cost = reply.cost_usd
        if cost is None and tokens:
            cost = price(reply.input_tokens, reply.output_tokens)
        result = CallResult(
            call_request.call_id,
            "success",
            record_of(reply, self._owned.claimed.defer_count, self._models.marks(request)),
        )
        used = self._used(tokens or None, cost)  # zero tokens mean that the provider did not report the usage
        try:
            await self._replay.steps.record(
                call_request, result, [], used, rate_tokens=tokens or None, following=first_calls(reply.tool_calls)
            )
        except AgentFailed as error:
            return await self._failed(call_request, too_large(error, reply, self._journal), used, tokens or None)
        self._journal.deferrals_before = self._owned.claimed.defer_count
        return reply

    async def _call(self, model: Any, request: ModelRequest) -> ModelReply | HarnessError:
        try:
            return await self._models.stream(model, request)
        except HarnessError as error:
            return error

    async def _failed(
        self, request: CallRequest, error: HarnessError, used: Mapping[str, int] | None, tokens: int | None
    ) -> HarnessError:
        envelope: JsonObject = {
            "code": error.code,
            "message": safe_repr(error.message, _MESSAGE_MAX),
            "recoverable": error.recoverable,
        }
        if error.details:
            envelope["details"] = details_of(error.details)
        result = CallResult(request.call_id, "failed", None, envelope)
        await self._replay.steps.record(request, result, [], used, rate_tokens=tokens)
        return error

    async def _reserve(
        self,
        call_request: CallRequest,
        request: ModelRequest,
        price: Callable[[int, int], float],
        limits: Sequence[ModelSettings],
    ) -> ModelRequest | CallResult:
        """The request with an output limit whose usage is reserved, or the recorded result. Raises BudgetExceeded, CircuitOpen, RateLimited.

        If other turns have reserved the missing amount, this waits, because most use less than they reserve. If too little is
        left for the longest reply, a shorter limit is reserved.
        """
        if not self._kinds and not limits:
            known = await self._replay.steps.begin(call_request)
            return request if known is None else known
        world = self._owned.world
        most = self._owned.spec.max_output_tokens or OUTPUT_TOKENS
        least = min(most, _OUTPUT_TOKENS_LEAST)
        input_tokens = input_tokens_max(request)
        rooms = [limit.tokens.count - input_tokens for limit in limits if limit.tokens is not None]
        most = max(least, min([most, *rooms]))
        until, waits, output = world.monotonic() + RESERVE_WAIT_SECONDS, 0, most

        def cost(tokens: int) -> dict[str, int]:
            amounts = {
                "tokens": input_tokens + tokens,
                "micros": _micros(price(input_tokens, tokens)),
                "model_calls": 1,
            }
            return {kind: amounts[kind] for kind in self._kinds}

        while True:
            try:
                call_request = self._with_rates(call_request, limits, input_tokens + output)
                known = await self._replay.steps.begin(call_request, cost(output) if self._kinds else None)
            except BudgetExceeded as error:
                shortfall = BudgetShortfall(**error.budget)
                if (
                    shortfall.reserved
                    and cost(least)[shortfall.kind] <= shortfall.remaining_later
                    and world.monotonic() < until
                ):
                    waits, output = waits + 1, most
                    await world.sleep(_BETWEEN.delay_seconds(waits, call_request.call_id))
                    continue
                output = (
                    bisect_right(range(output), shortfall.remaining, key=lambda tokens: cost(tokens)[shortfall.kind])
                    - 1
                )
                if output < least:
                    raise
            else:
                if known is not None:
                    return known
                is_cut = bool(self._kinds) or bool(rooms)  # a limit of requests alone does not limit the reply
                return replace(
                    request, is_metered=True, output_tokens_max=output if is_cut else request.output_tokens_max
                )

    def _with_rates(self, request: CallRequest, limits: Sequence[ModelSettings], tokens: int) -> CallRequest:
        if not limits:
            return request
        seconds = self._owned.spec.model_call_timeout_seconds
        return msgspec.structs.replace(request, rates=rates_of_model(limits, tokens), timeout_seconds=seconds)

    def _price(self, harness: Harness) -> Callable[[int, int], float]:
        """The cost in dollars of a number of input and output tokens: the higher of the declared and the known price.

        Raises AgentFailed if a budget limits dollars and the price is unknown.
        """
        declared, known = self._owned.spec.price, getattr(harness, "cost_at_most", None)

        def price(input_tokens: int, output_tokens: int) -> float:
            costs = [] if declared is None else [(declared[0] * input_tokens + declared[1] * output_tokens) / 1_000_000]
            if known is not None and (cost := known(input_tokens, output_tokens)) is not None:
                costs.append(cost)
            return max(costs, default=math.nan)

        if "micros" not in self._kinds:
            return lambda _input, _output: 0.0
        if math.isnan(price(1, 1)):
            raise AgentFailed(
                f"this turn has a budget in usd, and the price of {harness.model} is unknown: give agent "
                f"{self._owned.spec.name} a price per million tokens, such as price={{'input': 3.0, 'output': 15.0}}"
            )
        return price

    def _call_request(self, step: int, step_id: str, tries: int) -> CallRequest:
        call_id = self._journal.call_id(step).attempt(tries)
        return CallRequest(call_id, step_id, MODEL, "inline", effect="idempotent")

    def _used(self, tokens: int | None, cost_usd: float | None) -> Mapping[str, int] | None:
        """The known usage. For the rest, the kernel counts the reserved amounts."""
        known = {"tokens": tokens, "micros": None if cost_usd is None else _micros(cost_usd)}
        return {kind: n for kind, n in known.items() if n is not None and kind in self._kinds} or None


def too_large(error: AgentFailed, reply: ModelReply, journal: Journal) -> HarnessError:
    """The error for a reply that is too large to record; a repeated call may give a shorter one. Raises any other `error`."""
    if error.code != "payload_too_large":
        raise error
    journal.tokens = journal.tokens[0] + reply.input_tokens, journal.tokens[1] + reply.output_tokens
    return HarnessError(f"the model's reply is too large to be recorded; set max_output_tokens to limit it: {error.message}",
                        code=RESOURCE_EXHAUSTED, recoverable=True)  # fmt: skip


def _rate_error(error: RateLimited) -> HarnessError:
    """The failure of a model call that its rate limits do not admit. A later call may be admitted."""
    seconds = error.rate.get("retry_seconds")
    return HarnessError(error.message, code=RATE_LIMITED, recoverable=seconds is not None,
                        retry_after_seconds=seconds or 0.0, details=error.error.get("details"))  # fmt: skip


def _micros(cost_usd: float) -> int:
    return math.ceil(round(cost_usd * MICROS_PER_USD, 6))  # rounded first, against floating-point error


def _error_message(result: CallResult) -> str:
    return str((result.error or {}).get("message"))
