"""Every JSON line that `helio --json` prints has the type and the keys that the reference page of JSON lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.faces.cli_support import Shell, open_shell

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "json.md"
ROW = re.compile(r"^\| `(?P<type>[a-z_]+)` \| (?P<by>[^|]*) \| (?P<keys>[^|]*) \|", re.MULTILINE)
PRINTED = re.compile(r'json_line\(\s*"([a-z_]+)"|kind="([a-z_]+)", none=')

# Every kind of object in one run: a question, an external call, a child, a failing and a limited tool, a subscriber.
OFFICE = """
from heliograph import Context, Heliograph
from heliograph.models import ScriptedModel

app = Heliograph("office")


@app.agent(activate_on=["workflow:start"], emits=["note:written"], updates="note")
async def clerk(ctx: Context):
    await ctx.delegate(junior, {"paper": 1})
    try:
        await ctx.call("fax", circuit_breaker={"failure_threshold": 1}, rate_limit="5/h")
    except Exception:
        pass
    return await ctx.ask("Which colour?")


@app.agent(on_request=True)
def junior(ctx: Context):
    return "done"


app.prompt_agent("talker", "{message}", model=ScriptedModel(["Good morning."]), on_request=True)


@app.on_signal("workflow:end")
def ended(signal):
    pass
"""
MANIFEST_FILE = "apiVersion: ossa/v0.4.9\nkind: Agent\n"
NOT_RUN = {"check_result"}  # the suite takes minutes; its keys are compared with the source


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """The required and the optional keys of each type."""
    found = {}
    for row in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        keys = re.findall(r"`([^`]+)`", row["keys"])
        found[row["type"]] = {k for k in keys if not k.endswith("?")}, {k[:-1] for k in keys if k.endswith("?")}
    return found


def test_page_lists_every_type_that_the_source_prints() -> None:
    printed = {"error"}
    for path in (ROOT / "src" / "heliograph" / "cli").rglob("*.py"):
        printed |= {one or other for one, other in PRINTED.findall(path.read_text(encoding="utf-8"))}
    assert sorted(printed) == sorted(documented())


class Lines:
    """Runs commands with `--json`, and keeps what they print."""

    def __init__(self, shell: Shell) -> None:
        self.shell, self.all = shell, list[dict[str, Any]]()

    def of(self, command: str, *more: str, code: int = 0) -> list[dict[str, Any]]:
        """The lines of one command. command: separated by spaces; `more` are arguments with spaces."""
        done = self.shell.helio(*command.split(), *more, "--json")
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        return self.keep(done.stdout)

    def keep(self, output: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        self.all += found
        return found

    def awaited(self, command: str) -> dict[str, Any]:
        """The first line of a list, once it has one."""
        while not (found := self.of(command)):
            pass  # a command takes long enough
        return found[0]


def during(lines: Lines) -> str:
    """The commands for a run that waits; return the turn that waits."""
    call = lines.awaited("call list")
    [taken] = lines.of("call take fax")
    lines.of(f"call report {call['turn_id']} {call['call_id']} --token {taken['token']} --error", "no paper")
    task = lines.awaited("approval list")
    lines.of("run show monday")
    lines.of("send monday talker Hello --wait")
    lines.of("send monday talker Hello")
    lines.of("worker list")
    (lines.shell.folder / "office.py").write_text(OFFICE.replace('"fax"', '"telex"'))
    lines.of("upgrade check office.py:app", code=1)
    (lines.shell.folder / "office.py").write_text(OFFICE)
    lines.of(f"approval answer {task['turn_id']} {task['call_id']} red")
    return str(task["turn_id"])


def afterwards(lines: Lines, turn: str) -> None:
    """The commands for a run that has ended."""
    lines.of("turn list")
    [shown] = lines.of(f"turn show {turn}")
    lines.of(f"turn children {turn}")
    lines.of(f"box show {shown['output_box_id']}")
    [callback] = lines.of("callback list")
    lines.of(f"callback redeliver {callback['callback_id']}")
    lines.of("run fork monday --at 2 --app office.py:app --run-id tuesday")
    for command in (
        "run list", "run show monday", "run stop tuesday", "signal tail --run monday", "signal why sig_monday_9", "signal tree monday",
        "signal graph monday", "signal why-not monday junior", "signal subscriptions", "signal unsubscribe office.ended",
        "signal catalog office.py:app", "record list", "record export monday monday.jsonl", "replay monday.jsonl --app office.py:app",
        "diff monday monday", "play monday --at end", "top",
    ):  # fmt: skip
        lines.of(command)


def around(lines: Lines) -> None:
    """The commands that need no run."""
    for command in (
        "db install", "db wires --declare postgres", "db limits", "db breakers", "db rates", "db roles", "db doctor", "db url", "db sql",
        "db prune --older-than 30d --dry-run", "check office.py:app", "graph office.py:app", "schema", "init RuntimeSpec", "init tools",
        "completion bash", "conformance --list",
    ):  # fmt: skip
        lines.of(command)
    lines.of("validate agent.yaml", code=2)
    lines.of("turn show missing", code=3)


@pytest.mark.more
@pytest.mark.timeout(300)
def test_every_line_has_the_documented_keys(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    (tmp_path / "office.py").write_text(OFFICE)
    (tmp_path / "agent.yaml").write_text(MANIFEST_FILE)
    lines = Lines(shell)
    run = shell.start(
        "run",
        "office.py:app",
        "--run-id",
        "monday",
        "--record-name",
        "first",
        "--callback",
        "https://example.org/done",
        "--json",
    )
    turn = during(lines)
    lines.keep(run.process.communicate()[0])
    afterwards(lines, turn)
    around(lines)
    expected = documented()
    wrong = []
    for line in lines.all:
        required, optional = expected[line["type"]]
        keys = {*line} - {"type"}
        if missing_or_new := (required - keys) | (keys - required - optional):
            wrong.append((line["type"], sorted(missing_or_new)))
    assert wrong == []
    assert sorted(expected.keys() - {line["type"] for line in lines.all}) == sorted(NOT_RUN)
