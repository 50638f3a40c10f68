"""Workers: receive a bell, claim, drive a turn to its end, release or defer it, and commit pending reactions.

A worker is a place in its program (`Worker.doing`) and what it believes; each function here is one place, and those of
calls are in `actions_calls.py`. Between any two steps everything else may happen, a crash included.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from model import runs
from model.actions_ablated import PARTS, append_ungated, publish_first, write_card_first
from model.actions_calls import CALLS, begin_call
from model.actions_unclaimed import claim_raises, fail_unclaimable
from model.checker import FAULT, SYSTEM
from model.configs import Await, Config, Fault, Inline
from model.kernel import Draft
from model.state import (
    DISPATCHED,
    ENDED,
    NOBODY,
    OPEN,
    RUNNING,
    Head,
    State,
    Steps,
    Worker,
    next_step,
    owns,
    read_run,
    resolved,
)
from model.worker_steps import abandon, move, replies, settle


def workers(cfg: Config, s: State) -> Steps:
    for i, w in enumerate(s.workers):
        if cfg.is_symmetric and w in s.workers[:i]:
            continue  # an equal worker has taken this step already
        if w.doing != "idle" and s.faults[Fault.CRASH]:
            d = Draft(cfg, s)
            d.spend(Fault.CRASH)
            d.workers[i] = NOBODY
            yield d.commit(FAULT, f"FAULT: w{i} crashes ({w.doing} t{w.turn})")
        yield from PLACES[w.doing](cfg, s, i, w)


def wait_for_bell(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    for a, bell in enumerate(s.bells):
        if bell:
            d = Draft(cfg, s)
            d.bells[a] = 0
            d.workers[i] = Worker("claim", a, -1, -1)
            yield d.commit(SYSTEM, f"w{i}: receives the bell of a{a}")
    if s.run.pending:
        then = Worker("react" if cfg.rules.whole_read else "read version", -1, -1, -1, seen=read_run(s))
        yield move(cfg, s, i, then, f"sweep reads the run at version {s.run.version}, pending {s.run.pending:b}")


def claim(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K6: dispatched -> running, epoch + 1. The answer carries the waits and the run as they are now."""
    head = s.heads[w.agent]
    if head.status != DISPATCHED:
        yield abandon(cfg, s, i, f"claim(a{w.agent}) -> nothing")
        return
    if s.turns[head.turn].is_poison:
        yield claim_raises(cfg, s, i, w)
        return
    d = Draft(cfg, s)
    d.workers[i] = owner = take_head(d, w.agent)
    run = f", run at version {s.run.version}" if cfg.starts else ""
    yield d.commit(SYSTEM, f"w{i}: claim(a{w.agent}) -> t{head.turn}, epoch {owner.epoch}{run}")


def take_head(d: Draft, a: int) -> Worker:
    """Make a worker the owner of a dispatched head; return the worker as it knows its turn."""
    head = d.heads[a]
    epoch = head.epoch + d.cfg.rules.bump_on_claim
    d.heads[a] = Head(RUNNING, head.turn, epoch, stop=head.stop)
    seen = read_run(d) if d.cfg.starts else ()
    return Worker("drive", a, head.turn, epoch, -1, resolved(d.cfg, d, head.turn), seen)


