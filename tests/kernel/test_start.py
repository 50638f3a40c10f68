from __future__ import annotations

from datetime import datetime

import asyncpg
import pytest

from tests.kernel.kit import START, TARGET, Kernel, activation, draft, run_item


@pytest.mark.proves("L0-43", "K8")
async def test_start_dispatches_woken_agents_and_keeps_the_others_idle(kernel: Kernel) -> None:
    answer = await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer"})
    assert answer == {"run_id": "run_a", "outcome": "started", "targets": [TARGET], "woken": ["run_a/writer"]}
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["active_agent_turn_id"], head["turn_epoch"]) == ("dispatched", "turn_1", 1)
    assert (head["activation_seq"], head["ready_at"]) == (2, START)
    assert (await kernel.head("run_a/critic"))["status"] == "idle"


@pytest.mark.proves("L0-10")
async def test_run_without_activations_has_only_idle_agents(kernel: Kernel) -> None:
    item = run_item("run_a", ["writer"], {})
    item["signals"].append(draft("workflow:end", 0))
    item["reaction"] |= {"status": "ended", "outcome": "success"}
    (answer,) = await kernel.call("start_runs", [item])
    assert answer["targets"] == []
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["active_agent_turn_id"], head["turn_epoch"]) == ("idle", None, 0)


