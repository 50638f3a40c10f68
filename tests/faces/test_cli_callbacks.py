"""`helio callback list|redeliver` and `helio turn children`."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from heliograph.ledger.pool import Database
from tests.faces.cli_support import Running, Shell, normalised, open_shell
from tests.reach.embedded_kit import eventually
from tests.reach.hook_server import hooked

URL = "https://receiver.example/hook"
SHOP = """
from heliograph import Context, Delegation, Heliograph

app = Heliograph("shop")


@app.agent(activate_on=["workflow:start"], updates="got")
async def buyer(ctx: Context):
    tasks = ["sell", *(["fail"] if ctx.document.get("fail") else []), *(["wait"] if ctx.document.get("wait") else [])]
    return [str(each) for each in await ctx.delegates([Delegation("seller", task) for task in tasks])]


@app.agent(on_request=True)
async def seller(ctx: Context):
    if ctx.task == "fail":
        raise ValueError("sold out")
    if ctx.task == "wait":
        await ctx.call("approve", {}, timeout=3600)
    return "sold"
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "shop.py").write_text(SHOP)
    return open_shell(tmp_path, database_url)


def ended_with_callbacks(shell: Shell, *run_ids: str) -> list[str]:
    """End runs, each with an unsent callback; return the ids of the callbacks."""
    for run_id in run_ids:
        assert shell.helio("run", "press.py:app", "--run-id", run_id, "--callback", URL).returncode == 0
    by_run = {row["run_id"]: row["callback_id"] for row in shell.rows("callback", "list")}
    return [by_run[run_id] for run_id in run_ids]


def ids(shell: Shell, state: str) -> list[str]:
    return [row["callback_id"] for row in shell.rows("callback", "list", "--state", state)]


async def die(database: Database, *callback_ids: str) -> None:
    """As after the last try."""
    await database.fetch(
        "update heliograph.callbacks set state = 'dead', attempts = 12, due_at = null, finished_at = now(),"
        " last_error = 'answered 503' where callback_id = any ($1)", list(callback_ids),
    )  # fmt: skip


def test_callbacks_are_listed_with_their_outcomes(shell: Shell) -> None:
    assert shell.helio("callback", "list").stderr == "no such callbacks\n"
    [callback_id] = ended_with_callbacks(shell, "ink")
    head, row = normalised(shell.helio("callback", "list").stdout).splitlines()
    assert head == "CALLBACK  OF  STATE  TRIES  NEXT  URL  LAST ERROR"
    assert row == f"{callback_id}  ink  due  0  DATE  {URL}  -"
    [whole] = shell.rows("callback", "list")
    assert datetime.fromisoformat(whole.pop("created_at")) == datetime.fromisoformat(whole.pop("due_at"))
    assert whole == {
        "type": "callback", "callback_id": callback_id, "run_id": "ink", "turn_id": None, "url": URL, "state": "due", "attempts": 0,
        "last_error": None, "finished_at": None,
    }  # fmt: skip


@pytest.mark.more
def test_callbacks_are_filtered_by_state_with_the_newest_first(shell: Shell) -> None:
    first, second = ended_with_callbacks(shell, "ink", "paper")
    assert ids(shell, "due") == [second, first]
    assert shell.rows("callback", "list", "--limit", "1")[0]["callback_id"] == second
    assert (ids(shell, "dead"), ids(shell, "delivered")) == ([], [])
    assert shell.rows("callback", "list", "--project", "other") == []


@pytest.mark.more
async def test_abandoned_callbacks_are_redelivered_one_or_all(shell: Shell, database: Database) -> None:
    first, second, third = await asyncio.to_thread(ended_with_callbacks, shell, "ink", "paper", "pen")
    await die(database, first, second, third)
    again = await asyncio.to_thread(shell.helio, "callback", "redeliver", first)
    assert (again.returncode, again.stdout) == (0, f"{first} is due again; a worker sends it\n")
    assert await asyncio.to_thread(ids, shell, "dead") == [third, second]
    rows = await asyncio.to_thread(shell.rows, "callback", "redeliver", "--dead")
    assert rows == [{"type": "redelivered", "callback_id": each, "outcome": "due"} for each in (third, second)]
    assert await asyncio.to_thread(shell.rows, "callback", "redeliver", "--dead") == []
    none = await asyncio.to_thread(shell.helio, "callback", "redeliver", "--dead")
    assert (none.returncode, none.stderr) == (0, "no dead callbacks\n")


