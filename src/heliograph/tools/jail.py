"""Run a piece of Python shut in: a program of its own, started by `isolated` with `python -I`, that imports nothing of ours (S17).

It is told what to do on stdin, as JSON, and answers on stdout. Before it does it, it takes itself everything that it does not
need, in this order: namespaces of its own for users, mounts and the network, a file system with nothing but Python in it, limits
on time, memory and files, and a filter of system calls. Whether all of it could be taken it says over a pipe of its own, which is
closed before anything is run: nothing that is run can say it.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import platform
import resource
import runpy
import struct
import sys
import traceback
from typing import Any

BUILT = b"built"  # all that the pipe says where there is a jail; else it says why there is none

_NEW = {"user": 0x10000000, "mounts": 0x00020000, "ipc": 0x08000000, "names": 0x04000000, "network": 0x40000000}
_BIND, _REC, _PRIVATE, _READ_ONLY, _REMOUNT = 0x1000, 0x4000, 0x40000, 0x1, 0x20
_KEPT_FLAGS = 0x2 | 0x4 | 0x8 | 0x400  # nosuid, nodev, noexec, noatime: a mount that has them has to keep them
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/dev/null", "/dev/urandom",
)  # fmt: skip
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _SECCOMP = 1, 38, 22

# Numbers of system calls: other processes, other programs, other namespaces, the kernel itself.
_CALLS = {
    "x86_64": (0xC000003E, 56, 435, (
        57, 58, 59, 322,  # fork, vfork, execve, execveat
        62, 200, 234, 129, 297, 424, 434, 438,  # kill and its like, pidfd
        101, 310, 311, 312,  # ptrace, process_vm, kcmp
        155, 161, 165, 166, 272, 308, 428, 429, 430, 431, 432, 433, 442,  # roots, mounts, namespaces
        248, 249, 250, 321, 298, 323, 425, 426, 427, 175, 313, 246, 169, 103, 172, 173,  # keys, bpf, perf, io_uring, modules
    ), (41, 42, 43, 49, 50, 288)),
    "aarch64": (0xC00000B7, 220, 435, (
        221, 281, 129, 130, 131, 138, 240, 424, 434, 438, 117, 270, 271, 272, 51, 41, 40, 39, 97, 268,
        428, 429, 430, 431, 432, 433, 442, 217, 218, 219, 280, 241, 282, 425, 426, 427, 105, 273, 104, 142, 116,
    ), (198, 203, 202, 200, 201, 242)),
}  # fmt: skip


def main() -> None:
    spec = json.loads(sys.stdin.buffer.read())
    with open(spec["pipe"], "wb") as pipe:
        try:
            _shut_in(spec)
        except (OSError, MemoryError) as error:
            pipe.write((getattr(error, "strerror", None) or repr(error)).encode())
            sys.exit(1)
        pipe.write(BUILT)
    if "code" in spec:
        _run_code(spec["code"])
    else:
        _run_function(spec)


def _shut_in(spec: dict[str, Any]) -> None:
    """Raises OSError naming what this platform does not allow."""
    libc = ctypes.CDLL(None, use_errno=True)
    _do(libc, "prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    user, group = os.getuid(), os.getgid()
    flags = sum(flag for name, flag in _NEW.items() if name != "network" or not spec["network"])
    _do(libc, "unshare", flags)
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as opened:
            opened.write(text)
    _do(libc, "prctl", _DEATH_SIGNAL, 9, 0, 0, 0)  # with whoever has started it; new credentials forget this
    _enter_root(libc, spec)
    for name, value in spec["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    _filter_calls(libc, network=spec["network"])


def _enter_root(libc: Any, spec: dict[str, Any]) -> None:
    root = spec["root"]
    _do(libc, "mount", None, b"/", None, _REC | _PRIVATE, None)
    _do(libc, "mount", b"tmpfs", root.encode(), b"tmpfs", 0, f"size={spec['disk_bytes']},mode=755".encode())
    network = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl") if spec["network"] else ()
    for path in dict.fromkeys([*_SYSTEM, *network, *spec["binds"]]):
        if os.path.exists(path):
            _bind(libc, path, root + path)
    for folder in ("jail", "tmp"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    os.chroot(root)
    os.chdir("/jail")


def _bind(libc: Any, path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    kept = os.statvfs(path).f_flag & _KEPT_FLAGS
    _do(libc, "mount", path.encode(), target.encode(), None, _BIND | _REC, None)
    _do(libc, "mount", None, target.encode(), None, _REMOUNT | _BIND | _READ_ONLY | kept, None)


def _filter_calls(libc: Any, *, network: bool) -> None:
    """Seccomp: what is denied answers EPERM; a thread may be begun, a process may not."""
    if platform.machine() not in _CALLS:
        raise OSError(0, f"no filter of system calls is known for {platform.machine()}")
    architecture, clone, clone3, denied, sockets = _CALLS[platform.machine()]
    load, jump, jump_set, jump_least, answer = 0x20, 0x15, 0x45, 0x35, 0x06
    allow, deny, absent, kill = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
    lines = [(load, 0, 0, 4), (jump, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    lines += [(jump_least, 0, 1, 0x40000000), (answer, 0, 0, deny)]
    for number in (*denied, *(() if network else sockets)):
        lines += [(jump, 0, 1, number), (answer, 0, 0, deny)]
    lines += [(jump, 0, 1, clone3), (answer, 0, 0, absent)]
    lines += [
        (jump, 0, 3, clone),
        (load, 0, 0, 16),
        (jump_set, 1, 0, 0x10000),
        (answer, 0, 0, deny),
        (answer, 0, 0, allow),
    ]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer))
    _do(libc, "prctl", _SECCOMP, 2, ctypes.create_string_buffer(header), 0, 0)


def _do(libc: Any, name: str, *args: Any) -> None:
    ctypes.set_errno(0)
    given = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]
    if getattr(libc, name)(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name} is not allowed here: {os.strerror(number)}")


def _run_code(code: str) -> None:
    with open("/jail/code.py", "w", encoding="utf-8") as file:
        file.write(code)
    sys.argv = ["code.py"]
    runpy.run_path("/jail/code.py", run_name="__main__")


def _run_function(spec: dict[str, Any]) -> None:
    """Call a function of an application by its place, and answer what it returns as JSON."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what it prints is no answer
    try:
        sys.path[:0] = spec["path"]
        found: Any = _module(spec)
        for part in spec["qualname"].split("."):
            found = getattr(found, part)
        import pydantic
        from pydantic_core import ArgsKwargs, to_jsonable_python

        function = getattr(found, "function", None) or found
        result = pydantic.TypeAdapter(function).validate_python(ArgsKwargs((), spec["arguments"]))
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        answer = {"result": to_jsonable_python(result)}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    with open(answers, "w", encoding="utf-8") as out:
        json.dump(answer, out)


async def _awaited(work: Any) -> Any:
    return await work


def _module(spec: dict[str, Any]) -> Any:
    if spec["file"] is None:
        return importlib.import_module(spec["module"])
    found = importlib.util.spec_from_file_location("isolated_module", spec["file"])
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["isolated_module"] = module
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
