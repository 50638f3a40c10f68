"""Run code in a sandbox: a separate process without credentials, files or network, and with limited resources.

`sandbox_launcher` is the program of that process, and `sandbox_program` runs the code in it. On a platform without sandbox support,
no code runs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import platform
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, SetupError
from heliograph.tools import sandbox_launcher, sandbox_program
from heliograph.tools.cgroup import Cgroup, open_cgroup
from heliograph.tools.syscall_filter import MACHINES, SANDBOXED_PID, filter_program

_MIB = 1024 * 1024
_REPORT_MAX = 2000
_END_SECONDS = 5
_LAUNCHER_MIB, _LAUNCHER_PROCESSES = 64, 8
_REMOVAL_ATTEMPTS = 200
# the kernel enforces the limit by timer ticks, which may count more processor time than it reports at the end
_CPU_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """The limits of one sandbox.

    cpu_seconds: processor time. memory_mib: memory. disk_mib, files: the size of its two writable folders, and the number of
    files and folders in them. output_mib: the printed output. open_files, threads: how many at the same time.
    """

    cpu_seconds: int = 10
    memory_mib: int = 512
    disk_mib: int = 16
    output_mib: int = 1
    open_files: int = 64
    files: int = 1024
    threads: int = 32

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
                raise InvalidInput(f"{name} must be a whole number from 1 to 1000000, not {safe_repr(repr_of(value))}", code="out_of_range",
                                   path=f"/limits/{name}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The exit code and output of sandboxed code. error: the limit that ended the code, and the remedy; otherwise None."""

    exit_code: int
    stdout: str
    stderr: str
    error: str | None = None


