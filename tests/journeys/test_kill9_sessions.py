"""`kill -9` of the process of a session with messages in flight, and the same messages again."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually

ROOT = Path(__file__).parent.parent.parent
TEXTS = ["one", "two", "three", "four", "five"]


class Chat:
    """The processes of one session, the file of the messages that its agent has begun, and the gate at the second one."""

    def __init__(self, url: str, folder: Path):
        self.effects, self.gate = folder / "effects", folder / "gate"
        self._environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": str(ROOT),
                             "KILL9_EFFECTS": str(self.effects), "KILL9_GATE": str(self.gate)}  # fmt: skip

    def begin(self) -> subprocess.Popen[str]:
        command = forked("tests.journeys.kill9_sessions_app")
        return subprocess.Popen(command, env=self._environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def begun(self) -> Counter[str]:
        return Counter(self.effects.read_text().split() if self.effects.exists() else [])

    def has_begun(self, text: str, times: int) -> bool:
        return self.begun()[text] == times

    def result(self) -> Any:
        output, _ = self.begin().communicate(timeout=30)
        return json.loads(output)


@pytest.mark.more  # leases of killed processes
@pytest.mark.proves("P-40")
def test_messages_of_a_killed_process_are_answered_once_and_in_their_order(database_url: str, tmp_path: Path) -> None:
    chat = Chat(database_url, tmp_path)
    for times in (1, 2):
        process = chat.begin()
        eventually(partial(chat.has_begun, "two", times), 30)
        process.kill()
        process.communicate()
    chat.gate.touch()
    replies, history = chat.result()
    assert replies == [[f"to {text}", f"turn_anna_{text}"] for text in TEXTS]
    assert history == [[role, start + text] for text in TEXTS for role, start in (("user", ""), ("assistant", "to "))]
    assert chat.begun() == {"one": 1, "two": 3, "three": 1, "four": 1, "five": 1}
    assert chat.result() == [replies, history]  # sent again, and only read
    assert chat.begun().total() == 7
