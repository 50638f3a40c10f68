"""The agent loop: call the model, run its tool calls, and repeat until it gives its final reply.

It is a function over the journal, like every agent. Each reply is recorded before its tool calls run. A turn that resumes
replays the recorded replies and results, and continues after them. The last reply is not recorded: it is the deliverable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from heliograph.agent_loop.model_attempts import (
    MODEL,
    ModelAttempts,
    is_metered,
    records_attempts,
    too_large,
)
from heliograph.agent_loop.model_call import HarnessOf, Models
from heliograph.agent_loop.phase_prompts import plan_text, reflection_text
from heliograph.agent_loop.required_result import cut_short, submits
from heliograph.agent_loop.tool_call_router import Submitted, ToolCallRouter
from heliograph.agent_loop.turn_tools import TurnTools
from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.definitions.agent_checks import check_contexts
from heliograph.definitions.templates import placeholders, substitute
from heliograph.errors import AgentFailed, BudgetExceeded, HarnessError
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.model_agent import AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.ports import Message, ModelReply, ModelRequest, UserMessage
from heliograph.records import Claimed
from heliograph.redaction import redacted_text
from heliograph.turn.calls import CallRequest, CallResult, task_of
from heliograph.turn.context_box import context_text
from heliograph.turn.conversation import Conversation, deferrals_of, is_empty, record_of, replies_in, reply_of
from heliograph.turn.earlier_turns import earlier_messages, files_of_message, is_of_session, text_of_message
from heliograph.turn.journal import Journal
from heliograph.turn.taint import Taint
from heliograph.turn.untrusted import framed_within
from heliograph.types import Json


async def run_agent_loop(
    owned: OwnedTurn, context: Context, replay: CallReplay, *, harness_of: HarnessOf
) -> AgentOutput:
    """Run the agent loop of one turn. Raises AgentFailed, Suspended, and the errors of the model's harness."""
    given: list[Message] = [
        *map(UserMessage, box_messages(owned)),
        *earlier_messages_of(owned),
        _prompt_message(owned, context),
    ]
    if isinstance(context, PhaseContext):  # the messages of its earlier phases
        given += map(_user_message, reflection_text(context.working_memory.get("last_reflection")))
        given += map(_user_message, plan_text(context.working_memory.get("current_plan")))
    conversation = Conversation(given, replay.journal)
    _resume(owned.claimed, replay.journal)
    try:
        return await _loop(owned, context, replay, conversation, Models(owned, harness_of))
    except BudgetExceeded as error:
        return cut_short(owned, conversation.last_text, error.error)


def earlier_messages_of(owned: OwnedTurn) -> list[Message]:
    """The messages of the conversation before this one; none for a turn of no session."""
    resources = owned.resources
    return earlier_messages(resources.earlier, owned.taint, is_whole=resources.has_all_earlier)


def _prompt_message(owned: OwnedTurn, context: Context) -> Message:
    """The prompt, with the files of the message that it answers."""
    files = files_of_message(owned.claimed.cause.payload) if is_of_session(owned.claimed) else ()
    return UserMessage(redacted_text(prompt_of(owned, context)), files)


def _user_message(text: str) -> Message:
    return UserMessage(redacted_text(text))


def prompt_of(owned: OwnedTurn, context: Context) -> str:
    """The prompt of an agent: the result of its function, or its template with all values."""
    prompt = owned.spec.prompt
    if callable(prompt):
        return _prompt(prompt, context, owned.taint)
    return _fill_template(prompt or "", owned.claimed, owned.taint)


def _resume(claimed: Claimed, journal: Journal) -> None:
    """Restore the counters from the recorded replies at once, because the turn may fail before it replays them."""
    replies: list[Any] = replies_in(claimed.waits, journal.prefix)
    journal.deferrals_before = max([journal.deferrals_before, *map(deferrals_of, replies)])
    journal.tokens = sum(each["input_tokens"] for each in replies), sum(each["output_tokens"] for each in replies)


