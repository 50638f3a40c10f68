"""The sandbox under attack, by root's worker and by an ordinary user's: nothing is written, taken or killed outside of it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.tools.cgroup import open_cgroup
from tests.reach import sandbox_attacks as attacks

pytestmark = [
    pytest.mark.proves("S23"), pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
]  # fmt: skip

ROOT = Path(__file__).parents[2]
NOBODY = 65534
ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="these numbers are those of x86_64")


class Worker:
    """A worker in a process of its own, whose installed packages belong to its user."""

    def __init__(self, folder: Path, python: str, user: int | None, *args: str, under: tuple[str, ...] = ()):
        venv = folder / "venv"
        if not venv.exists():
            subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", str(venv)], check=True)
            self._own(venv, user)
        (self.packages,) = venv.glob("lib/python*/site-packages")
        (self.packages / "victim.py").write_text("WHO = 'victim'\n")
        for each in (self.packages, self.packages / "victim.py"):
            each.chmod(0o777)  # root's sandbox is another user: no permission of a file protects these
        self._own(folder, user)
        account: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        installed = [sysconfig.get_paths()["purelib"], str(Path(heliograph.__file__).parents[1]), str(ROOT)]
        self.process = subprocess.Popen(
            [*under, str(venv / "bin" / "python"), "-m", "tests.reach.sandbox_worker", *args], text=True, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(installed), "PATH": os.environ["PATH"], "TMPDIR": str(folder)}, **account,
        )  # fmt: skip

    @staticmethod
    def _own(folder: Path, user: int | None) -> None:
        if user is not None:
            for each in [folder, *folder.rglob("*")]:
                os.chown(each, user, user, follow_symlinks=False)

    def send(
        self, code: str, *, limits: dict[str, int] | None = None, seconds: float | None = None, **options: bool
    ) -> None:
        program = attacks.PRELUDE + code.replace("WORKER", str(self.process.pid))
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"code": program, "limits": limits or {}, "options": options, "seconds": seconds}) + "\n"
        )
        self.process.stdin.flush()

    def run(self, code: str, **options: Any) -> dict[str, Any]:
        self.send(code, **options)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        answer: dict[str, Any] = json.loads(line)
        return answer

    def attack(self, code: str, **options: Any) -> Any:
        """What a program printed, as JSON. The worker is alive after it, and its packages are as they were."""
        before = self.fingerprint()
        answer = self.run(code, **options)
        assert self.process.poll() is None
        assert self.fingerprint() == before
        assert answer.get("exit_code") == 0, answer
        return json.loads(answer["stdout"])

    def fingerprint(self) -> list[tuple[str, int, int, int]]:
        found = [self.packages, *sorted(self.packages.iterdir()), *sorted(Path(self.packages).parent.iterdir())]
        return [(str(each), each.lstat().st_mtime_ns, each.lstat().st_mode, each.lstat().st_uid) for each in found]

    def close(self) -> None:
        """Kill it, and remove the cgroups that the next sandbox would remove after a minute."""
        opened = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                opened.append(os.pidfd_open(pid))
        self.process.kill()
        self.process.communicate()
        for descriptor in opened:
            select.select([descriptor], [], [], 30)
            os.close(descriptor)
        for folder, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
            if f"/heliograph-sandbox-{self.process.pid}-" in folder:
                os.rmdir(folder)


def python_for(user: int | None) -> str | None:
    """An interpreter that the user may run, of the version for which our packages are installed."""
    base = getattr(sys, "_base_executable", sys.executable)
    for found in (base, f"/usr/bin/python3.{sys.version_info.minor}"):
        account: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        path = f"{sysconfig.get_paths()['purelib']}:{Path(heliograph.__file__).parents[1]}"
        try:
            ran = subprocess.run([found, "-c", "import asyncpg, pydantic, heliograph"], capture_output=True, cwd="/", check=False,
                                 env={"PYTHONPATH": path}, **account)  # fmt: skip
        except OSError:
            continue
        if ran.returncode == 0:
            return found
    return None


@pytest.fixture(scope="module", params=["as we are", "nobody"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Worker]]:
    user = NOBODY if request.param == "nobody" else None
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    if (python := python_for(user)) is None:
        pytest.skip("no Python here that an ordinary user may run")
    folder, started = Path(tempfile.mkdtemp(prefix="sandbox-test-", dir="/tmp")), []

    def begin(*args: str, **options: Any) -> Worker:
        started.append(Worker(folder, python, user, *args, **options))
        return started[-1]

    yield begin
    for each in started:
        each.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def worker(start: Callable[..., Worker]) -> Worker:
    made = start()
    if "refused" in (answer := made.run("pass")):
        pytest.skip(answer["message"])
    return made


def could(found: Any) -> list[Any]:
    """Each attempt that succeeded."""
    if isinstance(found, dict):
        return [(key, each) for key, value in found.items() for each in could(value)]
    if isinstance(found, list):
        return [found] if found[:1] == ["could"] else [each for value in found for each in could(value)]
    return []


@ON_X86
@pytest.mark.parametrize("kind", ["MOUNTS", "MEMORY", "PROCESSES", "KERNEL"])
def test_calls_of_former_attacks_are_rejected_by_number(worker: Worker, kind: str) -> None:
    numbers = getattr(attacks, kind)
    got = worker.attack(attacks.BY_NUMBER.replace("NUMBERS", repr(numbers)))
    assert got == {str(number): "EPERM" for number in numbers}


@pytest.mark.parametrize("network", [False, True])
def test_installed_packages_are_not_writable_even_by_their_owner(worker: Worker, network: bool) -> None:
    got = worker.attack(attacks.ESCAPE, packages=True, network=network)
    assert (got["folders"], str(worker.packages) in got) == (3, True)
    assert got["open_tree_attr"] == "EPERM"
    assert could(got) == []
    assert worker.attack("import victim\nprint(json.dumps(victim.WHO))", packages=True) == "victim"


def test_installed_packages_are_hidden_unless_they_are_asked_for(worker: Worker) -> None:
    """Those of the worker, of the interpreter below it, and of the distribution."""
    below = sorted(worker.packages.parents[2].glob("lib/python3*/site-packages"))
    found = [*below, *Path(sys.base_prefix).glob("lib/python3*/*-packages")]
    found += [each for system in ("/lib", "/usr/lib") for each in Path(system).glob("python3*/*-packages")]
    code = attacks.INSTALLED.replace("FOLDERS", repr([str(each) for each in found]))
    assert worker.packages in found
    assert worker.attack(code) == []
    assert worker.attack(code, packages=True) == [str(worker.packages)]


def test_a_granted_network_shows_certificates_and_no_private_keys(worker: Worker) -> None:
    folder = Path("/etc/ssl")
    if not folder.is_dir() or {each.name for each in folder.iterdir()} <= {"certs", "openssl.cnf", "cert.pem"}:
        pytest.skip("nothing here has to stay hidden")
    expected = [str(each) for each in sorted((folder / "certs").iterdir()) if each.exists()]
    seen, missing = worker.attack(attacks.CERTIFICATES.replace("EXPECTED", repr(expected)), network=True)
    assert set(seen) <= {"certs", "openssl.cnf", "cert.pem"}
    assert missing == []


def test_threads_share_one_limit_of_open_files(worker: Worker) -> None:
    made, threads, ordinary, opened = worker.attack(attacks.FILE_TABLES, limits={"open_files": 64})
    assert (set(made), set(threads), ordinary) == ({"EPERM"}, {"EPERM"}, [0, 0])
    assert opened < 64


def test_no_signal_and_no_limit_reaches_another_process(worker: Worker) -> None:
    got = worker.attack(attacks.SIGNALS)
    assert set(got.values()) == {"EPERM"}


def test_it_begins_no_process_and_no_namespace(worker: Worker) -> None:
    got = worker.attack(attacks.PROCESS)
    assert set(got["clone"]) | set(got["fork"]) | set(got["x32"]) == {"EPERM"}
    assert got["clone3"] == "ENOSYS"


def test_it_has_ids_a_name_and_files_of_its_own(worker: Worker) -> None:
    got = worker.attack(attacks.STATE)
    assert (got["ids"], got["host"], got["files"], got["proc"]) == ([1000, 1000, 2, 1], "sandbox", "EBADF", False)


@pytest.mark.parametrize("network", [False, True])
def test_it_opens_no_socket_but_those_of_a_granted_network(worker: Worker, network: bool) -> None:
    *rejected, sent = worker.attack(attacks.SOCKETS, network=network)
    assert (set(rejected), sent) == ({"EPERM"}, "x")


@pytest.mark.parametrize(
    ("code", "most", "error"),
    [
        (attacks.FOLDERS, 100, "ENOSPC"), (attacks.DEEP, 100, "ENOSPC"), (attacks.LINKS, 100, "ENOSPC"),
        (attacks.HARD_LINKS, 100, "ENOSPC"), (attacks.BYTES, 10, "ENOSPC"), (attacks.PIPES, 30, "EMFILE"),
        (attacks.THREADS, 8, "can't start new thread"),
    ],
    ids=["folders", "deep folders", "links", "hard links", "bytes", "pipes", "threads"],
)  # fmt: skip
def test_memory_of_the_kernel_is_bounded(worker: Worker, code: str, most: int, error: str) -> None:
    made, why = worker.attack(code, limits={"files": 100, "disk_mib": 1, "threads": 8, "open_files": 64})
    assert most - 3 <= made <= most
    assert why == error


def test_ordinary_programs_run(worker: Worker) -> None:
    got = worker.attack(attacks.ORDINARY)
    assert got == {
        "asyncio": 7, "sqlite": [[1]], "threads": [0, 1, 4, 9, 16], "files": ["a", "c", "code.py", "d", "z.zip"], "zone": 7200,
        "process": "EPERM",
    }  # fmt: skip


@ON_X86
def test_a_cgroup_bounds_page_tables_too(worker: Worker) -> None:
    if os.stat(f"/proc/{worker.process.pid}").st_uid != os.geteuid() or (probe := open_cgroup(1 << 20, 1)) is None:
        pytest.skip("no cgroup may be made here")
    probe.try_remove()
    assert worker.run(attacks.PAGE_TABLES, limits={"memory_mib": 512, "disk_mib": 1})["exit_code"] == -9
    assert worker.process.poll() is None


@ON_X86
def test_a_call_of_the_32_bit_architecture_kills_the_sandboxed_process(worker: Worker) -> None:
    before = worker.fingerprint()
    assert worker.run(attacks.I386)["exit_code"] in (-31, -11)  # SIGSYS; SIGSEGV where the kernel has no such calls
    assert worker.fingerprint() == before


@pytest.mark.parametrize("seed", range(8))
def test_arbitrary_calls_with_arbitrary_arguments_harm_nobody_else(worker: Worker, seed: int) -> None:
    """Each ends the sandboxed process at worst. Two in a row show that nothing is left of the first."""
    before, host = worker.fingerprint(), os.uname().nodename
    answer = worker.run(attacks.FUZZ.replace("SEED", str(seed)), limits={"cpu_seconds": 5})
    assert "exit_code" in answer
    assert worker.process.poll() is None
    assert (worker.fingerprint(), os.uname().nodename) == (before, host)
    assert worker.attack(attacks.STATE)["ids"] == [1000, 1000, 2, 1]


def sandboxed(worker: Worker) -> tuple[Path, list[int]]:
    """The sandboxed process of a worker, once it has its filter; and every process below the worker."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        below = descendants(worker.process.pid)
        for pid in below:
            if "\nSeccomp:\t2" in read(f"/proc/{pid}/status"):
                return Path(f"/proc/{pid}"), below
    raise AssertionError("nothing is sandboxed")


