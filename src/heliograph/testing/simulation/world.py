"""The worlds of a simulation of a user's application: those of its workers, and that of the test around them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from heliograph.testing.simulation.patience import PatientStage
from heliograph.testing.simulator.event_loop import Process
from heliograph.testing.simulator.shared_state import SimSubscription
from heliograph.testing.simulator.world import SimWorld
from heliograph.world.seam import BellKey


class WorkerWorld(SimWorld):
    """The world of a worker, with the faults of the plan. Its watchdog and its leases wait without polling."""

    stage: PatientStage

    def __init__(self, stage: PatientStage, process: Process, slot: str):
        super().__init__(stage, process, slot, is_mortal=True)

    async def sleep(self, seconds: float) -> None:
        if "watchdog" in _task_name():
            await self.stage.until_due(seconds)
        else:
            await super().sleep(seconds)

    def subscribe(self, keys: Iterable[BellKey]) -> SimSubscription:
        return WorkerSubscription(self.stage, self.process, tuple(keys))


class WorkerSubscription(SimSubscription):
    """Waits for a ring. Rings may be lost, and then a sweep finds the work. Only leases have a timeout, while there are any."""

    _stage: PatientStage

    def __init__(self, stage: PatientStage, process: Process, keys: tuple[BellKey, ...]):
        super().__init__(stage, process, keys)
        self._is_of_leases = keys[0].name.startswith("stop:")
        if self._is_of_leases:
            stage.keepers.append(self)

    async def wait(self, timeout_seconds: float) -> bool:
        if self._is_of_leases and self._stage.has_running_turns:
            return await super().wait(timeout_seconds)
        await self._bell.wait()
        return True

    def close(self) -> None:
        super().close()
        if self in self._stage.keepers:
            self._stage.keepers.remove(self)


class OutsideWorld(SimWorld):
    """The world of the test: of the people and systems outside. It has no faults, and misses no ring."""

    stage: PatientStage

    def __init__(self, stage: PatientStage, process: Process):
        super().__init__(stage, process, process.name, is_mortal=False)

    def subscribe(self, keys: Iterable[BellKey]) -> SimSubscription:
        subscription = OutsideSubscription(self.stage, self.process, tuple(keys))
        self.stage.listeners.append(subscription)
        return subscription

    async def _suffer(self, where: str, kinds: tuple[str, ...]) -> None:
        """Nothing happens to the test itself."""


class OutsideSubscription(SimSubscription):
    """Rings at each change of the kernel, so it needs no timeout."""

    _stage: PatientStage

    async def wait(self, timeout_seconds: float) -> bool:
        await self._bell.wait()
        return True

    def close(self) -> None:
        super().close()
        self._stage.listeners.remove(self)


def _task_name() -> str:
    task: asyncio.Task[Any] | None = asyncio.current_task()
    return "" if task is None else task.get_name()
