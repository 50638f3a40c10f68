"""Workers: hear a bell, claim, drive a turn, suspend or finish it, and pay the reactions that a run is owed.

A worker is a place in its program (`Worker.doing`) and what it believes; each function here is one place. Between any
two steps everything else may happen, a crash included.
"""

from __future__ import annotations

from collections.abc import Callable

from model.actions_ablated import PARTS, append_ungated, publish_first, write_card_first
from model.checker import FAULT, SYSTEM
from model.configs import Await, Config, Fault
from model.kernel import (
    DISPATCHED,
    ENDED,
    MANY,
    NO_WAIT,
    NOBODY,
    OPEN,
    RUNNING,
    SUSPENDED,
    Draft,
    Head,
    State,
    Step,
    Steps,
    Worker,
    next_step,
    owns,
    read_run,
)


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


def leave(cfg: Config, s: State, i: int, what: str) -> Step:
    """An answer that ends the drive, such as `stale`: nothing is written."""
    d = Draft(cfg, s)
    d.workers[i] = NOBODY
    return d.commit(SYSTEM, f"w{i}: {what}")


def replies(s: State) -> tuple[bool, ...]:
    """The replies a commit may have: it arrives (False), it is lost and the worker calls again (True)."""
    return (False, True) if s.faults[Fault.AMBIGUOUS] else (False,)


def settle(d: Draft, i: int, then: Worker, *, is_lost: bool, what: str) -> Step:
    """Commit; go on as `then` when the reply arrives, stay where we are when it is lost."""
    if is_lost:
        d.spend(Fault.AMBIGUOUS)
        return d.commit(FAULT, f"w{i}: {what} (reply lost, will call again)")
    d.workers[i] = then
    return d.commit(SYSTEM, f"w{i}: {what}")


