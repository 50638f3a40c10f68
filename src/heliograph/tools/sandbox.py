"""Run code in a sandbox: a process of its own, without credentials, files, network or unlimited resources.

`sandbox_launcher` is the program of that process, and `sandbox_program` runs the code in it. On a platform without sandboxes,
nothing runs.
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

from heliograph.errors import InvalidInput, SetupError, repr_of, safe_repr
from heliograph.tools import sandbox_launcher, sandbox_program
from heliograph.tools.cgroup import Cgroup, open_cgroup
from heliograph.tools.syscall_filter import MACHINES, SANDBOXED_PID, filter_program

_MIB = 1024 * 1024
_REPORT_MAX = 2000
_END_SECONDS = 5
_LAUNCHER_MIB, _LAUNCHER_PROCESSES = 64, 8
_REMOVAL_ATTEMPTS = 200
# the kernel ends code by its timer ticks, which may count more processor time than it reports in the end
_CPU_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """The limits of one sandbox.

    cpu_seconds: processor time. memory_mib: memory. disk_mib, files: the size of its two writable folders, and the number of
    files and folders in them. output_mib: the printed output. open_files, threads: the number at a time.
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
                raise InvalidInput(f"{name} is a whole number from 1 to 1000000, not {safe_repr(repr_of(value))}", code="out_of_range",
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
    """Run the code or function of `spec`. Cancelling it kills its processes. Raises SetupError (`no_sandbox`)."""
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


def _no_sandbox(why: str) -> SetupError:
    return SetupError(
        f"this machine cannot run the sandbox, so nothing was run: {safe_repr(why, 300)}. The sandbox requires Linux 5.14 or newer with "
        "user namespaces; in a container, the seccomp and AppArmor profiles must allow unshare, mount and pivot_root",
        code="no_sandbox",
    )


@contextlib.asynccontextmanager
async def _cgroup_for(limits: SandboxLimits) -> AsyncIterator[Cgroup | None]:
    """A cgroup for one sandbox, with its launcher and init; None if the worker cannot create one."""
    memory = (limits.memory_mib + limits.disk_mib + _LAUNCHER_MIB) * _MIB
    cgroup = open_cgroup(
        memory, limits.threads + _LAUNCHER_PROCESSES
    )  # a few writes: a thread could outlive a cancellation
    try:
        yield cgroup
    finally:
        for _ in range(_REMOVAL_ATTEMPTS):
            if cgroup is None or cgroup.try_remove():
                break
            await asyncio.sleep(0.01)  # its last process is ending


async def _run(specification: Mapping[str, Any], most: int, cgroup: Cgroup | None) -> tuple[SandboxResult, bytes]:
    """The result of the process, and its report about the sandbox, which sandboxed code cannot write."""
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
                cgroup.add(process.pid)  # it waits for its specification
            out, err, is_cut = await _communicate(process, json.dumps({**specification, "pipe": pipe}).encode(), most)
            code = await process.wait()
        finally:
            await _end(process)
        error = _limit_text("output_mib", f"{most // _MIB} MiB of output") if is_cut else None
        return SandboxResult(code, out, err, error), _report_in(report)
    finally:
        os.close(report)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the launcher, which kills and reaps everything that it started, and wait until their pipes are closed.

    A launcher that is killed takes its children with it, too, but leaves a zombie where nothing reaps orphans.
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
    """The content of the pipe when the process has ended. Another fork may hold the other end, so there may be no end of file."""
    try:
        return os.read(pipe, _REPORT_MAX)
    except BlockingIOError:
        return b""


async def _communicate(process: asyncio.subprocess.Process, sent: bytes, most: int) -> tuple[str, str, bool]:
    """Its output and errors, each up to `most` bytes, and whether it printed more; a process that prints more is killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(sent)
        await process.stdin.drain()
    process.stdin.close()
    read = await asyncio.gather(*map(partial(_read, process, most=most), (process.stdout, process.stderr)))
    out, err = (part[:most].decode("utf-8", "replace").replace("\0", "�") for part in read)
    return out, err, any(len(part) > most for part in read)


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, *, most: int) -> bytes:
    """Read to the end, and keep one byte more than `most`: asyncio waits for a process until its pipes are empty."""
    kept = bytearray()
    while part := await stream.read(65536):
        if len(kept) > most:
            continue
        kept += part
        if len(kept) > most:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
    return bytes(kept[: most + 1])


def _python() -> list[str]:
    """The folders of the interpreter and its standard library. The sandbox hides the packages that are installed in them."""
    paths = sysconfig.get_paths()
    found = [paths["stdlib"], paths["platstdlib"], str(Path(sys.base_prefix) / "lib")]
    return list(dict.fromkeys(each for name in found for each in (name, str(Path(name).resolve()))))
