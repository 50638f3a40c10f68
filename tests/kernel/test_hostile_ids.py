"""Every function treats every id as data, even one that contains SQL (S3): the functions are read from the catalog.

test_nonsense.py leads strange ids through the life of a turn; this goes where the others are.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.grids import mostly_more
from tests.kernel.filled import fill
from tests.kernel.foreign_calls import Known, functions, known
from tests.kernel.kit import Kernel, as_id
from tests.kernel.test_tenancy import fitted
from tests.kernel.waits import TOKEN, command, report, status, suspended

HOSTILE = [
    "'; drop schema heliograph cascade; --", "$1 %s %(x)s {} {0}", '{"a": [1]}', '"', "\\', E'\\x41'", "null", "*", "a\nb\tc\x7f", "-1",
    "$$; select 1; $$", "'||(select current_user)||'", "ünïcode \U0001f600\u202e", "box", "..\\..", "١٢", "i" * 150,
]  # fmt: skip
# Nothing that a page could be made to hold by compressing it.
LONG = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=6000))
# The expected errors: data exceptions and broken constraints. Never a syntax error or an unknown name.
REJECTIONS = ("22", "23")


def named(value: Any, text: str) -> Any:
    """The same arguments with every text replaced, except the values of enumerations."""
    if isinstance(value, dict):
        return {key: value[key] if key in CHOICES else named(value[key], text) for key in value}
    if isinstance(value, list):
        return [named(each, text) for each in value]
    return text if isinstance(value, str) else value


CHOICES = ("status", "mode", "outcome", "phase", "kind", "effect", "join", "after_execution", "message_type")


def check_rejection(name: str, error: asyncpg.PostgresError) -> None:
    """Check that a function raises an error about its arguments, and never an internal one."""
    assert str(error.sqlstate).startswith(REJECTIONS), (name, error)


@pytest.mark.proves("S3")
@pytest.mark.parametrize("text", mostly_more(HOSTILE, {0, 1, 7, 11}), ids=range(len(HOSTILE)))
async def test_every_function_treats_any_text_as_data(kernel: Kernel, text: str) -> None:
    await fill(kernel)
    before = await kernel.everything()
    ids = await known(kernel, TOKEN, 10_000.0)
    project = f"{kernel.project} {text}"
    for function in await functions(kernel.connection):
        hostile = Known(named(ids.items[:3], text), [text], [text], ids.at)
        for arguments in function.tries(project, hostile):
            try:
                await kernel.connection.fetch(function.call(), *fitted(function, arguments))
            except asyncpg.PostgresError as error:
                check_rejection(function.name, error)
    assert await kernel.everything() == before


@pytest.mark.proves("S3")
@pytest.mark.parametrize("text", mostly_more(HOSTILE, {0, 1, 7, 11}), ids=range(len(HOSTILE)))
async def test_calls_boxes_and_stops_return_any_text_unchanged(kernel: Kernel, text: str) -> None:
    kernel.project = f"{kernel.project} {text}"
    await kernel.call("declare_wire", "postgres")
    named = as_id(text)
    run, turn, call, box = f"run {named}", f"turn {named}", f"call {named}", f"context {named}"
    call_with = command(call, subject=f"cmd.{text}", step_id=text) | {"tool": text}
    await suspended(kernel, call_with, command("c2"), run_id=run, turn_id=turn)
    (waiting,) = await kernel.rows("wait_overview", "turn_id, call_id, tool, step_id", "call_id = $2", call)
    assert tuple(waiting) == (turn, call, text, text)
    (taken,) = await kernel.call("take_commands", [text], 10, 0.0)
    assert (taken["turn_id"], taken["call_id"], taken["tool"], taken["body"]["token"]) == (turn, call, text, TOKEN)
    answered = await report(kernel, turn, call, {text: text}, token=TOKEN, actor=text)
    assert answered["outcome"] == "applied"
    assert (await report(kernel, turn, call, text, token=text))["outcome"] == "bad_token"
    cards = [{"card_id": f"card {named}", "kind": text, "content": {text: [text]}}]
    assert (await kernel.call("put_boxes", [{"box_id": box, "cards": cards}]))[0]["outcome"] == "put"
    fork = {"box_id": f"fork {named}", "base_box_id": box}
    assert (await kernel.call("fork_boxes", [fork]))[0]["outcome"] == "forked"
    (card,) = await kernel.call("read_box", fork["box_id"], 0, 10)
    assert (card["card_id"], card["kind"], card["content"]) == (f"card {named}", text, {text: [text]})
    assert await status(kernel, f"{run}/writer") == "suspended"
    assert (await kernel.stop(turn, reason=text, actor=text))["outcome"] == "stopped"
    (noted,) = await kernel.rows("inbox_overview", "actor, inbox_id", "message_type = 'stop'")
    assert noted["actor"] == text
    kernel.wait(1)
    assert (await kernel.call("prune", kernel.now - timedelta(seconds=0.5), 10))[
        "turns"
    ] == 0  # its event is not published


@pytest.mark.proves("S3", "S11")
async def test_nul_is_rejected_by_every_function_with_a_message(kernel: Kernel) -> None:
    """22021 for a parameter that is text, 22P05 for a text within JSON."""
    await fill(kernel)
    before = await kernel.everything()
    ids = await known(kernel, TOKEN, 10_000.0)
    for function in await functions(kernel.connection):
        nul = Known(named(ids.items[:1], "a\0b"), ["a\0b"], ["a\0b"], ids.at)
        arguments = fitted(function, next(function.tries(kernel.project, nul)))
        takes_any = [
            n for n, (name, kind) in enumerate(function.parameters) if kind in ("text", "jsonb") and name != "p_project"
        ]
        for n in takes_any:
            given = [*arguments]
            given[n] = "a\0b" if function.parameters[n][1] == "text" else ["a\0b", {"a\0b": "a\0b"}]
            with pytest.raises((asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)):
                await kernel.connection.fetch(function.call(), *given)
    assert await kernel.everything() == before


@pytest.mark.more
@pytest.mark.proves("S11")
@pytest.mark.parametrize("field", mostly_more([
    "turn_id", "run_id", "call_id", "box_id", "card_id", "agent", "instance", "context_box_id", "base_box_id", "cause", "actor",
    "name", "tool", "target", "parent_turn_id", "step_id", "kind",
], range(4)))  # fmt: skip
async def test_id_too_long_for_a_key_is_rejected_and_writes_nothing(kernel: Kernel, field: str) -> None:
    """Never with PostgreSQL's own error for an index row that is too large (54000)."""
    await fill(kernel)
    ids = await known(kernel, TOKEN, 10_000.0)
    before = await kernel.everything()
    for function in await functions(kernel.connection):
        long = [{**item, field: LONG, "calls": [{**call, field: LONG} for call in item["calls"]],
                 "cards": [{**card, field: LONG} for card in item["cards"]]} for item in ids.items]  # fmt: skip
        short = function.tries(kernel.project, Known(ids.items, [LONG], [LONG], kernel.now))
        for arguments, same in zip(
            function.tries(kernel.project, Known(long, [LONG], [LONG], kernel.now)), short, strict=True
        ):
            if arguments == same and field != "turn_id":
                continue  # this field occurs in no argument, and the test of the turn makes the same call
            undone = kernel.connection.transaction()
            await undone.start()
            try:
                await kernel.connection.fetch(function.call(), *fitted(function, arguments))
            except asyncpg.PostgresError as error:
                check_rejection(function.name, error)
            finally:
                await undone.rollback()
    assert await kernel.everything() == before
