"""What a transaction does to a run: reactions, and the end. Every caller holds the run's lock (K17)."""

from __future__ import annotations

from model.kernel import Draft
from model.state import ENDED, LIVE, MANY, UNBORN, Run


def react(d: Draft, seen: tuple[int, ...], finished: int) -> None:
    """Commit the reaction to endings, computed from `seen`. `finished`: the turn that this transaction ends, or -1
    for a sweep, which reacts to all that is owed. The caller has compared the version (K24).

    Only what is computed from `seen` is the reaction: state, wakes, whether the run ends. So "compute, then commit"
    are the two steps *read* and *this*, with anything in between. A run that is being stopped wakes nobody (K35).
    """
    _, reacted, woken, owed, was_open, status = seen
    rules, run = d.cfg.rules, d.run
    is_sweep = finished < 0
    reacted |= owed if is_sweep else 1 << finished
    is_waking = status == LIVE or not rules.stopping_closed
    wakes = [t for t, needs in d.cfg.wakes if is_waking and needs & ~reacted == 0 and not woken >> t & 1]
    more = len(wakes) - (not is_sweep)
    is_owed = not is_sweep and owed > 0 and rules.end_sees_owed
    d.run = Run(
        run.status,
        run.version + 1,
        (run.open if rules.count_locked else was_open) + more,
        0 if is_sweep else run.owed,  # an equal version means that nothing became owed since
        reacted,
        woken | sum(1 << t for t in wakes),
        run.ends,
        run.is_stopped,
    )
    for t in wakes:
        wake(d, t)
    if was_open + more == 0 and not is_owed:
        end(d)


def wake(d: Draft, t: int) -> None:
    if d.turns[t].status != UNBORN:
        d.broken.append("a turn is woken twice")
    else:
        d.insert_turn(t)
        d.dispatch(d.cfg.agents[t])


def end(d: Draft) -> None:
    """K26: the only way a run ends; with it goes the single workflow:end."""
    if d.run.ends:
        d.broken.append("the run ends twice")
    d.run = d.run._replace(status=ENDED, ends=min(MANY, d.run.ends + 1))
