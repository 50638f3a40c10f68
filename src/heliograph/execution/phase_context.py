"""The context of a hook: the context of a turn, with its phase, its plan, its results and its working memory."""

from __future__ import annotations

from typing import Any

from heliograph.definitions.hooks import ModelHook
from heliograph.definitions.plan import plan_of
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.cleanup import Cleanups
from heliograph.execution.context import Context
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import Memory
from heliograph.records import Outcome
from heliograph.signals.payload import copied, with_sorted_keys
from heliograph.turn.phase_records import PhaseResults
from heliograph.turn.rounds import Rounds
from heliograph.type_variables import Deps_co, State_co
from heliograph.types import Json, JsonObject


class PhaseContext(Context[State_co, Deps_co]):
    """The context that a hook receives. A hook that has ended does not run again; one that was interrupted does.

    phase: init, plan, act, reflect or terminate.
    iteration: the rounds of plan, act and reflect so far that have not reached the goal. max_iterations: their limit.
    working_memory: JSON values that later hooks read, also after a crash; it is saved when the hook ends. It contains
        `current_plan` after the plan phase, `action_results` after the act phase, and `last_reflection` after the reflect phase.
    plan: the current Plan, or None; an object if the agent's `plan` is a type.
    output: the output of the last act phase; in terminate, that of the turn. outcome, error: in terminate, how the turn ends.
    """

    def __init__(
        self, owned: OwnedTurn, replay: CallReplay, cleanups: Cleanups, memory: Memory, phase: str, rounds: Rounds,
        results: PhaseResults,
    ):  # fmt: skip
        super().__init__(owned, replay, cleanups, memory)
        end = rounds.end
        self.phase = phase
        self.iteration = rounds.count - 1
        self.max_iterations = rounds.lifecycle.max_iterations
        self.working_memory = with_sorted_keys(results.memory)
        plan = owned.spec.hooks.get("plan")
        has_own_form = isinstance(plan, ModelHook) and plan.schema is not None
        self.plan: Any = with_sorted_keys(rounds.plan) if has_own_form else plan_of(with_sorted_keys(rounds.plan))
        self.output: Json = with_sorted_keys((rounds.acted or {}).get("output") if end is None else end.deliver.output)
        self.outcome: Outcome | None = None if end is None else end.deliver.outcome
        self.error: JsonObject | None = None if end is None else copied(end.deliver.error)
        self.emitted.extend(results.emitted)

    @property
    def working_memory(self) -> dict[str, Any]:
        return self._working_memory

    @working_memory.setter
    def working_memory(self, values: dict[str, Any]) -> None:
        if not isinstance(values, dict):
            raise InvalidInput(f"working_memory must be a dict of JSON values, not {safe_repr(repr_of(values))}; put the value "
                               "under a key: ctx.working_memory['found'] = ...", code="wrong_type", path="/working_memory")  # fmt: skip
        self._working_memory = values
