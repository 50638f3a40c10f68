"""Publish the rows of the outbox on the wires.

A worker that dies between publishing and marking leaves the rows unpublished, and another worker publishes them again.
Every event therefore arrives at least once, and its key identifies a second copy.
"""

from __future__ import annotations

from heliograph.execution.project_services import NATS, ProjectServices


class Relay:
    """Publishes for any number of projects. Several workers may relay at once."""

    def __init__(self) -> None:
        self._declared: set[str] = set()  # projects

    async def publish(self, services: ProjectServices) -> None:
        """Publish the events in the project's outbox, oldest first, then mark them as published. Raises StoreUnavailable.

        An event for a wire that this worker does not have stays for the workers that have it.
        """
        await self.declare_wires(services)
        while True:
            events = [e for e in await services.ledger.read_outbox() if set(e.wires) <= set(services.wires)]
            if not events:
                return
            await services.world.publish(services.project, events)
            await services.world.failpoint("before_mark")
            await services.ledger.mark_published([event.key for event in events])

    async def declare_wires(self, services: ProjectServices) -> None:
        """Declare NATS once, if this worker has it; from then on only workers that have it publish the project's events."""
        if services.sends_commands and services.project not in self._declared:
            await services.ledger.declare_wire(NATS)
            self._declared.add(services.project)
