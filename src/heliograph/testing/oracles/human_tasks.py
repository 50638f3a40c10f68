"""The time that turns wait for people, which does not count toward their time to live."""

from __future__ import annotations

from heliograph.testing.oracles.records import Books, TurnBook


def waits_for_humans(turn: TurnBook) -> bool:
    awaited = turn.awaited()
    return bool(awaited) and all(wait.kind == "human" for wait in awaited)


def record_suspended(books: Books, turn: TurnBook, now: int) -> None:
    turn.suspended_at = now
    if waits_for_humans(turn) and books.runs[turn.run_id] == "running":
        turn.human_wait_since = now


def record_resolved(books: Books, turn: TurnBook, kinds: set[str], now: int, *, resumes: bool) -> None:
    """Record that calls of a suspended turn were resolved. kinds: their kinds."""
    if resumes:
        if {"human", "child"} & kinds:
            waited = _waited(books, turn, now, with_open=False)
            turn.human_wait, turn.expires_at = turn.human_wait + waited, turn.expires_at + waited
        turn.human_wait_since = None
    elif waits_for_humans(turn) and turn.human_wait_since is None and books.runs[turn.run_id] == "running":
        turn.human_wait_since = now - _waited(books, turn, now, with_open=False)


def record_ended(books: Books, turn: TurnBook, now: int) -> None:
    """Record the end of a turn. If it waits for other turns, it is credited with the time that these waited for people."""
    if turn.join is not None and turn.human_wait_since is None:
        turn.human_wait_since = now - _waited(books, turn, now, with_open=True)


def is_kept(books: Books, turn: TurnBook, now: int) -> bool:
    """Whether a turn past its time is kept, because the turns that it waits for have waited for people."""
    if turn.join is None or any(wait.kind in ("tool", "timer") for wait in turn.awaited()):
        return False
    waited = _waited(books, turn, now, with_open=True)
    if turn.expires_at + waited <= now:
        return False
    turn.human_wait_since = now - waited
    return True


def _waited(books: Books, turn: TurnBook, now: int, *, with_open: bool) -> int:
    if turn.human_wait_since is not None:
        return max(0, now - turn.human_wait_since)
    total = 0
    for wait in turn.waits.values():
        has_ended = wait.state == "resolved" and wait.resolved_at >= turn.suspended_at
        if wait.child is None or not (has_ended or (with_open and wait.state == "open")):
            continue
        child = books.turns[wait.child]
        total += child.human_wait
        if child.human_wait_since is not None:
            total += max(0, (child.ended_at if child.ended_by else now) - child.human_wait_since)
        elif child.join is not None:
            total += _waited(books, child, now, with_open=True)
    return min(max(0, now - turn.suspended_at), total)
