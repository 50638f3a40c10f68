"""The sandboxed process: its privileges, its end, and the refusal to run where a part of the sandbox is missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.tools.cgroup import open_cgroup
from heliograph.tools.sandbox import _communicate
from heliograph.world.event_loop import new_event_loop
from tests.grids import mostly_more
from tests.reach.sandbox_kit import ON_X86, Worker, descendants, read, start_fixture, worker_fixture  # noqa: F401

pytestmark = [
    pytest.mark.proves("S23"), pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
]  # fmt: skip


def sandboxed(worker: Worker) -> tuple[Path, list[int]]:
    """The sandboxed process of a worker, once it has its filter; and every process below the worker."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        below = descendants(worker.process.pid)
        for pid in below:
            if "\nSeccomp:\t2" in read(f"/proc/{pid}/status"):
                return Path(f"/proc/{pid}"), below
    raise AssertionError("nothing is sandboxed")


def test_sandboxed_process_has_no_privilege_and_one_writable_file_system(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.send("import time\ntime.sleep(600)", packages=True, limits={"files": 100, "disk_mib": 1})
    process, _ = sandboxed(worker)
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"], status["NSpid"].split()[-1]) == ("1", "2", "2")
    for name in ("user", "mnt", "pid", "ipc", "net", "uts"):
        ours, theirs = os.stat(f"/proc/{worker.process.pid}/ns/{name}"), os.stat(process / "ns" / name)
        assert ours.st_ino != theirs.st_ino, name
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    writable = {mount[4]: mount[-1] for mount in mounts if "ro" not in mount[5].split(",")}
    assert set(writable) == {"/jail", "/tmp"}  # noqa: S108
    for options in writable.values():
        assert "size=1024k" in options
        assert (
            103 <= int(options.partition("nr_inodes=")[2].split(",")[0]) < 150
        )  # and the folders above the bound ones
    assert all({"nosuid", "nodev", "noexec"} <= set(mount[5].split(",")) for mount in mounts if mount[4] in writable)
    if os.geteuid() == 0:
        assert status["Uid"].split()[0] != "0"
    is_ours = os.stat(f"/proc/{worker.process.pid}").st_uid == os.geteuid()
    if is_ours and (probe := open_cgroup(1 << 20, 1)) is not None:
        probe.try_remove()
        assert "heliograph-sandbox-" in (process / "cgroup").read_text()


def test_sandboxed_process_dies_when_its_worker_is_killed(start: Callable[..., Worker]) -> None:
    """And leaves no folder behind: its files are in memory alone."""
    worker = start()
    folder = Path(worker.packages).parents[3]
    before = set(folder.iterdir())
    worker.send("import time\nopen('/tmp/x', 'w').write('x')\ntime.sleep(600)")
    _, below = sandboxed(worker)
    assert len(below) == 3  # the launcher, init, and the sandboxed process
    opened = {pid: os.pidfd_open(pid) for pid in below}
    worker.process.kill()
    alive = [pid for pid, descriptor in opened.items() if not select.select([descriptor], [], [], 10)[0]]
    for descriptor in opened.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)
    assert alive == []
    assert set(folder.iterdir()) == before
    assert not list(Path(tempfile.gettempdir()).glob("heliograph-jail-*"))


@pytest.mark.parametrize("attempt", mostly_more(range(4), {0}))
def test_output_beyond_its_limit_on_both_streams_ends_the_call(worker: Worker, attempt: int) -> None:
    flood = "while True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'y' * 65536)"
    ended = worker.run(flood, seconds=20)
    assert ended["exit_code"] == -9, attempt
    assert max(len(ended["stdout"]), len(ended["stderr"])) <= 1 << 20


def test_signals_to_the_process_group_of_the_worker_spare_the_sandbox(start: Callable[..., Worker]) -> None:
    """Ctrl+C in a terminal drains the worker: a running sandbox may end by itself."""
    worker = start()
    worker.send("import time\ntime.sleep(600)")
    _, below = sandboxed(worker)
    assert os.getpgid(worker.process.pid) not in {os.getpgid(pid) for pid in below}


@pytest.mark.more
@pytest.mark.parametrize("end", ["cancelled", "too much output"])
def test_worker_that_is_the_first_process_of_a_container_leaves_no_zombies(
    start: Callable[..., Worker], end: str
) -> None:
    """Orphans become its children there, and it reaps none but its own."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare of util-linux")
    worker = start(under=("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"))
    if "refused" in (answer := worker.run("pass")):
        pytest.skip(answer["message"])
    if end == "cancelled":
        assert worker.run("import time\ntime.sleep(600)", seconds=1) == {"cancelled": True}
    else:
        assert worker.run("while True: print('x' * 1000)")["exit_code"] == -9
    assert len(descendants(worker.process.pid)) == 1  # the worker itself, below unshare


@pytest.mark.parametrize("kind", mostly_more(["user", "mnt", "pid", "ipc", "net", "uts"], {0, 4}))
def test_start_without_namespaces_is_rejected(start: Callable[..., Worker], kind: str) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare of util-linux")
    enter = f'echo 0 > /proc/sys/user/max_{kind}_namespaces && exec "$@"'
    worker = start(under=("unshare", "--user", "--map-root-user", "sh", "-c", enter, "sh"))
    refused = worker.run("print('ran')")
    assert (refused["refused"], "unshare is not allowed here" in refused["message"]) == ("no_sandbox", True), refused


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv of util-linux"
)
def test_start_as_root_without_another_user_is_rejected(start: Callable[..., Worker]) -> None:
    worker = start(under=("setpriv", "--bounding-set", "-all", "--inh-caps", "-all"))
    if os.stat(f"/proc/{worker.process.pid}").st_uid != 0:
        pytest.skip("an ordinary user needs no such right")
    refused = worker.run("print('ran')")
    assert "root without CAP_SETUID" in refused["message"], refused


@ON_X86
@pytest.mark.parametrize(
    ("name", "call"),
    mostly_more([
        ("mount_setattr", ("442",)), ("pivot_root", ("155",)), ("mount", ("165",)), ("umount2", ("166",)), ("capset", ("126",)),
        ("filter", ("157", "22")), ("securebits", ("157", "28")), ("no new privileges", ("157", "38")),
        ("parent-death signal", ("157", "1")), ("host name", ("170",)),
    ], {1, 9}),
)  # fmt: skip
def test_start_with_a_missing_component_is_rejected(
    start: Callable[..., Worker], name: str, call: tuple[str, ...]
) -> None:
    refused = start(*call).run("print('ran')")
    assert refused.get("refused") == "no_sandbox", (name, refused)
    assert "no code was run" in refused["message"]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "worker"])
def test_process_that_has_ended_before_it_reads_its_input_has_an_empty_result(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def communicate() -> tuple[str, str, bool]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("true", stdin=pipe, stdout=pipe, stderr=pipe)
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        return await _communicate(process, b"print(1)", 100)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(communicate()) == ("", "", False)
