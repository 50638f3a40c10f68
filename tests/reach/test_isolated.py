"""Sandboxed code: no environment, files, database, network or processes, and limits (S17)."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph import ToolContext, tool
from heliograph.errors import InvalidInput, SetupError, ToolFailed
from heliograph.tools import SandboxLimits, code_tool, sandbox_launcher
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.sandbox import limit_message
from heliograph.tools.sandboxed_tools import call_isolated
from tests.reach import isolated_tools

pytestmark = [pytest.mark.proves("S17"), pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
async def sandbox() -> None:
    """Skips on platforms that do not allow a sandbox; the tests below prove the rejection there."""
    try:
        await code_tool()(code="pass")
    except SetupError as error:
        pytest.skip(error.message)


async def run(code: str, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await code_tool(**options)(code=code)
    return answer


async def run_sync(function: Any, *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


async def test_program_runs_and_returns_its_output() -> None:
    assert await run("import json\nprint(json.dumps([1, 2]))") == {"exit_code": 0, "stdout": "[1, 2]\n", "stderr": ""}
    failed = await run("import sys\nprint('half')\nsys.exit(3)")
    assert (failed["exit_code"], failed["stdout"]) == (3, "half\n")
    wrong = await run("1 / 0")
    assert (wrong["exit_code"], "ZeroDivisionError" in wrong["stderr"]) == (1, True)


@pytest.mark.parametrize("code", [0, 1, 97, 255])
async def test_no_exit_code_of_the_program_is_mistaken_for_a_sandbox_failure(code: int) -> None:
    """The sandboxed process does not inherit the pipe of the report."""
    program = (
        "import os\n"
        "def _open(n):\n"
        "    try:\n"
        "        os.write(n, b'')\n"
        "    except OSError:\n"
        "        return False\n"
        "    return True\n"
        "print([n for n in range(64) if _open(n)], flush=True)\n"
        f"os._exit({code})\n"
    )
    assert await run(program) == {"exit_code": code, "stdout": "[1, 2]\n", "stderr": ""}


async def test_program_has_no_environment_and_sees_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", "postgresql://secret")
    assert (await run("import os\nprint(sorted(os.environ))"))["stdout"] == "['HOME', 'LANG', 'OPENBLAS_NUM_THREADS']\n"
    for path in (
        "/proc/1/environ",
        "/proc/self/environ",
        f"/proc/{os.getpid()}/environ",
        "/proc",
        "/sys",
        "/etc/passwd",
        "/home",
    ):
        reading = await run(
            f"import os\nprint(os.listdir('{path}') if os.path.isdir('{path}') else open('{path}').read())"
        )
        assert "FileNotFoundError" in reading["stderr"], path


async def test_program_reaches_no_database(database_url: str, tmp_path: Path) -> None:
    """Not even a database with a known address, by its socket in the file system or by TCP."""
    connection = await asyncpg.connect(database_url)
    folder = await connection.fetchval("select current_setting('data_directory')")
    await connection.close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        tries = (
            "socket.socket(socket.AF_UNIX)", f"socket.create_connection(('127.0.0.1', {port}), 1)",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        )  # fmt: skip
        for attempt in tries:
            assert "PermissionError" in (await run(f"import socket\n{attempt}"))["stderr"], attempt
    for each in (folder, str(tmp_path)):
        found = await run(f"import os\nprint(os.listdir({each!r}) if os.path.exists({each!r}) else [])")
        assert found["stdout"] == "[]\n", each


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()", "os.kill(os.getppid(), 0)", "subprocess.run(['/bin/true'])", "os.execv(sys.executable, ['x'])",
        "os.posix_spawn('/bin/true', [], {})", "os.chroot('..')", "libc('unshare', 0x10000000)", "libc('ptrace', 16, os.getppid())",
        "libc('mount', b'proc', b'/tmp', b'proc', 0, None)", "open('/lib/x', 'w')", "libc('setns', 0, 0)",
        "libc('syscall', 321, 0, None, 0)", "libc('syscall', 425, 1, None)",
    ],
)  # fmt: skip
async def test_program_starts_no_process_and_cannot_escape_its_sandbox(attempt: str) -> None:
    libc = (
        "def libc(name, *args):\n"
        "    library = ctypes.CDLL(None, use_errno=True)\n"
        "    if getattr(library, name)(*args) != 0:\n"
        "        raise OSError(ctypes.get_errno(), name)\n"
    )
    ran = await run(f"import ctypes, os, subprocess, sys\n{libc}{attempt}\nprint('it could')")
    assert (ran["exit_code"], ran["stdout"]) == (1, ""), ran
    assert "Error" in ran["stderr"]


@pytest.mark.more
@pytest.mark.parametrize(
    ("code", "limits", "message"),
    [
        ("while True: pass", SandboxLimits(cpu_seconds=1), ""),
        ("x = 'x' * 10**9", SandboxLimits(memory_mib=200), "MemoryError"),
        ("open('big', 'wb').write(b'x' * 10**8)", SandboxLimits(disk_mib=1), "OSError"),
        ("files = [open('/dev/null') for _ in range(99)]", SandboxLimits(open_files=20), "Too many open files"),
        ("while True: print('x' * 1000)", SandboxLimits(), ""),
    ],
    ids=["processor", "memory", "disk", "open files", "output"],
)
async def test_resources_of_the_program_are_limited(code: str, limits: SandboxLimits, message: str) -> None:
    ran = await run(code, limits=limits)
    assert ran["exit_code"] != 0
    assert message in ran["stderr"]
    assert len(ran["stdout"]) <= 1024 * 1024


@pytest.mark.more
@pytest.mark.parametrize(
    ("code", "limits", "exit_code", "message"),
    [
        ("while True: pass", SandboxLimits(cpu_seconds=1), -signal.SIGXCPU, ["1 s of processor time", "cpu_seconds="]),
        (
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
            SandboxLimits(cpu_seconds=1), -signal.SIGKILL, ["1 s of processor time", "cpu_seconds="],
        ),
        (
            "import threading\nfor _ in range(2): threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()",
            SandboxLimits(cpu_seconds=1, memory_mib=2048), -signal.SIGXCPU, ["1 s of processor time", "cpu_seconds="],
        ),
        ("while True: print('x' * 1000)", SandboxLimits(output_mib=2), -signal.SIGKILL, ["2 MiB of output", "output_mib="]),
    ],
    ids=["processor", "processor, SIGXCPU ignored", "processor, in threads", "output"],
)  # fmt: skip
async def test_code_that_a_limit_ends_gets_an_error_that_names_the_limit(
    code: str, limits: SandboxLimits, exit_code: int, message: list[str]
) -> None:
    ran = await run(code, limits=limits)
    assert ran["exit_code"] == exit_code
    assert [text for text in [*message, "Do less in one call"] if text not in ran["error"]] == []


async def test_code_that_kills_itself_gets_no_error_of_a_limit() -> None:
    ran = await run("import signal\nsignal.raise_signal(signal.SIGKILL)", limits=SandboxLimits(cpu_seconds=5))
    assert (ran["exit_code"], "error" in ran) == (-signal.SIGKILL, False)


def test_code_that_the_memory_limit_kills_gets_an_error_that_names_it() -> None:
    message = limit_message(-signal.SIGKILL, 0.2, SandboxLimits(memory_mib=100), is_out_of_memory=True)
    assert message is not None
    assert "100 MiB of memory" in message
    assert "memory_mib=" in message


@pytest.mark.more
async def test_function_that_a_limit_ends_fails_with_the_limit() -> None:
    with pytest.raises(ToolFailed, match="1 s of processor time"):
        await call_isolated(isolated_tools.spin, {}, SandboxLimits(cpu_seconds=1, memory_mib=2048))


@pytest.mark.more
async def test_cancelled_program_is_killed_without_remains() -> None:
    before = set(os.listdir("/proc"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await run("import time\ntime.sleep(600)")
    started = (pid for pid in set(os.listdir("/proc")) - before if pid.isdigit())
    assert [pid for pid in started if _is_launcher(pid) and _starter_of(pid) in (str(os.getpid()), "1")] == []


def _is_launcher(pid: str) -> bool:
    try:
        return sandbox_launcher.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _starter_of(pid: str) -> str:
    """The first ancestor outside the sandbox: this process, that of another test, or init for an orphan."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[1]
    except OSError:
        return ""
    return _starter_of(parent) if _is_launcher(parent) else parent