async def run_sandboxed(
    spec: Mapping[str, Any], limits: SandboxLimits, binds: list[str], *, network: bool = False
) -> SandboxResult:
    """Run the code or the function that `spec` names. Cancellation kills its processes. binds: readable folders and files.

    Raises SetupError (`no_sandbox`).
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise _no_sandbox(f"{sys.platform} on {platform.machine()} has no system call filter in this version")
    program = filter_program(platform.machine(), network=network)
    specification = {
        "packages": [], "program": sandbox_program.__file__, **spec, "parent": os.getpid(), "pid": SANDBOXED_PID, "network": network, "files": limits.files,
        "disk_bytes": limits.disk_mib * _MIB, "python": _python(), "binds": binds, "limits": _resource_limits(limits),
        "filter": base64.b64encode(program).decode(),
    }  # fmt: skip
    async with _cgroup_for(limits) as cgroup:
        ran, report = await _run(specification, limits.output_mib * _MIB, cgroup)
        is_out_of_memory = cgroup is not None and cgroup.has_killed()
    built, _, end = report.partition(sandbox_launcher.ENDED)
    if built != sandbox_launcher.BUILT:
        raise _no_sandbox(built.decode("utf-8", "replace") or ran.stderr.strip()[-300:])
    code, used = end.split() if end else (b"%d" % -signal.SIGKILL, b"0")
    ran = replace(ran, exit_code=int(code))
    return replace(ran, error=ran.error or limit_message(ran.exit_code, float(used), limits, is_out_of_memory))


def limit_message(exit_code: int, cpu_seconds: float, limits: SandboxLimits, is_out_of_memory: bool) -> str | None:
    """The limit that ended code that died by a signal, and the remedy; None if no limit is known to have ended it."""
    if exit_code not in (-signal.SIGKILL, -signal.SIGXCPU):
        return None
    if is_out_of_memory and exit_code == -signal.SIGKILL:
        return _limit_text("memory_mib", f"{limits.memory_mib} MiB of memory")
    if exit_code == -signal.SIGXCPU or cpu_seconds >= limits.cpu_seconds * _CPU_SHARE:
        return _limit_text("cpu_seconds", f"{limits.cpu_seconds} s of processor time")
    return None


def _limit_text(name: str, amount: str) -> str:
    text = f"the sandbox ended the code at its limit of {amount}"
    return f"{text}. Do less in one call; the application can raise the limit: SandboxLimits({name}=...)"


def _resource_limits(limits: SandboxLimits) -> dict[str, int]:
    return {
        "CPU": limits.cpu_seconds, "AS": limits.memory_mib * _MIB, "FSIZE": limits.disk_mib * _MIB,
        "NOFILE": limits.open_files, "NPROC": limits.threads, "SIGPENDING": 64, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0,
    }  # fmt: skip


def _no_sandbox(problem: str) -> SetupError:
    return SetupError(
        f"this machine cannot run the sandbox, so no code was run: {safe_repr(problem, 300)}. The sandbox requires Linux 5.14 or newer with "
        "user namespaces; in a container, the seccomp and AppArmor profiles must allow unshare, mount and pivot_root",
        code="no_sandbox",
    )


@contextlib.asynccontextmanager
async def _cgroup_for(limits: SandboxLimits) -> AsyncIterator[Cgroup | None]:
    """A cgroup for one sandbox, with its launcher and init; None if the worker cannot create one."""
    memory = (limits.memory_mib + limits.disk_mib + _LAUNCHER_MIB) * _MIB
    # not in a thread, which could outlive a cancellation: it is only a few writes
    cgroup = open_cgroup(memory, limits.threads + _LAUNCHER_PROCESSES)
    try:
        yield cgroup
    finally:
        for _ in range(_REMOVAL_ATTEMPTS):
            if cgroup is None or cgroup.try_remove():
                break
            await asyncio.sleep(0.01)  # until its last process has ended


async def _run(specification: Mapping[str, Any], output_max: int, cgroup: Cgroup | None) -> tuple[SandboxResult, bytes]:
    """Return the result of the process, and the report about the sandbox, which sandboxed code cannot write."""
    report, pipe = os.pipe()
    os.set_blocking(report, False)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", sandbox_launcher.__file__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, pass_fds=(pipe,), cwd="/", start_new_session=True,
                env={"LANG": "C.UTF-8", "HOME": "/jail", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        finally:
            os.close(pipe)
        try:
            if cgroup is not None:
                cgroup.add(process.pid)  # the process still waits for its specification
            out, err, is_cut = await _communicate(
                process, json.dumps({**specification, "pipe": pipe}).encode(), output_max
            )
            code = await process.wait()
        finally:
            await _end(process)
        error = _limit_text("output_mib", f"{output_max // _MIB} MiB of output") if is_cut else None
        return SandboxResult(code, out, err, error), _report_in(report)
    finally:
        os.close(report)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the launcher, which kills and reaps everything that it started, and wait until their pipes are closed.

    Killing the launcher also kills its children, but leaves a zombie on systems where nothing reaps orphans.
    """
    assert process.stdin is not None
    process.stdin.close()
    try:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _report_in(pipe: int) -> bytes:
    """Read the pipe after the process has ended. Another fork may keep the other end open, so there may be no end of file."""
    try:
        return os.read(pipe, _REPORT_MAX)
    except BlockingIOError:
        return b""


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes, output_max: int) -> tuple[str, str, bool]:
    """Return stdout and stderr, each up to `output_max` bytes, and whether one was longer; then the process is terminated."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if not process.stdin.is_closing():  # uvloop raises RuntimeError for a write to a process that has ended
            process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    read = await asyncio.gather(*map(partial(_read, process, bytes_max=output_max), (process.stdout, process.stderr)))
    out, err = (part[:output_max].decode("utf-8", "replace").replace("\0", "�") for part in read)
    return out, err, any(len(part) > output_max for part in read)


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, *, bytes_max: int) -> bytes:
    """Read to the end, because asyncio waits for a process until its pipes are empty. Return at most `bytes_max` + 1 bytes."""
    kept = bytearray()
    while part := await stream.read(65536):
        if len(kept) > bytes_max:
            continue
        kept += part
        if len(kept) > bytes_max:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
    return bytes(kept[: bytes_max + 1])


def _python() -> list[str]:
    """Return the folders of the interpreter and its standard library. The sandbox hides the packages installed in them."""
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], str(Path(sys.base_prefix) / "lib")]
    return list(dict.fromkeys(each for folder in folders for each in (folder, str(Path(folder).resolve()))))
