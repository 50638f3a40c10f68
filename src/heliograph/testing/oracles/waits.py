"""The oracle of calls and reports: each call is resolved once, and turns resume when they are due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.testing.kernel.tables import interval
from heliograph.testing.oracles.human_tasks import record_resolved, record_suspended
from heliograph.testing.oracles.records import ANSWERED, CLOSING, TurnBook, WaitBook
from heliograph.testing.oracles.turns import TurnOracle

_MAY_REPEAT = ("pure", "idempotent", "transactional")
_DELIVERED_ONCE = ("applied", "early", "duplicate", "late", "turn_done", "unknown_turn", "unknown_call", "bad_token")


class WaitOracle(TurnOracle):
    """See `turns.TurnOracle`."""

    def resolve(self, turn: TurnBook, wait: WaitBook, status: str, now: int) -> None:
        """Resolve a call; blame a second resolution (K4)."""
        if wait.state != "open":
            self.blame(
                "resolved_twice",
                f"{turn.turn_id} {wait.call_id} is {wait.state} as {wait.status}, and again as {status}",
            )
        wait.position = 1 + max(other.position for other in turn.waits.values())
        wait.state, wait.status, wait.resolved_at = "resolved", status, now
        self.resolved.setdefault(turn.turn_id, set()).add(wait.kind)
        self.count(f"call {wait.kind} {status}")
        if wait.child is not None and status == "timeout":
            self.books.order_stop(wait.child, "force", None, now)

    def abandon(self, turn: TurnBook, now: int) -> None:
        """A call that fails fast cancels the open calls of its step."""
        failed = {wait.step for wait in turn.waits.values() if wait.state == "resolved" and wait.status != "success"}
        for wait in turn.awaited():
            if wait.step is not None and wait.step in failed:
                self.resolve(turn, wait, "canceled", now)
                self.count("call canceled with its step")
                if wait.child is not None:
                    self.books.order_stop(wait.child, "force", None, now)

    def check_resumed(self, function: str, answered: Iterable[str], resumed: Iterable[str], now: int) -> None:
        """Exactly the due turns resume after a result (K15)."""
        for turn_id in answered:
            self.abandon(self.turn(turn_id), now)
        suspended = [self.turn(turn_id) for turn_id in dict.fromkeys(answered) if self.turn(turn_id).join is not None]
        due = {turn.turn_id for turn in suspended if turn.is_due()}
        if due != set(resumed):
            self.blame("resume", f"{function} resumed {sorted(resumed)}, and {sorted(due)} were due")
        for turn in suspended:
            record_resolved(self.books, turn, self.resolved.get(turn.turn_id, set()), now, resumes=turn.turn_id in due)
            if turn.turn_id in due:
                turn.join = None
        self.resolved.clear()

    # ---- the owner's calls ----

    def begin_call(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if not self.is_owned("begin_call", item, row["outcome"]) or row["outcome"] == "rejected":
                continue
            turn, epoch = self.turn(item["turn_id"]), item["epoch"]
            wait = turn.waits.get(item["call_id"])
            expected = "fresh" if wait is None else _begun(wait, epoch)
            if row["outcome"] != expected:
                self.blame(
                    "begin", f"{turn.turn_id} {item['call_id']} at epoch {epoch}: {row['outcome']}, expected {expected}"
                )
            if wait is None:
                wait = turn.waits[item["call_id"]] = WaitBook(
                    item["call_id"], "inline", item["effect"], epoch, tool=item["tool"], opened_at=now
                )
                self.spend(turn, (item.get("reserve") or {}).get("tool_calls", 0))
            if row["outcome"] == "in_doubt":
                self.resolve(turn, wait, "unknown", now)
            wait.is_delivered = wait.state == "resolved"
            wait.is_waiting = row.get("rate", {}).get("wait_seconds", 0) > 0
            wait.epoch = epoch

    def record_call(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if self.is_owned("record_call", item, row["outcome"]) and row["outcome"] == "ok":
                turn = self.turn(item["turn_id"])
                wait = turn.waits.get(item["call_id"])
                if wait is None:  # a call that was not made is reported with its reason
                    wait = turn.waits[item["call_id"]] = WaitBook(
                        item["call_id"], "inline", "pure", item["epoch"], opened_at=now
                    )
                    self.count(f"call not made {item['status']}")
                self.resolve(turn, wait, item["status"], now)
                wait.is_delivered = True
                turn.terminates = turn.terminates or bool(item.get("terminates"))

    def suspend(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            outcome = row["outcome"]
            if not self.is_owned("suspend", item, outcome) or outcome == "rejected":
                continue
            turn = self.turn(item["turn_id"])
            if outcome == "stopped":
                self.end_stopped("suspend", turn, now)
                continue
            if outcome == "stopping":
                self.expect_stopping("suspend", turn, item, row)
                continue
            self.expect_not_stopping("suspend", turn)
            for call in item["calls"]:
                if call["call_id"] not in turn.waits:
                    self._open(turn, call, item["epoch"], now)
            self.expect_cards(item)
            self.expect_within("waits_max", len(turn.waits), turn.turn_id)
            self._apply_early(turn, now)
            self._check_suspended(turn, item, row, now)
            self.resolved.clear()

    def _open(self, turn: TurnBook, call: Any, epoch: int, now: int) -> None:
        child, seconds = call.get("child"), call["timeout_seconds"]
        turn.waits[call["call_id"]] = WaitBook(
            call["call_id"], call["kind"], call["effect"], epoch, call.get("token"),
            None if seconds is None else now + interval(seconds), None if child is None else child["turn_id"],
            call.get("step_id") if call.get("fails_fast") else None, tool=call["tool"], opened_at=now,
        )  # fmt: skip
        self.spend(turn, int(call["kind"] == "tool"))
        if child is not None:
            if self.books.runs[turn.run_id] == CLOSING:
                self.count("closed session delegates")
            elif self.books.runs[turn.run_id] != "running":
                self.blame(
                    "stopped_run_wakes", f"{turn.run_id} is {self.books.runs[turn.run_id]} and woke {child['turn_id']}"
                )
            self.add_turn(turn.run_id, child, now, parent=(turn.turn_id, call["call_id"]), depth=turn.depth + 1)
            agent_id = self.turn(child["turn_id"]).agent_id
            if any(waiting.agent_id == agent_id for waiting in self.books.upwards(turn)):
                self.blame("delegation_cycle", f"{child['turn_id']} of {agent_id} is to be done before it can begin")

    def spend(self, turn: TurnBook, calls: int) -> None:
        """Count each tool call once, when it begins or when its command is written; blame a call beyond a budget."""
        for owner in self.books.upwards(turn) if calls else ():
            owner.calls += calls
            if owner.calls_most is not None and owner.calls > owner.calls_most:
                self.blame(
                    "over_budget",
                    f"{owner.turn_id} may call {owner.calls_most} tools; {owner.calls} were called, the last by {turn.turn_id}",
                )

    def _apply_early(self, turn: TurnBook, now: int) -> None:
        """Apply reports that came before their calls: the first one with the right token counts, the others are dropped."""
        for call_id, token, status in turn.early:
            wait = turn.waits.get(call_id)
            if wait is not None and wait.is_awaited and wait.kind in ANSWERED and wait.token in (None, token):
                self.resolve(turn, wait, status, now)
                self.count("report applied by suspend")
        turn.early = [early for early in turn.early if early[0] not in turn.waits]
        self.abandon(turn, now)

    def _check_suspended(self, turn: TurnBook, item: Any, row: Any, now: int) -> None:
        """Check that a turn suspends if and only if it has an open call, and no result that its owner has not received (K16)."""
        join = item["join"]
        has_news = any(wait.position > item["seen"] for wait in turn.waits.values())
        suspends = bool(turn.awaited()) and not (join == "each" and has_news)
        if suspends != (row["outcome"] == "suspended"):
            self.blame(
                "suspend",
                f"{turn.turn_id} is {row['outcome']} with {turn.awaited()} open, news: {has_news}, join {join}",
            )
        if row["outcome"] == "resolved":
            self.deliver_results(turn, row["waits"])
        else:
            turn.join = join
            turn.terminates = bool(item.get("terminates"))
            record_suspended(self.books, turn, now)
            self.books.tokens.pop(turn.agent_id, None)

    # ---- from outside ----

    def report(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        answered = []
        for item, row in zip(args[1], answer, strict=True):
            expected = self._judge(item)
            if row["outcome"] in _DELIVERED_ONCE and row["outcome"] != expected:
                self.blame("report", f"{item} was answered {row['outcome']}, expected {expected}")
            turn = self.books.turns.get(item["turn_id"])
            if turn is not None and row["outcome"] == "applied":
                self.resolve(turn, turn.waits[item["call_id"]], item["status"], now)
                answered.append(turn.turn_id)
            elif turn is not None and row["outcome"] == "early":
                turn.early.append((item["call_id"], item.get("token"), item["status"]))
        self.count("report resumed", sum(row["resumed"] for row in answer))
        self.check_resumed("report", answered, {row["turn_id"] for row in answer if row["resumed"]}, now)

    def _judge(self, item: Any) -> str:
        """Return the required outcome of a valid report."""
        turn = self.books.turns.get(item["turn_id"])
        if turn is None:
            return "unknown_turn"
        if turn.ended_by is not None:
            return "turn_done"
        wait, token = turn.waits.get(item["call_id"]), item.get("token")
        if wait is None:
            if self.heads.status_of(turn) not in ("running", "dispatched"):
                return "unknown_call"
            return "duplicate" if (item["call_id"], token) in [early[:2] for early in turn.early] else "early"
        if wait.kind not in ANSWERED or wait.token not in (None, token):
            return "bad_token"
        if wait.state == "open":
            return "applied"
        return "late" if wait.status == "timeout" else "duplicate"

    def take_commands(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for row in answer:
            self.check_command(row["turn_id"], row["call_id"], row["body"], is_now=True)

    def check_command(self, turn_id: str, call_id: str, body: Any, *, is_now: bool) -> None:
        """Check a delivered command: its call was opened with this token. is_now: the call is still open (K18)."""
        turn = self.books.turns.get(turn_id)
        wait = None if turn is None else turn.waits.get(call_id)
        if wait is None:
            self.blame("command_before_suspend", f"{turn_id} {call_id} was handed out and never opened")
        elif body.get("token") != wait.token or (is_now and wait.state != "open"):
            self.blame("command", f"{turn_id} {call_id}, {wait.state}, was handed out as {body}")

    # ---- sweeps of waits ----

    def sweep_waits(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for turn_id in answer["resolved"]:
            turn = self.turn(turn_id)
            overdue = [w for w in turn.awaited() if w.deadline is not None and w.deadline <= now]
            if not overdue:
                self.blame("timed_out_early", f"{turn_id} at {now}: {turn.awaited()}")
            for wait in overdue:
                self.resolve(turn, wait, "success" if wait.kind == "timer" else "timeout", now)
        self.check_resumed("sweep_waits", answer["resolved"], answer["resumed"], now)
        self.expect_swept("sweep_waits", (f"{turn.turn_id} {wait.call_id}" for turn in self.books.open_turns()
                                          for wait in turn.awaited() if (wait.deadline or now + 1) <= now))  # fmt: skip

    def sweep_reports(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        answered = []
        for turn_id in answer["resolved"]:
            turn = self.turn(turn_id)
            ended = [(wait, child) for wait in turn.waits.values() if (child := self.books.turns.get(wait.child or ""))
                     is not None and not child.is_delivered]  # fmt: skip
            if not ended:
                self.blame("child_reported_twice", f"{turn_id} received a report, although it had received all")
            for wait, child in ended:
                child.is_delivered = True
                if wait.is_awaited:  # it may have timed out, or been closed with its turn
                    outcome = str(child.outcome)
                    self.resolve(turn, wait, "success" if outcome == "partial" else outcome, now)
                    answered.append(turn_id)
        self.check_resumed("sweep_reports", answered, answer["resumed"], now)
        self.expect_swept("sweep_reports", (f"{turn.turn_id} {wait.call_id}" for turn in self.books.open_turns()
                                            for wait in turn.awaited() if self._has_ended(wait.child)))  # fmt: skip

    def _has_ended(self, turn_id: str | None) -> bool:
        return turn_id is not None and self.turn(turn_id).ended_by is not None

    def sweep_stuck(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for turn_id in answer["resumed"]:
            self.blame("suspended_for_ever", f"{turn_id} slept with nothing to wait for")


def _begun(wait: WaitBook, epoch: int) -> str:
    if wait.state == "resolved":
        return "done"
    if wait.epoch == epoch:
        return "fresh"
    return "again" if wait.effect in _MAY_REPEAT or wait.is_waiting else "in_doubt"
