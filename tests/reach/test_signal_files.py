"""Files of signals: whole lines, also after a rename, a full disk and a killed process."""

from __future__ import annotations

import json
import os
import signal as signals_of_the_os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heliograph.adapters import JsonLines
from heliograph.adapters.base import TargetUnavailable
from heliograph.adapters.line_file import LineFile
from heliograph.redaction import keep_out
from tests.reach.adapter_kit import CANARY, logged, opened


@pytest.mark.proves("P-19", "P-29")
async def test_file_has_a_redacted_line_per_signal_and_follows_its_name(tmp_path: Path) -> None:
    keep_out(CANARY)
    path = tmp_path / "signals.jsonl"
    async with opened(JsonLines(path)) as receive:
        await receive([logged(1, payload=CANARY), logged(2, payload="two\nlines")])
        path.rename(tmp_path / "rotated.jsonl")
        await receive([logged(3)])
        path.unlink()
        await receive([logged(4)])
    assert [line["payload"] for line in lines_of(tmp_path / "rotated.jsonl")] == ["***", "two\nlines"]
    assert [line["id"] for line in lines_of(path)] == ["sig_r_4"]


async def test_signals_wait_while_their_file_cannot_be_written(tmp_path: Path) -> None:
    async with opened(JsonLines(tmp_path / "later" / "signals.jsonl")) as receive:
        with pytest.raises(TargetUnavailable, match=r"signals\.jsonl cannot be written: No such file"):
            await receive([logged(1)])
        (tmp_path / "later").mkdir()
        await receive([logged(1)])
    os.mkfifo(tmp_path / "pipe")
    async with opened(JsonLines(tmp_path / "pipe")) as receive:
        with pytest.raises(TargetUnavailable, match="no regular file"):
            await receive([logged(1)])


def test_failed_write_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "signals.jsonl", os.write
    file = LineFile(str(path))
    file.append(b'{"id":"1"}\n')

    def full(number: int, data: Any) -> int:
        if len(data) > 4:
            return write(number, bytes(data)[:4])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            file.append(b'{"id":"2"}\n')
    assert path.read_bytes() == b'{"id":"1"}\n'
    file.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"id":"1"}\n{"id":"2","na', b'{"id":"1"}\n'),
        (b'{"i', b""),
        (b'{"id":"' + b"x" * 200_000, b""),
        (b'{"id":"1","n":{}}', b'{"id":"1","n":{}}\n'),
        (b"a note", b"a note\n"),
        (b'{"id":"1"}\n{"other', b'{"id":"1"}\n{"other\n'),
        (b"", b""),
    ],
    ids=["half a line", "its first bytes", "a long one", "a whole one", "a note", "other JSON", "an empty file"],
)
def test_half_a_line_of_a_killed_process_is_removed_and_nothing_else(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "signals.jsonl"
    path.write_bytes(before)
    file = LineFile(str(path))
    file.append(b'{"id":"9"}\n')
    file.close()
    assert path.read_bytes() == after + b'{"id":"9"}\n'


WRITER = """
import sys
from heliograph.adapters.line_file import LineFile
file, line = LineFile(sys.argv[1]), b'{"id":"' + b"x" * 3_000_000 + b'"}\\n'
while True:
    file.append(line)
"""


@pytest.mark.more  # it starts processes
def test_file_has_whole_lines_after_its_writers_were_killed(tmp_path: Path) -> None:
    path = tmp_path / "signals.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(2)]
    for writer in writers:
        while not path.exists() or path.stat().st_size < 20_000_000:
            time.sleep(0.005)
        writer.send_signal(signals_of_the_os.SIGKILL)
        writer.wait()
    file = LineFile(str(path))
    file.append(b'{"id":"last"}\n')
    file.close()
    *killed, last = lines_of(path)
    assert last == {"id": "last"}
    assert {len(line["id"]) for line in killed} == {3_000_000}


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
