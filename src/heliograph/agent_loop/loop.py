"""The loop of an agent that asks a model: ask, carry out what it calls for, ask again, until it answers (L0-100).

It is a function over the journal, like any agent's: each answer is recorded before what it calls for is done, and a turn
that resumes hears the recorded answers and results, and goes on where it stood. The last answer is not recorded: it is
the deliverable.
"""

from __future__ import annotations

from typing import Any

from heliograph.agent_loop.budgeted_model import MODEL, Spender, has_budget_for_models, too_large
from heliograph.agent_loop.model_call import ask, request_of
from heliograph.agent_loop.tool_call_router import Carrier, Submitted, required_result, submits
from heliograph.codes import RESOURCE_EXHAUSTED, RESULT_MISSING
from heliograph.definitions.agent_checks import check_contexts
from heliograph.definitions.templates import placeholders, substitute
from heliograph.errors import AgentFailed, BudgetExceeded, HarnessError
from heliograph.execution.call_replay import Asking
from heliograph.execution.context import Context
from heliograph.execution.hydrate import boxes_of
from heliograph.execution.model_agent import Answer
from heliograph.execution.owned_turn import Held
from heliograph.execution.steps import Steps
from heliograph.ports import ModelReply, ModelRequest
from heliograph.redaction import redacted_text
from heliograph.turn.calls import Asked, CallResult, Journal
from heliograph.turn.context_box import context_text
from heliograph.turn.conversation import Conversation, answers_in, deferrals_of, is_empty, record_of, reply_of
from heliograph.turn.untrusted import framed_within
from heliograph.types import Json, JsonObject


async def converse(held: Held, context: Context, journal: Journal) -> Answer:
    """Raises what the model's harness raises, AgentFailed, Suspended."""
    spec = held.spec
    prompt = _written(held, context) if callable(spec.prompt) else fill(spec.prompt or "", held)
    talk = Conversation([*_given(held), redacted_text(prompt)], journal)
    _resume(held, journal)
    try:
        return await _converse(held, context, journal, talk)
    except BudgetExceeded as error:
        return _cut_short(held, talk, error.error)


def _resume(held: Held, journal: Journal) -> None:
    """What the recorded answers say is so from the beginning: much may fail before the turn comes to them again."""
    answers: list[Any] = answers_in(held.claimed.waits)
    journal.deferrals_before = max(map(deferrals_of, answers), default=0)
    journal.tokens = sum(each["input_tokens"] for each in answers), sum(each["output_tokens"] for each in answers)


async def _converse(held: Held, context: Context, journal: Journal, talk: Conversation) -> Answer:
    """Raises BudgetExceeded where there is too little left to ask again."""
    spec, asking = held.spec, Asking(journal, Steps(held))
    spender = Spender(held, journal, asking) if has_budget_for_models(held) else None
    if not (spec.tools or spec.agents or spec.asks_human or spec.must_end_with or submits(held)):
        request = request_of(held, talk.messages)
        reply = await (ask(held, request) if spender is None else spender.ask(1, request))
        if is_empty(reply):
            raise HarnessError("the model answered with nothing", recoverable=True)
        talk.hear(reply)
        return _ended(held, reply, talk)
    given = spec.contexts(context) if callable(spec.contexts) else spec.contexts
    carrier = Carrier(held, journal, asking, check_contexts(spec.name, given))
    carrier.open()
    for step in range(1, spec.max_steps + 1):
        request = request_of(held, talk.messages, carrier.specs_at(step))
        if spender is None:
            reply = await _asked(held, journal, asking, carrier, step, request)
        else:
            reply = await spender.ask(step, request)
        talk.hear(reply)
        if reply.tool_calls:
            try:
                talk.answer(reply.tool_calls, await carrier.carry_out(step, reply.tool_calls))
            except Submitted as submitted:
                return Answer(submitted.fields)
            if (must := spec.must_end_with) is not None and carrier.has_done(must):
                return Answer(carrier.output_of(must))
        elif (must := carrier.must_end_with) is not None:
            talk.remind(f"You are not done: end by calling {must}.")
        elif is_empty(reply):
            talk.remind("You have said nothing: give your answer, or call a tool.")
        else:
            return _ended(held, reply, talk)
    message = f"the model was not done after {spec.max_steps} steps (max_steps)"
    return _cut_short(held, talk, {"code": RESOURCE_EXHAUSTED, "message": message, "recoverable": False})


def _cut_short(held: Held, talk: Conversation, limit: JsonObject) -> Answer:
    """The last text of a turn that meets a limit. Raises AgentFailed (RESULT_MISSING) where the turn requires another result."""
    if (wanted := required_result(held)) is not None:
        raise AgentFailed(f"agent {held.spec.name} has to end with {wanted}, and did not: {limit['message']}",
                          code=RESULT_MISSING)  # fmt: skip
    return Answer(talk.last_text, is_partial=True, limit=limit)


async def _asked(
    held: Held, journal: Journal, asking: Asking, carrier: Carrier, step: int, request: ModelRequest
) -> ModelReply:
    """The model's next answer: the recorded one, or a new one, recorded unless the turn ends with it."""
    asked = Asked(f"m{step}", journal.new_step(), MODEL, "inline", effect="idempotent")
    known = asking.recorded(asked) or await asking.steps.begin(asked)
    if known is not None and known.status == "success":
        return reply_of(known.output)
    reply = await ask(held, request)
    if reply.tool_calls or is_empty(reply) or carrier.must_end_with is not None:
        record = record_of(reply, held.claimed.defers)
        try:
            await asking.steps.record(asked, CallResult(asked.call_id, "success", record), [])
        except AgentFailed as error:
            raise too_large(error, reply, journal) from error
        journal.deferrals_before = held.claimed.defers
    return reply


def _ended(held: Held, reply: ModelReply, talk: Conversation) -> Answer:
    """The end of the turn by an answer; one that was cut at our bound is as far as that let it come."""
    if not reply.is_cut or not (has_budget_for_models(held) or held.spec.max_output_tokens):
        return Answer(_output(reply))
    message = f"the answer was cut at {reply.output_tokens} tokens, by max_output_tokens or by what the budget had left"
    return _cut_short(held, talk, {"code": RESOURCE_EXHAUSTED, "message": message, "recoverable": False})


def _output(reply: ModelReply) -> Json:
    return reply.text if reply.output is None else reply.output


def _given(held: Held) -> list[str]:
    """The boxes that the turn was given, as its model reads them."""
    boxes = boxes_of(held)
    for _, cards in boxes:
        held.taint.read_cards(cards)
    return [context_text(box_id, cards) for box_id, cards in boxes]


def _written(held: Held, context: Context) -> str:
    """The prompt of a prompt function, with frames around the untrusted texts that it quotes word for word."""
    assert callable(held.spec.prompt)
    prompt = held.spec.prompt(context)
    return framed_within(prompt, held.taint.values) if isinstance(prompt, str) else prompt


def fill(template: str, held: Held) -> str:
    """`template` with {state.key}, {signal.name} and {signal.payload} filled in; values are never templates (S8).

    Untrusted values stand in frames. Raises InvalidInput (`template_undefined`) naming what there is.
    """
    cause = held.claimed.cause
    values: dict[str, Any] = {f"state.{key}": value for key, value in held.claimed.run.state.items()}
    values |= {"signal.name": cause.name, "signal.payload": cause.payload}
    for name in {*placeholders(template)} & values.keys():
        values[name] = held.taint.rendered(name, values[name])
    return substitute(template, values)