def wait_for_bell(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    for a, bell in enumerate(s.bells):
        if bell:
            d = Draft(cfg, s)
            d.bells[a] = 0
            d.workers[i] = Worker("claim", a, -1, -1)
            yield d.commit(SYSTEM, f"w{i}: hears the bell of a{a}")
    if s.run.owed:
        d = Draft(cfg, s)
        doing = "react" if cfg.rules.whole_read else "read version"
        d.workers[i] = Worker(doing, -1, -1, -1, -1, read_run(s))
        yield d.commit(SYSTEM, f"w{i}: sweep reads the run at version {s.run.version}, owed {s.run.owed:b}")


def claim(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K6: dispatched -> running, epoch + 1. The answer carries the run as it is now."""
    head = s.heads[w.agent]
    if head.status != DISPATCHED:
        yield leave(cfg, s, i, f"claim(a{w.agent}) -> nothing")
        return
    epoch = head.epoch + cfg.rules.bump_on_claim
    d = Draft(cfg, s)
    d.heads[w.agent] = Head(RUNNING, head.turn, epoch)
    seen = read_run(s) if cfg.starts else ()
    d.workers[i] = Worker("drive", w.agent, head.turn, epoch, -1, seen)
    run = f", run at version {s.run.version}" if cfg.starts else ""
    yield d.commit(SYSTEM, f"w{i}: claim(a{w.agent}) -> t{head.turn}, epoch {epoch}{run}")


def drive(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """The model call: what the turn does next. No transaction, except that a finish or an intent follows at once."""
    if not cfg.rules.gated_cards:
        yield append_ungated(cfg, s, i, w)
    at = next_step(cfg, s, w.turn)
    if at < 0:
        yield from finish(cfg, s, i, w) if cfg.rules.atomic_finish else write_card_first(cfg, s, i, w)
    elif not isinstance(cfg.scripts[w.turn][at], Await):
        yield from begin_call(cfg, s, i, w, at)
    elif cfg.rules.suspend_first:
        d = Draft(cfg, s)
        d.workers[i] = w._replace(doing="suspend", step=at)
        yield d.commit(SYSTEM, f"w{i}: decides to call tools {cfg.scripts[w.turn][at].calls} in t{w.turn}")
    else:
        yield publish_first(cfg, s, i, w, at)


def finish(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K1, K24: deliverable, event, state, next turn, and the reaction of the run, or `conflict`, or `stale`.

    The owner gate is asked first: a finish that is called again after a lost reply is `stale`, not a `conflict`.
    """
    if not owns(s, w):
        yield leave(cfg, s, i, f"finish(t{w.turn}, epoch {w.epoch}) -> stale")
        return
    if cfg.starts and cfg.rules.version_guard and w.seen[0] != s.run.version:
        d = Draft(cfg, s)
        d.workers[i] = w._replace(seen=read_run(s))
        yield d.commit(SYSTEM, f"w{i}: finish(t{w.turn}) -> conflict, reads version {s.run.version}")
        return
    for is_lost in replies(s):
        d = Draft(cfg, s)
        d.end_turn(w.turn)
        if cfg.starts:
            d.react(w.seen, w.turn)
        what = f"finish(t{w.turn}, epoch {w.epoch}){told(d)}"
        yield settle(d, i, Worker("claim", w.agent, -1, -1), is_lost=is_lost, what=what)


def told(d: Draft) -> str:
    """The run after a reaction, for the label."""
    if not d.cfg.starts:
        return ""
    ended = ", THE RUN ENDS" if d.run.status == ENDED else ""
    return f": version {d.run.version}, open {d.run.open}, owed {d.run.owed:b}, woken {d.run.woken:b}{ended}"


def react(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K25: commit the reaction to endings by the kernel, guarded as a finish is; there is no turn to own."""
    if cfg.rules.version_guard and w.seen[0] != s.run.version:
        yield leave(cfg, s, i, "react -> conflict")  # the next sweep reads again
    else:
        for is_lost in replies(s):
            d = Draft(cfg, s)
            d.react(w.seen, -1)
            yield settle(d, i, NOBODY, is_lost=is_lost, what=f"react{told(d)}")


def begin_call(cfg: Config, s: State, i: int, w: Worker, at: int) -> Steps:
    """K13, K14: commit the intent before the effect; an intent that is already there ends as `unknown`."""
    k = cfg.scripts[w.turn][at].calls[0]
    d = Draft(cfg, s)
    c = cfg.call(w.turn, k)
    if not cfg.rules.intent_first:
        d.workers[i] = w._replace(doing="effect", step=at)
        yield d.commit(SYSTEM, f"w{i}: decides inline call k{k} of t{w.turn}, without intent")
    elif not owns(s, w):
        yield leave(cfg, s, i, f"begin_call(t{w.turn}, k{k}, epoch {w.epoch}) -> stale")
    elif d.calls[c].wait == OPEN and cfg.rules.no_blind_retry and not cfg.is_deduped:
        d.resolve_wait(w.turn, k)
        yield d.commit(SYSTEM, f"w{i}: begin_call(t{w.turn}, k{k}) finds an old intent -> resolved as unknown")
    else:
        what = "finds an old intent -> executes again" if d.calls[c].wait == OPEN else "-> intent committed"
        d.calls[c] = d.calls[c]._replace(wait=OPEN)
        d.workers[i] = w._replace(doing="effect", step=at)
        yield d.commit(SYSTEM, f"w{i}: begin_call(t{w.turn}, k{k}) {what}")


def effect(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """The side effect itself, outside of any transaction. A zombie may still make it (kernel.md, section 4)."""
    k = cfg.scripts[w.turn][w.step].calls[0]
    d = Draft(cfg, s)
    c = cfg.call(w.turn, k)
    call = d.calls[c]
    if call.wait == NO_WAIT:
        d.broken.append("effect without a durable intent")
    if not (cfg.is_deduped and call.effects):
        d.calls[c] = call._replace(effects=min(MANY, call.effects + 1))
    d.workers[i] = w._replace(doing="record")
    yield d.commit(SYSTEM, f"w{i}: EFFECT of t{w.turn} k{k}" + ("" if owns(s, w) else " (zombie)"))


def record_call(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    k = cfg.scripts[w.turn][w.step].calls[0]
    if not owns(s, w):
        yield leave(cfg, s, i, f"record_call(t{w.turn}, k{k}) -> stale")
        return
    d = Draft(cfg, s)
    d.resolve_wait(w.turn, k)
    d.workers[i] = w._replace(doing="drive", step=-1)
    yield d.commit(SYSTEM, f"w{i}: record_call(t{w.turn}, k{k})")


def suspend(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K3, K16: wait rows, commands and suspension commit together; when nothing is open (any more), stay running."""
    if not owns(s, w):
        yield leave(cfg, s, i, f"suspend(t{w.turn}, epoch {w.epoch}) -> stale")
        return
    for is_lost in replies(s):
        d = Draft(cfg, s)
        for k in cfg.scripts[w.turn][w.step].calls:
            c = cfg.call(w.turn, k)
            call = d.calls[c]
            if call.wait == NO_WAIT:
                epoch = 0 if cfg.rules.report_by_call else w.epoch
                d.calls[c] = call._replace(wait=OPEN, commands=min(MANY, call.commands + 1), epoch=epoch)
        is_waiting = bool(d.open_calls(w.turn))
        if is_waiting or not cfg.rules.suspend_rechecks:
            d.heads[w.agent] = Head(SUSPENDED, w.turn, w.epoch)
            then = Worker("claim", w.agent, -1, -1)
        else:
            then = w._replace(doing="drive", step=-1)
        if not is_waiting and d.heads[w.agent].status == SUSPENDED:
            d.broken.append("suspended with nothing open")
        what = f"suspend(t{w.turn}, epoch {w.epoch}) -> {d.heads[w.agent].status}"
        yield settle(d, i, then, is_lost=is_lost, what=what)


Place = Callable[[Config, State, int, Worker], Steps]
PLACES: dict[str, Place] = {
    "idle": wait_for_bell,
    "claim": claim,
    "drive": drive,
    "suspend": suspend,
    "effect": effect,
    "record": record_call,
    "react": react,
    **PARTS,
}
