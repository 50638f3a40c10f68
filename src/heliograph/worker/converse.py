"""The loop of an agent that asks a model: ask, carry out what it calls for, ask again, until it answers (L0-100).

It is a function over the journal, like any agent's: each answer is recorded before what it calls for is done, and a turn
that resumes hears the recorded answers and results, and goes on where it stood. The last answer is not recorded: it is
the deliverable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.errors import HarnessError
from heliograph.ports import ModelReply
from heliograph.reactive.template import substitute
from heliograph.turn.calls import Asked, CallResult, Journal
from heliograph.turn.conversation import Conversation, Spent, deferrals_of, is_empty, record_of, reply_of
from heliograph.types import Json
from heliograph.worker.ask import ask
from heliograph.worker.asking import Asking
from heliograph.worker.carry import Carrier, Submitted, submits
from heliograph.worker.context import Context
from heliograph.worker.held import Held
from heliograph.worker.steps import Steps

MODEL = "model"  # the name of a recorded answer among the turn's calls


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. is_partial: a limit was met before the model was done."""

    output: Json
    spent: Spent
    is_partial: bool = False


async def converse(held: Held, context: Context, journal: Journal) -> Answer:
    """Raises what the model's harness raises, AgentFailed, Suspended."""
    spec = held.spec
    prompt = spec.prompt(context) if callable(spec.prompt) else fill(spec.prompt or "", context)
    talk = Conversation(prompt)
    if not (spec.tools or spec.agents or spec.asks_human or spec.must_end_with or submits(held)):
        reply = await ask(held, talk.messages)
        if is_empty(reply):
            raise HarnessError("the model answered with nothing", recoverable=True)
        talk.hear(reply)
        return Answer(_output(reply), talk.spent)
    asking = Asking(journal, Steps(held))
    carrier = Carrier(held, journal, asking)
    await carrier.open()
    for step in range(1, spec.max_steps + 1):
        reply = await _asked(held, journal, asking, carrier, talk, step)
        talk.hear(reply)
        if reply.tool_calls:
            try:
                talk.answer(reply.tool_calls, await carrier.carry_out(step, reply.tool_calls))
            except Submitted as submitted:
                return Answer(submitted.fields, talk.spent)
            if (must := spec.must_end_with) is not None and carrier.has_done(must):
                return Answer(carrier.output_of(must), talk.spent)
        elif (must := carrier.must_end_with) is not None:
            talk.remind(f"You are not done: end by calling {must}.")
        elif is_empty(reply):
            talk.remind("You have said nothing: give your answer, or call a tool.")
        else:
            return Answer(_output(reply), talk.spent)
    return Answer(talk.last_text, talk.spent, is_partial=True)


async def _asked(
    held: Held, journal: Journal, asking: Asking, carrier: Carrier, talk: Conversation, step: int
) -> ModelReply:
    """The model's next answer: the recorded one, or a new one, recorded unless the turn ends with it."""
    asked = Asked(f"m{step}", journal.new_step(), MODEL, "inline", effect="idempotent")
    known = asking.recorded(asked) or await asking.steps.begin(asked)
    if known is not None and known.status == "success":
        journal.deferrals_before = deferrals_of(known.output)
        return reply_of(known.output)
    reply = await ask(held, talk.messages, carrier.specs)
    if reply.tool_calls or is_empty(reply) or carrier.must_end_with is not None:
        record = record_of(reply, held.claimed.defers)
        await asking.steps.record(asked, CallResult(asked.call_id, "success", record), [])
        journal.deferrals_before = held.claimed.defers
    return reply


def _output(reply: ModelReply) -> Json:
    return reply.text if reply.output is None else reply.output


def fill(template: str, context: Context) -> str:
    """`template` with {state.key}, {signal.name} and {signal.payload} filled in; values are never templates (S8).

    Raises InvalidInput (`template_undefined`) naming what there is.
    """
    values: dict[str, Any] = {f"state.{key}": value for key, value in context.document.items()}
    values |= {"signal.name": context.signal.name, "signal.payload": context.signal.payload}
    return substitute(template, values)
