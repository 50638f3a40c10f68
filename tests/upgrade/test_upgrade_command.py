"""`helio upgrade check` with real processes: it writes nothing, code that hangs or ends its process is named, and all other turns are checked."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from tests import logins
from tests.faces.cli_support import Shell, open_shell

pytestmark = pytest.mark.more

AGENTS = (
    "calm",
    "looping",
    "leaving",
    "calling",
    "writing",
    "spawning",
    "lingering",
    "logging",
    "sending",
    "renamed",
    "swallowing",
)
SHOP = f"""
import multiprocessing, os, socket, sys, threading, time
from pathlib import Path
from heliograph import Heliograph

app = Heliograph("shop")
NEW = os.environ.get("SHOP_IS_NEW") == "1"
LOG = open("log", "a", buffering=1)
if NEW:
    SERVER = socket.create_connection(("127.0.0.1", int(os.environ["SHOP_PORT"])))


def added(name):
    if not NEW:
        return
    print("agents may print")
    if name == "looping":
        while True:
            time.sleep(0.01)
    if name == "leaving":
        os._exit(7)
    if name == "calling":
        socket.create_connection(("127.0.0.1", 9), 1)
    if name == "swallowing":
        try:
            socket.create_connection(("127.0.0.1", 9), 1)
        except Exception:
            pass
    if name == "writing":
        Path("written").write_text("effect")
    if name == "spawning":
        multiprocessing.get_context("spawn").Process(target=print).start()
    if name == "lingering":
        threading.Thread(target=linger, daemon=True).start()
    if name == "logging":
        print("effect", file=LOG)
    if name == "sending":
        SERVER.sendall(b"effect")


def linger():
    while True:  # until it is allowed, if need be after the check of the turn
        try:
            Path("written").write_text("effect")
        except OSError:
            time.sleep(0)


def agent(name):
    async def wait(ctx):
        added(name)
        await ctx.step("second" if NEW and name == "renamed" else "first", lambda: 1)
        await ctx.call("outside", {{"agent": name}}, timeout=None)
    app.agent(name=name, activate_on=["workflow:start"])(wait)


for name in {AGENTS!r}:
    agent(name)
"""
TABLES = "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'r' order by 1"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, shared_url: str) -> tuple[Shell, str]:
    """A shell in a folder with the application, whose turns all wait; and the name of their project."""
    folder = tmp_path_factory.mktemp("upgrade")
    shell = open_shell(folder, shared_url)
    (folder / "shop.py").write_text(SHOP)
    project = f"upgrade-{folder.name}"
    shell.extra = {"HELIOGRAPH_PROJECT": project}
    running = shell.start("run", "shop.py:app", "--run-id", "one")
    while sum(turn["status"] == "suspended" for turn in shell.rows("turn", "list")) < len(AGENTS):
        assert running.process.poll() is None
    running.process.kill()
    running.end()
    return shell, project


async def everything(url: str) -> dict[str, str]:
    """The contents of all tables."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set row_security = off")
        query = "select md5(coalesce(string_agg(t::text, '' order by t::text), '')) from heliograph.{} t"
        return {name: await connection.fetchval(query.format(name)) for [name] in await connection.fetch(TABLES)}
    finally:
        await connection.close()


def received(server: socket.socket) -> bytes:
    """What its clients have sent, which are gone."""
    server.settimeout(0.1)
    found = b""
    with suppress(TimeoutError):
        while True:
            connection, _ = server.accept()
            with connection:
                found += connection.recv(100)
    return found


async def test_reader_checks_every_turn_and_changes_nothing(waiting: tuple[Shell, str], shared_url: str) -> None:
    shell, project = waiting
    async with logins.login(shared_url, project, services=("reader",)) as url:
        with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
            reader = Shell(shell.folder, url, {"HELIOGRAPH_PROJECT": project, "SHOP_IS_NEW": "1",
                                               "SHOP_PORT": str(server.getsockname()[1])})  # fmt: skip
            before = await everything(shared_url)
            done = reader.helio("upgrade", "check", "shop.py:app", "--json", "--timeout", "2", "--processes", "1")
            assert await everything(shared_url) == before
            assert received(server) == b""
    assert done.returncode == 1, done.stderr
    *found, summary = map(json.loads, done.stdout.splitlines())
    kinds = {each["agent"]: each["kind"] for each in found}
    lingers = kinds.pop("lingering", None)  # its thread attempts the effect during the check or after it
    assert lingers in (None, "outside")
    assert kinds == {
        "looping": "deadline", "leaving": "exit", "calling": "outside", "writing": "outside", "spawning": "outside",
        "sending": "error", "renamed": "call", "swallowing": "outside",
    }  # fmt: skip
    assert (summary["checked"], summary["diverged"]) == (len(AGENTS), 8 + (lingers is not None))
    assert not (shell.folder / "written").exists()
    assert (shell.folder / "log").read_text() == ""


def test_unchanged_code_continues_with_exit_code_0(waiting: tuple[Shell, str]) -> None:
    shell, _ = waiting
    done = shell.helio("upgrade", "check", "shop.py:app", "--run", "one", "--processes", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"checked {len(AGENTS)} open turns of shop in ")


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("nothing.py:app",), 3, "there is no file nothing.py"),
    (("shop.py:app", "--run", "two"), 3, "no run two"),
    (("press.py:app", "--run", "one"), 2, "run one is of the application shop, not of press"),
    (("shop.py:app", "--timeout", "0"), 2, "--timeout"),
])  # fmt: skip
def test_wrong_input_is_rejected(
    waiting: tuple[Shell, str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    shell, _ = waiting
    done = shell.helio("upgrade", "check", *arguments)
    assert done.returncode == code
    assert message in done.stderr


def test_application_without_open_turns_is_no_error(waiting: tuple[Shell, str], tmp_path: Path) -> None:
    shell, _ = waiting
    done = shell.helio("upgrade", "check", "press.py:app")
    assert (done.returncode, done.stdout) == (0, "press has no open turns in this project\n")
