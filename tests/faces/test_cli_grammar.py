"""The grammar of commands, references to runs and turns, `--watch`, and the commands that explain a run or an application."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.app import Heliograph
from heliograph.cli.application_graph import Wake, _text, wakes_of
from heliograph.cli.dispatch import with_verb
from heliograph.cli.early_signals import exit_code_at_sigterm
from heliograph.cli.watch import watch
from tests.faces.cli_support import Shell, open_shell
from tests.faces.test_cli_start import leaves

DESK = """
from heliograph import Heliograph

one, two = Heliograph("one"), Heliograph("two")


async def ask(ctx):
    return await ctx.ask("Which colour?")


for app in (one, two):
    app.agent(name="clerk", activate_on=["workflow:start"])(ask)
"""


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("run app.py:app", "run start app.py:app"),
        ("--project a run --json app.py:app", "--project a run start --json app.py:app"),
        ("run --state {} app.py:app", "run start --state {} app.py:app"),
        ("worker a.py:app b.py:app", "worker start a.py:app b.py:app"),
        ("run list --limit 1", "run list --limit 1"),
        ("run --json list", "run --json list"),
        ("run --project a stop r", "run --project a stop r"),
        ("run --help", "run --help"),
        ("run", "run"),
        ("turn list", "turn list"),
    ],
)
def test_start_is_the_verb_of_a_run_or_worker_without_one(short: str, whole: str) -> None:
    assert with_verb(short.split()) == whole.split()


def test_only_starting_commands_end_by_their_own_code_at_sigterm() -> None:
    codes = {each: exit_code_at_sigterm(each.split()) for each in
             ("run a.py:app", "run start a.py:app", "run list", "worker a.py:app", "worker list", "turn list")}  # fmt: skip
    assert codes == {"run a.py:app": 130, "run start a.py:app": 130, "run list": None, "worker a.py:app": 0,
                     "worker list": None, "turn list": None}  # fmt: skip


def small() -> Heliograph:
    app = Heliograph("small")
    app.agent(name="writer", activate_on=["workflow:start"], emits=["draft:ready"], updates="draft")(lambda c: None)
    app.agent(name="critic", activate_on=["draft:*", "state:draft:changed", "elsewhere:done"])(lambda c: None)
    return app


def test_graph_has_an_edge_for_each_signal_that_wakes_an_agent() -> None:
    assert wakes_of(small().workflow) == [
        Wake(None, "workflow:start", "writer"),
        Wake("writer", "draft:ready", "critic"),
        Wake("writer", "state:draft:changed", "critic"),
        Wake(None, "elsewhere:done", "critic"),
    ]


def test_graph_names_the_agents_that_delegations_and_messages_wake() -> None:
    app = small()
    app.agent(name="helper", on_request=True)(lambda c: None)
    app.prompt_agent("assistant", "Answer { message }: {{not a name}}", agents=["helper"])
    edges = wakes_of(app.workflow)
    assert edges[4:] == [
        Wake("assistant", "delegation", "helper"), Wake(None, "user:message", "helper"),
        Wake(None, "workflow:start", "assistant"), Wake(None, "user:message", "assistant"),
    ]  # fmt: skip
    lines = list(_text(app.workflow, edges))
    assert lines[:6] == [
        "the runtime or a program", "    workflow:start -> writer", "    elsewhere:done -> critic",
        "    a delegation or a message -> helper", "    workflow:start -> assistant", "    a message of a session -> assistant",
    ]  # fmt: skip
    assert lines[-2:] == ["assistant", "    a delegation -> helper"]


def test_watch_prints_to_programs_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    lists = iter([["one"], ["one", "two"], ["one", "two"]])

    def call() -> int:
        for each in (found := next(lists)):
            print(each)
        return len(found) - 1 if next(codes) else 0

    codes = iter([False, False, True])
    assert watch(call, as_json=True, seconds=0) == 1
    assert capsys.readouterr().out.splitlines() == ["one", "two"]


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


@pytest.fixture
def ended(shell: Shell) -> Shell:
    """A shell with a run that succeeded and a later one that failed."""
    for run_id, fails in (("first", "false"), ("second", "true")):
        shell.helio("run", "press.py:app", "--run-id", run_id, "--state", f'{{"fail": {fails}}}')
    return shell


def test_run_is_explained_and_listed_by_what_it_is(ended: Shell) -> None:
    shown = ended.helio("run", "show", "@last").stdout
    assert "status       ended, failed" in shown
    assert "ACTION_FAILED: ValueError: no ink" in shown
    assert shown.endswith("next: fix the cause, then helio run retry second --app FILE.py:app\n")
    [row] = ended.rows("run", "show", "fir")
    assert (row["type"], row["run_id"], row["outcome"], row["errors"]) == ("run", "first", "success", [])
    assert [each["agent"] for each in row["agents"]] == ["writer", "critic"]
    for options, found in ({"--outcome failed": ["second"], "--app press --since 1h": ["second", "first"], "--app other": [],
                            "--status running": []}).items():  # fmt: skip
        assert [each["run_id"] for each in ended.rows("run", "list", *options.split())] == found
    done = ended.helio("run", "show", "none", "--json")
    assert (done.returncode, json.loads(done.stdout)["type"]) == (3, "error")


LISTS = ("run list", "turn list", "call list", "approval list", "callback list", "record list", "worker list")


def test_each_list_is_watched_and_filtered_by_application_and_each_list_of_work_by_age() -> None:
    for text in LISTS:
        options = {
            option for each in leaves() if each.prog == f"helio {text}" for option in each._option_string_actions
        }
        assert {"--watch", "--app"} <= options, text
        assert text == "worker list" or {"--since", "--limit"} <= options, text


@pytest.mark.more
@pytest.mark.proves("P-35")
def test_lists_select_by_run_application_and_age(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    shell = open_shell(tmp_path, database_url)
    running = [shell.start("run", f"desk.py:{name}", "--run-id", name, "--record-name", "kept", "--callback", "https://example.org/done")
               for name in ("one", "two")]  # fmt: skip
    while len(shell.rows("approval", "list")) < 2:
        pass  # a command takes long enough
    for command in ("approval list", "call list"):
        for options, found in (
            ("--app one", ["one"]),
            ("--run two", ["two"]),
            ("--since 1h", ["one", "two"]),
            ("--app other", []),
        ):
            assert sorted(row["run_id"] for row in shell.rows(*command.split(), *options.split())) == found, (
                command,
                options,
            )
    assert {row["health"] for row in shell.rows("worker", "list", "--app", "one")} == {"healthy"}
    assert shell.rows("worker", "list", "--health", "unhealthy") == []
    for task in shell.rows("approval", "list"):
        shell.rows("approval", "answer", task["turn_id"], task["call_id"], "red")
    assert [each.end() for each in running] == [0, 0]
    for command in ("callback list", "record list"):
        for options, found in (("--app one", ["one"]), ("--since 1h", ["one", "two"]), ("--app other", [])):
            assert sorted(row["run_id"] for row in shell.rows(*command.split(), *options.split())) == found, (
                command,
                options,
            )
    assert [row["run_id"] for row in shell.rows("callback", "list", "--run", "two")] == ["two"]
    assert shell.rows("record", "list", "--outcome", "failed") == []
    assert shell.helio("callback", "list", "--run", "none").returncode == 3
