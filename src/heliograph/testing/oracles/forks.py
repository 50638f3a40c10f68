"""The oracle of forks: they change nothing of their runs, share whole commits, and repeat no effect of what they share.

It computes from its own records which calls the turns of a fork must have, so that their owners receive exactly those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.reactive.shared_log import SharedLog
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.jsonb import encode, get_text
from heliograph.testing.kernel.tables import Row
from heliograph.testing.oracles.records import Books, TurnBook, WaitBook

Blame = Callable[[str, str], None]
_NEVER = 2**63
_COUNTED = ("state", "untrusted", "turns", "failed", "skipped", "activations")


class ForkOracle:
    """Checks each fork. shared: by fork, the run that recorded the last signal that it shares, and the position of that signal."""

    def __init__(self, backend: Backend, project: str, books: Books, count: Callable[[str], None], blame: Blame):
        self.shared: dict[str, tuple[str, int]] = {}
        self._backend = backend
        self._project = project
        self._books = books
        self._count = count
        self._blame = blame
        self._before: dict[str, list[bytes]] = {}
        self._repeated: set[str] = set()  # effects that a retry makes again, because they failed last

    def owner_at(self, run_id: str, seq: int) -> str:
        """The run that recorded this position of a run's log."""
        while run_id in self.shared and seq <= self.shared[run_id][1]:
            run_id = self.shared[run_id][0]
        return run_id

    def keep_rows(self) -> None:
        """Keep the rows before a fork, to compare them with those after it."""
        self._before = {table: list(map(encode, rows)) for table, rows in self._backend.dump(self._project).items()}

    def started(self, items: Any, answer: Any, now: int) -> None:
        """Check the answer to each fork, and record the calls of its turns."""
        forks = [(item, row) for item, row in zip(items, answer, strict=True) if item.get("fork")]
        for item, row in forks:
            owner = self.owner_at(item["fork"]["run_id"], item["fork"]["seq"])
            log = sorted(
                (r for r in self._backend.rows(self._project, "signals") if r["run_id"] == owner),
                key=lambda r: int(r["seq"]),
            )
            expected, cut, later, unopened = _judge(item["fork"], log)
            known = _known_until(item["fork"], log)
            if expected is not None and row["outcome"] == "started":
                self._blame("fork", f"{item['run_id']} at {item['fork']} was answered {row}, expected {expected}")
            if row["outcome"] == "started" and item["run_id"] not in self.shared:
                self.shared[item["run_id"]] = (owner, item["fork"]["seq"])
                is_retry = item["fork"]["repeats_failed"]
                for turn in item["fork"]["turns"]:
                    until = cut - (turn["origin"] in unopened)
                    results_until = cut - (turn["origin"] in later) if known == cut and not is_retry else known - 1
                    self._take_over(turn["turn_id"], turn["origin"], (until, results_until), now, is_retry=is_retry)
        if forks:
            self._check_untouched()

    def _check_untouched(self) -> None:
        after = {table: set(map(encode, rows)) for table, rows in self._backend.dump(self._project).items()}
        for table, rows in self._before.items():
            for row in rows:
                if row not in after[table]:
                    self._blame("fork_changes", f"a fork changed or deleted the row {row!r} of {table}")

    def _take_over(self, turn_id: str, origin: str, limits: tuple[int, int], now: int, *, is_retry: bool) -> None:
        """Give a turn of a fork the calls of its origin: those with results by then, and unknown ones that may have had an effect."""
        self._count(f"fork {'retries' if is_retry else 'starts'} a turn again")
        self._books.origins[turn_id] = (origin, limits[0])
        kept = _kept(self._books.turns[origin], *limits, is_retry=is_retry)
        turn = self._books.turns[turn_id]
        places = {wait.call_id: (place, is_known) for place, (wait, is_known) in enumerate(kept, 1)}
        for wait in [each for each in self._books.turns[origin].waits.values() if each.call_id in places]:
            place, is_known = places[wait.call_id]
            status = wait.status if is_known else "unknown"
            turn.waits[wait.call_id] = WaitBook(
                wait.call_id, wait.kind, wait.effect, 0, state="resolved", status=status, position=place, resolved_at=now,
                tool=wait.tool, opened_at=now,
            )  # fmt: skip
            self._books.unlogged.add((turn_id, wait.call_id))
            self._count(f"fork takes over a call: {'with' if is_known else 'without'} a result")
        if is_retry:
            taken = {wait.call_id for wait, _ in kept}
            self._repeated |= {f"{turn_id} {wait.call_id}" for wait in self._books.turns[origin].waits.values()
                               if wait.status == "failed" and wait.call_id not in taken}  # fmt: skip

    def check_effect(self, key: str) -> None:
        """Blame an effect that the shared part of a fork has had already."""
        turn_id, _, call = key.partition(" ")
        if key in self._repeated:
            return
        while turn_id in self._books.origins:
            turn_id, cut = self._books.origins[turn_id]
            if self._books.effect_times.get(f"{turn_id} {call}".strip(), _NEVER) < cut:
                self._blame("effect_repeated", f"{key} happened before the fork, in {turn_id}")

    def check_fold(self, run_id: str, seq: int, by_checkpoint: SharedLog, whole: SharedLog) -> None:
        """Compare what a fork takes over from a checkpoint with what the whole log gives."""
        for log in (by_checkpoint, whole):
            log.joins = {agent: met for agent, met in log.joins.items() if met}
        for key in (*_COUNTED, "joins"):
            if getattr(by_checkpoint, key) != getattr(whole, key):
                self._blame("checkpoint", f"{key} of {run_id} at {seq} is {getattr(by_checkpoint, key)} after a checkpoint, and "
                            f"{getattr(whole, key)} by the whole log")  # fmt: skip
        if by_checkpoint.in_progress.keys() != whole.in_progress.keys():
            self._blame("checkpoint", f"turns in progress of {run_id} at {seq}: {sorted(by_checkpoint.in_progress)} after a checkpoint, "
                        f"{sorted(whole.in_progress)} by the whole log")  # fmt: skip


