"""Common parts of the steps of a worker: exit on a rejection, continue, and replies that arrive or are lost."""

from __future__ import annotations

from model.checker import FAULT, SYSTEM
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import NOBODY, State, Step, Worker


def abandon(cfg: Config, s: State, i: int, what: str) -> Step:
    """An answer such as `stale` that ends the work of this worker on its turn; nothing is written."""
    return move(cfg, s, i, NOBODY, what)


def move(cfg: Config, s: State, i: int, then: Worker, what: str) -> Step:
    """A decision of the worker, or an answer after which it continues; nothing is written."""
    d = Draft(cfg, s)
    d.workers[i] = then
    return d.commit(SYSTEM, f"w{i}: {what}")


def replies(s: State) -> tuple[bool, ...]:
    """The replies a commit may have: it arrives (False), it is lost and the worker calls again (True)."""
    return (False, True) if s.faults[Fault.AMBIGUOUS] else (False,)


def settle(d: Draft, i: int, then: Worker, *, is_lost: bool, what: str) -> Step:
    """Commit; continue as `then` if the reply arrives, and repeat the call if it is lost."""
    if is_lost:
        d.spend(Fault.AMBIGUOUS)
        return d.commit(FAULT, f"w{i}: {what} (reply lost, will call again)")
    d.workers[i] = then
    return d.commit(SYSTEM, f"w{i}: {what}")
