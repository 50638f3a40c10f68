"""Tools in the hands of a model: what it is told of each call, and what happens to a call when things go wrong."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph import (
    Heliograph,
    MCPServer,
    ModelRequest,
    ScriptedModel,
    StoreUnavailable,
    Tool,
    ToolCall,
    ToolContext,
    ToolMessage,
    tool,
)
from heliograph.ledger.transactions import OpenTransaction
from heliograph.worker.loop import Worker
from tests.runtime.kit import START, Rig, one, until

OWN = str(Path(__file__).parent.parent / "reach" / "mcp_server.py")


class Script:
    """A model that makes these calls, one list in each answer, and keeps what it is told of them."""

    def __init__(self, *steps: Sequence[ToolCall]):
        self.told: list[list[ToolMessage]] = []
        self.offered: list[str] = []
        self._steps = steps

    def __call__(self, request: ModelRequest) -> Any:
        answers = [message for message in request.messages if isinstance(message, ToolMessage)]
        self.offered = [spec.name for spec in request.tools]
        done, count = 0, len(answers)
        while done < len(self._steps) and count >= len(self._steps[done]):
            count -= len(self._steps[done])
            done += 1
        self.told = [answers]
        return list(self._steps[done]) if done < len(self._steps) else "done"

    @property
    def heard(self) -> list[Any]:
        return [(message.content, message.is_error) for message in self.told[-1]]


def app_of(script: Script, *tools: Any, **options: Any) -> Heliograph:
    app = Heliograph("tools", deps=options.pop("deps", None))
    app.prompt_agent("worker", "Do it.", model=ScriptedModel(script), activate_on=START, updates="out", tools=list(tools),
                     **options)  # fmt: skip
    return app


_ids = itertools.count(1)


def called(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{next(_ids)}", name, arguments)


async def kill(worker: Worker, working: asyncio.Task[None]) -> None:
    """What kill -9 leaves: nothing is handed back, nothing recorded."""
    working.cancel()
    for drive in list(worker._running.values()):
        assert drive.task is not None
        drive.task.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def lost(rig: Rig, app: Heliograph, begun: asyncio.Event) -> str:
    """A run whose worker is killed in the middle of a tool."""
    run_id = await rig.start(app)
    worker = rig.runtime.worker(app.workflow, lease_seconds=0.2)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await begun.wait()
    await kill(worker, working)
    return run_id


class Pay:
    """A payment that is killed in its middle the first time."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.made = 0

    def tool(self, **options: Any) -> Tool:
        async def pay(amount: int) -> str:
            self.made += 1
            self.begun.set()
            if self.made == 1:
                await asyncio.Event().wait()
            return f"paid {amount}"

        return tool(**options)(pay)


async def test_functions_get_what_they_are_annotated_for_and_say_what_went_wrong(rig: Rig) -> None:
    def double(n: int, ctx: ToolContext) -> Any:
        """Double."""
        return [n * ctx.deps["by"], ctx.agent, ctx.idempotency_key == f"{ctx.turn_id}:{ctx.call_id}"]

    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    script = Script([called("double", n=2), called("double", n="x"), called("fail", why="no"), called("nobody")])
    result = await rig.run(app_of(script, double, fail, deps={"by": 3}))
    assert result.state == {"out": "done"}
    fine, bad, failed, unknown = script.heard
    assert fine == ([6, "worker", True], False)
    assert bad[1]
    assert "n: Input should be a valid integer" in bad[0]
    assert failed == ("TOOL_ERROR: ValueError: no", True)
    assert unknown == ("there is no tool nobody; there are double, fail", True)


async def test_a_tool_that_an_agent_was_not_given_is_not_carried_out_whoever_else_has_it(rig: Rig) -> None:
    happened: list[str] = []

    def erase() -> None:
        """Erase."""
        happened.append("erased")

    def look() -> str:
        """Look."""
        return "seen"

    script = Script([called("erase"), called("look")])
    app = app_of(script, look)
    app.prompt_agent("other", "x", model=ScriptedModel(["done"]), on_request=True, tools=[erase])
    await rig.run(app)
    assert [is_error for _, is_error in script.heard] == [True, False]
    assert happened == []
    assert script.offered == ["look"]


async def test_a_try_that_failed_or_took_too_long_is_made_again_where_it_may_be(rig: Rig) -> None:
    tries: list[float] = []

    @tool(effect="pure", retries=2, timeout_seconds=0.3)
    async def flaky() -> str:
        """Flaky."""
        tries.append(1)
        if len(tries) == 1:
            raise OSError("gone")
        if len(tries) == 2:
            await asyncio.Event().wait()
        return "there"

    @tool(timeout_seconds=0.1)
    async def stuck() -> None:
        """Stuck."""
        await asyncio.Event().wait()

    script = Script([called("flaky"), called("stuck")])
    await rig.run(app_of(script, flaky, stuck))
    assert script.heard == [("there", False), ("TOOL_TIMEOUT: it took longer than 0.1 s", True)]
    assert len(tries) == 3


