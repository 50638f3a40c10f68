"""Patterns mean the same for agents, in the kernel, and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.signals import compile_pattern
from tests.faces.cli_support import open_shell

NAMES = ["a:c", "a:b:c", "a:b:b:c", "v1.x:done", "very:deep:done", "done:so"]
PATTERNS = {
    "a:*:c": ["a:b:c"],
    "a:**:c": ["a:c", "a:b:c", "a:b:b:c"],
    "*:done": ["v1.x:done"],
    "**:done": ["v1.x:done", "very:deep:done"],
    "a:c": ["a:c"],
    "v1.x:*": ["v1.x:done"],
    "tool:*": ["tool:call", "tool:result"],
    "*:result": ["tool:result"],  # the kernel logs it, when the pause is over
}
APP = f"""\
from heliograph import Heliograph

NAMES = {NAMES}
PATTERNS = {list(PATTERNS)}
app = Heliograph("words")


@app.agent(activate_on=["workflow:start"], emits=NAMES)
async def speaker(ctx):
    await ctx.pause(0.01)
    for name in NAMES:
        ctx.emit(name)


for n, pattern in enumerate(PATTERNS):
    app.agent(name=f"listener{{n}}", activate_on=[pattern])(lambda ctx: None)
"""


@pytest.mark.more
@pytest.mark.proves("G-34")
def test_pattern_matches_the_same_signals_for_agents_for_the_kernel_and_for_tail(
    tmp_path: Path, database_url: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    (shell.folder / "words.py").write_text(APP)
    assert shell.helio("run", "words.py:app", "--run-id", "words").returncode == 0
    log = shell.rows("signal", "tail", "--run", "words")
    named = {row["id"]: row["name"] for row in log}
    for n, (pattern, expected) in enumerate(PATTERNS.items()):
        woken_by = [named[row["source"]["parent"]] for row in log
                    if row["name"] == "agent:activated" and row["payload"] == {"agent": f"listener{n}"}]  # fmt: skip
        printed = [row["name"] for row in shell.rows("signal", "tail", "--run", "words", pattern)]
        matched = [row["name"] for row in log if compile_pattern(pattern).matches(row["name"])]
        assert sorted(woken_by) == sorted(printed) == sorted(matched) == sorted(expected), pattern
        assert compile_pattern(pattern) is compile_pattern(str(pattern.encode(), "ascii"))  # compiled once
