"""The effects of a transaction on a run: reactions, and the end. Every caller holds the run's lock (K17)."""

from __future__ import annotations

from model.kernel import Draft
from model.state import ACTIVE, CLOSED, DUE, ENDED, LIVE, MANY, QUEUED, REJECTED, STOPPING, UNBORN, WORKING, Run


def react(d: Draft, seen: tuple[int, ...], finished: int) -> None:
    """Commit the reaction to endings, computed from `seen`. `finished`: the turn that this transaction ends, or -1
    for a sweep, which reacts to all that is pending. The caller has compared the version (K24).

    Only what is computed from `seen` is the reaction: state, wakes, whether the run ends. So "compute, then commit"
    are the two steps *read* and *this*, with anything in between. A run that is being stopped wakes nobody (K35); nor
    does one whose goal is met, and one at its activation limit wakes as many as it may: both begin to end here (K35b). A closed
    session wakes agents as an open one does, and ends as any run does; an open one waits for messages (K38, K38b).
    """
    _, reacted, woken, pending, was_open, status = seen
    rules, run = d.cfg.rules, d.run
    is_sweep = finished < 0
    reacted |= pending if is_sweep else 1 << finished
    works = status in WORKING if rules.closed_wakes else status == LIVE
    is_waking = works or (status != CLOSED and not rules.stopping_closed)
    wakes = [t for t, needs in d.cfg.wakes if is_waking and needs & ~reacted == 0 and not woken >> t & 1]
    is_met = bool(d.cfg.goal) and works and d.cfg.goal & ~reacted == 0
    room = 0 if is_met else d.cfg.activations_max - activations(d) if d.cfg.activations_max else len(wakes)
    is_over = works and not is_met and room < len(wakes)
    wakes = wakes[: max(0, room)]
    more = len(wakes) - (not is_sweep)
    is_pending = not is_sweep and pending > 0 and rules.end_sees_pending
    d.run = Run(
        run.status,
        run.version + 1,
        (run.open if rules.count_locked else was_open) + more,
        0 if is_sweep else run.pending,  # an equal version means that nothing became pending since
        reacted,
        woken | sum(1 << t for t in wakes),
        run.ends,
        run.is_stopped,
    )
    for t in wakes:
        wake(d, t)
    if is_met or is_over:
        d.run = d.run._replace(status=STOPPING, is_stopped=True)
        stop_open_turns(d, only_human=is_met)
    is_waiting = d.cfg.is_session and d.run.status == LIVE and rules.session_waits
    if was_open + more == 0 and not is_pending and not is_waiting:
        end(d)


def activations(d: Draft) -> int:
    """How many turns the run has had: an equal version means that these are the ones that the reaction has read."""
    return sum(turn.status not in (UNBORN, REJECTED) for turn in d.turns)


def stop_open_turns(d: Draft, *, only_human: bool) -> None:
    """K35b: the run begins to end, and in the same transaction gets a stop row for each open turn; `only_human`: for those
    that wait for people, whose answers have no use any more. The others end by themselves."""
    if not (d.cfg.rules.goal_stops if only_human else d.cfg.rules.limit_stops):
        return
    for t, turn in enumerate(d.turns):
        if turn.status in (QUEUED, ACTIVE) and (turn.waits_for_humans or not only_human):
            d.change_turn(t, stop=DUE)


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
