"""`helio diff`: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import pytest

from heliograph.cli import diff as diff_module
from heliograph.cli import signal_source
from heliograph.cli.arguments import run_or_file
from heliograph.cli.signal_source import RecordingSource, open_sources, signals_of
from heliograph.errors import InvalidInput, NotFound
from heliograph.recording import file as file_module
from heliograph.recording.file import RecordingRejected, header_of, write_recording
from heliograph.recording.recording import Recording
from heliograph.signals.model import Signal
from heliograph.types import JsonObject
from tests.rules.playback_kit import signal

LEFT = [
    signal(1, "workflow:start", payload={"state": {}}),
    signal(2, "a:x", "poet", 1, {"n": "one\x1b[2J"}),
    signal(3, "a:y", "critic", 1),
]
RIGHT = [LEFT[0], signal(2, "a:x", "poet", 1, {"n": "two"}), LEFT[2]]


class Source:
    def __init__(self, name: str, signals: list[Signal]):
        self.name = name
        self.has_ended = name != "open"
        self._signals = iter(signals)

    async def page(self) -> list[Signal]:
        return list(islice(self._signals, 2))


@pytest.fixture(autouse=True)
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def opened(*names: str, edited: bool) -> AsyncIterator[list[Source]]:
        yield [Source(name, RIGHT if name == "other" else LEFT) for name in names]

    monkeypatch.setattr(diff_module, "open_sources", opened)


def diff(left: str, right: str, *, as_json: bool = False, exact: bool = False) -> int:
    return diff_module.diff(Namespace(left=left, right=right, json=as_json, exact=exact, edited=False))


def test_equal_runs_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("one", "one") == 0
    assert capsys.readouterr().out == "equal: 3 signals and 3\n"


def test_different_runs_exit_with_one_and_show_place_and_agents(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("one", "other") == 1
    assert capsys.readouterr().out == (
        "first difference:\n  left   sig_r_2  a:x  poet\n  right  sig_r_2  a:x  poet\n  /payload/n: one\\x1b[2J -> two\n\n"
        "AGENT   one  other  EQUAL  FIRST DIFFERENCE\n-       1    1      1      -\ncritic  1    1      1      -\n"
        "poet    1    1      0      its signal 1\n"
    )


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("one", "other", as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["first"]["left"]["id"], found["agents"]["poet"]["first_difference"]) == (
        False,
        "sig_r_2",
        1,
    )


def test_run_that_has_not_ended_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("open", "one") == 0
    assert "open has not ended; its signals up to now are compared" in capsys.readouterr().err


async def test_file_of_a_recording_is_read_without_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signals = [signal(seq, "a:x", "poet") for seq in range(5, 2010)]
    recording = Recording(header_of("app", "r", "success", None, ()), signals, [], [], frozenset())
    write_recording(recording, tmp_path / "r.jsonl")
    monkeypatch.chdir(tmp_path)
    async with open_sources("r.jsonl", "r.jsonl") as (source, again):
        assert (source.name, source.has_ended) == ("r.jsonl", True)
        assert [each.seq async for each in signals_of(source)] == list(range(5, 2010))
        assert [each.seq for each in await again.page()][:1] == [5]


@pytest.mark.parametrize("code", ["unknown_run", "no_data"])
async def test_file_without_a_suffix_is_read_if_no_run_has_its_name(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Runs:
        async def run(self, run_id: str) -> Namespace:
            if run_id != "first":
                raise NotFound(f"no run {run_id}", code="unknown_run")
            return Namespace(run_id=run_id, status="ended")

    @asynccontextmanager
    async def opened(wanted: str) -> AsyncIterator[Runs]:
        if code == "no_data":
            raise NotFound("there is no database", code=code)
        yield Runs()

    monkeypatch.setattr(signal_source, "open_existing", opened)
    monkeypatch.chdir(tmp_path)
    recording = Recording(header_of("app", "r", "success", None, ()), [signal(1, "a:x", "poet")], [], [], frozenset())
    for name in ("oil", "first", "two words"):
        write_recording(recording, tmp_path / name)
    async with open_sources("oil", "oil") as sources:
        assert [type(source) for source in sources] == [RecordingSource, RecordingSource]
    assert "oil is not the id of a run; the file of this name is read" in capsys.readouterr().err
    with pytest.raises(NotFound) as caught:
        async with open_sources("oil", "gas"):
            raise AssertionError("there is neither a run nor a file")
    assert caught.value.code == code
    async with open_sources("first") as (source,):
        assert isinstance(source, RecordingSource) == (code == "no_data"), "a run has the first claim to its name"
    assert run_or_file("RUN|FILE")("two words") == "./two words"
    with pytest.raises(InvalidInput):
        run_or_file("RUN|FILE")("three words")


async def test_recording_is_read_page_by_page_and_checked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count, read = tmp_path / "r.jsonl", 3000, list[int]()
    recording = Recording(
        header_of("app", "r", "success", None, ()), [signal(seq, "a:x", "poet") for seq in range(1, count)], [], []
    )
    write_recording(recording, path)
    path.write_bytes(path.read_bytes()[:-10])
    made = file_module._signal

    def counted(value: JsonObject, run_id: str) -> Signal:
        read.append(1)
        return made(value, run_id)

    monkeypatch.setattr(file_module, "_signal", counted)
    async with open_sources(str(path)) as (source,):
        await source.page()
        assert len(read) == 1000, "the rest of the file is not in memory"
        with pytest.raises(RecordingRejected) as caught:
            _ = [each async for each in signals_of(source)]
    assert (caught.value.code, len(read)) == ("recording_truncated", count - 1)


def test_missing_file_is_an_error_that_names_it() -> None:
    with pytest.raises(NotFound) as caught:
        RecordingSource("missing.jsonl")
    assert (caught.value.code, "missing.jsonl" in caught.value.message) == ("file_not_found", True)


async def test_file_that_was_changed_by_hand_is_read_if_the_user_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        (Path(__file__).parents[1] / "recording" / "earlier" / "shop.jsonl")
        .read_bytes()
        .replace(b"workflow:end", b"workflow:odd")
    )
    with pytest.raises(RecordingRejected, match="--edited"):
        [each async for each in signals_of(RecordingSource(str(path)))]
    async with open_sources(str(path), edited=True) as (source,):
        assert [each.name async for each in signals_of(source)][-1] == "workflow:odd"