@pytest.mark.more
async def test_function_of_the_application_is_called_in_its_own_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret-of-the-worker")
    (readable_file := tmp_path / "file").write_text("mine")
    context: Any = None
    day = BoundTool(isolated_tools.weekday)
    assert await day.call(context, {"day": "2026-01-01", "times": 2}, run_sync) == "ThursdayThursday"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        targets = {"paths": ["/proc/1/environ", "/etc/passwd", str(readable_file)], "port": listener.getsockname()[1]}
        seen = await BoundTool(isolated_tools.spy).call(context, targets, run_sync)
    assert (seen["environment"], seen["files"], seen["sockets"]) == (["HOME", "LANG", "OPENBLAS_NUM_THREADS"], [], [])
    with pytest.raises(ToolFailed, match="ValueError: no such thing"):
        await BoundTool(isolated_tools.fails).call(context, {}, run_sync)


@pytest.mark.parametrize("form", range(len(isolated_tools.FORGED)))
async def test_invalid_answer_of_the_process_fails_the_call(form: int) -> None:
    context: Any = None
    with pytest.raises(ToolFailed, match="the function ended with exit code 0 and without a result"):
        await BoundTool(isolated_tools.forges).call(context, {"form": form}, run_sync)


def test_unimportable_function_or_worker_context_is_no_isolated_tool() -> None:
    @tool(isolated=True)
    def local() -> int:
        return 1

    for made in (local, tool(isolated=True)(_with_context)):
        with pytest.raises(InvalidInput):
            BoundTool(made)
    with pytest.raises(InvalidInput, match="cpu_seconds must be a whole number"):
        SandboxLimits(cpu_seconds=0)


def _with_context(ctx: ToolContext) -> str:
    return ctx.call_id


@pytest.mark.parametrize("why", ["platform", "machine"])
async def test_nothing_runs_without_the_syscall_filter(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "platform":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(SetupError) as refused:
        await run("print('ran')")
    assert refused.value.code == "no_sandbox"


async def test_silent_process_does_not_block_its_start_while_a_fork_has_its_pipe_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fork of the worker in the middle of a start has the pipe open, and may live forever."""
    silent, pipe = tmp_path / "launcher.py", os.pipe
    silent.write_text("raise SystemExit(1)")
    monkeypatch.setattr(sandbox_launcher, "__file__", str(silent))
    held_open: list[int] = []

    def shared() -> tuple[int, int]:
        monkeypatch.setattr(os, "pipe", pipe)  # those that follow are for the start itself
        reader, writer = pipe()
        held_open.append(os.dup(writer))
        return reader, writer

    monkeypatch.setattr(os, "pipe", shared)
    try:
        with pytest.raises(SetupError, match="no code was run"):
            await run("print('ran')")
    finally:
        os.close(held_open[0])
