"""The progress of one owned turn through its phases: restored from their records, and recorded once at the end of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.errors import AgentFailed
from heliograph.execution.cleanup import Cleanups
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.execution.step_recorder import store_call
from heliograph.records import WriteResult
from heliograph.turn.events import RecordPhase
from heliograph.turn.journal import Journal
from heliograph.turn.machine import turn_after
from heliograph.turn.phase_records import PhaseResults, ended_at, phase_ends
from heliograph.turn.phase_signals import Turn
from heliograph.turn.taint import Taint
from heliograph.types import JsonObject


class PhaseProgress:
    """The recorded phases of a turn whose agent has hooks.

    results: those of the recorded phases. cleanups: the functions that the phases of this claim have registered.
    ended_at: the end of the last recorded phase. problem: why the agent cannot continue after the recorded phases; None
    if it can.
    """

    def __init__(self) -> None:
        self.results = PhaseResults()
        self.problem: str | None = None
        self.ended_at: datetime | None = None
        self.cleanups: Cleanups | None = None
        self._later = self.results

    def restore(self, turn: Turn, owned: OwnedTurn) -> Turn:
        """The turn after its recorded phases. Their signals are in the log already, so the effects are dropped.

        Another version of the agent may have other hooks: then `problem` is set, and the turn stands at the last phase that both have.
        """
        for wait in phase_ends(owned.claimed.waits):
            results = self.results.after(wait)
            following = turn_after(turn, wait, results.memory, owned.world.now())
            if following is None:
                self.problem = (f"phase {wait.call_id} is recorded, but does not follow from the hooks that agent {turn.agent} has "
                                "now; to change the hooks of an agent, give it another name, or let its turns end first")  # fmt: skip
                break
            turn = following
            self.results = self._later = results
            self.ended_at = ended_at(wait)
        return turn

    def begin(self, taint: Taint, journal: Journal) -> None:
        """Prepare the run of a phase. It counts as a reader of all content that the earlier phases have read."""
        for source in self.results.sources:
            taint.read(source)
        journal.deferrals_before = self.results.deferrals

    def end(self, context: PhaseContext, journal: Journal, owned: OwnedTurn) -> None:
        """Keep the results of the phase that has run, for its record."""
        before = self.results.tokens
        tokens = before[0] + journal.tokens[0], before[1] + journal.tokens[1]
        self._later = PhaseResults(context.working_memory, tuple(context.emitted), tokens, owned.claimed.defer_count,
                                   owned.taint.sources)  # fmt: skip

    async def release(self, owned: OwnedTurn) -> None:
        """Run the cleanups of the phases that have ended: the turn has been released, and no later run registers them again."""
        if self.cleanups is not None:
            await self.cleanups.run(owned)

    async def record(self, owned: OwnedTurn, effect: RecordPhase, following: str) -> None:
        """Commit the end of a phase with its signals and its results. Raises TurnLost, AgentFailed.

        following: the id of the phase after it.
        """
        ended: JsonObject = {"ended_at": owned.world.now().isoformat()}
        if effect.error is None:
            record = self.results.record(effect.call_id, effect.value, self._later, following)
            item: dict[str, Any] = {"status": "success", "result": record | ended}
        else:
            item = {"status": "failed", "error": effect.error | ended}
            self._later = self.results
        sources = list(owned.taint.sources)
        item |= {"call_id": effect.call_id, "phase": owned.signals.phase,
                 "open_as": {"step_id": effect.call_id, "tool": effect.call_id.partition("-")[0], "taint": sources}}  # fmt: skip
        item |= owned.termination
        await owned.world.failpoint("before_phase_end")
        written = await store_call(owned.signals.commit(partial(_send, owned, item), effect.drafts))
        if written.outcome == "rejected":
            code = RESOURCE_EXHAUSTED if written.code == "too_many_waits" else written.code
            raise AgentFailed(f"the end of phase {effect.call_id} was rejected, because its output and its working memory are recorded "
                              f"together: {written.message}" if code == "payload_too_large" else
                              f"the end of phase {effect.call_id} was rejected: {written.message}", code=code)  # fmt: skip
        self.results = replace(self._later, sources=tuple(sources))


async def _send(
    owned: OwnedTurn, item: Mapping[str, Any], signals_emitted: int, drafts: list[dict[str, object]], _first: int
) -> WriteResult:
    return await owned.ledger.record_call({**item, "signals": drafts, "signals_emitted": signals_emitted})
