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
        waited = _waited(books, turn, now, with_open=False) if {"human", "child"} & kinds else 0
        _record_resumed(turn, waited)
    elif waits_for_humans(turn):
        is_running = books.runs[turn.run_id] == "running"
        turn.human_wait_since = now - _waited(books, turn, now, with_open=False) if is_running else None


def record_stopping(books: Books, turn: TurnBook, now: int) -> None:
    """Record that a stop resumed a suspended turn, whose calls may be open."""
    _record_resumed(turn, _waited(books, turn, now, with_open=True))


def _record_resumed(turn: TurnBook, waited: int) -> None:
    turn.human_wait, turn.expires_at = turn.human_wait + waited, turn.expires_at + waited
    turn.human_wait_since = None


def record_ended(books: Books, turn: TurnBook, now: int) -> None:
    """Record the end of a turn. If it waits for other turns, it is credited with the time that these waited for people."""
    if turn.join is not None and not _is_own_wait(turn, now):
        turn.human_wait_since = now - _waited_below(books, turn, now, with_open=True)


def is_kept(books: Books, turn: TurnBook, now: int) -> bool:
    """Whether a turn past its time is kept, because the turns that it waits for have waited for people."""
    if turn.join is None or any(wait.kind in ("tool", "timer") for wait in turn.awaited()):
        return False
    waited = _waited_below(books, turn, now, with_open=True)
    if turn.expires_at + waited <= now:
        return False
    turn.human_wait_since = now - waited
    return True


def _waited(books: Books, turn: TurnBook, now: int, *, with_open: bool) -> int:
    """The time that a suspended turn has waited for people until now."""
    if turn.human_wait_since is not None and _is_own_wait(turn, now):
        return max(0, now - turn.human_wait_since)
    return _waited_below(books, turn, now, with_open=with_open or turn.human_wait_since is not None)


def _is_own_wait(turn: TurnBook, now: int) -> bool:
    """Whether `human_wait_since` measures questions of the turn itself, and not the waits of turns that it waits for."""
    children = [wait for wait in turn.waits.values() if wait.child is not None]
    waits_for_child = any(w.state == "open" or (w.state == "resolved" and w.resolved_at == now) for w in children)
    return turn.human_wait_since is not None and not waits_for_child


def _waited_below(books: Books, turn: TurnBook, now: int, *, with_open: bool) -> int:
    """The time that the turns below a suspended turn have waited for people, at most the time since its suspension."""
    total = 0
    for wait in turn.waits.values():
        has_ended = wait.state == "resolved" and wait.resolved_at >= turn.suspended_at
        if wait.child is None or not (has_ended or (with_open and wait.state == "open")):
            continue
        child = books.turns[wait.child]
        total += child.human_wait
        if child.human_wait_since is not None and (child.ended_by or _is_own_wait(child, now)):
            total += max(0, (child.ended_at if child.ended_by else now) - child.human_wait_since)
        elif child.join is not None:
            total += _waited_below(books, child, now, with_open=True)
    return min(max(0, now - turn.suspended_at), total)
