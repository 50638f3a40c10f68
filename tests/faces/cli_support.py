"""Run `helio`, and the applications that these tests run with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.faces.warm_helio import WarmHelio

HELIO = Path(sys.executable).with_name("helio")
SECONDS = 90  # a limit, not a claim: on a busy machine each `helio` takes a second

# writer: emits progress, and follows the state: on its first run, `stall` blocks it forever, and `hold` until a file
# exists. critic: a plain function that the draft activates.
PRESS = """
import asyncio
import sys
from pathlib import Path
from heliograph import Heliograph

app = Heliograph("press")


@app.agent(activate_on=["workflow:start"], emits=["draft:ready"], updates="draft")
async def writer(c):
    c.progress(0.5, "half way")
    stalled = Path(f"stalled-{c.run_id}")
    if c.document.get("stall") and not stalled.exists():
        stalled.touch()
        await asyncio.Event().wait()
    while "hold" in c.document and not Path(c.document["hold"]).exists():
        await asyncio.sleep(0.01)
    if c.document.get("fail"):
        raise ValueError("no ink")
    return "the draft"


@app.agent(activate_on=["draft:ready"], updates="verdict")
def critic(c):
    sys.stdout.write("the critic prints this\\n")  # print() writes its end by itself, and a signal may come between
    sys.stdout.flush()
    return f"good: {c.document['draft']}"
"""


@dataclass
class Shell:
    """A folder that contains press.py, and an environment that names only its database."""

    folder: Path
    url: str | None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        # buffered, as it is for users: some machines that run tests have it otherwise
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HELIOGRAPH_") and k != "PYTHONUNBUFFERED"}
        made = {"HELIOGRAPH_HOME": str(self.folder / "home"), "TZ": "UTC", "NO_COLOR": "1", "COLUMNS": "120"}
        if self.url is not None:
            made["HELIOGRAPH_DATABASE_URL"] = self.url
        return inherited | made | dict(self.extra)

    def helio(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `helio` until it exits, in a fork of a warm process where that makes no difference."""
        environment, command = self.environment, [str(HELIO), *arguments]
        if (server := warm()).runs(command, environment):
            return server.run(command, self.folder, environment, SECONDS)
        return subprocess.run([HELIO, *arguments], cwd=self.folder, env=self.environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)  # fmt: skip

    def helio_with_input(self, stdin: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `helio` with these bytes on its stdin until it exits, in a fork of a warm process."""
        assert warm().runs([str(HELIO), *arguments], self.environment)
        done = subprocess.run(warm().client(str(HELIO), *arguments), input=stdin, cwd=self.folder, env=self.environment,
                              check=False, capture_output=True, timeout=SECONDS)  # fmt: skip
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run `helio --json` successfully and return the objects that it prints."""
        done = self.helio(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: str) -> Running:
        return Running(subprocess.Popen([HELIO, *arguments], cwd=self.folder, env=self.environment, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT))  # fmt: skip

    def bash(self, script: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | {"PATH": f"{HELIO.parent}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(["bash", "-c", script], cwd=self.folder, env=environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)  # fmt: skip


@cache
def warm() -> WarmHelio:
    """The warm `helio` of this test process."""
    return WarmHelio(Shell(Path(), None).environment)


def open_shell(folder: Path, url: str | None) -> Shell:
    (folder / "press.py").write_text(PRESS)
    return Shell(folder, url)


class Running:
    """A running `helio` process, whose stdout and stderr are read together, line by line."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.lines: list[str] = []
        # a silent process would block its reader, and killing it ends the reading
        self._limit = threading.Timer(SECONDS, process.kill)
        self._limit.daemon = True
        self._limit.start()

    def read_until(self, text: str) -> str:
        """Read until a line contains `text`, and return it. Fails with the whole output if no line does."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return line
        raise AssertionError(f"{text!r} did not come:\n" + "\n".join(self.lines))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Read the remaining output, wait for the process to exit, and return its exit code."""
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.lines += self.process.stdout.read().splitlines()
            self.process.stdout.close()
            self._limit.cancel()
        return self.process.wait(SECONDS)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


_VARYING = [
    (re.compile(r"\b((?:sig_|card_|box_)?(?:run|turn))_[0-9a-z]{21}"), r"\1_ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ?"), "DATE"),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}"), "TIME"),
    (re.compile(r"[\w.-]+:\d+:[0-9a-z]{8}\b"), "WORKER"),
    (re.compile(r"(\b|\+)\d+(\.\d)? (ms|s)\b"), "SPAN"),
    (re.compile(r"\bpython \d\.\d+"), "PYTHON"),
    (re.compile(r" {2,}"), "  "),
]


def normalised(text: str) -> str:
    """Replace ids, times, owners, versions of Python and widths, which differ between runs, by their kind."""
    for pattern, kind in _VARYING:
        text = pattern.sub(kind, text)
    return text.strip()
