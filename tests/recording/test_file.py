"""Files of recordings: written whole or not at all, read in later minor versions, and rejected with the line otherwise."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph import Context, Heliograph, Secret, tool
from heliograph.errors import HarnessError, InvalidInput, NotFound, ToolFailed
from heliograph.models import ModelReply, ModelRequest, ScriptedModel, ToolCall
from heliograph.ports import Chunk
from heliograph.recording import file as file_module
from heliograph.recording.file import RecordingRejected, lines_of, read_recording, write_recording
from heliograph.recording.recording import Recording
from tests.recording.simulated import record_simulated
from tests.recording.test_replay import THIN, thin


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record_simulated(thin(), 1, state=THIN)


@pytest.fixture
def path(recording: Recording, tmp_path: Path) -> Path:
    write_recording(recording, tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def test_file_is_read_as_it_was_written(path: Path, recording: Recording) -> None:
    found = read_recording(path)
    assert list(lines_of(found)) == list(lines_of(recording))
    assert found.signals == recording.signals
    assert [each.name for each in path.parent.iterdir()] == ["run.jsonl"], "no temporary file remains"


def edit(path: Path, change: Callable[[list[Any]], None]) -> None:
    """Change the lines of a file, decoded."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(_dumped(line) + "\n" for line in lines))


def _dumped(line: Any) -> str:
    """A line as JSON; the texts of `_nested` are JSON already."""
    return re.sub(r'"(\[+\]+)"', r"\1", json.dumps(line))


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def _first(lines: list[Any], kind: str) -> list[Any]:
    return next(line for line in lines if isinstance(line, list) and line[0] == kind)


def _first_part(lines: list[Any]) -> dict[str, Any]:
    return next(line for line in lines if isinstance(line, dict) and line.get("kind") == "part")


def _rename_first_signal(lines: list[Any]) -> None:
    lines[1]["name"] = "workflow:begin"


