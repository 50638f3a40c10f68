"""The oracle of stops: each request to stop ends its turns, at once or after the grace period."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.tables import timestamp
from heliograph.testing.oracles.human_tasks import record_stopping
from heliograph.testing.oracles.records import CLOSING, TurnBook
from heliograph.testing.oracles.turns import TurnOracle


class StopOracle(TurnOracle):
    """See `turns.TurnOracle`."""

    def stop(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            turn = self.books.turns.get(item["turn_id"])
            expected = self._stopped(turn, item["mode"])
            if row["outcome"] != expected:
                self.blame("stop", f"{item} was answered {row['outcome']}, expected {expected}")
            if turn is None:
                continue
            if row["outcome"] == "stopping":
                force_at = self._request_stop(turn, item.get("grace_seconds"), now)
                if row["force_at"] != timestamp(force_at):
                    self.blame("stop", f"{item} is forced at {row['force_at']}, expected {timestamp(force_at)}")
            elif row["outcome"] == "stopped":
                self.count(f"stopped while {self.heads.status_of(turn)}")
                self.end(turn, "canceled", now, (item["mode"], item.get("grace_seconds")))

    def _stopped(self, turn: TurnBook | None, mode: str) -> str:
        if turn is None:
            return "unknown_turn"
        if turn.ended_by is not None:
            return "already_done"
        return "stopping" if mode == "graceful" and self.books.gets_grace(turn) else "stopped"

    def _request_stop(self, turn: TurnBook, grace: float | None, now: int) -> int:
        """Record a graceful stop; a suspended turn is dispatched. Return when it is forced."""
        if self.books.owner_of(turn) is None:
            self.count(f"stopping while {self.heads.status_of(turn)}")
        if turn.join is not None:
            record_stopping(self.books, turn, now)
            turn.join = None
        return self.books.request_stop(turn, grace, now)

    def stop_runs(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            status = self.books.runs.get(item["run_id"])
            if item["mode"] == "close":
                self._close(item["run_id"], status, row)
                continue
            expected = "unknown_run" if status is None else "already_done" if status == "ended" else "stopping"
            if row["outcome"] != expected:
                self.blame("stop_runs", f"{item} was answered {row['outcome']}, expected {expected}")
            if row["outcome"] == "stopping":
                self.books.runs[item["run_id"]] = "terminating"
                for turn in self.books.open_turns():
                    if turn.run_id == item["run_id"]:
                        self.books.order_stop(turn.turn_id, item["mode"], item.get("grace_seconds"), now)

    def _close(self, run_id: str, status: str | None, row: Any) -> None:
        """Check the answer to the closing of a session. It stops no turn."""
        is_session = run_id in self.books.sessions
        expected = (
            "unknown_run"
            if status is None
            else "already_done"
            if status == "ended"
            else "stopping"
            if is_session
            else "no_session"
        )
        if row["outcome"] != expected:
            self.blame("stop_runs", f"the closing of {run_id} was answered {row['outcome']}, expected {expected}")
        if row["outcome"] == "stopping" and status == "running":
            has_open = any(turn.run_id == run_id for turn in self.books.open_turns())
            self.count(f"session closed {'with open' if has_open else 'without'} turns")
            self.books.runs[run_id] = CLOSING

    def sweep_stops(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for turn_id in answer["stopping"]:
            turn = self.turn(turn_id)
            if turn.order is None or turn.order[0] != "graceful" or not self.books.gets_grace(turn):
                self.blame("stopping_unasked", f"{turn_id}: {turn.order}")
            else:
                self._request_stop(turn, turn.order[1], now)
                turn.order = None
        for turn_id in answer["stopped"]:
            turn = self.turn(turn_id)
            if turn.order is None and (turn.force_at is None or turn.force_at > now):
                self.blame(
                    "stopped_unasked",
                    f"sweep_stops stopped {turn_id}: to be forced at {turn.force_at}, and it is {now}",
                )
            self.count("sweep_stops forced" if turn.order is None else "sweep_stops delivered")
            child_stop = None if turn.order is None else turn.order[:2]
            if turn.order is not None and turn.order[0] == "graceful" and self.books.gets_grace(turn):
                child_stop, force_at = None, self._request_stop(turn, turn.order[1], now)
                if force_at > now:
                    self.blame(
                        "stopped_early", f"sweep_stops stopped {turn_id} at {now}, which may run until {force_at}"
                    )
            self.end(turn, "canceled", now, child_stop)
        self.expect_swept("sweep_stops", (turn.turn_id for turn in self.books.open_turns()
                                          if (turn.order is not None and turn.order[2] < now)
                                          or (turn.force_at or now + 1) <= now))  # fmt: skip
