"""Ask a model within the budgets that hold for its turn: reserve, ask, settle (S12, decision 0018).

What an answer may use is reserved before the question is sent: the tokens that the question can have at most, and those
that the answer may have, which the provider is told as its bound. Each try is a recorded call (`m1`, `m1-try2`, ...): one that
failed has used something, too, and the turn that resumes must not pay for it again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from heliograph.agent_loop.model_call import stream_reply
from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.definitions.budgets import MICROS_PER_USD
from heliograph.errors import AgentFailed, BudgetExceeded, HarnessError, safe_repr
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import Harness, ModelReply, ModelRequest
from heliograph.records import BudgetShortfall
from heliograph.turn.calls import CallRequest, CallResult, Journal
from heliograph.turn.conversation import record_of, reply_of
from heliograph.turn.token_estimate import input_tokens_max
from heliograph.types import JsonObject

MODEL = "model"  # the name of a recorded answer among the turn's calls
OUTPUT_TOKENS = (
    4096  # of an answer, where the agent says no other bound: who shares a budget must not reserve all of it
)
RESERVE_WAIT_SECONDS = 60.0
_OUTPUT_TOKENS_LEAST = 64  # with less left than that there is no use in asking
_DELAY_SECONDS = 0.05
_DELAY_SECONDS_MAX = 1.0
_MESSAGE_MAX = 2000
_KINDS = ("tokens", "micros", "model_calls")


def has_budget_for_models(owned: OwnedTurn) -> bool:
    return any(kind in (owned.claimed.budget or {}) for kind in _KINDS)


class BudgetedModel:
    """Asks the models of one turn."""

    def __init__(self, owned: OwnedTurn, journal: Journal, replay: CallReplay):
        self._owned = owned
        self._journal = journal
        self._replay = replay
        self._kinds = [kind for kind in _KINDS if kind in (owned.claimed.budget or {})]

    async def call(self, step: int, request: ModelRequest) -> ModelReply:
        """The model's answer to question `step`: the recorded one, or a new one, which is recorded whatever it is.

        Raises BudgetExceeded where a budget has too little left, and what `ask` raises.
        """
        step_id = self._journal.new_step()
        tries, failed = 1, list[HarnessError]()
        while (known := self._replay.recorded_result(call_request := _call_request(step, step_id, tries))) is not None:
            if known.status == "success":
                return reply_of(known.output)
            tries += 1
        for model in self._owned.spec.models:
            reply = await self._try(call_request, model, request)
            if isinstance(reply, ModelReply):
                return reply
            failed.append(reply)
            tries += 1
            call_request = _call_request(step, step_id, tries)
        raise next((error for error in failed if error.recoverable), failed[-1])

    async def _try(self, call_request: CallRequest, model: Any, request: ModelRequest) -> ModelReply | HarnessError:
        """The answer of one model, or how it failed, settled either way."""
        try:
            harness = self._owned.services.harness_of(model)
        except Exception:  # there is nothing to ask, and so nothing to reserve; this tells why
            return await self._call(model, request)
        price = self._price(harness)
        granted = await self._reserve(call_request, request, price)
        if isinstance(granted, CallResult):  # recorded in the meantime, by a run of the agent that was left since
            return reply_of(granted.output) if granted.status == "success" else HarnessError(_error_message(granted))
        reply = await self._call(model, granted)
        if isinstance(reply, HarnessError):
            return await self._failed(call_request, reply, self._used(reply.tokens, 0.0 if reply.tokens == 0 else None))
        tokens = reply.input_tokens + reply.output_tokens
        cost = reply.cost_usd
        if cost is None and tokens:
            cost = price(reply.input_tokens, reply.output_tokens)
        result = CallResult(call_request.call_id, "success", record_of(reply, self._owned.claimed.defers))
        used = self._used(tokens or None, cost)  # an answer of no tokens at all is one of which the provider said none
        try:
            await self._replay.steps.record(call_request, result, [], used)
        except AgentFailed as error:
            return await self._failed(call_request, too_large(error, reply, self._journal), used)
        self._journal.deferrals_before = self._owned.claimed.defers
        return reply

    async def _call(self, model: Any, request: ModelRequest) -> ModelReply | HarnessError:
        try:
            return await stream_reply(self._owned, model, request)
        except HarnessError as error:
            return error

    async def _failed(self, request: CallRequest, error: HarnessError, used: Mapping[str, int] | None) -> HarnessError:
        envelope: JsonObject = {
            "code": error.code,
            "message": safe_repr(error.message, _MESSAGE_MAX),
            "recoverable": error.recoverable,
        }
        await self._replay.steps.record(request, CallResult(request.call_id, "failed", None, envelope), [], used)
        return error

    async def _reserve(
        self, call_request: CallRequest, request: ModelRequest, price: Callable[[int, int], float]
    ) -> ModelRequest | CallResult:
        """The question with the bound of its answer, which is reserved. Raises BudgetExceeded.

        Where others hold what is lacking, it is waited for: most use less than they reserved. Where too little is left
        for the longest answer, there may be enough for a shorter one.
        """
        world = self._owned.services.world
        most = self._owned.spec.max_output_tokens or OUTPUT_TOKENS
        least = min(most, _OUTPUT_TOKENS_LEAST)
        input_tokens = input_tokens_max(request)
        until, delay, output = world.monotonic() + RESERVE_WAIT_SECONDS, _DELAY_SECONDS, most

        def cost(tokens: int) -> dict[str, int]:
            amounts = {
                "tokens": input_tokens + tokens,
                "micros": _micros(price(input_tokens, tokens)),
                "model_calls": 1,
            }
            return {kind: amounts[kind] for kind in self._kinds}

        while True:
            try:
                known = await self._replay.steps.begin(call_request, cost(output))
            except BudgetExceeded as error:
                shortfall = BudgetShortfall(**error.budget)
                if (
                    shortfall.reserved
                    and cost(least)[shortfall.kind] <= shortfall.remaining_later
                    and world.monotonic() < until
                ):
                    await world.sleep(delay)
                    delay, output = min(2 * delay, _DELAY_SECONDS_MAX), most
                    continue
                output = (
                    bisect_right(range(output), shortfall.remaining, key=lambda tokens: cost(tokens)[shortfall.kind])
                    - 1
                )
                if output < least:
                    raise
            else:
                return replace(request, output_tokens_max=output, is_metered=True) if known is None else known

    def _price(self, harness: Harness) -> Callable[[int, int], float]:
        """Dollars for so many tokens of input and output, the dearer of what is declared and what is known.

        Raises AgentFailed where a budget has money in it and nobody knows.
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
                f"a budget in usd holds for this turn, and nobody knows what {harness.model} costs: give agent "
                f"{self._owned.spec.name} a price, such as price={{'input': 3.0, 'output': 15.0}} for a million tokens"
            )
        return price

    def _used(self, tokens: int | None, cost_usd: float | None) -> Mapping[str, int] | None:
        """What is known of what was used; of the rest the kernel counts what was reserved."""
        known = {"tokens": tokens, "micros": None if cost_usd is None else _micros(cost_usd)}
        return {kind: n for kind, n in known.items() if n is not None and kind in self._kinds} or None


def too_large(error: AgentFailed, reply: ModelReply, journal: Journal) -> HarnessError:
    """What comes of an answer whose record was refused: another may be shorter. Raises `error` where that is no reason."""
    if error.code != "payload_too_large":
        raise error
    journal.tokens = journal.tokens[0] + reply.input_tokens, journal.tokens[1] + reply.output_tokens
    return HarnessError(f"the model's answer is too large to be kept; max_output_tokens bounds it: {error.message}",
                        code=RESOURCE_EXHAUSTED, recoverable=True)  # fmt: skip


def _call_request(step: int, step_id: str, tries: int) -> CallRequest:
    call_id = f"m{step}" if tries == 1 else f"m{step}-try{tries}"
    return CallRequest(call_id, step_id, MODEL, "inline", effect="idempotent")


def _micros(cost_usd: float) -> int:
    return math.ceil(round(cost_usd * MICROS_PER_USD, 6))  # rounded first: 0.3 dollars are no fraction more


def _error_message(result: CallResult) -> str:
    return str((result.error or {}).get("message"))