def descendants(of: int) -> list[int]:
    stats = {
        int(pid): read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in os.listdir("/proc") if pid.isdigit()
    }
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat}
    found = [of]
    for each in found:
        found += [pid for pid, parent in parents.items() if parent == each]
    return found[1:]


def read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""


def test_the_sandboxed_process_has_no_privilege_and_one_writable_file_system(start: Callable[..., Worker]) -> None:
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
        )  # and folders above what is bound there
    assert all({"nosuid", "nodev", "noexec"} <= set(mount[5].split(",")) for mount in mounts if mount[4] in writable)
    if os.geteuid() == 0:
        assert status["Uid"].split()[0] != "0"
    is_ours = os.stat(f"/proc/{worker.process.pid}").st_uid == os.geteuid()
    if is_ours and (probe := open_cgroup(1 << 20, 1)) is not None:
        probe.try_remove()
        assert "heliograph-sandbox-" in (process / "cgroup").read_text()


def test_the_sandboxed_process_dies_when_its_worker_is_killed(start: Callable[..., Worker]) -> None:
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


@pytest.mark.parametrize("attempt", range(4))
def test_output_beyond_its_limit_on_both_streams_ends_the_call(worker: Worker, attempt: int) -> None:
    flood = "while True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'y' * 65536)"
    ended = worker.run(flood, seconds=20)
    assert ended["exit_code"] == -9, attempt
    assert max(len(ended["stdout"]), len(ended["stderr"])) <= 1 << 20


