"""Rules of the kernel taken out of a database, one at a time: chaos that finds none of them has shown nothing.

A mutant is a few replacements in the texts of installed functions. The texts are asked of the database and every
replacement has to fit exactly once, so that a mutant whose rule is written differently by now is an error and not a
silent pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """In this function, `new` in place of `old`."""

    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """rule: what is taken out. caught_by: a part of the violation that has to tell of it."""

    rule: str
    caught_by: str
    edits: Sequence[Edit]


_GATE = "and x.turn_epoch = {} offset 0) h on true"
_UNGATED = "offset 0) h on true"

MUTANTS: Mapping[str, Mutant] = {
    "no_epoch_gate": Mutant(
        "K1 K2 K3 K13: the owner gate compares the epoch",
        "former owner",  # a zombie delivers while the next owner runs
        (
            Edit("_owns", "and turn_epoch = p_epoch", ""),
            Edit("finish", _GATE.format("(i.item ->> 'epoch')::bigint"), _UNGATED),
            Edit("suspend", _GATE.format("i.epoch"), _UNGATED),
            Edit("begin_call", _GATE.format("(i.item ->> 'epoch')::bigint"), _UNGATED),
        ),
    ),
    "blind_retry": Mutant(
        "K14: what may have happened once is not done again by the next owner",
        "an effect happened twice",
        (
            Edit("claim", "'attempts', t.attempts", "'attempts', 0"),
            Edit("begin_call", """else '{"outcome": "in_doubt"}' end""", """else '{"outcome": "again"}' end"""),
        ),
    ),
    "told_once": Mutant(
        "K18: a command is delivered again until its call is resolved",
        "have not ended",  # whoever lost its command waits until the call times out
        (
            Edit(
                "mark_published",
                "published_at = case when o.kind = 'cmd' then null else p_now end",
                "published_at = p_now",
            ),
        ),
    ),
}


async def apply(connection: Any, mutant: Mutant) -> None:
    """Raises ValueError when a function does not read as it did when the mutant was written."""
    for edit in mutant.edits:
        await _apply(connection, edit)


async def _apply(connection: Any, edit: Edit) -> None:
    definitions = await connection.fetch(
        "select pg_get_functiondef(oid) as text from pg_proc "
        "where pronamespace = 'heliograph'::regnamespace and proname = $1",
        edit.function,
    )
    pattern = re.compile(r"\s+".join(re.escape(word) for word in edit.old.split()))  # however it is broken into lines
    fits = [len(pattern.findall(row["text"])) for row in definitions]
    if fits != [1]:
        raise ValueError(
            f"in heliograph.{edit.function} this stands {fits or 'nowhere, for there is no such function'}, and not [1] "
            f"time: {edit.old!r}; the kernel was rewritten, so write the mutant anew"
        )
    await connection.execute(pattern.sub(lambda _match: edit.new, definitions[0]["text"]))
