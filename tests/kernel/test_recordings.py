"""What a commit of a recorded run keeps beside its signals: it is bounded, checked, and read in bounded pages."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Item, Kernel, draft, ending, run_item, turn_item
from tests.kernel.waits import begin

BYTES_MAX = 64 * 1024 * 1024


async def recorded(kernel: Kernel, after: int = 0, limit: int = 100, most: int = 1_000_000) -> list[Any]:
    return await kernel.connection.fetch(
        "select * from heliograph.read_recorded($1, 'run_a', $2, $3, $4)", kernel.project, after, limit, most
    )


async def owned(kernel: Kernel) -> Item:
    """A claimed turn of a run that is recorded."""
    begun = run_item("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.call("start_runs", [{**begun, "recording": {"body": "start", "name": "n", "tags": ["b", "a"]}}])
    return await kernel.claim_one()


async def test_each_commit_of_signals_keeps_what_was_recorded_before_it(kernel: Kernel) -> None:
    claimed = await owned(kernel)
    noted = turn_item(claimed, draft("note", claimed["activation_id"]), recording={"body": "note \u2713"})
    [first] = await kernel.call("append", [{**noted, "signals_emitted": 0}])
    await kernel.call("append", [{**noted, "signals_emitted": 0, "recording": {"body": "again"}}])
    await kernel.call("append", [turn_item(claimed, recording={"body": "without signals"})])
    await begin(kernel, claimed, "c1", "pure")
    await kernel.call("record_call", [turn_item(claimed, draft("done", claimed["activation_id"]), call_id="c1", status="success",
                                                result=1, signals_emitted=1, recording={"body": "call"})])  # fmt: skip
    await kernel.call("finish", [{**ending(claimed, ends="success"), "recording": "end"}])
    found = await recorded(kernel)
    assert [row["body"] for row in found] == ["start", "note \u2713", "call", "end"]
    assert (found[1]["seq"], found[1]["count"], found[1]["turn_id"]) == (first["first_seq"], 1, "turn_a")
    assert [row["body"] for row in await recorded(kernel, after=found[1]["seq"], limit=1)] == ["call"]
    assert [row["body"] for row in await recorded(kernel, most=11)] == ["start"]
    assert [row["body"] for row in await recorded(kernel, most=0)] == ["start"], "one row, however large it is"
    [named] = await kernel.connection.fetch(
        "select * from heliograph.recording_overview where project_id = $1", kernel.project
    )
    assert (named["run_id"], named["name"], named["tags"]) == ("run_a", "n", ["a", "b"])


async def test_runs_keep_the_names_and_the_tags_of_their_recordings(kernel: Kernel) -> None:
    recordings = [{"tags": None, "name": None}, None, {"body": "b"}, {"tags": ["b", "a"], "name": "n"}]
    ended = {"signals": [draft("workflow:start"), draft("workflow:end", 0)],
             "reaction": {"state": {}, "memory": {}, "status": "ended", "outcome": "success"}}  # fmt: skip
    runs = [run_item(f"run_{n}", [], {}) | ended | {"recording": given} for n, given in enumerate(recordings)]
    await kernel.call("start_runs", [*runs, run_item("run_4", [], {}) | ended])
    await kernel.call("start_runs", [runs[1] | {"recording": {"name": "too late"}}])
    found = await kernel.rows("runs", "run_id, recording_name, recording_tags")
    assert [tuple(row) for row in found] == [
        ("run_0", None, []),
        ("run_1", None, None),
        ("run_2", None, []),
        ("run_3", "n", ["a", "b"]),
        ("run_4", None, None),
    ]
    with pytest.raises(asyncpg.CheckViolationError, match="recording_name_check"):
        await kernel.call("start_runs", [runs[0] | {"run_id": "run_5", "recording": {"name": "x" * 201}}])


@pytest.mark.parametrize(
    "tags", [[None], ["a", 1], [["a"]], [""], ["x" * 201], ["a"] * 51], ids=lambda tags: str(tags)[:12]
)
async def test_tag_that_no_reader_decodes_is_rejected(kernel: Kernel, tags: list[Any]) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="tags must have at most 50 texts"):
        await kernel.call("start_runs", [run_item("run_a", [], {}) | {"recording": {"tags": tags}}])
    assert await kernel.rows("runs") == []


async def test_tag_that_an_earlier_version_stored_as_null_is_omitted(kernel: Kernel) -> None:
    await owned(kernel)
    await kernel.connection.execute(
        "update heliograph.runs set recording_tags = '{NULL,a}' where project_id = $1", kernel.project
    )
    [named] = await kernel.rows("recording_overview", "tags")
    assert named["tags"] == ["a"]


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        ("text", "recording has the type object"),
        ({"body": 1}, "body has the type string"),
        ({"body": "x", "part": "start"}, "unknown key"),
        ({"body": "x", "tags": "a"}, "tags has the type array"),
    ],
)
async def test_wrong_recording_is_rejected_by_each_function(kernel: Kernel, recording: Any, message: str) -> None:
    claimed = await owned(kernel)
    for function, item in (
        ("append", turn_item(claimed)),
        ("record_call", turn_item(claimed, call_id="c1", status="success", result=1)),
        ("suspend", turn_item(claimed, calls=[])),
    ):
        with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
            await kernel.call(function, [{**item, "recording": recording}])
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await kernel.call("start_runs", [run_item("run_b", [], {}) | {"recording": recording}])


@pytest.mark.parametrize(
    ("recording", "is_usual"),
    [(None, True), ({"body": "x"}, True), ({"body": "x" * 1_000_001}, False), ({"body": 1}, False), ({"body": "x", "tags": []}, False), ("x", False)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
async def test_start_of_a_recorded_run_takes_the_short_check(kernel: Kernel, recording: Any, is_usual: bool) -> None:
    usual = run_item("run_a", ["ann"], {}) | {"reaction": {"state": {}, "memory": {}, "activations": []}}
    query = "select heliograph._is_usual_run(jsonb_populate_record(null::heliograph.new_run, $1))"
    run = usual if recording is None else usual | {"recording": recording}
    assert bool(await kernel.connection.fetchval(query, run)) is is_usual


@pytest.mark.more  # sends two recordings of the largest size
async def test_recording_of_one_commit_is_bounded(kernel: Kernel) -> None:
    claimed = await owned(kernel)
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"has {BYTES_MAX + 1} bytes; at most {BYTES_MAX} are"):
        await kernel.call("append", [turn_item(claimed, recording={"body": "x" * (BYTES_MAX + 1)})])
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"has {BYTES_MAX + 1} bytes; at most {BYTES_MAX} are"):
        await kernel.call("finish", [{**ending(claimed), "recording": "x" * (BYTES_MAX + 1)}])
    assert [row["body"] for row in await recorded(kernel)] == ["start"]
