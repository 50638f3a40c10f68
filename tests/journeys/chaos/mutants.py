"""Mutants for chaos: remove one rule from a database's kernel, to prove that chaos detects its absence.

Most are the simulator's mutants. Chaos adds two: a worse one, and one for which the simulator has no SQL. An edit must
match exactly once. If a rule has been rewritten since, its mutant is an error and does not pass silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.testing.mutants.catalog import MUTANTS as SIMULATED
from heliograph.testing.mutants.install import install_mutant


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of `old` by `new` in one function."""

    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A removed rule. edits: none for a mutant of the simulator."""

    name: str
    rule: str
    edits: Sequence[Edit] = ()


_GATE = "and x.turn_epoch = {} offset 0) h on true"
_UNGATED = "offset 0) h on true"
_OWN = (
    Mutant(
        "no_epoch_gate", "K1 K2 K3 K13",  # the owner gate compares the epoch
        (
            Edit("_owns", "and turn_epoch = p_epoch", ""),
            Edit("_read_endings", _GATE.format("p_epoch[p.n]"), _UNGATED),
            Edit("_read_suspend", _GATE.format("p_epoch[u.n]"), _UNGATED),
            Edit("_judge_begin", _GATE.format("c.epoch"), _UNGATED),
        ),
    ),
    Mutant("once_runs_twice", "K14", (Edit("claim", "t.attempts,", "0 as attempts,"),)),
)  # fmt: skip

MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in (
    *_OWN, *(Mutant(m.name, m.rules) for m in SIMULATED.values() if m.has_sql),
)}  # fmt: skip

# Those that chaos cannot see, and why
UNSEEN: Mapping[str, str] = {
    "no_bell_sweep": "workers look by themselves every 5 s, and whoever waits is late but not wrong",
    "recovery_loses_place": "who is claimed first among those that wait is told by no record, and all are claimed",
    "result_fields_unchecked": "the worker checks the fields before the kernel does",
    "no_dispatch_timeout": "no project of chaos sets dispatch_seconds_max",
    "human_wait_counts": "no turn of chaos waits for people",
    "parent_time_counts": "no turn of chaos waits for people",
    "phase_end_lost": "no agent of chaos has hooks",
    "phase_signals_lost": "no agent of chaos has hooks",
    "limit_leaves_turns": "no run of chaos reaches its max_activations",
    "message_clears_taint": "chaos does not compare the taint of a state with the log",
}


async def apply(connection: Any, mutant: Mutant) -> None:
    """Apply a mutant to a database. Raises ValueError if the kernel's text no longer matches its edits."""
    if not mutant.edits:
        await install_mutant(connection, SIMULATED[mutant.name])
    for edit in mutant.edits:
        await _apply(connection, edit)


async def _apply(connection: Any, edit: Edit) -> None:
    definitions = await connection.fetch(
        "select pg_get_functiondef(oid) as text from pg_proc "
        "where pronamespace = 'heliograph'::regnamespace and proname = $1",
        edit.function,
    )
    pattern = re.compile(r"\s+".join(re.escape(word) for word in edit.old.split()))  # however it is broken into lines
    matches = [len(pattern.findall(row["text"])) for row in definitions]
    if matches != [1]:
        raise ValueError(
            f"in heliograph.{edit.function} this stands {matches or 'nowhere, for there is no such function'}, and not [1] "
            f"time: {edit.old!r}; the kernel was rewritten, so write the mutant anew"
        )
    await connection.execute(pattern.sub(lambda _match: edit.new, definitions[0]["text"]))
