"""A worker's calls: inline ones, announced before the effect, and those that it suspends on."""

from __future__ import annotations

from collections.abc import Callable

from model.checker import SYSTEM
from model.configs import Config, Inline
from model.kernel import Draft
from model.state import MANY, NO_WAIT, OPEN, RESOLVED, SUSPENDED, WORKING, Head, State, Steps, Worker, next_step, owns
from model.worker_steps import abandon, move, replies, settle


def begin_call(cfg: Config, s: State, i: int, w: Worker, at: int) -> Steps:
    """K13, K14: commit the intent before the effect."""
    k = cfg.scripts[w.turn][at].calls[0]
    what = f"begin_call(t{w.turn}, k{k})"
    if not cfg.rules.intent_first:
        then = w._replace(doing="effect", step=at)
        yield move(cfg, s, i, then, f"decides inline call k{k} of t{w.turn}, without intent")
    elif not owns(s, w):
        yield abandon(cfg, s, i, f"{what} -> stale")
    else:
        is_new = s.calls[cfg.call(w.turn, k)].wait == NO_WAIT
        for is_lost in replies(s) if is_new else (False,):
            d = Draft(cfg, s)
            then, answer = begin(cfg, d, w, at)
            yield settle(d, i, then, is_lost=is_lost, what=f"{what} -> {answer}")


def begin(cfg: Config, d: Draft, w: Worker, at: int) -> tuple[Worker, str]:
    """Commit an intent; return its worker and the answer. An intent that is already there is this owner's own, whose reply
    was lost and who has not begun; or an earlier owner's, which ends as `unknown`."""
    k = cfg.scripts[w.turn][at].calls[0]
    c = cfg.call(w.turn, k)
    call, then = d.calls[c], w._replace(doing="effect", step=at)
    if call.wait == NO_WAIT:
        d.calls[c] = call._replace(wait=OPEN, epoch=w.epoch)
        return then, "fresh"
    if call.wait == OPEN and call.epoch == w.epoch:
        return then, "fresh, as before"
    if call.wait == OPEN and (cfg.is_deduped or not cfg.rules.no_blind_retry):
        return then, "again"
    d.resolve_wait(w.turn, k)
    then = w._replace(doing="drive", step=-1, results_seen=w.results_seen | 1 << k)
    return then, "in doubt, resolved as unknown"


def effect(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """The side effect itself, outside of any transaction. A zombie may still make it (docs/internals/kernel-rules.md, K14)."""
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
    """K13: commit the result; alone, or together with the intent of the next call, behind the same gate."""
    k = cfg.scripts[w.turn][w.step].calls[0]
    if not owns(s, w):
        yield abandon(cfg, s, i, f"record_call(t{w.turn}, k{k}) -> stale")
        return
    is_there = s.calls[cfg.call(w.turn, k)].wait == RESOLVED
    for is_lost in replies(s):
        d = Draft(cfg, s)
        d.resolve_wait(w.turn, k)
        then = w._replace(doing="drive", step=-1, results_seen=w.results_seen | 1 << k)
        what = f"record_call(t{w.turn}, k{k})" + (" -> duplicate" if is_there else "")
        yield settle(d, i, then, is_lost=is_lost, what=what)
        at = next_step(cfg, then)
        if at >= 0 and isinstance(cfg.scripts[w.turn][at], Inline):
            d = Draft(cfg, s)
            d.resolve_wait(w.turn, k)
            if cfg.rules.intents_commit:
                then, answer = begin(cfg, d, then, at)
            else:
                then, answer = then._replace(doing="effect", step=at), "not committed"
            yield settle(d, i, then, is_lost=is_lost, what=f"{what}, with the next intent -> {answer}")


def suspend(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K3, K16, K29: waits, commands, children and suspension commit together; when nothing is open (any more), or a
    turn that wants each result has one that it does not know, it stays running."""
    rules, t = cfg.rules, w.turn
    calls = cfg.scripts[t][w.step].calls
    what = f"suspend(t{t}, epoch {w.epoch})"
    if not owns(s, w):
        yield abandon(cfg, s, i, f"{what} -> stale")
        return
    if s.heads[w.agent].stop and rules.stop_holds and cfg.terminates:
        yield move(cfg, s, i, w._replace(doing="terminate", step=-1), f"{what} -> a stop waits, it stays")
        return
    if s.heads[w.agent].stop and rules.stop_holds:
        yield from end_stopping(cfg, s, i, w, what)
        return
    if is_rejected(cfg, s, w, calls):
        yield move(cfg, s, i, w._replace(doing="drive", step=-1), f"{what} -> rejected, the run is being stopped")
        return
    for is_lost in replies(s):
        d = Draft(cfg, s)
        epoch = 0 if rules.report_by_call else w.epoch
        opened = sum(d.open_wait(t, k, epoch) for k in calls)
        waited = d.waited(t)
        known = sum(1 << k for k in range(cfg.calls) if d.calls[cfg.call(t, k)].wait == RESOLVED)
        is_news = cfg.is_streaming and known & ~w.results_seen != 0
        if (waited or not rules.suspend_rechecks) and not (is_news and rules.suspend_returns_results):
            d.heads[w.agent] = Head(SUSPENDED, t, w.epoch, waits=len(waited) if rules.suspend_recounts else opened)
            d.wait_for_humans(t)
            if not waited:
                d.broken.append("suspended with nothing open")
            if is_news:
                d.broken.append("a turn sleeps on a result")
            then = Worker("claim", w.agent, -1, -1)
        else:
            then = w._replace(doing="drive", step=-1, results_seen=known)
        yield settle(d, i, then, is_lost=is_lost, what=f"{what} -> {d.heads[w.agent].status}")


def end_stopping(cfg: Config, s: State, i: int, w: Worker, what: str) -> Steps:
    """K31: a suspend of a turn that a graceful stop waits for opens no call, and ends the turn."""
    for is_lost in replies(s):
        d = Draft(cfg, s)
        d.end_turn_by_kernel(w.turn)
        then = Worker("claim", w.agent, -1, -1)
        yield settle(d, i, then, is_lost=is_lost, what=f"{what} -> a stop waits: canceled deliverable")


def is_rejected(cfg: Config, s: State, w: Worker, calls: tuple[int, ...]) -> bool:
    """K35: a suspend with new children, in a run that is being stopped, writes nothing, and its owner goes on."""
    has_news = any(cfg.child(w.turn, k) >= 0 and s.calls[cfg.call(w.turn, k)].wait == NO_WAIT for k in calls)
    return has_news and bool(cfg.starts) and s.run.status not in WORKING and cfg.rules.stopping_closed


CALLS: dict[str, Callable[[Config, State, int, Worker], Steps]] = {
    "suspend": suspend,
    "effect": effect,
    "record": record_call,
}
