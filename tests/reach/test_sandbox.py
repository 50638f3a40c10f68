"""The sandbox under attack, by root's worker and by an ordinary user's: nothing is written, taken or killed outside of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph.tools.cgroup import open_cgroup
from tests.grids import mostly_more
from tests.reach import sandbox_attacks as attacks
from tests.reach.sandbox_kit import ON_X86, Worker, descendants, read, start_fixture, worker_fixture  # noqa: F401

pytestmark = [
    pytest.mark.proves("S23"), pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
]  # fmt: skip


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


def test_installed_packages_are_hidden_by_default(worker: Worker) -> None:
    """Those of the worker, of the interpreter below it, and of the distribution."""
    below = sorted(worker.packages.parents[2].glob("lib/python3*/site-packages"))
    found = [*below, *Path(sys.base_prefix).glob("lib/python3*/*-packages")]
    found += [each for system in ("/lib", "/usr/lib") for each in Path(system).glob("python3*/*-packages")]
    code = attacks.INSTALLED.replace("FOLDERS", repr([str(each) for each in found]))
    assert worker.packages in found
    assert worker.attack(code) == []
    assert worker.attack(code, packages=True) == [str(worker.packages)]


def test_granted_network_shows_certificates_and_no_private_keys(worker: Worker) -> None:
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


def test_sandbox_starts_no_process_and_no_namespace(worker: Worker) -> None:
    got = worker.attack(attacks.PROCESS)
    assert set(got["clone"]) | set(got["fork"]) | set(got["x32"]) == {"EPERM"}
    assert got["clone3"] == "ENOSYS"


def test_sandbox_has_its_own_ids_host_name_and_files(worker: Worker) -> None:
    got = worker.attack(attacks.STATE)
    assert (got["ids"], got["host"], got["files"], got["proc"]) == ([1000, 1000, 2, 1], "sandbox", "EBADF", False)


@pytest.mark.parametrize("network", [False, True])
def test_sandbox_opens_only_sockets_of_a_granted_network(worker: Worker, network: bool) -> None:
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


@pytest.mark.more
@ON_X86
def test_cgroup_bounds_page_tables_too(worker: Worker) -> None:
    if os.stat(f"/proc/{worker.process.pid}").st_uid != os.geteuid() or (probe := open_cgroup(1 << 20, 1)) is None:
        pytest.skip("no cgroup may be made here")
    probe.try_remove()
    assert worker.run(attacks.PAGE_TABLES, limits={"memory_mib": 512, "disk_mib": 1})["exit_code"] == -9
    assert worker.process.poll() is None


@ON_X86
def test_call_under_the_32_bit_architecture_kills_the_sandboxed_process(worker: Worker) -> None:
    before = worker.fingerprint()
    assert worker.run(attacks.I386)["exit_code"] in (-31, -11)  # SIGSYS; SIGSEGV where the kernel has no such calls
    assert worker.fingerprint() == before


@pytest.mark.parametrize("seed", mostly_more(range(8), {0, 1}))
def test_arbitrary_calls_with_arbitrary_arguments_affect_no_other_process(worker: Worker, seed: int) -> None:
    """Each ends the sandboxed process at worst. Two in a row show that nothing is left of the first."""
    before, host = worker.fingerprint(), os.uname().nodename
    answer = worker.run(attacks.FUZZ.replace("SEED", str(seed)), limits={"cpu_seconds": 5})
    assert "exit_code" in answer
    assert worker.process.poll() is None
    assert (worker.fingerprint(), os.uname().nodename) == (before, host)
    assert worker.attack(attacks.STATE)["ids"] == [1000, 1000, 2, 1]
