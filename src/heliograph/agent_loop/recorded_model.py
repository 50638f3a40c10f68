"""A model call of a phase: it is always recorded, because the phase continues after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heliograph.agent_loop.model_attempts import MODEL, ModelAttempts, records_attempts, too_large
from heliograph.agent_loop.model_call import Models
from heliograph.errors import AgentFailed, HarnessError
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import ModelReply, UserMessage
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.conversation import is_empty, record_of, reply_of


async def recorded_reply(
    owned: OwnedTurn, replay: CallReplay, models: Models, call: int, messages: Sequence[UserMessage], output: Any = None
) -> ModelReply:
    """The reply of model call number `call`, recorded or new. output: the type of a structured reply.

    Raises HarnessError, also for an empty reply; BudgetExceeded.
    """
    request, journal = replace(models.request(messages), output=output), replay.journal
    if records_attempts(owned, models):
        reply = await ModelAttempts(owned, replay, models).call(call, request)
    else:
        call_request = CallRequest(str(journal.call_id(call)), journal.new_step(), MODEL, "inline", effect="idempotent")
        marks = models.marks(request)
        replay.steps.inputs.prompted(call_request.call_id, marks)
        known = replay.recorded_result(call_request) or await replay.steps.begin(call_request)
        if known is not None and known.status == "success":
            reply = reply_of(known.output)
        else:
            reply = await models.call(request)
            if is_empty(reply):
                raise HarnessError("the model gave an empty reply", recoverable=True)
            record = record_of(reply, owned.claimed.defer_count, marks)
            try:
                await replay.steps.record(call_request, CallResult(call_request.call_id, "success", record), [])
            except AgentFailed as error:
                raise too_large(error, reply, journal) from error
            journal.deferrals_before = owned.claimed.defer_count
    journal.tokens = journal.tokens[0] + reply.input_tokens, journal.tokens[1] + reply.output_tokens
    return reply
