"""Output of the commands that only read: golden texts with normalised ids and times, and the same as JSON."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliograph.cli.arguments import since
from heliograph.cli.db import mask_password
from heliograph.ledger.pool import Database
from tests.faces.cli_support import Shell, normalised, open_shell

RUNS = """\
RUN  APPLICATION  STATUS  SIGNALS  TURNS  OPEN  STARTED  TOOK
run_ID  press  success  20  2  0  SPAN ago  SPAN"""

TURNS = """\
TURN  AGENT  RUN  STATUS  PHASE  EPOCH  ATTEMPT  STARTED  TOOK
turn_ID  critic  run_ID  success  -  2  1 of 5  SPAN ago  SPAN
turn_ID  writer  run_ID  success  -  2  1 of 5  SPAN ago  SPAN"""

TURN = """\
turn  turn_ID
agent  critic
run  run_ID of press
status  done, success
attempt  1 of 5
epoch  2, the fencing token: it rises with each dispatch, claim and end of a turn of this agent
woken by  draft:ready by writer (sig_run_ID_11)
activation  sig_run_ID_12
started  DATE
took  SPAN

EPOCH  OWNER  FROM  HELD
2  WORKER  DATE  SPAN

card:turn_ID:end  task.deliverable  epoch 2
  good: the draft"""

TREE = """\
workflow:start
└─ agent:activated  writer
   ├─ ready  writer
   ├─ plan_ready  writer
   ├─ agent:progress  writer
   ├─ action_complete  writer
   ├─ reflection_complete  writer
   ├─ terminated  writer
   └─ agent:completed  writer
      ├─ state:draft:changed  writer
      └─ draft:ready  writer
         └─ agent:activated  critic
            ├─ ready  critic
            ├─ plan_ready  critic
            ├─ action_complete  critic
            ├─ reflection_complete  critic
            ├─ terminated  critic
            └─ agent:completed  critic
               └─ state:verdict:changed  critic
                  └─ workflow:end"""

WHY = """\
sig_run_ID_12  agent:activated
  A signal activated an agent; that signal is the parent. Agent: critic.
  turn turn_ID of writer
because
sig_run_ID_11  draft:ready  the draft
  Agent writer emitted it. It woke critic.
  turn turn_ID of writer
because
sig_run_ID_9  agent:completed  the draft
  A turn succeeded. Agent: writer.
  turn turn_ID of writer
  state: draft = the draft
because
sig_run_ID_2  agent:activated
  A signal activated an agent; that signal is the parent. Agent: writer.