def drive(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """The model call: what the turn does next. No transaction, except that a finish or an intent follows at once."""
    if not cfg.rules.gated_cards:
        yield append_ungated(cfg, s, i, w)
    is_owner = owns(s, w)
    if is_owner and (cfg.is_down or s.faults[Fault.DEFER]):
        yield from defer(cfg, s, i, w)
    if is_owner and cfg.is_down:
        return
    if is_owner and s.faults[Fault.RELEASE]:
        yield from release(cfg, s, i, w)
    at = next_step(cfg, w)
    if is_owner and s.heads[w.agent].stop:
        yield from learn_of_stop(cfg, s, i, w, at)
    if at < 0:
        yield from finish(cfg, s, i, w) if cfg.rules.atomic_finish else write_card_first(cfg, s, i, w)
        if cfg.ends_together:
            yield from finish_together(cfg, s, i, w)
        return
    yield from take_step(cfg, s, i, w, at)
    step = cfg.scripts[w.turn][at]
    if cfg.is_fickle and isinstance(step, Inline):
        call = s.calls[cfg.call(w.turn, step.calls[0])]
        if call.wait == OPEN and call.epoch != w.epoch:
            yield from take_step(cfg, s, i, w, at + 1)  # the model of another owner replies differently


def take_step(cfg: Config, s: State, i: int, w: Worker, at: int) -> Steps:
    step = cfg.scripts[w.turn][at]
    if not isinstance(step, Await):
        yield from begin_call(cfg, s, i, w, at)
    elif cfg.rules.suspend_first:
        yield move(cfg, s, i, w._replace(doing="suspend", step=at), f"decides to make calls {step.calls} in t{w.turn}")
    else:
        yield publish_first(cfg, s, i, w, at)


def learn_of_stop(cfg: Config, s: State, i: int, w: Worker, at: int) -> Steps:
    """K31: the owner learns of the stop from renew and finishes at once; or it never looks and only renews its lease."""
    if at >= 0:
        yield from finish(cfg, s, i, w)
    if s.faults[Fault.HANG]:
        d = Draft(cfg, s)
        d.spend(Fault.HANG)
        d.workers[i] = w._replace(doing="hung")
        yield d.commit(FAULT, f"FAULT: w{i} hangs in t{w.turn}, and renews its lease")


def hang(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """A hung worker renews its lease until it loses its turn: renew answers `stale`."""
    if not owns(s, w):
        yield abandon(cfg, s, i, f"renew(t{w.turn}) -> stale")


def finish(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K1, K24: deliverable, event, state, next turn, and the reaction of the run, or `conflict`, or `stale`.

    The kernel checks the owner first: a finish that is called again after a lost reply is `stale`, not a `conflict`. With
    `claims_next` the same transaction may claim any dispatched head. After a lost reply nobody drives that turn.
    """
    if not owns(s, w):
        yield abandon(cfg, s, i, f"finish(t{w.turn}, epoch {w.epoch}) -> stale")
        return
    if cfg.starts and cfg.rules.version_guard and w.seen[0] != s.run.version:
        then = w._replace(seen=read_run(s))
        yield move(cfg, s, i, then, f"finish(t{w.turn}) -> conflict, reads version {s.run.version}")
        return
    for is_lost, following in product(replies(s), (-1, *range(len(s.heads) if cfg.claims_next else 0))):
        d = Draft(cfg, s)
        d.end_turn(w.turn)
        if cfg.starts:
            runs.react(d, w.seen, w.turn)
        what = f"finish(t{w.turn}, epoch {w.epoch}){run_label(d)}"
        then = Worker("claim", w.agent, -1, -1)
        if following >= 0:
            if d.heads[following].status != DISPATCHED:
                continue
            then = take_head(d, following)
            what += f" and claim(a{following}) -> t{then.turn}, epoch {then.epoch}"
        if w.turn in cfg.parents and not cfg.rules.report_row:
            then = w._replace(doing="report to parent")
        yield settle(d, i, then, is_lost=is_lost, what=what)


def finish_together(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K24d: one call ends two turns of a run. The second reaction was computed from the run that the first one makes."""
    for k, other in enumerate(s.workers):
        if k == i or other.doing != "drive" or next_step(cfg, other) >= 0 or not (owns(s, w) and owns(s, other)):
            continue
        made = run_made_by(cfg, s, w)
        for is_lost in replies(s):
            d = Draft(cfg, s)
            is_accepted = w.seen[0] == s.run.version
            if is_accepted:
                d.end_turn(w.turn)
                runs.react(d, w.seen, w.turn)
            is_followed = made[0] == d.run.version and (is_accepted or not cfg.rules.follows_checked)
            if is_followed:
                d.end_turn(other.turn)
                runs.react(d, made, other.turn)
            what = f"finish(t{w.turn}, and t{other.turn} after it) -> {is_accepted}, {is_followed}{run_label(d)}"
            if is_lost:
                yield settle(d, i, w, is_lost=True, what=what)
                continue
            for n, each, has_ended in ((i, w, is_accepted), (k, other, is_followed)):
                d.workers[n] = Worker("claim", each.agent, -1, -1) if has_ended else each._replace(seen=read_run(d))
            yield d.commit(SYSTEM, f"w{i}: {what}")


def run_made_by(cfg: Config, s: State, w: Worker) -> tuple[int, ...]:
    """The run after the ending of a worker that has not committed it yet, as the worker computes it."""
    version, reacted, woken, pending, is_open, status = w.seen
    d = Draft(cfg, s)
    d.run = d.run._replace(version=version, reacted=reacted, woken=woken, pending=pending, open=is_open, status=status)
    runs.react(d, w.seen, w.turn)
    return read_run(d)


def run_label(d: Draft) -> str:
    """Return the run after a reaction, as a part of the label."""
    if not d.cfg.starts:
        return ""
    ended = ", THE RUN ENDS" if d.run.status == ENDED else ""
    return f": version {d.run.version}, open {d.run.open}, pending {d.run.pending:b}, woken {d.run.woken:b}{ended}"


def release(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """The worker drains and hands the turn back: no attempt is counted."""
    for is_lost in replies(s):
        d = Draft(cfg, s)
        d.spend(Fault.RELEASE)
        what = d.redispatch(w.turn, is_rung=True)
        yield settle(d, i, NOBODY, is_lost=is_lost, what=f"release(t{w.turn}) -> {what}")


def defer(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K32: not now; due later, nobody rings; past the cap the kernel ends the turn. Time is a choice: due at once too."""
    if s.heads[w.agent].stop and cfg.terminates and cfg.rules.stop_holds:
        yield move(cfg, s, i, w._replace(doing="terminate"), f"defer(t{w.turn}) -> a stop waits, it stays")
        return
    defers = s.turns[w.turn].defer_count
    for is_lost in replies(s):
        d = Draft(cfg, s)
        if not cfg.is_down:
            d.spend(Fault.DEFER)
        if defers >= cfg.deferrals_max and cfg.rules.defer_capped and not s.heads[w.agent].stop:
            d.end_turn_by_kernel(w.turn)
            what = "exhausted: failed deliverable"
        else:
            d.change_turn(w.turn, defer_count=min(defers + 1, cfg.deferrals_max))
            what = d.redispatch(w.turn, is_rung=False)
        yield settle(d, i, Worker("claim", w.agent, -1, -1), is_lost=is_lost, what=f"defer(t{w.turn}) -> {what}")


def react(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K25: commit the reaction to endings by the kernel, guarded as a finish is; there is no turn to own."""
    if cfg.rules.version_guard and w.seen[0] != s.run.version:
        yield abandon(cfg, s, i, "react -> conflict")  # the next sweep reads again
    else:
        for is_lost in replies(s):
            d = Draft(cfg, s)
            runs.react(d, w.seen, -1)
            yield settle(d, i, NOBODY, is_lost=is_lost, what=f"react{run_label(d)}")


Place = Callable[[Config, State, int, Worker], Steps]
PLACES: dict[str, Place] = {
    "idle": wait_for_bell,
    "claim": claim,
    "drive": drive,
    "hung": hang,
    "terminate": finish,
    "react": react,
    "unclaimable": fail_unclaimable,
    **CALLS,
    **PARTS,
}
