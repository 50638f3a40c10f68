"""Tests that replay a recorded run, and record it with `--heliograph-record`."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from heliograph import Context, Heliograph, ToolContext, tool
from heliograph.errors import InvalidInput, NotFound
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.modes import ReplayDiverged
from heliograph.testing import RecordedRun, ServedApplication, in_order
from heliograph.testing.database import TestServer
from heliograph.testing.recorded_run import remove_leftovers
from heliograph.testing.recording_files import RecordingFiles
from tests.faces.test_plugin import project, run_pytest

START = ["workflow:start"]
KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def shop(prompt: str = "Help: {state.question}") -> Heliograph:
    @tool(approval=lambda call: call["amount"] > 100)
    def refund(order: str, amount: int) -> str:
        """Pay a customer back."""
        raise NotImplementedError

    app = Heliograph("shop")
    app.prompt_agent("clerk", prompt, model="openai-chat:gpt-5", tools=[refund], activate_on=START, updates="answer")
    return app


def refund_of(amount: int) -> ScriptedModel:
    return ScriptedModel([ToolCall("1", "refund", {"order": "A", "amount": amount}), "done"], per_turn=True)


async def grant(app: ServedApplication, run_id: str) -> None:
    task = await app.question(run_id)
    await app.client.grant(task.turn_id, task.call_id, by="ada")


def refund(order: str, amount: int, ctx: ToolContext) -> str:
    return f"paid with the key {KEY}"


async def test_recorded_run_is_replayed_without_models_tools_and_approvals(
    tmp_path: Path, heliograph_database_url: str
) -> None:
    path = tmp_path / "recordings" / "run.jsonl"
    path.parent.mkdir()
    (path.parent / f".run.jsonl.{2**22 + 1}.new").touch()  # of a killed process
    state = {"question": f"Is {KEY} mine?"}
    recorded = await RecordedRun(path, "t.py::test", heliograph_database_url).run(
        shop(), state, models=refund_of(500), tools={"refund": refund}, outside=grant
    )
    assert (recorded.outcome, recorded.state["answer"]) == ("success", "done")
    assert KEY.encode() not in path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["run.jsonl"]
    replayed = await RecordedRun(path, "t.py::test", None).run(shop(), state)
    in_order(replayed, "tool:call", "tool:result", "workflow:end")
    assert [each.id for each in replayed.signals] == [each.id for each in recorded.signals]
    with pytest.raises(ReplayDiverged) as diverged:
        await RecordedRun(path, "t.py::test", None).run(shop("Serve: {state.question}"), state)
    message = "\n".join([str(diverged.value), *diverged.value.__notes__])
    first = diverged.value.result.first
    assert first is not None
    assert message.startswith(f"diverged at signal {first.seq}, ")
    assert '/messages/0/content was "Help: Is *** mine?", and is "Serve: Is *** mine?" now' in message
    assert "record the run again with python -m pytest --heliograph-record t.py::test" in message
    accepted = await RecordedRun(path, "t", None).run(shop("Serve: {state.question}"), state, accept=["prompts"])
    assert accepted.state["answer"] == "done"
    with pytest.raises(InvalidInput, match="began with another state") as other:
        await RecordedRun(path, "t", None).run(shop(), {"question": "Mine?"})
    assert other.value.code == "other_state"


def test_unfinished_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    gone, alive = 2**22 + 1, os.getppid()  # no process has the former id
    kept = ["run.jsonl", f".run.jsonl.{alive}.new", f".rum.jsonl.{gone}.new", f".run.jsonl.{gone}.new.txt"]
    killed = [f".run.jsonl.{gone}.new", f"..run.jsonl.{gone}.new.{gone}.140.tmp", f".run.jsonl.{10**30}.new"]
    for name in (*kept, *killed):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "run.jsonl")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)


@pytest.mark.proves("P-08")
async def test_test_without_a_recording_names_the_file_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording = RecordedRun(tmp_path / "a" / "b.jsonl", "test_a.py::test_b[x y]", None)
    command = "python -m pytest --heliograph-record 'test_a.py::test_b[x y]'"
    with pytest.raises(NotFound) as missing:
        await recording.run(shop())
    assert (missing.value.code, missing.value.message) == (
        "unknown_recording",
        f"there is no recording a/b.jsonl; record the run with {command}, and commit the file",
    )
    with pytest.raises(InvalidInput, match=r"this test has used its recording a/b\.jsonl already"):
        await recording.run(shop())


async def test_file_that_cannot_be_written_is_rejected_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "file" / "run.jsonl"
    path.parent.write_text("no folder", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"run\.jsonl cannot be written: .*file is no folder") as rejected:
        await RecordedRun(path, "t", "postgresql://nowhere").run(shop())
    assert rejected.value.code == "unwritable_file"


async def test_recording_that_cannot_be_replayed_replaces_no_file(tmp_path: Path, heliograph_database_url: str) -> None:
    counter = count()
    app = Heliograph("random")

    @app.agent(activate_on=START, updates="n")
    async def draw(ctx: Context) -> int:
        return next(counter)

    path = tmp_path / "run.jsonl"
    path.write_text("the former recording", encoding="utf-8")
    with pytest.raises(ReplayDiverged) as diverged:
        await RecordedRun(path, "t", heliograph_database_url).run(app)
    assert "run.jsonl was not written: its replay would fail" in diverged.value.__notes__[0]
    assert "/payload/outputs/0 was 0, and is 1 now" in str(diverged.value)
    with pytest.raises(AssertionError, match=r"asks a person about call .*; pass outside="):
        await RecordedRun(path, "t", heliograph_database_url).run(shop(), {"question": "x"}, models=refund_of(500))

    async def fails(app: ServedApplication, run_id: str) -> None:
        await app.question(run_id)
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        await RecordedRun(path, "t", heliograph_database_url).run(
            shop(), {"question": "x"}, models=refund_of(500), outside=fails
        )
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]  # noqa: ASYNC240 - a test may wait for its disk
    assert path.read_text(encoding="utf-8") == "the former recording"


class TestFiles:
    @pytest.mark.parametrize("amount", ["one", "a/b::c"])
    def test_is_named_like_the_test(self, request: pytest.FixtureRequest, amount: str) -> None:
        folder = Path(__file__).parent / "recordings" / "test_recorded_runs"
        name = "TestFiles.test_is_named_like_the_test[one]"
        if amount != "one":
            name = "TestFiles.test_is_named_like_the_test[a_b_c]-4d885c3c"
        assert RecordingFiles().file_of(request.node) == folder / f"{name}.jsonl"

    @pytest.mark.heliograph_recording("kept/here.jsonl")
    def test_has_the_path_of_the_mark(self, request: pytest.FixtureRequest) -> None:
        assert RecordingFiles().file_of(request.node) == Path(__file__).parent / "kept" / "here.jsonl"

    @pytest.mark.heliograph_recording
    def test_mark_without_a_path_is_rejected(self, request: pytest.FixtureRequest) -> None:
        with pytest.raises(InvalidInput, match="must have a path"):
            RecordingFiles().file_of(request.node)


PROJECT = {
    "shop.py": """
        from heliograph import Context, Heliograph

        app = Heliograph("shop")

        @app.agent(activate_on=["workflow:start"], updates="words")
        async def counter(ctx: Context) -> int:
            return len(ctx.state["text"].split())
        """,
    "test_shop.py": """
        import asyncio
        import pytest
        import shop

        @pytest.mark.asyncio
        @pytest.mark.xdist_group("shop")
        async def test_words_are_counted(heliograph_recording):
            assert (await heliograph_recording.run(shop.app, {"text": "three short words"})).state["words"] == 3

        @pytest.mark.parametrize("text", ["one", "two"])
        def test_plain(heliograph_recording, text):
            assert asyncio.run(heliograph_recording.run(shop.app, {"text": text})).state["words"] == 1

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_of_anyio(heliograph_recording):
            assert (await heliograph_recording.run(shop.app, {"text": "a"})).outcome == "success"

        @pytest.mark.heliograph_recording("shared.jsonl")
        @pytest.mark.parametrize("text", ["one", "two"])
        def test_shared(heliograph_recording, text):
            asyncio.run(heliograph_recording.run(shop.app, {"text": text}))
        """,
}


@pytest.mark.more
def test_project_records_and_replays_with_every_async_plugin_and_test_process(
    tmp_path: Path, postgres: TestServer
) -> None:
    folder = project(tmp_path, PROJECT)
    url = postgres.admin_url
    refused = run_pytest(folder, "--heliograph-record", CI="true")
    assert (refused.returncode, "the variable CI is set" in refused.stderr) == (4, True), refused.stderr
    options = ["-q", "-o", "pythonpath=.", "-o", "asyncio_mode=strict"]
    recorded = run_pytest(folder, *options, "--heliograph-record", CI="", HELIOGRAPH_TEST_DATABASE_URL=url)
    assert "4 passed, 2 errors" in recorded.stdout, recorded.stdout
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.jsonl"))
    assert files == [f"recordings/test_shop/{name}.jsonl" for name in
                     ("test_of_anyio", "test_plain[one]", "test_plain[two]", "test_words_are_counted")]  # fmt: skip
    summary = recorded.stdout.partition("= written recordings =")[2].splitlines()[1:5]
    assert summary == files
    (folder / "recordings/test_shop/test_old.jsonl").write_bytes((folder / files[0]).read_bytes())
    replayed = run_pytest(
        folder,
        *options,
        "-n",
        "2",
        "--dist",
        "loadgroup",
        CI="true",
        HELIOGRAPH_TEST_DATABASE_URL="postgresql://nowhere",
    )
    assert "4 passed, 2 errors" in replayed.stdout, replayed.stdout
    assert "belongs to two tests: test_shop.py::test_shared[one] and test_shop.py::test_shared[two];" in replayed.stdout
    unused = replayed.stdout.partition("unused recordings: no test has them")[2].splitlines()[1:3]
    assert unused[0] == "recordings/test_shop/test_old.jsonl"
    assert unused[1].startswith("===")
