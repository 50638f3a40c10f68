"""Configurations of single turns: calls of every kind, early results, graceful stops, deferrals, releases, ui_actions."""

from __future__ import annotations

from dataclasses import replace

from model.configs import Await, Config, Inline, faults

CALL, SECOND, BOTH, THREE, INLINE = Await((0,)), Await((1,)), Await((0, 1)), Await((0, 1, 2)), Inline((0,))
EACH = faults(crash=1, lose=1, dup=1, reap=1, stop=1, amb=1, silent=1)

C1 = Config("C1", "2 turns (call; none), every fault once", (0, 0), ((CALL,), ()), calls=1, faults=EACH)
C2 = Config("C2", "1 turn, 2 parallel calls, every fault once", (0,), ((BOTH,),), calls=2, faults=EACH)
C3 = Config("C3", "1 turn, 2 calls in sequence, every fault once", (0,), ((CALL, SECOND),), calls=2, faults=EACH)
C4 = Config(
    "C4",
    "2 turns, an inline effect; 2 crashes, 2 premature reaps",
    (0, 0),
    ((INLINE,), ()),
    calls=1,
    recoveries_max=2,
    faults=faults(crash=2, lose=1, reap=2, stop=1, amb=1),
)
C5 = replace(C2, name="C5", about="as C2, resumed by each result (streaming join)", is_streaming=True)
C6 = Config(
    "C6",
    "2 agents, 3 turns (call; none | call), crash, lost bell, reap, stop",
    (0, 0, 1),
    ((CALL,), (), (CALL,)),
    calls=1,
    faults=faults(crash=1, lose=1, reap=1, stop=1),
)
C7 = Config(
    "C7",
    "3 turns (call; inline; none), 2 crashes, 2 reaps, other faults once",
    (0, 0, 0),
    ((CALL,), (INLINE,), ()),
    calls=1,
    recoveries_max=2,
    faults=faults(crash=2, dup=1, reap=2, amb=1, silent=1),
)
# Results that come before their call is open, with join all and with streaming join; three results, one by one.
E1 = replace(
    C3,
    name="E1",
    about="as C3, a result before its call, a forged one",
    faults=faults(early=1, forge=1, crash=1, reap=1, amb=1),
)
E2 = replace(
    C5,
    name="E2",
    about="as C5, a result before its call, a forged one",
    faults=faults(early=1, forge=1, crash=1, amb=1),
)
E3 = Config(
    "E3",
    "1 turn, 3 parallel calls, resumed by each; early result, crash",
    (0,),
    ((THREE,),),
    calls=3,
    is_streaming=True,
    faults=faults(early=1, crash=1),
)
# A new owner that does not come back to an inline call, and suspends on another one.
I1 = Config(
    "I1",
    "an inline effect left open, then a call; crash, reap, lost reply",
    (0,),
    ((INLINE, SECOND),),
    calls=2,
    is_fickle=True,
    faults=faults(crash=1, reap=1, amb=1),
)
# The result of an inline call and the intent of the next one, in one commit or in two.
I2 = Config(
    "I2",
    "2 inline effects, one after the other; 2 crashes, a reap, a stop, a release, lost reply",
    (0,),
    ((INLINE, Inline((1,))),),
    calls=2,
    recoveries_max=2,
    faults=faults(crash=2, reap=1, stop=1, release=1, amb=1),
)

# Graceful stops, and the ways in which a running turn goes back.
S1 = replace(
    C1,
    name="S1",
    about="as C1, a graceful stop, an owner that does not look; crash, reap, lost reply",
    faults=faults(graceful=1, hang=1, crash=1, reap=1, amb=1),
)
S2 = replace(
    C1,
    name="S2",
    about="as C1, 2 deferrals (cap 1), a release, a graceful stop; crash, lost reply",
    faults=faults(graceful=1, defer=2, release=1, crash=1, amb=1),
)
S3 = replace(
    C1,
    name="S3",
    about="as C1, owners can only defer, a graceful stop; crash, lost reply",
    is_down=True,
    faults=faults(graceful=1, crash=1, amb=1),
)
S4 = replace(
    C1,
    name="S4",
    about="as C1, a turn that terminates, a graceful stop, a deferral, a release; crash, reap, lost reply",
    terminates=True,
    faults=faults(graceful=1, defer=1, release=1, crash=1, reap=1, amb=1),
)
S5 = replace(
    I1,
    name="S5",
    about="a turn that terminates records a phase, then a call; a graceful stop, a release; crash, reap, lost reply",
    is_fickle=False,
    terminates=True,
    faults=faults(graceful=1, release=1, crash=1, reap=1, amb=1),
)
U1 = Config(
    "U1",
    "a turn (call), 2 ui_actions on its agent; crash, stop, lost bell, lost reply",
    (0, 0, 0),
    ((CALL,), (), ()),
    calls=1,
    actions=(1, 2),
    faults=faults(crash=1, stop=1, lose=1, amb=1),
)

# Turns that ask people: beside a tool, with join all and with streaming join.
P1 = Config(
    "P1",
    "a turn asks a person and calls a tool; crash, stop, silent tool, lost reply",
    (0,),
    ((BOTH,),),
    calls=2,
    human_calls=((0, 0),),
    faults=faults(crash=1, stop=1, silent=1, amb=1),
)
P2 = replace(P1, name="P2", about="as P1, resumed by each result (streaming join)", is_streaming=True)

# Turns that no worker claims: in time, or at all.
T1 = replace(
    C1,
    name="T1",
    about="as C1, turns that are not claimed in time end; crash, lost bell",
    is_dispatch_timed=True,
    faults=faults(crash=1, lose=1),
)
T2 = replace(
    C1,
    name="T2",
    about="as C1, the claim of a turn raises an error; crash, stop, lost reply",
    faults=faults(poison=1, crash=1, stop=1, amb=1),
)

# C6 and C7 with smaller budgets: the long ones have millions of states between them.
C6S = replace(C6, name="C6s", about="as C6; crash, stop", faults=faults(crash=1, stop=1))
C7S = replace(C7, name="C7s", about="as C7; 2 crashes, 1 reap, lost reply", faults=faults(crash=2, reap=1, amb=1))
