"""Pending reactions: runs react to signals whose writer could not commit the reaction itself.

Examples are the end of a child and the result of a call from outside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.codes import INTERNAL_ERROR
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.recorded_world import RecordedWorld
from heliograph.execution.tape import is_recorded, tape_of_reaction
from heliograph.reactive.react import react_to_pending
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.run_end import TOO_LARGE, state_too_large
from heliograph.records import PendingRun, RunFailure
from heliograph.turn.drafts import draft_items

log = logging.getLogger("heliograph.worker")

_ROUNDS_MAX = 20
_REJECTIONS_MAX = 3  # then the run ends as failed, with the reason
_FAILURE = RunFailure(INTERNAL_ERROR, "its reaction cannot be committed; the worker's log has the reason")
_AGAIN_SECONDS = 1.0  # until a retry: a full queue may have room by then


class PendingReactions:
    """Commits the pending reactions of any number of projects. Several workers may do so at once."""

    def __init__(self) -> None:
        # by project and run: how often it was rejected, and when to retry
        self._rejected: dict[tuple[str, str], tuple[int, float]] = {}

    async def react(self, services: ProjectServices) -> bool:
        """Compute and commit the project's pending reactions; return whether any was committed. Raises StoreUnavailable.

        A conflict means that the run changed meanwhile, perhaps without this reaction, because a turn that ends commits
        only its own. So the worker reads again; otherwise a run without open turns would wait for the timer.
        A run that is too large to be read ends the kernel's answer. Once the run has ended, the runs behind it are read.
        """
        monotonic, has_committed = services.world.monotonic, False
        for _ in range(_ROUNDS_MAX):
            has_moved = False
            for pending in await services.ledger.sweep_pending_reactions(services.targets):
                key = (services.project, pending.run.run_id)
                rejections, not_before = self._rejected.get(key, (0, 0.0))
                if monotonic() < not_before:
                    continue
                try:
                    outcome = await self._react(services, pending)
                    has_moved |= outcome == "conflict" or pending.failure is not None
                    has_committed |= outcome == "ok"
                    self._rejected.pop(key, None)
                except StoreUnavailable:
                    raise
                except Exception as error:
                    self._rejected[key] = rejections + 1, monotonic() + _AGAIN_SECONDS
                    log.exception("the reaction of %s cannot be committed", pending.run.run_id, exc_info=error)
            if not has_moved:
                break
        return has_committed

    async def _react(self, services: ProjectServices, pending: PendingRun) -> str:
        """Return 'ok', or 'conflict' if nothing was written. Raises KernelRejected."""
        run_id = pending.run.run_id
        if pending.failure is not None:
            log.error("run %s is ended as failed: %s", run_id, pending.failure.message)
        is_hopeless = self._rejected.get((services.project, run_id), (0, 0.0))[0] >= _REJECTIONS_MAX
        failure = pending.failure or (_FAILURE if is_hopeless else None)
        reaction, answer = await self._commit(services, pending, failure)
        if answer.get("code") == TOO_LARGE and reaction.status == "ended" and pending.run.state:
            failure = state_too_large(answer.get("message"))
            log.error("run %s is ended as failed: %s", run_id, failure.message)
            without_state = replace(pending, run=replace(pending.run, state={}))
            reaction, answer = await self._commit(services, without_state, failure)
        if answer["outcome"] == "rejected":
            raise KernelRejected(str(answer.get("message")), code=answer.get("code"))
        if answer["outcome"] == "ok":
            services.tracer.reacted(pending.target, run_id, reaction, pending.signals)
            if reaction.status == "ended":
                services.local_runs.record_end(services.project, run_id, pending.target, reaction.drafts)
            services.ring(f"log:{run_id}")
        return str(answer["outcome"])

    async def _commit(
        self, services: ProjectServices, pending: PendingRun, failure: RunFailure | None
    ) -> tuple[Reaction, Mapping[str, Any]]:
        tape = tape_of_reaction(pending, failure) if is_recorded(pending.run.memory) else None
        world = services.world if tape is None else RecordedWorld(services.world, tape)
        reaction = react_to_pending(services.workflows[pending.target], pending, world.now(), world.new_id, failure)
        await world.failpoint("before_react")
        run_id = pending.run.run_id
        item = {"run_id": run_id, "version": reaction.version, "signals": draft_items(reaction.drafts, run_id),
                "reaction": reaction.to_item()}  # fmt: skip
        if tape is not None:
            _, body = tape.commit("react", item)
            item["recording"] = {"body": body}
        answer = await services.ledger.react(item)
        return reaction, answer
