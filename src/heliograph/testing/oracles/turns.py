"""The oracle of turns: only the owner of a turn writes, and each answer agrees with the calls before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.records import WriteResult
from heliograph.testing.kernel.tables import end_of, interval
from heliograph.testing.oracles.heads import HeadOracle
from heliograph.testing.oracles.human_tasks import is_kept, record_ended, waits_for_humans
from heliograph.testing.oracles.records import CLOSING, Books, Token, TurnBook, Violation

# The outcomes for the owner of a turn. Every other caller receives stale.
_OWNERS = frozenset({
    "ok", "conflict", "rejected", "stopped", "stopping", "suspended", "resolved", "deferred", "exhausted", "fresh", "again", "done", "in_doubt",
})  # fmt: skip


class TurnOracle:
    """One method for each kernel function, of the same name, updates the books from the arguments and the answer."""

    def __init__(self) -> None:
        self.books = Books()
        self.resolved: dict[str, set[str]] = {}  # by turn, the kinds of the calls that one kernel call has resolved
        self.violations: list[Violation] = []
        self.counters: Counter[str] = Counter()
        self.heads = HeadOracle(self.books, self.count, self.blame)

    def blame(self, kind: str, detail: str) -> None:
        self.violations.append(Violation(kind, detail))

    def count(self, what: str, number: int = 1) -> None:
        self.counters[what] += number

    def turn(self, turn_id: str) -> TurnBook:
        return self.books.turns[turn_id]

    def is_owned(self, function: str, item: Any, outcome: str) -> bool:
        """Whether the caller owns the turn. Blames an outcome that contradicts this (L0-02, K1, K2)."""
        token = self.books.tokens.get(item["agent_id"])
        is_owner = token is not None and (token.turn_id, token.epoch) == (item["turn_id"], item["epoch"])
        answers = _OWNERS | {"duplicate"} if function == "record_call" else _OWNERS
        if is_owner != (outcome in answers):
            self.blame("owner_refused" if is_owner else "stale_write",
                       f"{function} {item['turn_id']} at epoch {item['epoch']} was answered {outcome}")  # fmt: skip
        return is_owner

    def end(self, turn: TurnBook, outcome: str, now: int, child_stop: tuple[str, float | None] | None = None) -> None:
        if turn.ended_by is not None:
            self.blame("ended_twice", f"{turn.turn_id} by {turn.ended_by}, and again as {outcome}")
        record_ended(self.books, turn, now)
        self.books.end_turn(turn, outcome, now, child_stop)
        self.count(f"turn {outcome}")

    def end_stopped(self, function: str, turn: TurnBook, now: int) -> None:
        """End a turn with a pending graceful stop, because its owner released or lost it."""
        if turn.force_at is None:
            self.blame("stopped_unasked", f"{function} stopped {turn.turn_id} without a request")
        self.end(turn, "canceled", now)

    def expect_stopping(self, function: str, turn: TurnBook, item: Any, row: Any) -> None:
        """Check that only a turn that terminates, and that has a pending stop, stays with its owner for its terminate phase."""
        if turn.force_at is None or not item.get("terminates") or "stop" not in row:
            self.blame("stopping_unasked", f"{function} told the owner of {turn.turn_id} to stop: {row}")

    def expect_stop_delivered(self, turn: TurnBook, stop: Any, function: str) -> None:
        if (stop is not None) != (turn.force_at is not None):
            self.blame("stop_reported", f"{turn.turn_id} is to stop: {turn.force_at}, and {function} returned {stop}")
        self.count(f"{function} stop" if stop is not None else f"{function} on")

    def may_terminate(self, turn: TurnBook, now: int) -> bool:
        """Whether another worker can still run the terminate phase of a turn with a pending stop."""
        return turn.terminates and turn.force_at is not None and turn.force_at > now

    def expect_not_stopping(self, function: str, turn: TurnBook) -> None:
        if turn.force_at is not None:
            self.blame("stop_lost", f"{function} released {turn.turn_id}, which has a pending stop")

    # ---- runs ----

    def start_runs(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            is_known = item["run_id"] in self.books.runs
            if row["outcome"] == "started":
                self.books.targets[row["run_id"]] = item["target"]
                if "session" in (item["reaction"].get("memory") or {}):
                    self.books.sessions.add(row["run_id"])
                self.react_to(row["run_id"], item["reaction"], now, is_fork=bool(item.get("fork")))
            if row["outcome"] != "rejected" and is_known != (row["outcome"] in ("duplicate", "conflict")):
                self.blame("start_answer", f"{row['run_id']} known: {is_known}, answer: {row['outcome']}")

    def enqueue(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            is_known = item["turn_id"] in self.books.turns
            if row["outcome"] == "queued":
                if is_known:
                    self.blame("turn_twice", f"{item['turn_id']} was enqueued again")
                if self.books.runs[item["run_id"]] != "running":
                    self.blame(
                        "message_after_end",
                        f"{item['run_id']} is {self.books.runs[item['run_id']]} and took {item['turn_id']}",
                    )
                self.books.messages[item["turn_id"]] = item
                self.react_to(item["run_id"], {"activations": [item]}, now)
            elif is_known != (row["outcome"] in ("duplicate", "conflict", None)):
                self.blame("enqueue_answer", f"{item['turn_id']} known: {is_known}, answer: {row['outcome']}")

    def react(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if row["outcome"] == "ok":
                self.react_to(item["run_id"], item["reaction"], now)

    def react_to(self, run_id: str, reaction: Any, now: int, *, is_fork: bool = False) -> None:
        before = self.books.runs.get(run_id, "running")
        if before == "ended":
            self.blame("run_ended_twice", f"{run_id} reacted after its end")
        if before == CLOSING and reaction["activations"]:
            self.count("closed session wakes")
        elif before != "running" and reaction["activations"]:
            self.blame("stopped_run_wakes", f"{run_id} is {before} and woke {reaction['activations']}")
        self.books.runs[run_id] = reaction.get("status", before)
        if not is_fork:  # the turns that a fork starts again were in a queue before
            self.expect_room(run_id, reaction["activations"])
        for item in reaction["activations"]:
            parent = self.books.turns.get(item.get("parent_turn_id") or "")
            self.add_turn(run_id, item, now, depth=0 if parent is None else parent.depth + 1)
        if stops := reaction.get("stops"):
            self.count(f"run stops {stops['turns']} of its turns")
            for turn in self.books.open_turns():
                is_asking = turn.human_wait_since is not None and waits_for_humans(turn)
                if turn.run_id == run_id and (stops["turns"] == "all" or is_asking):
                    self.books.order_stop(turn.turn_id, "graceful", None, now)

    def add_turn(self, run_id: str, item: Any, now: int, *, depth: int, parent: tuple[str, str] | None = None) -> None:
        self.books.add_turn(run_id, item, now, depth=depth, parent=parent)
        self.expect_within("depth_max", depth, item["turn_id"])

    def expect_room(self, run_id: str, activations: list[Any]) -> None:
        """Check that the queues of these agents have room for more turns, counting the turns that were queued before.

        An earlier ending of the same call may have freed an agent: then its first turn no longer waits.
        """
        for agent_id, more in Counter(f"{run_id}/{item['agent']}" for item in activations).items():
            queued = [turn_id for turn_id in self.books.queues.get(agent_id, ())
                      if self.turn(turn_id).ended_by is None and self.heads.status_of(self.turn(turn_id)) == "queued"]  # fmt: skip
            holder = self.heads.turn_of(agent_id)
            is_free = holder is None or self.turn(holder).ended_by is not None
            self.expect_within("queue_max", len(queued[1:] if is_free else queued) + more, agent_id)

    def expect_within(self, limit: str, number: int, what: str) -> None:
        most = self.books.limits.get(limit)
        if most is not None and number > most:
            self.blame("limit", f"{what} has {number}, and {limit} is {most}")

    def expect_cards(self, item: Any) -> None:
        turn = self.turn(item["turn_id"])
        turn.cards.update(card["card_id"] for card in item.get("cards", ()))
        self.expect_within("cards_max", len(turn.cards), turn.turn_id)

    # ---- owned turns ----

    def claim(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for row in answer:
            agent_id, epoch, books = row["agent_id"], row["epoch"], self.books
            if epoch <= books.given.get(agent_id, 0) or agent_id in books.tokens:
                self.blame("token", f"{agent_id} epoch {epoch} after {books.given.get(agent_id)}, still owned: "
                           f"{agent_id in books.tokens}")  # fmt: skip
            books.given[agent_id] = epoch
            books.tokens[agent_id] = Token(row["turn_id"], epoch, now + interval(args[4]))
            self.deliver_results(self.turn(row["turn_id"]), row.get("waits", []))
            self.expect_stop_delivered(self.turn(row["turn_id"]), row.get("stop"), "claim")

    def deliver_results(self, turn: TurnBook, waits: list[Any]) -> None:
        """The owner receives each of its calls in its present state."""
        received = {w["call_id"]: (w["state"], w["status"]) for w in waits}
        known = {w.call_id: (w.state, w.status) for w in turn.waits.values()}
        if received != known:
            self.blame("waits_of_claim", f"{turn.turn_id} has {known}, and its owner received {received}")
        for wait in turn.waits.values():
            wait.is_delivered = wait.is_delivered or wait.state == "resolved"

    def renew(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if not self.is_owned("renew", item, row["outcome"]):
                continue
            turn = self.turn(item["turn_id"])
            self.expect_stop_delivered(turn, msgspec.convert(row, WriteResult).stop, "renew")
            self.books.tokens[item["agent_id"]].lease_until = now + interval(args[2])

    def append(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if self.is_owned("append", item, row["outcome"]) and row["outcome"] == "ok":
                self.expect_cards(item)

    def replace_boxes(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            self.is_owned("replace_boxes", item, row["outcome"])

    def release(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if self.is_owned("release", item, row["outcome"]):
                turn = self.turn(item["turn_id"])
                if row["outcome"] == "stopped":
                    self.end_stopped("release", turn, now)
                else:
                    if not self.may_terminate(turn, now):
                        self.expect_not_stopping("release", turn)
                    del self.books.tokens[turn.agent_id]

    def defer(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for item, row in zip(args[1], answer, strict=True):
            if not self.is_owned("defer", item, row["outcome"]):
                continue
            turn, own = self.turn(item["turn_id"]), item.get("deferrals_max")
            if row["outcome"] == "stopped":
                self.end_stopped("defer", turn, now)
                continue
            if row["outcome"] == "stopping":
                self.expect_stopping("defer", turn, item, row)
                continue
            self.expect_not_stopping("defer", turn)
            most = (self.books.limits.get("deferrals_max") or 3) if own is None else own
            if (turn.defer_count >= most) != (row["outcome"] == "exhausted"):
                self.blame(
                    "defer_cap", f"{turn.turn_id} was {row['outcome']} after {turn.defer_count} of {most} deferrals"
                )
            if row["outcome"] == "exhausted":
                self.end(turn, "failed", now)
            else:
                turn.defer_count += 1
                turn.terminates = bool(item.get("terminates"))
                self.books.tokens.pop(turn.agent_id, None)

    def finish(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        ended: set[str] = set()
        for item, row in zip(args[1], answer, strict=True):
            turn = self.turn(item["turn_id"])
            if row["outcome"] == "ok":
                if (follows := item.get("follows")) is not None:
                    self.count("ending that follows another")
                    if follows not in ended:
                        self.blame(
                            "followed_nothing", f"{turn.turn_id} follows {follows}, which this call has not ended"
                        )
                ended.add(turn.turn_id)
            if row["outcome"] == "duplicate" and turn.ended_by is None:
                self.blame("duplicate_of_nothing", f"{turn.turn_id} has not ended")
            is_owner = self.is_owned("finish", item, row["outcome"])
            given = [field["name"] for field in item["content"].get("fields", ())]
            if is_owner and row["outcome"] == "ok":
                if item["outcome"] == "success" and not set(turn.fields) <= set(given):
                    self.blame("result_fields", f"{turn.turn_id} ended with {given}, and was to have {turn.fields}")
                self.end(turn, item["outcome"], now)
                self.react_to(turn.run_id, item["reaction"], now)

    # ---- sweeps ----

    def sweep_leases(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        for key in ("recovered", "ended"):
            for turn_id in answer[key]:
                turn = self.turn(turn_id)
                token = self.books.owner_of(turn)
                if token is None or token.lease_until > now:
                    self.blame("reaped_alive", f"{turn_id}: lease {token}, and it is {now}")
                if turn.force_at is not None and not self.may_terminate(turn, now):
                    if key == "recovered":
                        self.expect_not_stopping("sweep_leases", turn)
                    self.end(turn, "canceled", now)
                    continue
                turn.recoveries += 1
                is_last = turn.recoveries == turn.max_attempts
                if turn.recoveries > turn.max_attempts or (key == "recovered") == is_last:
                    self.blame("attempts", f"{turn_id} was {key} at {turn.recoveries} of {turn.max_attempts}")
                if key == "ended":
                    self.end(turn, "failed" if turn.force_at is None else "canceled", now)
                else:
                    self.books.tokens.pop(turn.agent_id, None)
        self.expect_swept("sweep_leases", (t.turn_id for t in self.books.tokens.values() if t.lease_until <= now))

    def expect_swept(self, sweep: str, left: Iterable[str]) -> None:
        """Check that a sweep left no work. There is never more work than one sweep takes."""
        if found := sorted(left):
            self.blame("left_by_sweep", f"{sweep} left {found}")

    def sweep_expired(self, args: tuple[Any, ...], answer: Any, now: int) -> None:
        due = [turn for turn in self.books.open_turns() if turn.expires_at <= now and turn.human_wait_since is None]
        expired = self.heads.find_unclaimed(now)
        self.count("turn that no worker claimed", len(expired & set(answer["ended"])))
        for turn_id in expired & set(answer["ended"]):
            self.end_late(self.turn(turn_id), now)
        due = [turn for turn in due if turn.turn_id not in expired]
        for turn in sorted(due, key=lambda t: (t.run_id, t.agent_id)):  # those of one agent are in order already
            if is_kept(self.books, turn, now):
                self.count("expiry deferred for people")
                continue
            expired.add(turn.turn_id)
            if turn.turn_id in answer["ended"]:
                self.end_late(turn, now)
        if early := set(answer["ended"]) - expired:
            self.blame("expired_early", f"{sorted(early)} at {now}")
        self.expect_swept("sweep_expired", expired - set(answer["ended"]))

    def end_late(self, turn: TurnBook, now: int) -> None:
        """Record the end of a turn whose time is over: as canceled if a stop came first."""
        self.end(turn, "timeout" if turn.force_at is None else "canceled", now)

    # ---- the wire ----

    def check_event(self, subject: str, key: str, body: dict[str, Any]) -> None:
        """Check a task event on the wire: its turn has ended, and the event describes that end."""
        turn = self.books.turns.get(body["agent_turn_id"])
        if turn is None or turn.ended_by is None:
            self.blame("event_before_end", key)
        elif (subject, key, body["deliverable_card_id"], body["status"]) != (
            f"evt.agent.{turn.agent_id}.task", f"evt:{turn.turn_id}", end_of(turn.turn_id), turn.outcome
        ):  # fmt: skip
            self.blame("event", f"{subject} {key} {body} for {turn.turn_id}, which ended as {turn.outcome}")
