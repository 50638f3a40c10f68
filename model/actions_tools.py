"""Tools that answer from outside: they take a command, do it once (they dedupe by call id), and report."""

from __future__ import annotations

from model.checker import FAULT, SYSTEM
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import ACTIVE, DISPATCHED, FORGED, MANY, NO_WAIT, OPEN, QUEUED, RUNNING, TRUE, Call, State, Step, Steps


def tools(cfg: Config, s: State) -> Steps:
    for t in range(len(cfg.agents)):
        for k in range(cfg.calls):
            call = s.calls[cfg.call(t, k)]
            if call.commands:
                yield from execute(cfg, s, t, k, call)
            if call.reports:
                yield from report(cfg, s, t, k, call)
            if call.wait == NO_WAIT and s.turns[t].status in (QUEUED, ACTIVE) and cfg.child(t, k) < 0:
                yield from foresee(cfg, s, t, k, call)


def execute(cfg: Config, s: State, t: int, k: int, call: Call) -> Steps:
    done = call._replace(commands=call.commands - 1, effects=1, reports=min(MANY, call.reports + 1))
    yield change(cfg, s, t, k, done, None, f"tool: executes t{t} k{k}")
    if s.faults[Fault.SILENT]:
        lost = call._replace(commands=call.commands - 1)
        yield change(cfg, s, t, k, lost, Fault.SILENT, f"FAULT: tool never answers t{t} k{k}")
    if s.faults[Fault.DUPLICATE] and call.commands < MANY:
        twice = call._replace(commands=call.commands + 1)
        yield change(cfg, s, t, k, twice, Fault.DUPLICATE, f"FAULT: command t{t} k{k} is delivered again")


def foresee(cfg: Config, s: State, t: int, k: int, call: Call) -> Steps:
    """Report a call before its turn opens it, as its tool, or without the token."""
    if s.faults[Fault.EARLY] and not call.effects:
        done = call._replace(effects=1, reports=1)
        yield change(cfg, s, t, k, done, Fault.EARLY, f"FAULT: t{t} k{k} is executed before it is called")
    if s.faults[Fault.FORGE]:
        is_kept = cfg.rules.early_by_token or not call.early
        kept = call._replace(early=call.early | FORGED if is_kept else call.early)
        yield change(cfg, s, t, k, kept, Fault.FORGE, f"FAULT: a forged report of t{t} k{k} -> early")


def report(cfg: Config, s: State, t: int, k: int, call: Call) -> Steps:
    """K4, K5: the wait row decides, found by the call; the epoch of the report is information only. K28: without a row
    the report is kept, as long as the turn is not done."""
    rules = cfg.rules
    d = Draft(cfg, s)
    head = s.heads[cfg.agents[t]]
    call = call._replace(reports=call.reports - 1)
    is_old = not rules.report_by_call and call.wait == OPEN and head.turn == t and head.epoch != call.epoch
    is_early = call.wait == NO_WAIT and s.turns[t].status in (QUEUED, ACTIVE)
    is_going = head.turn == t and head.status in (DISPATCHED, RUNNING)
    is_free = rules.early_by_token or not call.early
    is_kept = is_early and is_free and rules.early_kept and (is_going or rules.early_always)
    if is_kept:
        call = call._replace(early=call.early | TRUE)
    elif is_old or is_early:
        d.broken.append("a result is dropped")
    d.calls[cfg.call(t, k)] = call
    if not is_old:
        d.report(t, k)
    outcome = "" if call.wait == OPEN else " -> early" if is_kept else " -> duplicate"
    yield d.commit(SYSTEM, f"tool: report(t{t}, k{k}){outcome}")
    before = s.calls[cfg.call(t, k)]
    if s.faults[Fault.DUPLICATE] and before.reports < MANY:
        twice = before._replace(reports=before.reports + 1)
        yield change(cfg, s, t, k, twice, Fault.DUPLICATE, f"FAULT: report t{t} k{k} is delivered again")


def change(cfg: Config, s: State, t: int, k: int, to: Call, fault: Fault | None, what: str) -> Step:
    d = Draft(cfg, s)
    d.calls[cfg.call(t, k)] = to
    if fault is None:
        return d.commit(SYSTEM, what)
    d.spend(fault)
    return d.commit(FAULT, what)
