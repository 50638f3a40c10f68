"""Configurations of several turns: runs and their reactions, delegation, the stop of a run."""

from __future__ import annotations

from dataclasses import replace

from model.cases_turns import BOTH, CALL
from model.configs import Config, faults

# Two critics, and an editor that is woken when both have ended (by themselves or by the kernel).
R1 = Config(
    "R1",
    "a run: 2 critics, editor when both are in; crash, lost bell, reap, lost reply",
    agents=(0, 1, 2),
    scripts=((), (), ()),
    starts=(0, 1),
    wakes=((2, 0b011),),
    faults=faults(crash=1, lose=1, reap=1, amb=1),
)
R2 = replace(R1, name="R2", about="as R1; crash, 2 stops, lost reply", faults=faults(crash=1, stop=2, amb=1))
R3 = replace(
    R1,
    name="R3",
    about="as R1, a client joins a turn on the editor's agent; crash, stop",
    agents=(0, 1, 2, 2),
    scripts=((), (), (), ()),
    joins=(3,),
    faults=faults(crash=1, stop=1),
)
R4 = replace(R1, name="R4", about="as R1, no second attempt (a lost lease ends the turn)", recoveries_max=0)
R5 = replace(
    R1,
    name="R5",
    about="as R1, one critic suspends on a call; reap, stop, lost reply",
    scripts=((CALL,), (), ()),
    calls=1,
    faults=faults(reap=1, stop=1, amb=1),
)

R6 = replace(
    R1, name="R6", about="as R1, the run is stopped; crash, lost reply", faults=faults(stop_run=1, crash=1, amb=1)
)
R7 = replace(R3, name="R7", about="as R3, the run is stopped; lost reply", faults=faults(stop_run=1, amb=1))
R8 = Config(
    "R8",
    "a run: a turn delegates, an editor wakes after it; the run is stopped; crash",
    agents=(0, 1, 2),
    scripts=((CALL,), (), ()),
    calls=1,
    starts=(0,),
    wakes=((2, 0b001),),
    children=((0, 0, 1),),
    faults=faults(stop_run=1, crash=1),
)
R9 = replace(
    R8,
    name="R9",
    about="as R8, stopped gracefully; premature reap",
    is_stop_graceful=True,
    faults=faults(stop_run=1, reap=1),
)

# A turn asks a person, in a run that ends meanwhile: at its activation limit, or because its goal is met.
R10 = Config(
    "R10",
    "a run: a turn asks a person, another one reaches the activation limit; crash, reap",
    agents=(0, 1, 2),
    scripts=((CALL,), (), ()),
    calls=1,
    starts=(0, 1),
    wakes=((2, 0b010),),
    human_calls=((0, 0),),
    activations_max=2,
    faults=faults(crash=1, reap=1),
)
R11 = replace(
    R10, name="R11", about="as R10, the other one meets the run's goal; crash, reap", activations_max=0, goal=0b010
)
R12 = replace(R1, name="R12", about="as R1, a finish claims the next turn; crash, reap, lost reply", claims_next=True,
              faults=faults(crash=1, reap=1, amb=1))  # fmt: skip
# Three critics; the endings of two of them may be one call.
R13 = Config(
    "R13",
    "a run: 3 critics, editor when all are in; a call may end two turns; crash, lost reply",
    agents=(0, 1, 2, 3),
    scripts=((), (), (), ()),
    workers=3,
    starts=(0, 1, 2),
    wakes=((3, 0b111),),
    ends_together=True,
    faults=faults(crash=1, amb=1),
)

# A session: its first message, one that a client sends while another one may close it, a recorder that each first reply wakes,
# and a summary that the close wakes.
R14 = Config(
    "R14",
    "a session: 2 messages, a recorder of the first reply, a summary at the close; crash, lost reply",
    agents=(0, 0, 1, 2),
    scripts=((), (), (), ()),
    starts=(0,),
    joins=(1,),
    wakes=((2, 0b00001), (3, 0b10000)),
    is_session=True,
    faults=faults(crash=1, amb=1),
)
R15 = replace(R14, name="R15", about="as R14; the run is stopped", faults=faults(stop_run=1))

# Delegation: a turn and two children on agents of their own; a child, and its child; a child beside a tool.
D1 = Config(
    "D1",
    "a turn joins 2 children; crash, reap, stop, lost reply",
    (0, 1, 2),
    ((BOTH,), (), ()),
    calls=2,
    children=((0, 0, 1), (0, 1, 2)),
    faults=faults(crash=1, reap=1, stop=1, amb=1),
)
D2 = replace(
    D1, name="D2", about="as D1, no second attempt; reap, stop", recoveries_max=0, faults=faults(reap=1, stop=1)
)
D3 = replace(
    D1,
    name="D3",
    about="as D1, all stops graceful; crash, report row twice",
    is_stop_graceful=True,
    faults=faults(crash=1, graceful=1, dup=1),
)
D4 = Config(
    "D4",
    "a turn, its child, its grandchild; crash, stop",
    (0, 1, 2),
    ((CALL,), (CALL,), ()),
    calls=1,
    children=((0, 0, 1), (1, 0, 2)),
    faults=faults(crash=1, stop=1),
)
D5 = replace(
    D4, name="D5", about="as D4, all stops graceful; reap", is_stop_graceful=True, faults=faults(reap=1, graceful=1)
)
D6 = replace(
    D1,
    name="D6",
    about="as D1, one result is enough (streaming join); graceful stop, stop",
    is_streaming=True,
    is_any=True,
    faults=faults(graceful=1, stop=1),
)
D7 = replace(
    D1,
    name="D7",
    about="as D1, the children's waits have deadlines; crash, report row twice",
    is_child_timed=True,
    faults=faults(crash=1, dup=1),
)
D8 = Config(
    "D8",
    "a turn joins a child and a tool; every fault of tools, crash, stop, lost reply",
    (0, 1),
    ((BOTH,), ()),
    calls=2,
    children=((0, 0, 1),),
    faults=faults(crash=1, stop=1, dup=1, silent=1, amb=1),
)
P3 = replace(
    D4,
    name="P3",
    about="as D4, the grandchild asks a person; crash",
    scripts=((CALL,),) * 3,
    human_calls=((2, 0),),
    faults=faults(crash=1),
)
# Against K34: two turns delegate to each other's agents.
D0 = Config(
    "D0",
    "2 turns, each delegates to the agent of the other",
    (0, 1, 1, 0),
    ((CALL,), (CALL,), (), ()),
    calls=1,
    children=((0, 0, 2), (1, 0, 3)),
)

# Larger budgets, for `full`.
D3L = replace(
    D3, name="D3l", about="as D3; crash, reap, report row twice", faults=faults(crash=1, reap=1, graceful=1, dup=1)
)
R9L = replace(R9, name="R9l", about="as R9; crash, reap", faults=faults(stop_run=1, crash=1, reap=1))
