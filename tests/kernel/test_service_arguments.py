"""Arguments of service logins: times near the server's, existing parents, and valid result fields."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from heliograph.definitions.fields import check_fields
from heliograph.errors import InvalidInput
from heliograph.ledger.roles import SERVICES
from tests.grids import every
from tests.kernel.filled import fill
from tests.kernel.foreign_calls import functions, known
from tests.kernel.kit import Item, Kernel, draft, ending, message, run_item, turn_item
from tests.kernel.test_tenancy import fitted
from tests.kernel.waits import TOKEN, command
from tests.logins import connected, login

FAR = [
    "infinity",
    "-infinity",
    "4713-01-01 BC",
    "294276-01-01",
    "now() + interval '25 hours'",
    "now() - interval '25 hours'",
]
MAY = "select p.proname from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and has_function_privilege(p.oid, 'execute')"


@pytest_asyncio.fixture
async def service(kernel: Kernel, shared_url: str) -> AsyncIterator[Kernel]:
    """The project's kernel as a login with all service roles calls it, at the server's time."""
    async with login(shared_url, kernel.project, services=SERVICES) as url, connected(url) as connection:
        yield Kernel(connection, kernel.project, datetime.now(UTC))


@pytest.mark.proves("S26")
@pytest.mark.parametrize("time", every(3, {str(time): time for time in (*FAR, None)}))
async def test_service_cannot_pass_a_time_far_from_that_of_the_server(
    kernel: Kernel, service: Kernel, time: str | None
) -> None:
    await fill(kernel)
    before, ids = await kernel.everything(), await known(kernel, TOKEN, 0.0)
    may = {row[0] for row in await service.connection.fetch(MAY)}
    far = "null::timestamptz" if time is None else time if time.startswith("now") else f"'{time}'::timestamptz"
    refused = set()
    for function in await functions(kernel.connection):
        names = [name for name, _ in function.parameters]
        if function.name not in may or "p_now" not in names:
            continue
        assert names[-1] == "p_now"
        arguments = fitted(function, next(function.tries(kernel.project, ids)))[:-1]
        statement = function.call().replace(f"${len(names)}::timestamp with time zone", far)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="p_now is too far from the server's time"):
            await service.connection.fetch(statement, *arguments)
        refused.add(function.name)
    assert len(refused) > 30
    assert await kernel.everything() == before


@pytest.mark.proves("S26")
async def test_service_uses_the_time_of_the_server_and_an_operator_any_time(kernel: Kernel, service: Kernel) -> None:
    assert (await service.start("run_a", ["writer"], {"turn_a": "writer"}))["outcome"] == "started"
    kernel.now = datetime(2100, 1, 1, tzinfo=UTC)
    assert (await kernel.claim_one())["turn_id"] == "turn_a"


@pytest.mark.proves("S2")
async def test_service_reads_every_view_row_by_row(kernel: Kernel, service: Kernel) -> None:
    await fill(kernel)
    views = await kernel.connection.fetch(
        "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'v' order by 1"
    )
    for (view,) in views:
        assert len(await service.connection.fetch(f"select * from heliograph.{view}")) > 0


# the log of run_a has sig_run_a_1 and sig_run_a_2; the third signal of these drafts is the wrong one
WRONG_DRAFTS: dict[str, Item] = {
    "a parent beyond the log": draft("note", "sig_run_a_3"),
    "a parent before the log": draft("note", "sig_run_a_0"),
    "a parent beyond all logs": draft("note", "sig_run_a_" + "9" * 30),
    "a parent spelled in another way": draft("note", "sig_run_a_01"),
    "a parent longer than any id": draft("note", "p" * 301),
    "an empty parent": draft("note", ""),
    "a parent that is no id": draft("note", "anything"),
    "a parent with a slash": draft("note", "sig_run/a_1"),
    "a parent with a control character": draft("note", "sig_run_c\n_1"),
    "a parent without a position": draft("note", "sig_run_c_x"),
    "a parent at position zero": draft("note", "sig_run_c_0"),
    "a parent that only begins like an own id": draft("note", "sig_run_a_x"),
    "itself": draft("note", 2),
    "a later draft": draft("note", 3),
    "an index below zero": draft("note", -1),
    "half an index": draft("note") | {"parent": 0.5},
    "an index beyond all": draft("note") | {"parent": 1e300},
    "no parent": draft("note", None),
    "a parent of another type": draft("note") | {"parent": {"seq": 1}},
    "no name": {"parent": 0},
    "a name of another type": draft("note", 0) | {"name": 7},
    "a long name": draft("n" * 201, 0),
    "an agent of another type": draft("note", 0, agent=[]),
    "a long agent": draft("note", 0, agent="a" * 201),
    "a word for is_pending": draft("note", 0, is_pending="perhaps"),
}


@pytest.mark.proves("S26")
@pytest.mark.parametrize("wrong", every(3, WRONG_DRAFTS))
async def test_signal_that_readers_could_not_place_is_rejected_by_every_function_that_logs(
    kernel: Kernel, wrong: Item
) -> None:
    claimed = await kernel.running()
    call = turn_item(claimed, call_id="c0", step_id="s", tool="search", effect="pure", timeout_seconds=None)
    assert (await kernel._one("begin_call", call))["outcome"] == "fresh"
    before = await kernel.everything()
    drafts = [draft("one", claimed["activation_id"]), draft("two", 0), wrong]
    end = ending(claimed)
    reaction = {
        "run_id": "run_a",
        "signals": drafts,
        "version": claimed["run"]["version"],
        "reaction": {"activations": []},
    }
    started = run_item("run_b", ["writer"], {"turn_b": "writer"})
    in_b = (
        wrong | {"parent": re.sub("run_a", "run_b", wrong["parent"])} if isinstance(wrong.get("parent"), str) else wrong
    )
    items: dict[str, Item] = {
        "append": turn_item(claimed, *drafts),
        "suspend": turn_item(claimed, *drafts, calls=[command("c1")]),
        "record_call": {**turn_item(claimed, *drafts), "call_id": "c0", "status": "success", "result": 1},
        "finish": {**end, "signals": [*end["signals"], draft("two", 0), wrong]},
        "react": reaction,
        "start_runs": {**started, "signals": [*started["signals"], in_b]},
    }
    for function, item in items.items():
        (answer,) = await kernel.call(function, [item])
        assert (function, answer["outcome"], answer.get("code")) == (function, "rejected", "invalid_signal")
    after = await kernel.everything()
    for run in (*before["runs"], *after["runs"]):
        run["rejections"] = 0  # react counts them
    assert after == before


@pytest.mark.proves("S26")
@pytest.mark.parametrize("parent", ["sig_run_b_1", "sig_run_a_1", 0, 1])
async def test_first_signal_of_a_run_has_no_parent(kernel: Kernel, parent: Any) -> None:
    started = run_item("run_b", ["writer"], {"turn_b": "writer"})
    started["signals"][0]["parent"] = parent
    (answer,) = await kernel.call("start_runs", [started])
    assert (answer["outcome"], answer["code"]) == ("rejected", "invalid_signal")


async def test_draft_may_name_any_earlier_signal_as_parent(kernel: Kernel) -> None:
    claimed = await kernel.running()
    drafts = [
        draft("one", "sig_run_a_1"),
        draft("two", "sig_run_a_2"),
        draft("three", 1),
        draft("four", 2, agent=None, is_pending=None),
        draft("five", "sig_run_other_7"),
    ]
    assert (await kernel.append(claimed, *drafts))["outcome"] == "ok"
    parents = [row["parent"] for row in await kernel.rows("signal_log", "seq, parent")]
    assert parents == [
        None,
        "sig_run_a_1",
        "sig_run_a_1",
        "sig_run_a_2",
        "sig_run_a_4",
        "sig_run_a_5",
        "sig_run_other_7",
    ]


FIELDS: list[Any] = [
    [], [{"name": "a"}], [{"name": "a", "type": "array", "required": False, "description": "x"}], [{"name": "ü" * 200}],
    [{"name": "a", "type": None}], [{"name": f"f{n}"} for n in range(100)],
    {}, "a", 7, [None], ["a"], [[]], [{}], [{"name": ""}], [{"name": 7}], [{"name": "n" * 201}], [{"name": "a", "type": "text"}],
    [{"name": "a", "type": []}], [{"name": "a", "type": 7}], [{"name": "a", "required": "yes"}], [{"name": "a", "required": None}],
    [{"name": "a", "kind": "x"}], [{"name": "a"}, {"name": "a"}], [{"name": f"f{n}"} for n in range(101)],
]  # fmt: skip


@pytest.mark.proves("S26")
@pytest.mark.parametrize("fields", FIELDS, ids=range(len(FIELDS)))
async def test_result_fields_are_checked_in_sql_as_clients_check_them(kernel: Kernel, fields: Any) -> None:
    await kernel.running()
    before = await kernel.everything()
    sent = message("run_a", "critic", "turn_1", result_fields=fields)
    try:
        check_fields(fields)
    except InvalidInput:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="result_fields"):
            await kernel.call("enqueue", [sent])
        assert await kernel.everything() == before
    else:
        assert (await kernel.call("enqueue", [sent]))[0]["outcome"] == "queued"
