"""Reactions that runs owe: to what was logged by nobody who could react to it at once, a child's end or a result (K25)."""

from __future__ import annotations

import logging

from heliograph.codes import INTERNAL_ERROR
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.reactive.reaction import react_to_pending
from heliograph.records import PendingRun, RunFailure
from heliograph.turn.drafts import draft_item

log = logging.getLogger("heliograph.worker")

_ROUNDS_MAX = 20
_REFUSALS_MAX = 3  # then the run ends as failed, with the reason
_REFUSED = RunFailure(INTERNAL_ERROR, "its reaction cannot be committed; the worker's log says why")
_AGAIN_SECONDS = 1.0  # until what was refused is tried again: a queue that is full may have room then


class PendingReactions:
    """What the runs of some projects owe, as one worker pays it. Any number of workers may pay at once."""

    def __init__(self) -> None:
        # by project and run: how often it was refused, and when it is tried again
        self._rejected: dict[tuple[str, str], tuple[int, float]] = {}

    async def react(self, services: ProjectServices) -> bool:
        """Compute and commit what is owed in this project; return whether anything was committed. Raises StoreUnavailable.

        A conflict means that the run moved on. Who moved it may have left what is owed to us: a turn that ends pays for
        itself only. So what is still owed is looked at again, or a run whose last turn that was would wait for the timer.
        A run that is too large to be read ends the kernel's answer: once it has ended, the runs behind it are looked at.
        """
        monotonic, has_paid = services.world.monotonic, False
        for _ in range(_ROUNDS_MAX):
            has_moved = False
            for pending in await services.ledger.sweep_pending_reactions(services.targets):
                key = (services.project, pending.run.run_id)
                times, not_before = self._rejected.get(key, (0, 0.0))
                if monotonic() < not_before:
                    continue
                try:
                    outcome = await self._react(services, pending)
                    has_moved |= outcome == "conflict" or pending.failure is not None
                    has_paid |= outcome == "ok"
                    self._rejected.pop(key, None)
                except StoreUnavailable:
                    raise
                except Exception as error:
                    self._rejected[key] = times + 1, monotonic() + _AGAIN_SECONDS
                    log.exception("the reaction of %s cannot be committed", pending.run.run_id, exc_info=error)
            if not has_moved:
                break
        return has_paid

    async def _react(self, services: ProjectServices, pending: PendingRun) -> str:
        """'ok', or 'conflict' when nothing was written. Raises KernelRejected."""
        world, run_id = services.world, pending.run.run_id
        if pending.failure is not None:
            log.error("run %s is ended as failed: %s", run_id, pending.failure.message)
        is_hopeless = self._rejected.get((services.project, run_id), (0, 0.0))[0] >= _REFUSALS_MAX
        failure = pending.failure or (_REFUSED if is_hopeless else None)
        reaction = react_to_pending(services.workflows[pending.target], pending, world.now(), world.new_id, failure)
        await world.failpoint("before_react")
        answer = await services.ledger.react({
            "run_id": run_id, "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
        })  # fmt: skip
        if answer["outcome"] == "refused":
            raise KernelRejected(str(answer.get("message")), code=answer.get("code"))
        if answer["outcome"] == "ok":
            services.ring(f"log:{run_id}")
        return str(answer["outcome"])
