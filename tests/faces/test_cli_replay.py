"""`helio replay`: the application that it needs, recordings of other versions, and files that it rejects."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.cli.replay_hints import hints
from heliograph.recording.file import read_recording, write_recording
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.replay_recording import replay_recording
from tests.faces.cli_support import Shell
from tests.recording.simulated import record_simulated
from tests.recording.test_replay import THIN, thin

SHOP = Path(__file__).parent.parent / "recording" / "earlier" / "shop.jsonl"
SLOW = """
from heliograph import Context, Heliograph

app = Heliograph("shop")

@app.agent(activate_on=["workflow:start"], updates="order", emits=["order:placed"])
async def clerk(ctx: Context) -> None:
    print("reached", flush=True)
    while True:
        pass

for name in ("big", "broken", "noter"):
    app.agent(name=name, activate_on=["order:placed"])(lambda ctx: None)
"""
ROOT = SHOP.parents[3]
APP = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.recording.test_earlier_recordings import shop
app = shop()
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "run.jsonl").write_bytes(SHOP.read_bytes())
    (tmp_path / "other.py").write_text(
        "from heliograph import Heliograph\napp = Heliograph('other')\n@app.agent()\ndef agent(ctx): ...\n"
    )
    return Shell(tmp_path, None)


def replay(shell: Shell, *options: str) -> subprocess.CompletedProcess[str]:
    return shell.helio("replay", "run.jsonl", *options)


def change(shell: Shell, edit: Callable[[list[Any]], None], *, seals: bool = False) -> None:
    """Edit the lines of the recording. seals: give it the hash of its new lines, as its writer would."""
    path = shell.folder / "run.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edit(lines)
    texts = [json.dumps(line) + "\n" for line in lines]
    if seals:
        digest = hashlib.sha256("".join(texts[:-1]).encode()).hexdigest()
        texts[-1] = json.dumps({**lines[-1], "sha256": digest}) + "\n"
    path.write_text("".join(texts))


@pytest.mark.parametrize(("loaded_from", "command"), [
    (None, "helio replay run.jsonl --app FILE.py:app"),
    ("my shop.py:app", "helio replay run.jsonl --app 'my shop.py:app'"),
], ids=["unknown", "known"])  # fmt: skip
def test_replay_without_an_application_names_it_and_the_command(
    shell: Shell, loaded_from: str | None, command: str
) -> None:
    path = shell.folder / "run.jsonl"
    found = read_recording(path)
    write_recording(replace(found, header=replace(found.header, loaded_from=loaded_from)), path)
    done = replay(shell)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: recording run.jsonl is of application shop; name the file that defines it\nhint: {command}\n")  # fmt: skip


def test_recording_of_a_later_minor_version_is_replayed(shell: Shell) -> None:
    def later(lines: list[Any]) -> None:
        lines[0] |= {"heliograph_recording": "1.9", "mood": "good"}
        for line in lines[1:]:
            if isinstance(line, dict):
                line["colour"] = "red"

    change(shell, later, seals=True)
    done = replay(shell, "--app", "shop.py:app", "--ci")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("replayed ")


def _reorder(lines: list[Any]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


@pytest.mark.parametrize(("edit", "app", "code", "next_step"), [
    (lambda lines: lines.pop(), "shop", "recording_truncated", "copy the whole file"),
    (_reorder, "shop", "invalid_recording", "restore the order of the lines"),
    (lambda lines: lines[1].update(name="workflow:begin"), "shop", "recording_edited", "--edited"),
    (lambda lines: None, "other", "other_application", "name the application that it was recorded with"),
    (lambda lines: lines[0].update(heliograph_recording="3.0"), "shop", "recording_version", "record the run again"),
], ids=["truncated", "reordered", "edited", "other", "future"])  # fmt: skip
def test_recording_that_cannot_be_replayed_has_a_code_and_a_next_step(
    shell: Shell, edit: Callable[[list[Any]], None], app: str, code: str, next_step: str
) -> None:
    change(shell, edit, seals=code == "other_application")
    done = replay(shell, "--app", f"{app}.py:app", "--json")
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == code
    assert next_step in f"{error['message']} {error.get('hint')}"
    assert "run.jsonl" in error["message"] or "shop" in error["message"]


def _lengthen(lines: list[Any]) -> None:
    lines[2] |= {"name": "state:a:changed", "payload": {"value": {"/a" * 3000: 1}, "parts": True}}


@pytest.mark.parametrize(
    "command", [("replay", "--app", "shop.py:app"), ("play", "--at", "end")], ids=["replay", "play"]
)
def test_edited_recording_with_a_part_below_too_many_keys_is_rejected(shell: Shell, command: tuple[str, ...]) -> None:
    change(shell, _lengthen)
    verb, *options = command
    done = shell.helio(verb, "run.jsonl", "--edited", *options, "--json")
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert error["code"] == "invalid_recording"
    assert "run.jsonl, line 3: signal 2 changes a part" in error["message"]
    assert error["message"].endswith("more than 64 keys; restore the file from its history")


@pytest.mark.more
def test_interrupt_ends_a_replay_though_an_agent_never_waits(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(SLOW)
    running = shell.start("replay", "run.jsonl", "--app", "shop.py:app", "--ci")
    running.read_until("reached")
    running.signal(signal.SIGINT)
    assert running.end() == 130
    assert running.lines == ["reached"]


def hints_of(app: Heliograph, *, record: bool = True, accept: Collection[str] = ()) -> list[str]:
    recording = record_simulated(thin(), 1, state=THIN, record=record)
    result = replay_recording(recording, app.workflow, ReplayPolicy(accept))
    return list(hints(recording, app.workflow, result, accept))


@pytest.mark.parametrize("record", [True, False])
def test_replay_that_diverged_names_the_option_that_accepts_the_change(record: bool) -> None:
    assert hints_of(thin(), record=record) == []
    [agents, *_] = hints_of(thin(more=True), record=record)
    assert agents == "the application has agents that the recording lacks: late; --accept agents replays without them"
    assert hints_of(thin(more=True), record=record, accept=["agents"]) == []
    assert hints_of(thin(tool_name="find"), record=record) == [
        "if a tool has another name now, add --renamed-tool look=find"
    ]
    [prompts] = hints_of(thin(prompt="Find {state.text}"), record=record)
    assert "--accept prompts" in prompts