async def _loop(
    owned: OwnedTurn, context: Context, replay: CallReplay, conversation: Conversation, models: Models
) -> AgentOutput:
    """Alternate between model calls and tool calls until the agent has its output.

    Raises BudgetExceeded if too little is left for another model call.
    """
    spec = owned.spec
    attempts = ModelAttempts(owned, replay, models) if records_attempts(owned, models) else None
    if not (spec.tools or spec.agents or spec.asks_human or spec.must_end_with or submits(owned)):
        request = models.request(conversation.messages)
        reply = await (models.call(request, models.marks(request)) if attempts is None else attempts.call(1, request))
        if is_empty(reply):
            raise HarnessError("the model gave an empty reply", recoverable=True)
        conversation.add_reply(reply)
        return _final_output(owned, reply, conversation)
    contexts = spec.contexts(context) if callable(spec.contexts) else spec.contexts
    tools = TurnTools(owned, check_contexts(spec.name, contexts))
    router = ToolCallRouter(owned, replay, tools)
    for step in range(1, spec.max_steps + 1):
        request = models.request(conversation.messages, tools.specs_at(step))
        if attempts is None:
            reply = await _recorded_model_call(
                owned.claimed, replay, models, router, step, request, must_end=tools.must_end_with is not None
            )
        else:
            reply = await attempts.call(step, request, partial(router.first_calls, step))
        conversation.add_reply(reply)
        if reply.tool_calls:
            try:
                following = None
                if (
                    attempts is None
                    and step < spec.max_steps
                    and not any(call.tool == spec.must_end_with for call in reply.tool_calls)
                ):
                    following = partial(_next_model_call, replay.journal, step + 1)
                messages = await router.execute(step, reply.tool_calls, following=following)
                conversation.add_results(reply.tool_calls, messages)
            except Submitted as submitted:
                return AgentOutput(submitted.fields)
            if (must := spec.must_end_with) is not None and router.has_result(must):
                return AgentOutput(router.output_of(must))
        elif (must := tools.must_end_with) is not None:
            conversation.add_reminder(f"You are not done: end by calling {must}.")
        elif is_empty(reply):
            conversation.add_reminder("Your reply was empty: give your answer, or call a tool.")
        else:
            return _final_output(owned, reply, conversation)
    message = f"the model was not done after {spec.max_steps} steps (max_steps)"
    return cut_short(
        owned, conversation.last_text, {"code": RESOURCE_EXHAUSTED, "message": message, "recoverable": False}
    )


async def _recorded_model_call(
    claimed: Claimed, replay: CallReplay, models: Models, router: ToolCallRouter, step: int, request: ModelRequest, *,
    must_end: bool,
) -> ModelReply:  # fmt: skip
    """The model's next reply: the recorded one, or a new one, which is recorded unless it ends the turn.

    must_end: only the call of a tool can end the turn.
    """
    call_request = _model_call(replay.journal, step, replay.journal.new_step())
    marks = models.marks(request)
    replay.steps.inputs.prompted(call_request.call_id, marks)
    known = replay.recorded_result(call_request) or await replay.steps.begin(call_request)
    if known is not None and known.status == "success":
        return reply_of(known.output)
    reply = await models.call(request, None if must_end else marks)
    if reply.tool_calls or is_empty(reply) or must_end:
        record = record_of(reply, claimed.defer_count, marks)
        try:
            result = CallResult(call_request.call_id, "success", record)
            await replay.steps.record(call_request, result, [], following=router.first_calls(step, reply.tool_calls))
        except AgentFailed as error:
            raise too_large(error, reply, replay.journal) from error
        replay.journal.deferrals_before = claimed.defer_count
    return reply


def _model_call(journal: Journal, step: int, step_id: str) -> CallRequest:
    return CallRequest(str(journal.call_id(step)), step_id, MODEL, "inline", effect="idempotent")


def _next_model_call(journal: Journal, step: int) -> CallRequest:
    """The request that the next model call makes, if no other step comes before it."""
    return _model_call(journal, step, *journal.coming_steps(1))


def _final_output(owned: OwnedTurn, reply: ModelReply, conversation: Conversation) -> AgentOutput:
    """The output of a turn that ends with this reply; a reply that was cut at our limit makes the turn partial."""
    if not reply.is_cut or not (is_metered(owned) or owned.spec.max_output_tokens):
        return AgentOutput(_output(reply))
    message = f"the reply was cut at {reply.output_tokens} tokens, by max_output_tokens or by the rest of the budget"
    return cut_short(
        owned, conversation.last_text, {"code": RESOURCE_EXHAUSTED, "message": message, "recoverable": False}
    )


def _output(reply: ModelReply) -> Json:
    return reply.text if reply.output is None else reply.output


def box_messages(owned: OwnedTurn) -> list[str]:
    """The context boxes of the turn, as texts for its model."""
    for _, cards in owned.boxes:
        owned.taint.read_cards(cards)
    return [context_text(box_id, cards) for box_id, cards in owned.boxes]


def _prompt(function: Callable[[Context], str], context: Context, taint: Taint) -> str:
    """The result of a prompt function, with frames around the untrusted texts that it quotes literally."""
    prompt = function(context)
    return framed_within(prompt, taint.values) if isinstance(prompt, str) else prompt


def _fill_template(template: str, claimed: Claimed, taint: Taint) -> str:
    """`template` with {state.key}, {signal.name}, {signal.payload}, {message} and {task} filled in; values are never read as templates (S8).

    Untrusted values get frames. Raises InvalidInput (`template_undefined`) with the names that exist.
    """
    cause = claimed.cause
    values: dict[str, Any] = {f"state.{key}": value for key, value in claimed.run.state.items()}
    values |= {"signal.name": cause.name, "signal.payload": cause.payload, "message": text_of_message(cause.payload),
               "task": task_of(cause)}  # fmt: skip
    for name in {*placeholders(template)} & values.keys():
        values[name] = taint.rendered(name, values[name])
    return substitute(template, values)
