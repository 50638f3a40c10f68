"""Tools that answer from outside: they take a command, do it once (they dedupe by call id), and report."""

from __future__ import annotations

from model.checker import FAULT, SYSTEM
from model.configs import Config, Fault
from model.kernel import ACTIVE, MANY, NO_WAIT, OPEN, Call, Draft, State, Step, Steps


def tools(cfg: Config, s: State) -> Steps:
    for t in range(len(cfg.agents)):
        for k in range(cfg.calls):
            call = s.calls[cfg.call(t, k)]
            if call.commands:
                yield from execute(cfg, s, t, k, call)
            if call.reports:
                yield from report(cfg, s, t, k, call)


def execute(cfg: Config, s: State, t: int, k: int, call: Call) -> Steps:
    done = call._replace(commands=call.commands - 1, effects=1, reports=min(MANY, call.reports + 1))
    yield change(cfg, s, t, k, done, None, f"tool: executes t{t} k{k}")
    if s.faults[Fault.SILENT]:
        lost = call._replace(commands=call.commands - 1)
        yield change(cfg, s, t, k, lost, Fault.SILENT, f"FAULT: tool never answers t{t} k{k}")
    if s.faults[Fault.DUPLICATE] and call.commands < MANY:
        twice = call._replace(commands=call.commands + 1)
        yield change(cfg, s, t, k, twice, Fault.DUPLICATE, f"FAULT: command t{t} k{k} is delivered again")


def report(cfg: Config, s: State, t: int, k: int, call: Call) -> Steps:
    """K4, K5: the wait row decides, found by the call; the epoch of the report is information only."""
    d = Draft(cfg, s)
    head = s.heads[cfg.agents[t]]
    d.calls[cfg.call(t, k)] = call._replace(reports=call.reports - 1)
    is_old = not cfg.rules.report_by_call and call.wait == OPEN and head.turn == t and head.epoch != call.epoch
    if is_old or (call.wait == NO_WAIT and s.turns[t].status == ACTIVE):
        d.broken.append("a result is dropped")
    if not is_old:
        d.report(t, k)
    yield d.commit(SYSTEM, f"tool: report(t{t}, k{k})" + ("" if call.wait == OPEN else " -> duplicate"))
    if s.faults[Fault.DUPLICATE] and call.reports < MANY:
        twice = call._replace(reports=call.reports + 1)
        yield change(cfg, s, t, k, twice, Fault.DUPLICATE, f"FAULT: report t{t} k{k} is delivered again")


def change(cfg: Config, s: State, t: int, k: int, to: Call, fault: Fault | None, what: str) -> Step:
    d = Draft(cfg, s)
    d.calls[cfg.call(t, k)] = to
    if fault is None:
        return d.commit(SYSTEM, what)
    d.spend(fault)
    return d.commit(FAULT, what)
