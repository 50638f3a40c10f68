"""`helio top`: what it reads, its lines in narrow terminals, and the screen driven by its keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.cli import top_load, top_screen
from heliograph.cli.play_lines import Lines
from heliograph.cli.top_load import Load, LoadWatch, RunNow, Use
from heliograph.cli.top_screen import TopScreen
from heliograph.cli.top_text import age_text, cost_text, header_line, number_text, selected_runs, snapshot_lines
from heliograph.config import Settings
from heliograph.errors import StoreUnavailable
from heliograph.ledger.load_reader import RunLoad, TurnLoad, WaitLoad
from heliograph.ledger.pool import Database
from heliograph.ledger.reader import Reader
from heliograph.models import ScriptedModel, ToolCall
from heliograph.runtime import open_runtime
from tests.faces.cli_support import open_shell

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTILE = "\x1b[2J\u202e\r"


def now(run_id: str, minutes: int = 1, *, outcome: str | None = None, tokens: int = 0, cost: float | None = None, questions: int = 0,
        agent: str = "writer") -> RunNow:  # fmt: skip
    begun = AT - timedelta(minutes=minutes)
    is_over = outcome is not None
    run = RunLoad(
        run_id,
        "press",
        "ended" if is_over else "running",
        outcome,
        9,
        0 if is_over else 1,
        2,
        begun,
        AT if is_over else None,
    )
    turns = [] if is_over else [TurnLoad(run_id, f"turn_{run_id}", agent, "running", "act", None, begun)]
    waits = [WaitLoad(run_id, "human", "refund", questions, begun)] if questions else []
    return RunNow(run, turns, waits, Use(tokens, 0, cost, 9), is_counted=True)


LOAD = Load(AT, [
    now("run_01kb3q4v5w6x7y8z9a0b1c2d3e", 2, tokens=12_345, cost=0.0042, questions=1), now("old", 300, tokens=950),
    now("gone", 5, outcome="failed", tokens=4_000_000, cost=1250.0, agent="critic"), now(HOSTILE, 3, agent=HOSTILE),
])  # fmt: skip


class Watch:
    """A load that does not change, and what was read of it."""

    def __init__(self) -> None:
        self.reader: Any = None
        self.outages = 0
        self.reads = 0

    async def read(self) -> Load:
        self.reads += 1
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("the server is away")
        return LOAD


@pytest.mark.proves("P-54")
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_terminal_and_contain_no_control_characters(width: int) -> None:
    lines = snapshot_lines(LOAD, "age", width)
    assert all(text.isprintable() for text in lines)
    table = [text for text in lines if not text.startswith("  ")][2:]
    assert {len(text) for text in [header_line(width), *table]} == {width}
    assert "TOKENS" in header_line(width)
    assert "COST" in header_line(width)


def test_snapshot_in_a_pipe_has_whole_ids_agents_waits_tokens_and_money() -> None:
    text = "\n".join(snapshot_lines(LOAD, "age"))
    assert text.startswith("3/4 runs open  1 question  0 workers 0/0  4.0M tokens  $1250\n")
    [row] = [each for each in text.splitlines() if each.startswith("run_01kb3q4v5w6x7y8z9a0b1c2d3e ")]
    assert row.split()[1:] == ["waiting", "1", "1", "12.3k", "$0.0042", "2m"]
    assert "  writer  running in act, 2m\n  waits for a person: refund, 2m" in text


@pytest.mark.parametrize(("sort", "first"), [("age", "run_"), ("tokens", "run_"), ("cost", "run_"), ("waits", "run_")])
def test_open_runs_come_before_those_that_have_ended(sort: str, first: str) -> None:
    ids = [each.run.run_id for each in selected_runs(LOAD, "", sort)]
    assert ids[0].startswith(first)
    assert ids[-1] == "gone"


@pytest.mark.parametrize(("text", "ids"), [("FAILED", ["gone"]), ("old", ["old"]), ("nothing", [])])
def test_filter_compares_ids_status_and_agents(text: str, ids: list[str]) -> None:
    assert [each.run.run_id for each in selected_runs(LOAD, text, "age")] == ids


def test_numbers_are_short() -> None:
    assert [number_text(n) for n in (0, 999, 1000, 99_949, 123_456, 5 * 10**9)] == [
        "0",
        "999",
        "1.0k",
        "99.9k",
        "123k",
        "5.0G",
    ]
    assert [cost_text(n) for n in (0, 0.00423, 0.5, 12, 1234.5)] == ["$0.00", "$0.0042", "$0.50", "$12.00", "$1234"]
    assert [age_text(timedelta(minutes=n)) for n in (0, 59, 60, 47 * 60, 48 * 60)] == ["<1m", "59m", "1h", "47h", "2d"]


def test_edited_usage_counts_as_nothing() -> None:
    use = Use()
    edited: list[Any] = [None, [], {"inputTokens": "9", "outputTokens": -1, "costUsd": True}, {"inputTokens": 10**20}]
    for usage in edited:
        use.add(usage)
    assert use == Use()


class Counting(Reader):
    """A reader that counts its statements."""

    def __init__(self, database: Database):
        super().__init__(database, "default")
        self.statements = 0
        for name in ("fetch", "call"):
            setattr(database, name, self._counted(getattr(database, name)))

    def _counted(self, method: Any) -> Any:
        async def counted(*args: Any) -> Any:
            self.statements += 1
            return await method(*args)

        return counted


def office() -> Heliograph:
    app = Heliograph("office")
    ask = tool(approval=True)(refund)
    model = ScriptedModel([ToolCall("1", "refund", {"amount": 3.0}), "done"], per_turn=True)
    app.prompt_agent("clerk", "Refund", tools=[ask], model=model)
    app.prompt_agent("writer", "Write", model=ScriptedModel(["a few words"], per_turn=True))
    return app


def refund(amount: float) -> str:
    """Refund an amount."""
    return f"refunded {amount}"


@pytest.mark.proves("P-31")
async def test_read_has_as_many_statements_for_thirty_runs_as_for_two_and_counts_each_reply_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_load, "PAGE", 7)  # positions of a log in one read
    app = office()
    async with open_runtime(Settings(database_url=database_url)) as runtime:
        for n in range(2):
            await runtime.start(app.workflow, {}, f"run_{n}")
        worker = runtime.worker(app.workflow)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(30):
            while True:
                waiting, done = await runtime.reader.questions(), await runtime.reader.turns(status="success")
                if len(waiting) == len(done) == 2:
                    break
                await asyncio.sleep(0.01)
        worker.stop()
        await working
        opened = await Database.open(database_url, project="default")
        reader = Counting(opened)
        watch = LoadWatch(reader, 100)
        load = await watch.read_counted()
        before, reader.statements = reader.statements, 0
        await watch.read()
        few, reader.statements = reader.statements, 0
        for n in range(2, 30):
            await runtime.start(app.workflow, {}, f"run_{n}")
        many = await watch.read()
        assert (few, reader.statements) == (4, 5)  # runs without new signals need none for the use of models
        signals = await runtime.reader.all_signals("run_0")
        await opened.close()
    assert before > 5  # seven positions at a time
    assert {each.run.run_id: each.use for each in many.runs if each.use.tokens} == {
        each.run.run_id: each.use for each in load.runs
    }
    [counted] = [each for each in many.runs if each.run.run_id == "run_0"]
    usages: list[Any] = [each.payload["usage"] for each in signals if each.name == "harness:end"]  # type: ignore[call-overload,index]
    assert len(usages) == 2
    assert counted.use.tokens == sum(each["inputTokens"] + each["outputTokens"] for each in usages)
    assert (counted.status, counted.questions, [each.agent for each in counted.turns]) == ("waiting", 1, ["clerk"])
    assert len(many.runs) == 30


def test_top_prints_a_snapshot_and_needs_a_terminal_otherwise(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("top", "--once").stdout.startswith("0/0 runs open")
    shell.helio("run", "press.py:app", "--run-id", "first")
    [load] = shell.rows("top", "--app", "press")
    assert (load["type"], [each["run_id"] for each in load["runs"]]) == ("load", ["first"])
    assert load["runs"][0]["usage"] == {"inputTokens": 0, "outputTokens": 0, "costUsd": None}
    assert "\nfirst" in shell.helio("top", "--once").stdout
    done = shell.helio("top")
    assert (done.returncode, "helio top --once prints the runs as they are now" in done.stderr) == (2, True)


def plain(screen: TopScreen, pane: str) -> list[str]:
    lines = screen.query_one(f"#{pane}", Lines)
    return [lines.render_line(row).text.rstrip() for row in range(lines.rows)]


@pytest.mark.more
@pytest.mark.proves("P-32")
@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_keys_select_sort_filter_open_and_stop(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    async def stop(run_id: str) -> str:
        stopped.append(run_id)
        return f"run {run_id} is stopping"

    seen = count(1)

    async def listed(_reader: object, run_id: str, _project: str | None, _width: int) -> list[str]:
        return [f"run {run_id}", f"reading {next(seen)}", *(f"fact {n}" for n in range(40)), "next: " + "word " * 30]

    monkeypatch.setattr(top_screen, "run_lines", listed)
    watch = Watch()
    screen = TopScreen(watch, 3600, stop=stop)  # type: ignore[arg-type]
    async with screen.run_test(size=size) as pilot:

        async def press(*keys: str) -> None:
            await pilot.press(*keys)
            await pilot.pause()

        await pilot.pause()
        assert plain(screen, "runs")[3].startswith("gone")
        assert "waits for a person: refund" in "\n".join(plain(screen, "agents"))
        await press("down", "down")
        assert plain(screen, "agents")[0].startswith("old of press")
        await press("s")
        assert "by open" in plain(screen, "message")[0]
        assert plain(screen, "agents")[0].startswith("old of press")  # the mark stays at its run
        await press("enter")
        assert plain(screen, "run")[:2] == ["run old", "reading 1"]
        await press("r")
        assert plain(screen, "run")[:2] == ["run old", "reading 2"]
        await press("pagedown", "end")
        assert "word" in plain(screen, "run")[-1]
        await press("escape", "x", "n", "y")
        assert stopped == []
        await press("x", "down", "y")
        assert stopped == []
        await press("home", "x")
        assert "y stops it" in plain(screen, "message")[0]
        await press("y")
        assert (stopped, watch.reads) == (["run_01kb3q4v5w6x7y8z9a0b1c2d3e"], 3)
        await press("slash", *"gone", "enter", "x")
        assert stopped[1:] == []
        assert "run gone has ended" in plain(screen, "message")[0]
        await press("q")
    assert screen.return_code == 0


@pytest.mark.more
async def test_unchanged_load_sends_nothing_and_an_outage_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    redrawn: list[object] = []
    refresh = Lines.refresh

    def counted(self: Lines, *regions: Any, **options: Any) -> Any:
        redrawn.extend(regions)
        return refresh(self, *regions, **options)

    watch = Watch()
    screen = TopScreen(watch, 3600)  # type: ignore[arg-type]
    async with screen.run_test(size=(60, 16)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(Lines, "refresh", counted)
        screen.draw()
        assert redrawn == []
        watch.outages = 1
        await pilot.press("r")
        await pilot.pause()
        assert "waiting for the database: the server is away" in plain(screen, "message")[0]
        await pilot.press("r")
        await pilot.pause()
        assert "waiting" not in plain(screen, "message")[0]
        assert plain(screen, "runs")[3].startswith("gone")