async def test_no_more_calls_at_a_time_than_a_tool_allows_and_waiting_is_not_late(rig: Rig) -> None:
    now, most = 0, 0

    @tool(concurrency=2, timeout_seconds=0.4)
    async def careful(n: int) -> int:
        """Careful."""
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.15)
        now -= 1
        return n

    script = Script([called("careful", n=n) for n in range(8)])
    await rig.run(app_of(script, careful))
    assert most == 2
    assert script.heard == [(n, False) for n in range(8)]


async def test_a_result_that_is_too_large_is_said_to_be_and_the_turn_goes_on(rig: Rig) -> None:
    def large() -> str:
        """Large."""
        return "x" * 2_000_000

    script = Script([called("large")])
    result = await rig.run(app_of(script, large))
    assert result.outcome == "success"
    [(said, is_error)] = script.heard
    assert is_error
    assert said.startswith("RESULT_TOO_LARGE: it was done")


@pytest.mark.proves("K14")
async def test_a_tool_that_may_happen_once_is_not_made_again_and_the_model_is_told_of_the_doubt(rig: Rig) -> None:
    pay, script = Pay(), Script([called("pay", amount=5)])
    app = app_of(script, pay.tool())
    run_id = await lost(rig, app, pay.begun)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert pay.made == 1
    [(said, is_error)] = script.heard
    assert is_error
    assert said.startswith("IN_DOUBT: ")


@pytest.mark.proves("K14")
@pytest.mark.parametrize(("effect", "told"), [("once", "IN_DOUBT: "), ("idempotent", "TOOL_ERROR: not made again: ")])
async def test_a_call_that_began_is_in_doubt_although_the_next_version_has_no_such_tool(
    rig: Rig, effect: Any, told: str
) -> None:
    pay, script = Pay(), Script([called("pay", amount=5)])
    run_id = await lost(rig, app_of(script, pay.tool(effect=effect)), pay.begun)

    def other() -> None:
        """Something else."""

    app = app_of(script, other)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert pay.made == 1
    [(said, is_error)] = script.heard
    assert is_error
    assert said.startswith(told)


@pytest.mark.proves("K14")
async def test_a_call_that_began_is_in_doubt_although_the_next_version_takes_other_arguments(rig: Rig) -> None:
    pay, script = Pay(), Script([called("pay", amount=5)])
    run_id = await lost(rig, app_of(script, pay.tool()), pay.begun)

    async def pay_in(amount: int, currency: str) -> None:
        """Pay."""

    app = app_of(script, tool(name="pay")(pay_in))
    async with rig.serving(app):
        await rig.ended(run_id)
    assert script.heard[0][0].startswith("IN_DOUBT: ")


@pytest.mark.proves("K14")
async def test_a_doubt_that_is_to_fail_ends_the_turn_in_doubt(rig: Rig) -> None:
    pay, script = Pay(), Script([called("pay", amount=5)])
    app = app_of(script, pay.tool(in_doubt="fail"))
    run_id = await lost(rig, app, pay.begun)
    async with rig.serving(app):
        failure = one(await rig.ended(run_id), "agent:failed")["error"]
    assert (failure["code"], pay.made) == ("IN_DOUBT", 1)


@pytest.mark.proves("K13", "K14")
async def test_a_transactional_tool_writes_once_with_its_result_although_its_worker_is_killed(rig: Rig) -> None:
    table = f"paid_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (amount integer, key text)")
    begun, tries = asyncio.Event(), list[int]()

    @tool(effect="transactional")
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values ($1, $2)", amount, ctx.idempotency_key)
        begun.set()
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "paid"

    script = Script([called("pay", amount=5)])
    app = app_of(script, pay)
    run_id = await lost(rig, app, begun)
    assert await rig.fetch(f"select * from {table}") == []
    async with rig.serving(app):
        await rig.ended(run_id)
    assert [row["amount"] for row in await rig.fetch(f"select amount from {table}")] == [5]
    assert script.heard == [("paid", False)]
    assert len(tries) == 2


@pytest.mark.proves("K13")
async def test_what_a_transactional_tool_did_is_undone_when_it_fails_is_late_or_cannot_be_committed(rig: Rig) -> None:
    table = f"kept_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer unique deferrable initially deferred)")

    @tool(effect="transactional", timeout_seconds=0.5)
    async def keep(n: int, how: str, ctx: ToolContext) -> str:
        """Keep."""
        await ctx.connection.execute(f"insert into {table} values ($1)", n)
        if how == "raise":
            raise ValueError("no")
        if how == "late":
            await asyncio.Event().wait()
        if how == "swallow":
            try:
                await ctx.connection.execute("select 1 / 0")
            except Exception:
                return "nothing happened"
        if how == "commit":
            await ctx.connection.execute("rollback")
        return "x" * 2_000_000 if how == "large" else "kept"

    ways = ["fine", "raise", "late", "swallow", "commit", "large"]
    script = Script(*([called("keep", n=n, how=how)] for n, how in enumerate(ways)), [called("keep", n=0, how="fine")])
    await rig.run(app_of(script, keep))
    assert [row["n"] for row in await rig.fetch(f"select n from {table}")] == [0]
    said = [content for content, is_error in script.heard if is_error]
    assert script.heard[0] == ("kept", False)
    for message, part in zip(said, ["ValueError: no", "TOOL_TIMEOUT", "it was undone", "it was undone", "RESULT_TOO_LARGE",
                                    "it was undone"], strict=True):  # fmt: skip
        assert part in message