@pytest.mark.more
async def test_delivered_callback_is_redelivered_on_request_under_the_same_id(
    shell: Shell, started: list[Running]
) -> None:
    async with hooked() as hook:
        secret = f"whsec_{b64encode(bytes(32)).decode()}"
        extra = {"HELIOGRAPH_WEBHOOK_SECRETS": secret, "HELIOGRAPH_EGRESS_ALLOW": hook.origin}
        sending = replace(shell, extra=extra)
        started.append(await asyncio.to_thread(sending.start, "worker", "press.py:app"))
        done = await asyncio.to_thread(sending.helio, "run", "press.py:app", "--callback", hook.url)
        assert done.returncode == 0, done.stderr
        await hook.until(lambda: len(hook.requests) == 1)
        callback_id = hook.requests[0].headers["webhook-id"]
        await asyncio.to_thread(eventually, lambda: ids(shell, "delivered") == [callback_id])
        await asyncio.to_thread(shell.helio, "callback", "redeliver", callback_id)
        await hook.until(lambda: len(hook.requests) == 2)
    assert hook.requests[1].headers["webhook-id"] == callback_id
    assert hook.requests[1].body == hook.requests[0].body


async def test_doctor_names_unsent_callbacks_and_the_next_step(shell: Shell, database: Database) -> None:
    [callback_id] = await asyncio.to_thread(ended_with_callbacks, shell, "ink")
    await database.fetch("update heliograph.callbacks set due_at = due_at - interval '2 min'")
    done = await asyncio.to_thread(shell.helio, "db", "doctor")
    assert (
        f"warning   L11 nobody sends a callback: a worker with HELIOGRAPH_WEBHOOK_SECRETS: {callback_id}, since"
        in done.stdout
    )
    assert done.returncode == 0


@pytest.mark.more
def test_children_of_a_turn_are_listed_in_order_with_their_states(shell: Shell, started: list[Running]) -> None:
    running = shell.start("run", "shop.py:app", "--run-id", "s", "--state", '{"fail": true, "wait": true}')
    started.append(running)
    running.read_until("tool:call")
    [parent] = [row["turn_id"] for row in shell.rows("turn", "list", "--run", "s") if row["agent"] == "buyer"]
    stands = ["completed", "failed", "in_progress"]
    eventually(lambda: [row["status"] for row in shell.rows("turn", "children", parent)] == stands)
    head, *rows = normalised(shell.helio("turn", "children", parent).stdout).splitlines()
    assert head == "CALL  AGENT  TURN  STATUS  OUTCOME  OPENED  TOOK"
    assert rows == [
        "c1  seller  turn_ID  completed  success  DATE  SPAN",
        "c2  seller  turn_ID  failed  failed  DATE  SPAN",
        "c3  seller  turn_ID  in_progress  -  DATE  SPAN",
    ]
    whole = shell.rows("turn", "children", parent)
    assert [(row["turn_id"], row["run_id"], row["outcome"]) for row in whole] == [
        (parent, "s", outcome) for outcome in ("success", "failed", None)
    ]
    assert {row["task_id"] for row in whole} < {row["turn_id"] for row in shell.rows("turn", "list", "--run", "s")}


def test_turn_without_delegations_has_no_children(shell: Shell) -> None:
    assert shell.helio("run", "press.py:app", "--run-id", "ink").returncode == 0
    turn_id = shell.rows("turn", "list", "--run", "ink")[0]["turn_id"]
    done = shell.helio("turn", "children", turn_id)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{turn_id} has delegated nothing\n")
    assert shell.rows("turn", "children", turn_id) == []


REJECTED: list[tuple[tuple[str, ...], int, str, str]] = [
    # the arguments, the exit code, the code of the error, a part of its message
    (("turn", "children", "turn_nobody"), 3, "unknown_turn", "no turn turn_nobody in project default"),
    (("turn", "children"), 2, "usage", "required: TURN"),
    (("callback", "redeliver", "callback_x"), 3, "unknown_callback", "no callback callback_x in project default; helio callback list"),
    (("callback", "redeliver"), 2, "usage", "required"),
    (("callback", "redeliver", "callback_x", "--dead"), 2, "usage", "not allowed with"),
    (("callback", "list", "--state", "ded"), 2, "invalid_enum", "did you mean dead?"),
    (("callback", "list", "--limit", "0"), 2, "out_of_range", "--limit must be a whole number from 1 to 1000"),
]  # fmt: skip


def test_unknown_or_invalid_callback_is_reported_as_text_and_as_json(shell: Shell) -> None:
    for arguments, exit_code, code, message in REJECTED:
        done = shell.helio(*arguments, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (exit_code, code), arguments
        assert message in error["message"]
        assert f"error: {error['message']}" in done.stderr