def _judge(fork: Any, log: list[Row]) -> tuple[str | None, int, set[str], set[str]]:
    """The code with which a fork must be rejected, if any, and the time up to which it shares what turns did.

    Then the turns that have later commits of this time, because a call of the kernel commits for several turns, and those of them
    that have no earlier one: others opened their calls before the fork's signal, and received results after it.
    """
    for row, following in zip(log, [*log[1:], None], strict=True):
        if 0 <= fork["seq"] - row["seq"] < row["count"]:
            if row["seq"] + row["count"] - 1 != fork["seq"]:
                return "inside_commit", 0, set(), set()
            last = following if fork["repeats_failed"] else row
            has_ended = any(get_text(entry, "name") == "workflow:end" for entry in row["entries"])
            code = "run_ended" if has_ended else None
            if last is None:
                return code, _NEVER, set(), set()
            at_once = [
                (other["seq"] > last["seq"], other["agent_turn_id"]) for other in log if other["at"] == last["at"]
            ]
            later = {turn_id for is_later, turn_id in at_once if is_later}
            return code, last["at"], later, later - {turn_id for is_later, turn_id in at_once if not is_later}
    return "unknown_signal", 0, set(), set()


def _known_until(fork: Any, log: list[Row]) -> int:
    """The time before which results belong to what the fork shares: the next commit, because some results have no signal."""
    upto = fork["seq"] + fork["repeats_failed"]
    return next((int(row["at"]) for row in log if row["seq"] + row["count"] - 1 > upto), _NEVER)


def _kept(origin: TurnBook, cut: int, known_until: int, *, is_retry: bool) -> list[tuple[WaitBook, bool]]:
    begun = [wait for wait in origin.waits.values() if wait.opened_at <= cut]
    known = {wait.call_id for wait in begun if wait.state == "resolved" and wait.resolved_at <= known_until}
    kept = [
        w
        for w in begun
        if w.call_id in known or (w.effect != "pure" and w.tool != "model" and w.kind in ("inline", "tool", "child"))
    ]
    if is_retry:  # the failed calls at its end are made again
        last = max((n for n, wait in enumerate(begun) if wait.status != "failed"), default=-1)
        again = {wait.call_id for wait in begun[last + 1 :]}
        kept = [wait for wait in kept if wait.call_id not in again & known]
    kept.sort(key=lambda wait: (wait.call_id not in known, wait.position or _NEVER))
    return [(wait, wait.call_id in known) for wait in kept]