@pytest.mark.proves("K13")
async def test_a_transaction_whose_connection_breaks_is_made_again_unless_it_was_committed(rig: Rig) -> None:
    table = f"cut_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer)")
    tries: list[int] = []

    @tool(effect="transactional")
    async def keep(ctx: ToolContext) -> int:
        """Keep."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values (1)")
        if len(tries) == 1:
            ctx.connection.terminate()
        return len(tries)

    script = Script([called("keep")])
    await rig.run(app_of(script, keep))
    assert script.heard == [(2, False)]
    assert len(await rig.fetch(f"select * from {table}")) == 1


@pytest.mark.proves("K13")
async def test_a_commit_whose_answer_is_lost_is_found_and_not_made_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"lost_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer)")
    commit, tries = OpenTransaction.commit, list[int]()

    async def lose(self: OpenTransaction, function: str, *args: object) -> Any:
        await commit(self, function, *args)
        raise StoreUnavailable("the answer is lost")

    monkeypatch.setattr(OpenTransaction, "commit", lose)

    @tool(effect="transactional")
    async def keep(ctx: ToolContext) -> int:
        """Keep."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values (1)")
        return len(tries)

    script = Script([called("keep")], [called("keep")])
    await rig.run(app_of(script, keep))
    assert script.heard == [(1, False), (2, False)]
    assert len(await rig.fetch(f"select * from {table}")) == len(tries) == 2


async def test_turns_share_one_program_of_an_mcp_server_and_only_what_it_was_allowed(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", tools=["pid", "add"], prefix="own_")
    pids: list[Any] = []
    for _ in range(2):
        script = Script([called("own_pid"), called("own_add", a=1, b="x"), called("own_die")])
        await rig.run(app_of(script, server))
        (pid, bad, unknown) = script.heard
        assert sorted(script.offered) == ["own_add", "own_pid"]
        assert bad[1]
        assert "b: " in bad[0]
        assert "there is no tool own_die" in unknown[0]
        pids.append(pid[0]["result"])
    assert pids[0] == pids[1]


async def test_a_server_that_dies_in_the_middle_is_an_error_for_the_model_and_serves_again(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", timeout_seconds=20, trusted=True)
    script = Script([called("die")], [called("add", a=1, b=2)])
    result = await rig.run(app_of(script, server))
    assert result.outcome == "success"
    assert script.heard[0][0].startswith("IN_DOUBT: MCP server own was lost in the middle of die")
    assert script.heard[1] == ({"result": 3}, False)


async def test_a_turn_whose_server_is_away_is_put_off_and_goes_on_when_it_is_there(rig: Rig, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text("raise SystemExit(1)")
    server = MCPServer([sys.executable, str(program)], name="away", env={"PYTHONPATH": str(Path(OWN).parent)})
    script = Script([called("add", a=1, b=2)])
    app = app_of(script, server, retries=20)
    run_id = await rig.start(app)

    async def is_put_off() -> bool:
        query = "select 1 from heliograph.agent_inbox where project_id = $1 and retry_count > 0"
        return bool(await rig.fetch(query, rig.runtime.settings.project))

    async with rig.serving(app):
        await until(is_put_off)
        program.write_text("import mcp_server")
        await rig.ended(run_id)
    assert script.heard == [({"result": 3}, False)]


async def test_two_tools_of_one_name_are_refused_before_the_model_is_asked(rig: Rig) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    script = Script([called("add", a=1)])
    app = app_of(script, add, MCPServer([sys.executable, OWN], name="own"))
    result = await rig.run(app)
    failure = one(result.signals, "agent:failed")["error"]
    assert "two tools named add" in failure["message"]


async def test_a_huge_result_is_refused_and_nothing_else_of_the_process_waits_for_it(rig: Rig) -> None:
    rows = [{"a": n, "b": str(n)} for n in range(1_500_000)]

    @tool(effect="pure")
    async def huge() -> Any:
        """Huge."""
        return rows

    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    script = Script([called("huge")])
    ticking = asyncio.create_task(tick())
    result = await rig.run(app_of(script, huge))
    ticking.cancel()
    assert result.outcome == "success"
    [(said, is_error)] = script.heard
    assert is_error
    assert "bytes, which is the limit" in said
    assert max(gaps) < 1.5  # written as JSON it takes several seconds
