"""The plan and reflect phases of a prompt agent: one model call each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from heliograph.agent_loop.loop import box_messages, prompt_of
from heliograph.agent_loop.model_call import HarnessOf, Models
from heliograph.agent_loop.phase_prompts import (
    OWN_PLAN,
    PLAN,
    REFLECT,
    criteria_text,
    memories_text,
    reflection_text,
    results_text,
    tools_text,
)
from heliograph.agent_loop.recorded_model import recorded_reply
from heliograph.agent_loop.turn_tools import TurnTools
from heliograph.definitions.agent_checks import check_contexts
from heliograph.definitions.hooks import ModelHook
from heliograph.definitions.plan import GoalAchieved, IterationNeeded, Plan
from heliograph.errors import AgentFailed
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.memory import QUERY_BYTES_MAX
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.ports import UserMessage
from heliograph.redaction import redacted_text
from heliograph.types import Json

_FIRST_CALL = 1
_OR = " or "
_WORD = re.compile(r"\w{3,}|[^\W\x00-\x7f]+")  # a word of ASCII letters has three or more
_COMMON = frozenset(
    [
        "and",
        "are",
        "but",
        "for",
        "from",
        "has",
        "have",
        "into",
        "not",
        "that",
        "the",
        "this",
        "was",
        "were",
        "will",
        "with",
        "you",
        "your",
    ]
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The reply of a model that reflects. resume_at: the phase with which another round begins."""

    goal_achieved: bool
    confidence: float = 1.0
    reason: str = ""
    resume_at: Literal["plan", "act"] = "plan"
    learnings: list[str] = field(default_factory=list)


async def plan_with_model(
    owned: OwnedTurn, context: PhaseContext, replay: CallReplay, *, harness_of: HarnessOf
) -> Json:
    """The model's plan: a Plan, or an object of the hook's schema. The model reads the memories that match its task."""
    prompt = prompt_of(owned, context)
    hits = await context.recall(_query(prompt)) if prompt.strip() else []
    schema = _schema(owned, "plan")
    given = [*box_messages(owned), *_tools(owned, context, schema), *memories_text(hits),
             *reflection_text(context.working_memory.get("last_reflection")), prompt,
             PLAN if schema is None else OWN_PLAN]  # fmt: skip
    messages = [UserMessage(redacted_text(text)) for text in given]
    models = Models(owned, harness_of)
    reply = await recorded_reply(owned, replay, models, _FIRST_CALL, messages, Plan if schema is None else schema)
    return reply.output


async def reflect_with_model(
    owned: OwnedTurn, context: PhaseContext, replay: CallReplay, *, harness_of: HarnessOf
) -> GoalAchieved | IterationNeeded:
    """The model's decision about the results of the act phase. Raises AgentFailed for a schema without a decision."""
    schema = _schema(owned, "reflect")
    results = context.working_memory.get("action_results", [])
    given = [*box_messages(owned), prompt_of(owned, context), *criteria_text(context.task),
             *results_text(results, is_untrusted=owned.taint.has_read), REFLECT]  # fmt: skip
    messages = [UserMessage(redacted_text(text)) for text in given]
    models = Models(owned, harness_of)
    reply = await recorded_reply(owned, replay, models, _FIRST_CALL, messages, Evaluation if schema is None else schema)
    found: Any = reply.output
    if not isinstance(found, dict) or not isinstance(found.get("goal_achieved"), bool):
        raise AgentFailed(
            "the reply of the model has no boolean field goal_achieved; add the field to the schema of reflect"
        )
    learnings = found.get("learnings") or []
    if found["goal_achieved"]:
        return GoalAchieved(found.get("confidence", 1.0), None, learnings)
    return IterationNeeded(str(found.get("reason") or ""), found.get("resume_at") or "plan", learnings)


def _schema(owned: OwnedTurn, phase: str) -> Any:
    hook = owned.spec.hooks[phase]
    assert isinstance(hook, ModelHook)
    return hook.schema


def _tools(owned: OwnedTurn, context: PhaseContext, schema: Any) -> list[str]:
    """The tools that a plan of the runtime's own form may use."""
    if schema is not None:
        return []
    spec = owned.spec
    contexts = spec.contexts(context) if callable(spec.contexts) else spec.contexts
    return tools_text(TurnTools(owned, check_contexts(spec.name, contexts)).step_specs)


def _query(prompt: str) -> str:
    """A search for memories that have any of the prompt's words, as many as a query may have; without words, for the prompt itself."""
    words = [word for word in dict.fromkeys(_WORD.findall(prompt.lower())) if word not in _COMMON]
    query = _OR.join(words) or prompt
    fitting = query.encode()[:QUERY_BYTES_MAX].decode(errors="ignore")
    return fitting if fitting == query or not words else fitting.rpartition(_OR)[0] or fitting
