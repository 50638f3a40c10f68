"""The configurations that `make model`, `full` and the tests explore. The ablations are in `ablations.py`."""

from __future__ import annotations

from dataclasses import replace

from model.cases_runs import (
    D1,
    D2,
    D3,
    D3L,
    D4,
    D5,
    D6,
    D7,
    D8,
    P3,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R9L,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
)
from model.cases_turns import (
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C6S,
    C7,
    C7S,
    E1,
    E2,
    E3,
    I1,
    I2,
    P1,
    P2,
    S1,
    S2,
    S3,
    S4,
    S5,
    T1,
    T2,
    U1,
)
from model.configs import Config, faults

TURNS = (C1, C2, C3, C4, C5, E1, E2, E3, I1, I2, S1, S2, S3, S4, S5, U1, P1, P2, T1, T2)
FORKS = (D1, D2, D3, D4, D5, D6, D7, D8, P3)
RUNS = (R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15)
CONFIGS = (*TURNS, C6S, C7S, *FORKS, *RUNS)
FULL = (*TURNS, C6, C7, *FORKS, D3L, *RUNS, R9L)


def small(cfg: Config, what: str, **budget: int) -> Config:
    return replace(cfg, name=f"{cfg.name}q", about=f"as {cfg.name}; {what}", faults=faults(**budget))


QUICK = (
    small(C1, "crash, lost bell, stop, lost reply", crash=1, lose=1, stop=1, amb=1),
    small(C3, "reap, duplicate, silent tool", reap=1, dup=1, silent=1),
    small(replace(C4, recoveries_max=1), "1 crash, 1 reap", crash=1, reap=1),
    small(C5, "crash, duplicate", crash=1, dup=1),
    small(E1, "a result before its call, a forged one", early=1, forge=1),
    small(E3, "no fault"),
    small(I1, "crash", crash=1),
    small(S1, "a graceful stop, an owner that does not look, reap", graceful=1, hang=1, reap=1),
    small(S2, "a graceful stop, a release, a defer", graceful=1, release=1, defer=1),
    small(S3, "no fault"),
    small(S4, "a graceful stop, a defer, a crash", graceful=1, defer=1, crash=1),
    small(S5, "a graceful stop, a crash", graceful=1, crash=1),
    small(U1, "stop", stop=1),
    small(D1, "stop", stop=1),
    small(D5, "a graceful stop", graceful=1),
    small(D7, "no fault"),
    small(R1, "crash, lost reply", crash=1, amb=1),
    small(R2, "2 stops, lost reply", stop=2, amb=1),
    small(R3, "no fault"),
    small(R8, "the run is stopped", stop_run=1),
    small(P1, "silent tool, stop", silent=1, stop=1),
    small(P3, "no fault"),
    small(T1, "no fault"),
    small(T2, "a claim that raises an error", poison=1),
    small(R10, "no fault"),
    small(R11, "no fault"),
    small(R12, "lost reply", amb=1),
    small(R14, "no fault"),
)