def _swap(lines: list[Any]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _format(version: str) -> Callable[[list[Any]], None]:
    def change(lines: list[Any]) -> None:
        lines[0]["heliograph_recording"] = version

    return change


def _drop_end(lines: list[Any]) -> None:
    del lines[-1]


def _change_state(payload: dict[str, Any]) -> Callable[[list[Any]], None]:
    return lambda lines: lines[2].update(name="state:a:changed", payload=payload)


@pytest.mark.parametrize(("change", "code", "line", "text"), [
    (_rename_first_signal, "recording_edited", None, "--edited"),
    (_swap, "invalid_recording", 3, "signal 3 is not at its place"),
    (_drop_end, "recording_truncated", None, "copy the whole file"),
    (_format("3.0"), "recording_version", 1, "3.0 is newer than 2.0"),
    (_format("0.9"), "recording_version", 1, "0.9 is older than 2.0"),
    (_format("next"), "invalid_recording", 1, "is no version"),
    (lambda lines: lines.insert(1, ["now", "x"]), "invalid_recording", 2, "not within a part"),
    (lambda lines: lines.insert(1, {"kind": "poem"}), "invalid_recording", 2, "a line of kind poem"),
    (lambda lines: lines[1].pop("seq"), "invalid_recording", 2, "the signal is incomplete"),
    (lambda lines: lines[1].update(at="2026-01-01T00:00:00"), "invalid_recording", 2, "no time zone"),
    (_format("1." + "9" * 30), "invalid_recording", 1, "9 is no version"),
    (lambda lines: lines.pop(0), "invalid_recording", 1, "no recording of Heliograph"),
    (lambda lines: lines[0].update(tags=7), "invalid_recording", 1, "Expected `array`"),
    (lambda lines: lines[0].update(run_id=None), "invalid_recording", 1, "Expected `str`"),
    (lambda lines: lines[1].update(turn=[]), "invalid_recording", 2, "agent, parent and turn"),
    (lambda lines: lines[1].update(payload=_nested(300)), "invalid_recording", 2, "more than 250 containers"),
    (_change_state({"value": {"/a" * 3000: 1}, "parts": True}), "invalid_recording", 3, "a JSON pointer of more than 64 keys"),
    (_change_state({"value": {}, "parts": True, "removed": ["/a", "/" * 65]}), "invalid_recording", 3, "pointer of more than 64 keys; restore"),
    (lambda lines: lines[1].update(payload=_nested(5000)), "invalid_recording", 2, "the line is no JSON"),
    (lambda lines: _first(lines, "now").pop(), "invalid_recording", None, "is incomplete or has a wrong type"),
    (lambda lines: _first(lines, "now").__setitem__(1, "noon"), "invalid_recording", None, "has no time"),
    (lambda lines: _first(lines, "call").__setitem__(4, {"first": "x"}), "invalid_recording", None, "is not in the log"),
    (lambda lines: _first(lines, "call").__setitem__(4, {"first": 99, "count": 1}), "invalid_recording", None, "not in the log, which ends"),
    (lambda lines: _first(lines, "call").__setitem__(4, {"first": 1, "count": -1}), "invalid_recording", None, "which ends with signal"),
    (lambda lines: _first(lines, "call").__setitem__(0, "poem"), "invalid_recording", None, "of kind poem is not known"),
    (lambda lines: _first_part(lines)["data"].clear(), "invalid_recording", None, "the part is incomplete"),
])  # fmt: skip
def test_damaged_file_is_rejected_with_its_line(
    path: Path, change: Callable[[list[Any]], None], code: str, line: int | None, text: str
) -> None:
    edit(path, change)
    with pytest.raises(RecordingRejected) as raised:
        read_recording(path)
    error = raised.value
    assert (error.code, error.path) == (code, str(path))
    assert text in error.message
    assert error.exit_code == 2
    if line is not None:
        assert error.details == {"file": str(path), "line": line}


def test_later_minor_version_is_read_and_its_unknown_keys_are_ignored(path: Path) -> None:
    def later(lines: list[Any]) -> None:
        lines[0] |= {"heliograph_recording": "2.9", "mood": "good"}
        lines[1]["colour"] = "red"

    edit(path, later)
    assert read_recording(path, edited=True).header.format == (2, 9)


def test_edited_file_is_read_if_the_caller_allows_it(path: Path) -> None:
    edit(path, _rename_first_signal)
    assert read_recording(path, edited=True).signals[0].name == "workflow:begin"


def test_truncated_line_and_unreadable_file_are_rejected(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordingRejected, match="the line is cut off; copy the whole file"):
        read_recording(path)
    path.write_bytes(b"\xff\x00not text\n{}")
    with pytest.raises(RecordingRejected, match="line 1: the line is no JSON"):
        read_recording(path)
    with pytest.raises(NotFound) as raised:
        read_recording(path.with_name("nowhere"))
    assert raised.value.code == "file_not_found"


def test_file_with_ends_of_lines_as_on_windows_is_read(path: Path, recording: Recording) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(lines_of(read_recording(path))) == list(lines_of(recording))


def test_file_with_a_byte_order_mark_a_nul_or_a_long_line_is_rejected(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    with pytest.raises(RecordingRejected, match="line 1: the line is no JSON"):
        read_recording(path)
    path.write_bytes(content.replace(b"\n", b"\n\0", 1))
    with pytest.raises(RecordingRejected, match="line 2: the line is no JSON"):
        read_recording(path)
    path.write_bytes(content)
    monkeypatch.setattr(file_module, "LINE_BYTES_MAX", 64)
    with pytest.raises(RecordingRejected, match="line 1: the line has 64 bytes or more"):
        read_recording(path)


@pytest.mark.parametrize("name", ["no\0name", "/dev/zero", "/dev/null", ".", ""])
def test_path_that_is_no_file_is_neither_read_nor_written(recording: Recording, name: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_recording(name)
    assert raised.value.code == "unreadable_file"
    with pytest.raises(InvalidInput) as raised:
        write_recording(recording, name)
    assert raised.value.code == "unwritable_file"
    assert name != "/dev/null" or not os.path.isfile(name), "the device was replaced"


def test_write_that_fails_leaves_neither_a_file_nor_a_temporary_one(recording: Recording, path: Path) -> None:
    before = path.read_bytes()
    [first, *rest] = recording.signals
    broken = replace(recording, signals=[msgspec.structs.replace(first, payload={"x": object()}), *rest])
    with pytest.raises(TypeError):
        write_recording(broken, path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["run.jsonl"]


def test_nothing_is_written_into_a_folder_that_does_not_exist(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        write_recording(recording, tmp_path / "no" / "run.jsonl")
    assert raised.value.code == "unwritable_file"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("P-29")
def test_no_secret_is_in_a_file(tmp_path: Path) -> None:
    canary = "canary-7f3a91-Secret"
    Secret(canary)
    key = "sk-proj-" + "a1B2" * 8
    app = thin(
        f"The key is {canary}, or {key}.",
        prompt=f"Use {canary} and Bearer {key} at https://ann:pass1234@host/ {{state.text}}",
    )
    found = record_simulated(app, 3, state={"text": f"{canary} {key}"})
    write_recording(found, tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text()
    for secret in (canary, key, "pass1234"):
        assert secret not in text
    assert "***" in text


@pytest.mark.proves("P-29")
def test_no_secret_of_a_tool_a_step_an_error_or_a_model_is_in_a_file(tmp_path: Path) -> None:
    canary = "canary-9c4e22-Secret"
    Secret(canary)
    app = Heliograph("leaky")

    @tool(effect="idempotent")
    async def fetch(key: str) -> dict[str, str]:
        return {"echo": f"{canary} {key}", canary: "a key of an object"}

    @tool(effect="idempotent")
    async def fail(key: str) -> str:
        raise ToolFailed(f"401 for {canary}", details={"header": f"Bearer {canary}"})

    class Refusing:
        model = "refusing"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            raise HarnessError(f"authorization: {canary}", details={"x-api-key": canary}, hint=canary)
            yield

    calls = [ToolCall("1", "fetch", {"key": canary}), ToolCall("2", "fail", {"key": canary})]
    model = ScriptedModel([*calls, ModelReply(f"It is {canary}", thinking=f"Hm, {canary}")])
    app.prompt_agent(
        "ann", "Look", model=[Refusing(), model], tools=[fetch, fail], activate_on=["workflow:start"], updates="ann"
    )

    @app.agent(activate_on=["state:ann:changed"], emits=["said"], updates="both")
    async def bob(ctx: Context) -> str:
        async def breaks() -> str:
            raise RuntimeError(canary)

        with suppress(ToolFailed):
            await ctx.step("breaks", breaks)
        ctx.emit("said", {"key": canary})
        ctx.progress(0.5, canary)
        await ctx.approve(f"Send {canary}?", arguments={"to": canary})
        return f"{await ctx.step('whole', lambda: [canary])} {ctx.state['ann']}"

    found = record_simulated(app, 3, state={"text": canary})
    assert found.header.outcome == "success", [s.payload for s in found.signals if "error" in str(s.payload)]
    write_recording(found, tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text()
    assert canary not in text
    assert "401 for ***" in text
    assert "authorization: ***" in text