@pytest.mark.proves("SIG-10", "SIG-11", "SIG-12", "SIG-13", "SIG-14", "SIG-15", "SIG-16", "SIG-60")
async def test_log_begins_with_the_root_and_the_activation_names_its_cause(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    root, activated = await kernel.rows("signal_log", "seq, id, name, payload, timestamp, agent, parent")
    assert dict(root) == {"seq": 1, "id": "sig_run_a_1", "name": "workflow:start", "payload": {"state": {}},
                          "timestamp": START, "agent": None, "parent": None}  # fmt: skip
    assert (activated["id"], activated["agent"], activated["parent"]) == ("sig_run_a_2", "writer", "sig_run_a_1")


@pytest.mark.proves("L0-30", "L0-31", "L0-33", "L0-36")
async def test_each_woken_turn_has_an_inbox_row_by_pointer_and_an_edge(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer", "turn_2": "writer"})
    first, second = await kernel.rows("agent_inbox")
    assert (first["status"], first["turn_epoch"]) == ("pending", 1)
    assert (second["status"], second["turn_epoch"]) == ("queued", None)
    shown = await kernel.rows("inbox_overview", "correlation_id")
    assert [row["correlation_id"] for row in shown] == ["sig_run_a_1"] * 2
    assert {row["correlation_id"] for row in (first, second)} == {None}  # the turn has it
    edges = await kernel.rows("edge_overview", "turn_id, primitive, edge_phase, turn_id, cause_id")
    assert [tuple(edge)[1:] for edge in edges] == [
        ("enqueue", "request", "turn_1", "sig_run_a_1"),
        ("enqueue", "request", "turn_2", "sig_run_a_1"),
    ]


async def test_repeated_start_is_a_duplicate_and_changes_nothing(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    before = await kernel.everything()
    kernel.wait(5)
    again = await kernel.start("run_a", ["writer"], {"turn_2": "writer"})
    assert again == {"run_id": "run_a", "outcome": "duplicate", "targets": []}
    assert await kernel.everything() == before


async def test_value_that_a_unique_index_of_an_operator_has_already_is_an_error(kernel: Kernel) -> None:
    """Only a run that another caller creates at the same moment is tried again: the call would never end."""
    first, second = (
        run_item(name, ["writer"], {f"turn_{name}": "writer"}) | {"callback_url": "https://a.example/end"}
        for name in ("run_a", "run_b")
    )
    where = f"where project_id = '{kernel.project}'"
    await kernel.connection.execute(f"create unique index mine on heliograph.runs (callback_url) {where}")
    try:
        await kernel.connection.execute("set statement_timeout = '5s'")
        await kernel.call("start_runs", [first])
        with pytest.raises(asyncpg.UniqueViolationError, match="mine"):
            await kernel.call("start_runs", [second])
        (answer,) = await kernel.call("start_runs", [first])
    finally:  # other tests share the database
        await kernel.connection.execute("reset statement_timeout; drop index heliograph.mine")
    assert answer["outcome"] == "duplicate"
    assert [row["run_id"] for row in await kernel.rows("runs", "run_id")] == ["run_a"]


async def test_run_id_of_another_request_is_a_conflict(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    before = await kernel.everything()
    (answer,) = await kernel.call("start_runs", [run_item("run_a", ["writer"], {}) | {"request_hash": "another"}])
    assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


async def test_same_id_twice_in_one_call_is_a_start_and_a_duplicate(kernel: Kernel) -> None:
    items = [run_item("run_b", ["writer"], {"turn_b": "writer"}), run_item("run_a", ["writer"], {"turn_a": "writer"})]
    answers = await kernel.call("start_runs", [*items, items[0]])
    assert [(each["run_id"], each["outcome"]) for each in answers] == [
        ("run_b", "started"),
        ("run_a", "started"),
        ("run_b", "duplicate"),
    ]


@pytest.mark.parametrize("code", ["23503"])
async def test_start_that_wakes_an_unknown_agent_creates_no_run(kernel: Kernel, code: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as raised:
        await kernel.start("run_a", ["writer"], {"turn_1": "nobody"})
    assert raised.value.sqlstate == code
    assert await kernel.rows("runs") == []


@pytest.mark.parametrize(
    "limits",
    [
        {"priority": 4}, {"priority": -1}, {"max_attempts": 0}, {"max_attempts": None}, {"ttl_seconds": 0},
        {"ttl_seconds": -1}, {"ttl_seconds": "NaN"}, {"ttl_seconds": "inf"}, {"ttl_seconds": None},
    ],
    ids=str,
)  # fmt: skip
async def test_turn_with_impossible_limits_is_rejected(kernel: Kernel, limits: dict[str, object]) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=next(iter(limits))):
        await kernel.start("run_a", ["writer"], {"turn_1": "writer"}, **limits)


async def test_rejected_run_rolls_back_its_whole_call(kernel: Kernel) -> None:
    items = [run_item("run_a", ["writer"], {"turn_a": "writer"}), run_item("run_b", ["writer"], {"turn_b": "nobody"})]
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await kernel.call("start_runs", items)
    assert await kernel.rows("runs") == []


async def test_used_turn_id_is_rejected(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    with pytest.raises(asyncpg.UniqueViolationError):
        await kernel.start("run_b", ["writer"], {"turn_1": "writer"})


@pytest.mark.proves("SIG-16", "SIG-61")
async def test_run_whose_second_signal_has_no_parent_is_rejected(kernel: Kernel) -> None:
    orphan = run_item("run_a", ["writer"], {"turn_1": "writer"})
    orphan["signals"][1]["parent"] = None
    (answer,) = await kernel.call("start_runs", [orphan])
    assert (answer["outcome"], answer["code"]) == ("rejected", "invalid_signal")
    assert await kernel.rows("runs") == []


@pytest.mark.proves("K26")
async def test_run_cannot_end_while_a_turn_that_it_wakes_is_open(kernel: Kernel) -> None:
    item = run_item("run_a", ["writer"], {"turn_1": "writer"})
    item["reaction"] |= {"status": "ended", "outcome": "success"}
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.call("start_runs", [item])


@pytest.mark.parametrize("at", ["2029-12-31T23:00:00+01:00", 1_893_448_800_000_000])
async def test_signal_keeps_the_time_of_its_source(kernel: Kernel, at: str | int) -> None:
    item = run_item("run_a", ["writer"], {"turn_1": "writer"})
    item["signals"][0]["at"] = at
    item["reaction"]["activations"] = [activation("writer", "turn_1", 1)]
    await kernel.call("start_runs", [item])
    timestamps = [row["timestamp"].isoformat() for row in await kernel.rows("signal_log", "seq, timestamp")]
    assert timestamps == ["2029-12-31T22:00:00+00:00"] * 2  # the second has no time of its own


AT = 1_893_448_800_000_000
EARLIER = "2029-12-31T22:00:00+00:00"


@pytest.mark.parametrize(
    ("first", "at", "expected"),
    [
        ({"at": AT}, {}, EARLIER), ({"at": AT}, {"at": None}, START.isoformat()), ({"at": AT}, {"at": 5}, "2029-12-31T22:00:00.000005+00:00"),
        ({"at": AT}, {"at": -1_000_000}, "2029-12-31T21:59:59+00:00"), ({"at": AT}, {"at": AT + 1}, "2029-12-31T22:00:00.000001+00:00"),
        ({"at": EARLIER}, {"at": 1.5e6}, "2029-12-31T22:00:01.500000+00:00"), ({}, {"at": 5}, START.isoformat()), ({}, {}, START.isoformat()),
        ({"at": 7}, {"at": 5}, "1970-01-01T00:00:00.000012+00:00"), ({"at": AT}, {"at": "soon"}, START.isoformat()),
    ],
)  # fmt: skip
async def test_time_of_a_later_signal_counts_from_the_first_of_its_commit(
    kernel: Kernel, first: dict[str, object], at: dict[str, object], expected: str
) -> None:
    item = run_item("run_a", ["writer"], {"turn_1": "writer"})
    item["signals"][0] |= first
    item["signals"][1] |= at
    await kernel.call("start_runs", [item])
    [row] = await kernel.rows("signal_log", "timestamp", "seq = 2")
    tree = await kernel.connection.fetchval("select heliograph.read_tree($1, 'run_a', 0, 10)", kernel.project)
    causes = await kernel.connection.fetchval("select heliograph.why($1, 'sig_run_a_2', 10)", kernel.project)
    effects = await kernel.connection.fetchval("select heliograph.read_tree($1, 'sig_run_a_1', 0, 10)", kernel.project)
    shown = [tree["signals"][1], causes["chain"][0], effects["signals"][1]]
    read = [datetime.fromisoformat(each["timestamp"]) for each in shown]
    assert [row["timestamp"], *read] == [datetime.fromisoformat(expected)] * 4


async def test_parent_may_be_the_position_of_an_earlier_signal_of_the_run(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for parent in ("3", "0", "01", "-1", "9" * 30):
        answer = await kernel.append(claimed, draft("note", parent))
        assert (answer["outcome"], answer["code"]) == ("rejected", "invalid_signal")
    assert (await kernel.append(claimed, draft("a", "2"), draft("b", 0), draft("c", "1")))["outcome"] == "ok"
    parents = [row["parent"] for row in await kernel.rows("signal_log", "seq, parent")]
    assert parents == [None, "sig_run_a_1", "sig_run_a_2", "sig_run_a_3", "sig_run_a_1"]


async def test_run_of_an_earlier_version_is_known_by_its_whole_hash(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    assert len((await kernel.run("run_a"))["request_hash"]) == 22
    await kernel.connection.execute(
        "update heliograph.runs set request_hash = 'hash of run_a' where project_id = $1", kernel.project
    )
    assert (await kernel.start("run_a", ["writer"], {"turn_a": "writer"}))["outcome"] == "duplicate"
    await kernel.connection.execute(
        "update heliograph.runs set request_hash = 'another' where project_id = $1", kernel.project
    )
    assert (await kernel.start("run_a", ["writer"], {"turn_a": "writer"}))["outcome"] == "conflict"
