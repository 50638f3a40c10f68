"""When the kernel needs a sweep next. Workers of a simulation sleep until then, so a day without work costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.kernel.jsonb import encode
from heliograph.testing.kernel.tables import Row
from heliograph.testing.simulator.shared_state import SimSubscription, Stage

_LOOKS = ("renew", "claim", "read_outbox", "take_commands")  # calls that change nothing if their answer is empty

_EVENTS_BEFORE = 3
_EVENTS_MAX = 12


class PatientStage(Stage):
    """The shared parts of a simulation in which nobody polls: every change of the kernel wakes the tasks that wait for one.

    listeners: the subscriptions of the processes outside, which miss no ring. outside: the name of their process.
    """

    def __init__(self, *args: Any, project: str, **options: Any):
        super().__init__(*args, **options)
        self.polls = False
        self.project = project
        self.listeners: list[SimSubscription] = []
        self.keepers: list[SimSubscription] = []  # of leases
        self._events: list[tuple[int, str, object]] = []  # the calls that changed something, and the faults
        self.last_fault = 0  # its index
        self._change = asyncio.Event()

    def fault(self, who: str, site: str, kinds: Iterable[str]) -> str | None:
        kind = super().fault(who, site, kinds)
        if kind is not None:
            self.last_fault = len(self._events)
            self._events.append((self.micros, f"{kind} @ {site}", None))
        return kind

    def execute(self, who: str, function: str, args: tuple[Any, ...]) -> Any:
        answer = super().execute(who, function, args)
        if not _is_look(function, answer):
            self._events.append((self.micros, f"{who} {function}", args[1:]))
            self._change.set()
            self._change = asyncio.Event()
            for subscription in (*self.listeners, *(self.keepers if function == "claim" else ())):
                subscription.ring()
        return answer

    def events_around_last_fault(self) -> list[str]:
        start = max(0, self.last_fault - _EVENTS_BEFORE)
        return [
            f"{micros / 1e6:.3f} {what}{'' if args is None else f' {encode(args).decode()}'}"
            for micros, what, args in self._events[start : start + _EVENTS_MAX]
        ]

    @property
    def has_running_turns(self) -> bool:
        return any(head["status"] == "running" for head in self._rows("agent_state_head"))

    async def until_due(self, seconds: float) -> None:
        """Sleep as long as no sweep would find anything; then sleep for `seconds`, if something is to do now."""
        while (due := self._due()) is None or due > self.micros_of_date + round(seconds * 1e6):
            wait = None if due is None else (due - self.micros_of_date) / 1e6
            change = self._change
            with suppress(TimeoutError):  # by then a lease may have been renewed
                async with asyncio.timeout(wait):
                    await change.wait()
        await asyncio.sleep(seconds)

    def _due(self) -> int | None:
        """The next time, in microseconds, at which a sweep may find something; None if only a call can change that."""
        rows, now = self._rows, self.micros_of_date
        times = [now for run in rows("runs") if run["pending_reactions"]]
        for head in rows("agent_state_head"):
            match head["status"]:
                case "running":
                    times.append(head["lease_until"])
                case "dispatched":
                    times.append(head["due_at"] or now)
            times += [head["force_at"]] if head["force_at"] is not None else []
        times += [
            now if turn["state"] == "queued" else turn["expires_at"]
            for turn in rows("agent_turns")
            if turn["state"] != "done" and turn["human_wait_since"] is None
        ]
        times += [wait["deadline"] for wait in rows("turn_waiting_tools")
                  if wait["state"] == "open" and wait["deadline"] is not None]  # fmt: skip
        times += [row["due_at"] for row in rows("outbox")
                  if row["published_at"] is None and row["kind"] != "cmd"]  # fmt: skip
        return min(times, default=None)

    def _rows(self, table: str) -> Iterable[Row]:
        assert isinstance(self.backend, InMemoryKernel)
        return self.backend.rows(self.project, table)


def _is_look(function: str, answer: Any) -> bool:
    if not (function in _LOOKS or function.startswith("sweep_")):
        return False
    if isinstance(answer, dict):
        return not any(value for key, value in answer.items() if key not in ("after", "targets"))
    return function == "renew" or not answer
