"""No command of this list prints, and no file has, a secret of the process or a text that looks like a key, wherever a run has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.cli_support import Shell

CANARY = "canary-of-commands-4d1e"
KEY = "sk-proj-" + "a1B2" * 8
APP = f"""
from heliograph import Context, Heliograph, tool
from heliograph.errors import ToolFailed
from heliograph.models import ModelReply, ScriptedModel, ToolCall

KEY, CANARY = "{KEY}", "{CANARY}"
app = Heliograph("leaky")


@tool(effect="idempotent")
async def fetch(key: str) -> dict[str, str]:
    return {{"echo": f"first line\\n{{KEY}}", KEY: CANARY}}


@tool(effect="idempotent")
async def fail(key: str) -> str:
    raise ToolFailed(f"401 for {{KEY}}", details={{"header": f"Bearer {{KEY}}"}})


model = ScriptedModel([ToolCall("1", "fetch", {{"key": KEY}}), ToolCall("2", "fail", {{"key": KEY}}), ModelReply(f"It is {{KEY}} or {{CANARY}}")])
app.prompt_agent("ann", f"Use {{KEY}} and {{CANARY}} at https://ann:{{CANARY}}@host/", model=model, tools=[fetch, fail],
                 activate_on=["workflow:start"], updates="ann")


@app.agent(activate_on=["state:ann:changed"], emits=["said"], updates="both")
async def bob(ctx: Context):
    async def breaks():
        raise RuntimeError(f"{{KEY}} {{CANARY}}")

    try:
        await ctx.step("breaks", breaks)
    except ToolFailed:
        pass
    ctx.emit("said", {{"key": KEY, "canary": [CANARY]}})
    ctx.progress(0.5, KEY)
    return {{"text": f"a\\n{{KEY}}", "canary": CANARY}}


@app.agent(activate_on=["state:both:changed"], when=lambda state, signal: state["both"]["text"] == KEY)
def eve(ctx: Context):
    return KEY


@app.agent(activate_on=["said"])
def ends(ctx: Context):
    raise ValueError(f"no ink for {{KEY}} and {{CANARY}}")
"""
READS = [
    "signal tail --run one", "signal tree one", "signal graph one", "signal why-not one eve --app leaky.py:app", "run show one", "turn list --run one",
    "play one --at end", "play r.jsonl --at end", "diff one two", "diff r.jsonl two", "replay r.jsonl --app leaky.py:app",
]  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "leaky.py").write_text(APP)
    return Shell(tmp_path, database_url, {"HELIOGRAPH_SECRET_CANARY": CANARY})


@pytest.mark.more
@pytest.mark.proves("P-29")
def test_no_command_and_no_file_has_a_secret_of_a_run(shell: Shell) -> None:
    def clean(*arguments: str) -> str:
        done = shell.helio(*arguments)
        text = done.stdout + done.stderr
        assert done.returncode in (0, 1), text
        assert KEY not in text, (arguments, text)
        assert CANARY not in text, (arguments, text)
        return text

    state = ["--state", f'{{"given": "{KEY} {CANARY}"}}']
    texts = [clean("run", "leaky.py:app", "--run-id", "one", "--record", "r.jsonl", *state),
             clean("run", "leaky.py:app", "--run-id", "two", "--json", *state)]  # fmt: skip
    assert "outcome" in texts[0], texts[0]
    for command in READS:
        texts += [clean(*command.split()), clean(*command.split(), "--json")]
    signals = shell.rows("signal", "tail", "--run", "one")
    for name in ("said", "agent:failed", "tool:result", "agent:completed"):
        last = [each for each in signals if each["name"] == name][-1]
        texts += [clean("signal", "why", last["id"]), clean("signal", "why", last["id"], "--json")]
    for target in (["--json-lines", "signals.jsonl"], ["--logs"]):
        texts.append(clean("signal", "send", f"all-{len(target)}", "**", "--since", "start", "--once", *target))
    for name in ("r.jsonl", "signals.jsonl"):
        file = (shell.folder / name).read_text()
        assert ("***" in file, KEY in file, CANARY in file) == (True, False, False), name
    stars = sum("***" in text for text in texts)
    assert stars > len(texts) // 2, f"only {stars} of {len(texts)} texts show stars"