def test_signals_to_the_process_group_of_the_worker_spare_the_sandbox(start: Callable[..., Worker]) -> None:
    """Ctrl+C in a terminal asks the worker to drain: a sandbox that runs may end by itself."""
    worker = start()
    worker.send("import time\ntime.sleep(600)")
    _, below = sandboxed(worker)
    assert os.getpgid(worker.process.pid) not in {os.getpgid(pid) for pid in below}


@pytest.mark.parametrize("end", ["cancelled", "too much output"])
def test_a_worker_that_is_the_first_process_of_a_container_keeps_no_zombies(
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


@pytest.mark.parametrize("kind", ["user", "mnt", "pid", "ipc", "net", "uts"])
def test_it_refuses_where_a_namespace_cannot_be_had(start: Callable[..., Worker], kind: str) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare of util-linux")
    enter = f'echo 0 > /proc/sys/user/max_{kind}_namespaces && exec "$@"'
    worker = start(under=("unshare", "--user", "--map-root-user", "sh", "-c", enter, "sh"))
    refused = worker.run("print('ran')")
    assert (refused["refused"], "unshare is not allowed here" in refused["message"]) == ("no_sandbox", True), refused


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv of util-linux"
)
def test_it_refuses_where_root_may_not_become_another_user(start: Callable[..., Worker]) -> None:
    worker = start(under=("setpriv", "--bounding-set", "-all", "--inh-caps", "-all"))
    if os.stat(f"/proc/{worker.process.pid}").st_uid != 0:
        pytest.skip("an ordinary user needs no such right")
    refused = worker.run("print('ran')")
    assert "root without CAP_SETUID" in refused["message"], refused


@ON_X86
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mount_setattr", ("442",)), ("pivot_root", ("155",)), ("mount", ("165",)), ("umount2", ("166",)), ("capset", ("126",)),
        ("filter", ("157", "22")), ("securebits", ("157", "28")), ("no new privileges", ("157", "38")),
        ("parent-death signal", ("157", "1")), ("host name", ("170",)),
    ],
)  # fmt: skip
def test_it_refuses_where_a_part_is_missing(start: Callable[..., Worker], name: str, call: tuple[str, ...]) -> None:
    refused = start(*call).run("print('ran')")
    assert refused.get("refused") == "no_sandbox", (name, refused)
    assert "nothing was run" in refused["message"]