because
sig_run_ID_1  workflow:start  {"topic":"ink"}
  A run starts with this state. It woke writer."""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    opened = open_shell(tmp_path, database_url)
    assert opened.helio("run", "press.py:app", "--state", '{"topic": "ink"}').returncode == 0
    return opened


def run_of(shell: Shell) -> str:
    return str(shell.rows("run", "list")[0]["run_id"])


def printed(shell: Shell, *arguments: str) -> str:
    done = shell.helio(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return normalised(done.stdout)


@pytest.mark.more
def test_runs_turns_and_one_turn_are_printed(shell: Shell) -> None:
    assert printed(shell, "run", "list") == RUNS
    assert printed(shell, "turn", "list") == TURNS
    assert printed(shell, "turn", "list", "--run", run_of(shell), "--status", "done") == TURNS
    critic, writer = shell.rows("turn", "list")
    assert printed(shell, "turn", "show", critic["turn_id"]) == TURN
    [turn_row] = shell.rows("turn", "show", writer["turn_id"])
    assert (turn_row["agent"], turn_row["cause"]["name"]) == ("writer", "workflow:start")
    assert [card["content"] for card in turn_row["cards"]] == [{"text": "the draft"}]
    assert [lease["turn_epoch"] for lease in turn_row["leases"]] == [2]
    nothing = shell.helio("turn", "list", "--status", "queued")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no such turns" in nothing.stderr


@pytest.mark.proves("SIG-60", "SIG-61")
def test_tree_draws_causes_and_why_follows_them_to_the_root(shell: Shell) -> None:
    run_id = run_of(shell)
    tree = shell.helio("signal", "tree", run_id).stdout.splitlines()
    assert "\n".join(line.partition("  {")[0] for line in tree) == TREE
    assert tree[1].endswith('{"agent":"writer"}  +0 ms')
    below = shell.helio("signal", "tree", f"sig_{run_id}_11").stdout.splitlines()
    assert len(below) == 10
    assert below[0].startswith("draft:ready  writer  {")
    assert below[1].startswith("└─ agent:activated  critic  ")
    assert printed(shell, "signal", "why", f"sig_{run_id}_12") == WHY
    [answer] = shell.rows("signal", "why", f"sig_{run_id}_12")
    assert [each["seq"] for each in answer["chain"]] == [12, 11, 9, 2, 1]
    assert "parent" not in answer["chain"][-1].get("source", {})
    assert answer["end"] == "root"


@pytest.mark.more
def test_pages_name_the_command_for_the_next_one(shell: Shell) -> None:
    run_id = run_of(shell)
    first = shell.helio("signal", "tree", run_id, "--limit", "5")
    assert len(first.stdout.splitlines()) == 5
    assert (
        first.stderr == f"there are more signals: helio signal tree {run_id} --after 5, or --limit for longer pages\n"
    )
    [rest] = shell.rows("signal", "tree", run_id, "--after", "5")
    assert ([each["seq"] for each in rest["signals"]], rest["next"]) == (list(range(6, 21)), None)
    chain = shell.helio("signal", "why", f"sig_{run_id}_12", "--limit", "2")
    assert chain.stderr == f"the causes continue: helio signal why sig_{run_id}_9\n"


@pytest.mark.more
def test_graph_is_drawn_for_mermaid_and_graphviz(shell: Shell) -> None:
    run_id = run_of(shell)
    mermaid = shell.helio("signal", "graph", f"sig_{run_id}_11", "--limit", "3").stdout.splitlines()
    assert mermaid[:2] == ["flowchart TD", '  n1["agent:activated<br/>writer<br/>2"]']
    assert mermaid[-2:] == ["  n3 ==> n4", "  n4 --> n5"]
    dot = shell.helio("signal", "graph", f"sig_{run_id}_11", "--limit", "3", "--format", "dot").stdout.splitlines()
    assert dot[:2] == ["digraph causes {", "  node [shape=box];"]
    assert dot[-3:] == ["  n3 -> n4 [penwidth=2];", "  n4 -> n5;", "}"]
    [graph] = shell.rows("signal", "graph", run_id)
    assert (len(graph["nodes"]), len(graph["edges"])) == (20, 19)


@pytest.mark.more
def test_why_not_compares_the_application_with_the_run(shell: Shell) -> None:
    run_id = run_of(shell)
    ran = shell.helio("signal", "why-not", run_id, "critic", "--app", "press.py:app").stdout
    assert ran.startswith(f"agent_ran: agent critic did run: 1 activation in run {run_id}")
    [facts] = shell.rows("signal", "why-not", run_id, "critic")
    assert ([each["code"] for each in facts["findings"]], facts["is_agent"]) == (["agent_ran"], True)
    unknown = shell.helio("signal", "why-not", run_id, "critics", "--app", "press.py:app")
    assert unknown.returncode == 3
    assert "has no agent critics; did you mean critic?" in unknown.stderr


def test_run_id_in_place_of_a_signal_id_is_rejected_with_the_command_for_runs(shell: Shell) -> None:
    run_id = run_of(shell)
    done = shell.helio("signal", "why", run_id)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{run_id} is a run, not a signal: helio signal tree {run_id} " in done.stderr


@pytest.mark.more
def test_tail_takes_whole_segment_patterns_runs_and_times(shell: Shell) -> None:
    run_id = run_of(shell)
    named = [row["name"] for row in shell.rows("signal", "tail", "agent:*", "state:**")]
    assert named == ["agent:activated", "agent:progress", "agent:completed", "state:draft:changed", "agent:activated",
                     "agent:completed", "state:verdict:changed"]  # fmt: skip
    everything = shell.rows("signal", "tail", "--run", run_id)
    assert [row["seq"] for row in everything] == list(range(1, 21))
    assert shell.rows("signal", "tail", "--since", "1h") == everything
    assert shell.rows("signal", "tail", "--since", (datetime.now(UTC) + timedelta(hours=1)).isoformat()) == []
    line = printed(shell, "signal", "tail", "draft:ready")
    assert line == "TIME  sig_run_ID_11  draft:ready  writer  the draft"
    assert printed(shell, "signal", "tail", "--run", run_id, "--follow").count("\n") == 19  # it ends with its run


@pytest.mark.parametrize("follow", [(), ("--follow",)])
async def test_tail_continues_after_a_position_and_skips_pruned_signals(
    shell: Shell, database: Database, follow: tuple[str, ...]
) -> None:
    run_id = run_of(shell)
    await database.fetch('delete from heliograph.signals where entries @> \'[{"name": "draft:ready"}]\'')
    remaining = [row["seq"] for row in await database.fetch("select seq from heliograph.signal_log order by seq")]
    assert (remaining[0], remaining[-1], len(remaining) < 20) == (1, 20, True)
    for after in (0, 3, 20):
        rows = shell.rows("signal", "tail", "--run", run_id, "--after", str(after), *(() if after == 20 else follow))
        assert [row["seq"] for row in rows] == [seq for seq in remaining if seq > after]


@pytest.mark.more
def test_tail_follows_all_runs_from_now_on(shell: Shell) -> None:
    following = shell.start("signal", "tail", "workflow:*", "--follow")
    following.read_until("workflow:start")
    following.read_until("workflow:end")
    shell.helio("run", "press.py:app", "--run-id", "later")
    assert "sig_later_1 " in following.read_until("workflow:start")
    following.read_until("sig_later_")
    following.signal(signal.SIGINT)
    assert following.end() == 0
    assert len(following.lines) == 4


@pytest.mark.more
async def test_doctor_lists_violations_and_exits_with_1(shell: Shell, database: Database) -> None:
    sound = shell.rows("db", "doctor")
    assert [row["check"] for row in sound] == ["server", "durability", "schema", "roles", "invariants", "liveness"]
    assert {row["check"]: row["status"] for row in sound} == {
        "server": "ok", "durability": "warning", "schema": "ok", "roles": "ok", "invariants": "ok",
        "liveness": "ok",
    }  # fmt: skip
    assert "fsync is off" in sound[1]["detail"]
    await database.fetch('delete from heliograph.signals where entries @> \'[{"name": "workflow:end"}]\'')
    done = shell.helio("db", "doctor")
    assert done.returncode == 1
    assert "violated  R3 the log is gapless: run_" in done.stdout
    assert shell.helio("db", "doctor", "--project", "another").returncode == 0


def test_install_reports_its_changes_and_does_nothing_the_second_time(shell: Shell) -> None:
    assert printed(shell, "db", "install").startswith("nothing to do\nthe schema is at version ")


def test_url_is_masked_by_default(shell: Shell) -> None:
    assert shell.url is not None
    assert "password" not in shell.helio("db", "url").stdout
    masked = shell.helio("db", "url")
    assert ":***@" in masked.stdout
    assert masked.stderr == "the password is masked; helio db url --show-password shows it\n"
    assert shell.helio("db", "url", "--show-password").stdout == f"{shell.url}\n"


@pytest.mark.more
def test_db_url_starts_the_embedded_database_and_keeps_it_running(tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = open_shell(tmp_path_factory.mktemp("e"), None)
    holding = shell.start("db", "url", "--show-password", "--hold")
    url = holding.read_until("postgresql://").strip()
    holding.read_until("the server runs until")
    assert shell.helio("db", "install", "--database-url", url).returncode == 0
    assert shell.helio("run", "press.py:app").returncode == 0
    assert len(shell.rows("run", "list")) == 1
    holding.signal(signal.SIGINT)
    assert holding.end() == 0


def no_database_in(folder: Path) -> str:
    return f"there is no database in {folder / 'home'} yet; helio run FILE.py:app creates one, and HELIOGRAPH_HOME "


@pytest.mark.parametrize(
    "command",
    ["run list", "turn list", "record list", "signal subscriptions", "signal tail", "signal tail agent:* --since 1h"],
)
@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
def test_list_from_an_empty_home_is_empty_and_creates_no_database(
    tmp_path: Path, command: str, option: list[str]
) -> None:
    done = Shell(tmp_path, None).helio(*command.split(), *option)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(no_database_in(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [("turn show turn_x", "no turn turn_x: "), ("turn list --run r", "no run r: "),
     ("signal tail --run r --follow", "no run r: "), ("signal tree r", "no run r: "),
     ("signal tree sig_r_1", "no signal sig_r_1: "), ("signal why sig_r_1", "no signal sig_r_1: "), ("db doctor", "")],
)  # fmt: skip
def test_named_object_is_not_found_in_an_empty_home(tmp_path: Path, command: str, message: str) -> None:
    done = Shell(tmp_path, None).helio(*command.split(), "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "no_data"
    assert error["message"].startswith(message + no_database_in(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_database_of_another_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "home" / "pg16").mkdir(parents=True)
    done = Shell(tmp_path, None).helio("run", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "is one of PostgreSQL 16, not 18; set HELIOGRAPH_POSTGRES_VERSION=16" in done.stderr


def test_home_that_is_no_folder_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    done = Shell(tmp_path, None).helio("run", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot keep a database in" in done.stderr


@pytest.mark.more
def test_follow_waits_for_a_database_and_continues(tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = open_shell(tmp_path_factory.mktemp("f"), None)
    following = shell.start("signal", "tail", "workflow:*", "--follow")
    following.read_until("waiting: there is no database in ")
    assert shell.helio("run", "press.py:app").returncode == 0
    following.read_until("workflow:end")
    following.signal(signal.SIGINT)
    assert following.end() == 0


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me@/db?host=/tmp/pg&port=5432", "postgresql://me@/db?host=/tmp/pg&port=5432"),
        ("postgresql:///db?user=me&password=secret", "postgresql:///db?user=me&password=***"),
        ("postgresql://me:se:c@ret@host/db", "postgresql://me:***@host/db"),
    ],
)
@pytest.mark.proves("S13")
def test_no_masked_url_contains_the_password(url: str, masked: str) -> None:
    assert mask_password(url) == masked


@pytest.mark.parametrize(
    ("text", "ago"), [("30s", timedelta(seconds=30)), ("10m", timedelta(minutes=10)), ("2h", timedelta(hours=2)),
                      ("1d", timedelta(days=1))],
)  # fmt: skip
def test_since_counts_back_from_now(text: str, ago: timedelta) -> None:
    assert abs(datetime.now(UTC) - ago - since(text)) < timedelta(seconds=5)


def test_since_takes_iso_times() -> None:
    assert since("2026-01-31T09:30:00Z") == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    assert since("2026-01-31T09:30:00+02:00") == datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    assert since("2026-01-31") == datetime(2026, 1, 31).astimezone(UTC)  # local, as people mean it
