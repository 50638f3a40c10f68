"""`helio run --runtime --routing`, the same of `helio worker`, and `helio schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heliograph.manifest.schema_descriptions import described
from heliograph.manifest.schemas import KINDS, schema_of_kind
from tests.faces.cli_support import Shell, open_shell

HEADER = "apiVersion: ossa/v0.4.9\nkind: "
DESK = """
from heliograph import Context, Heliograph

app = Heliograph("desk")


@app.agent(activate_on=["workflow:start"], updates="code")
async def lead(ctx: Context) -> str:
    [result] = await ctx.calls([__import__("heliograph").Call("search", {"q": "ink"})])
    return result.error["code"]
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


def write(shell: Shell, name: str, text: str) -> str:
    (shell.folder / name).write_text(text)
    return name


@pytest.mark.more
def test_run_has_the_settings_of_its_manifest(shell: Shell) -> None:
    write(shell, "desk.py", DESK)
    write(
        shell,
        "runtime.yaml",
        f"{HEADER}RuntimeSpec\ncontrol_signals:\n  tool_call: {{timeout_seconds: 0.2}}\n  ready: {{payload: {{}}}}\n",
    )
    write(
        shell,
        "routing.yaml",
        f"{HEADER}MessageRouting\nroutes:\n  - match: {{tool_name: search}}\n    destination: {{queue: finders}}\n",
    )
    ran = shell.helio("run", "desk.py:app", "--run-id", "one", "--runtime", "runtime.yaml", "--routing", "routing.yaml")
    assert ran.returncode == 0, ran.stderr
    assert '"code": "TOOL_TIMEOUT"' in ran.stdout
    assert "warning: runtime.yaml:5:20: no_effect" in ran.stdout + ran.stderr
    assert "--runtime runtime.yaml --routing routing.yaml" in ran.stdout + ran.stderr


def test_problems_of_all_manifests_end_a_command_before_anything_runs(shell: Shell) -> None:
    write(shell, "runtime.yaml", f"{HEADER}RuntimeSpec\nlifecycl: {{}}\nlifecycle: {{max_iterations: many}}\n")
    write(shell, "routing.yaml", f"{HEADER}MessageRouting\n")
    for command in ("run", "worker"):
        ended = shell.helio(command, "press.py:app", "--runtime", "runtime.yaml", "--routing", "routing.yaml", "--json")
        assert ended.returncode == 2
        error = json.loads(ended.stdout)["error"]
        assert [(each["file"], each["line"], each["column"], each["code"]) for each in error["problems"]] == [
            ("routing.yaml", 1, 1, "required_field"), ("runtime.yaml", 3, 1, "unknown_field"), ("runtime.yaml", 4, 29, "wrong_type"),
        ]  # fmt: skip
        assert "runtime.yaml:3:1: unknown_field" in ended.stderr
        assert "hint: did you mean lifecycle?" in ended.stderr


def test_file_that_cannot_be_read_is_named(shell: Shell) -> None:
    assert shell.helio("run", "press.py:app", "--runtime", "missing.yaml").returncode == 3
    assert shell.helio("run", "press.py:app", "--runtime", ".").returncode == 2


@pytest.mark.proves("G-32")
def test_schemas_are_listed_and_printed(shell: Shell) -> None:
    listed = shell.helio("schema")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["KIND", *KINDS]
    as_json: list[Any] = [json.loads(line) for line in shell.helio("schema", "--json").stdout.splitlines()]
    assert [each["kind"] for each in as_json] == list(KINDS)
    for kind in KINDS:
        assert json.loads(shell.helio("schema", kind).stdout) == described(schema_of_kind(kind))
        assert json.loads(shell.helio("schema", kind, "--json").stdout) == described(schema_of_kind(kind))
    unknown = shell.helio("schema", "RuntimeSpecs")
    assert unknown.returncode == 2
    assert "did you mean RuntimeSpec?" in unknown.stderr


def test_schema_files_are_in_the_package() -> None:
    folder = Path(__file__).parents[2] / "src/heliograph/manifest/schemas"
    assert {path.stem for path in folder.glob("*.json")} >= set(KINDS)
