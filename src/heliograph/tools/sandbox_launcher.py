"""Run Python code in a sandbox: a program of its own, started by `sandbox` with `python -I -S`, that imports no module of Heliograph.

It reads a JSON specification from stdin, and becomes three processes. The launcher enters new namespaces and waits. Init, the first
process of the new PID namespace, builds a file system that contains only Python. The sandboxed process drops all capabilities, sets
its limits, installs the filter of system calls, and only then runs the code with `sandbox_program`.

A separate pipe reports `BUILT` if all of this succeeded; otherwise it contains the error, and no code was run. The sandboxed process
closes its end before it runs any code. Init keeps its end, and writes the exit code and the processor time of the sandboxed process.
"""

from __future__ import annotations

import base64
import ctypes
import glob
import json
import os
import resource
import select
import signal
import struct
import sys
from typing import Any, NoReturn

BUILT = b"built"
ENDED = b"\0"  # between the output of the sandboxed process, and its exit code and processor time

_NEW_USER, _NEW_MOUNTS, _NEW_NETWORK = 0x10000000, 0x00020000, 0x40000000
_NEW_PIDS, _NEW_IPC, _NEW_NAMES = 0x20000000, 0x08000000, 0x04000000
_BIND, _REC, _PRIVATE, _READ_ONLY, _REMOUNT = 0x1000, 0x4000, 0x40000, 0x1, 0x20
_NO_SUID, _NO_DEVICES, _NO_EXEC, _DETACH = 0x2, 0x4, 0x8, 0x2
_MOUNT_SETATTR, _HERE, _RECURSIVE = 442, -100, 0x8000
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/dev/null", "/dev/urandom",
)  # fmt: skip
_WRITABLE = ("/jail", "/tmp")  # noqa: S108  in the sandbox's own file system
_NETWORK = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/ssl/certs", "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
)  # fmt: skip
_INSTALLED = ("site-packages", "dist-packages", "python3*/site-packages", "python3*/dist-packages")
_PROGRAM = "/program/sandbox_program.py"
_AWAITED = {signal.SIGTERM, signal.SIGCHLD}  # the launcher blocks them and waits for them
_FIRST_FREE_ID = 0x70000000  # user ids that no system assigns: each sandbox of root has its own
_NOBODY = 65534
_INSIDE = 1000  # the sandboxed process's own user and group, as it sees them
_DEATH_SIGNAL, _DUMPABLE, _NO_NEW_PRIVILEGES, _SECCOMP = 1, 4, 38, 22
_SECUREBITS, _DROP_BOUNDING, _AMBIENT, _CLEAR_AMBIENT = 28, 24, 47, 4
_ALL_SECUREBITS = 0xEF  # NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, all of them locked


def main() -> None:
    spec = json.loads(sys.stdin.buffer.read())
    try:
        _enter_sandbox(spec)
    except (OSError, ValueError, MemoryError) as error:
        os.write(spec["pipe"], (getattr(error, "strerror", None) or repr(error)).encode())
        os._exit(1)
    os.write(spec["pipe"], BUILT)
    os.close(spec["pipe"])
    _run_program(spec)


def _enter_sandbox(spec: dict[str, Any]) -> None:
    """Enter the sandbox; only the sandboxed process returns. Raises OSError for a step that this platform does not allow."""
    libc = ctypes.CDLL(None, use_errno=True)
    _do(libc, "prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != spec["parent"]:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    _do(libc, "prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _enter_user_namespace(libc)
    _do(libc, "unshare", _NEW_MOUNTS | _NEW_PIDS | _NEW_IPC | _NEW_NAMES | (0 if spec["network"] else _NEW_NETWORK))
    is_alive, launcher_lives = os.pipe()
    if init := os.fork():
        _wait_as_launcher(init)
    os.close(launcher_lives)
    _do(libc, "prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    if select.select([is_alive], [], [], 0)[0]:
        os._exit(1)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # init ignores signals without a handler
    _do(libc, "sethostname", b"sandbox", len(b"sandbox"))
    proc = _enter_root(libc, spec)
    if sandboxed := os.fork():
        _wait_as_init(sandboxed, spec["pipe"])
    _drop_all_rights(libc, spec, proc)


def _wait_as_launcher(init: int) -> NoReturn:
    """Wait for init, which dies with this process, and its namespace with it. On SIGTERM, kill and reap init.

    If the worker is the first process of a container, nothing would reap an orphaned init.
    """
    while os.waitpid(init, os.WNOHANG)[0] == 0:
        if signal.sigwait(_AWAITED) == signal.SIGTERM:
            os.kill(init, signal.SIGKILL)
    os._exit(0)


def _wait_as_init(sandboxed: int, pipe: int) -> NoReturn:
    while (ended := os.wait4(-1, 0))[0] != sandboxed:
        pass
    used = ended[2].ru_utime + ended[2].ru_stime
    os.write(pipe, ENDED + f"{os.waitstatus_to_exitcode(ended[1])} {used:.3f}".encode())
    os._exit(0)


def _enter_user_namespace(libc: Any) -> None:
    """Enter a user namespace whose user 0 has no rights outside. While the file system is built, a worker's root is user 1 in it."""
    maps = {"uid_map": _map_for("uid", os.geteuid()), "gid_map": _map_for("gid", os.getegid())}
    if os.geteuid() == 0 and _may_set_groups():
        _drop_groups()
    entered, enters = os.pipe()
    ours = os.getpid()
    if not (helper := os.fork()):  # it stays in the outer namespace, in which root may write the maps
        os.close(enters)
        os._exit(0 if os.read(entered, 1) and _write_maps(os.open(f"/proc/{ours}", os.O_RDONLY), maps) else 1)
    os.close(entered)
    _do(libc, "unshare", _NEW_USER)
    os.write(enters, b"1")
    os.close(enters)
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError(0, "this platform does not allow user ids in a user namespace")
    _do(libc, "prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # a change of credentials has reset it


def _drop_groups() -> None:
    try:
        os.setgroups([])
    except PermissionError:
        raise OSError(0, "root without CAP_SETUID and CAP_SETGID cannot give the sandbox another user") from None


def _may_set_groups() -> bool:
    with open("/proc/self/setgroups", encoding="ascii") as file:
        return file.read().strip() == "allow"


def _map_for(kind: str, outside: int) -> str:
    if outside != 0:
        return f"0 {outside} 1"
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    for wanted in (_FIRST_FREE_ID + os.getpid(), _NOBODY):
        if any(first <= wanted < first + count for first, _, count in ranges):
            return f"0 {wanted} 1\n1 0 1"
    return "0 0 1"  # this namespace has only this user, who is an ordinary one outside


def _write_maps(process: int, maps: dict[str, str]) -> bool:
    for name, text in ({"setgroups": "deny"} | maps).items():
        file = os.open(name, os.O_WRONLY, dir_fd=process)
        os.write(file, text.encode())
        os.close(file)
    return True


def _enter_root(libc: Any, spec: dict[str, Any]) -> int:
    """Enter a new file system, read-only except for two folders of limited size. Return a descriptor of the old /proc."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    root = "/proc"  # it exists on every Linux, and nothing is bound from it
    _do(libc, "mount", None, b"/", None, _REC | _PRIVATE, None)
    _mount_tmpfs(libc, root, "size=4m,nr_inodes=8192,mode=755")
    python = [*_SYSTEM, *spec["python"]]
    paths = [*python, *(_NETWORK if spec["network"] else ()), *spec["binds"]]
    _mount_writable(libc, root, spec, paths)
    for path in dict.fromkeys(paths):
        if os.path.exists(path):
            _bind(libc, path, root + path)
            _set_attributes(libc, root + path, _READ_ONLY | _NO_SUID | (0 if path.startswith("/dev/") else _NO_DEVICES))
    for folder in _installed(python, spec["binds"]):
        _mount_tmpfs(libc, root + folder, "size=4k,nr_inodes=1,mode=755")
        _set_attributes(libc, root + folder, _READ_ONLY)
    _bind(libc, spec["program"], root + _PROGRAM)
    _set_attributes(libc, root + _PROGRAM, _READ_ONLY | _NO_SUID | _NO_DEVICES)
    _do(libc, "mount", None, root.encode(), None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES, None)
    os.chdir(root)
    _do(libc, "pivot_root", b".", b".")
    _do(libc, "umount2", b".", _DETACH)
    os.chdir("/jail")
    return proc


def _installed(python: list[str], binds: list[str]) -> list[str]:
    """Return the folders of installed packages inside those of Python that the sandbox hides: those without a requested bind."""
    kept = [os.path.realpath(path) for path in binds]
    found = {folder for path in python for each in _INSTALLED for folder in glob.glob(f"{glob.escape(path)}/{each}")}
    real = {
        folder: os.path.realpath(folder)
        for folder in sorted(found)
        if os.path.isdir(folder) and not os.path.islink(folder)
    }
    return [folder for folder, at in real.items() if not any(path == at or path.startswith(f"{at}/") for path in kept)]


def _mount_writable(libc: Any, root: str, spec: dict[str, Any], paths: list[str]) -> None:
    """Mount the two writable folders, which share one limit. Binds below them use inodes for their folders."""
    inodes = spec["files"] + 3 + sum(path.count("/") for path in paths if path.startswith(_WRITABLE))
    os.mkdir(f"{root}/scratch")
    _mount_tmpfs(libc, f"{root}/scratch", f"size={spec['disk_bytes']},nr_inodes={inodes},mode=700,uid=0,gid=0")
    for folder in _WRITABLE:
        source = f"{root}/scratch{folder}"
        os.mkdir(source, 0o700)
        os.chown(source, 0, 0)
        _bind(libc, source, root + folder)
    _do(libc, "umount2", f"{root}/scratch".encode(), _DETACH)
    os.rmdir(f"{root}/scratch")


def _mount_tmpfs(libc: Any, target: str, options: str) -> None:
    _do(libc, "mount", b"tmpfs", target.encode(), b"tmpfs", _NO_SUID | _NO_DEVICES | _NO_EXEC, options.encode())


def _bind(libc: Any, path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    _do(libc, "mount", path.encode(), target.encode(), None, _BIND | _REC, None)


def _set_attributes(libc: Any, target: str, attributes: int) -> None:
    """Add attributes to a mount and to all mounts below it."""
    request = ctypes.create_string_buffer(struct.pack("QQQQ", attributes, 0, 0, 0), 32)
    _do(libc, "syscall", _MOUNT_SETATTR, _HERE, target.encode(), _RECURSIVE, request, 32, name="mount_setattr")


def _drop_all_rights(libc: Any, spec: dict[str, Any], proc: int) -> None:
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    _do(
        libc, "prctl", _DUMPABLE, 1, 0, 0, 0
    )  # a change of credentials has reset it; otherwise root would own /proc/self
    _do(libc, "unshare", _NEW_USER | _NEW_MOUNTS)  # the mounts belong to the outer namespace, so they are locked
    _write_maps(os.open("self", os.O_RDONLY, dir_fd=proc), dict.fromkeys(("uid_map", "gid_map"), f"{_INSIDE} 0 1"))
    for name, value in spec["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        bound = resource.getrlimit(kind)[1]
        # processor time: SIGXCPU ends the code at its limit, or SIGKILL one second later if the code handles SIGXCPU
        soft, hard = (
            wanted if bound == resource.RLIM_INFINITY else min(wanted, bound)
            for wanted in (value, value + 1 if name == "CPU" else value)
        )
        resource.setrlimit(kind, (soft, hard))
    os.closerange(3, spec["pipe"])
    os.closerange(spec["pipe"] + 1, spec["pipe"] + 1024)
    _drop_capabilities(libc)
    if os.getpid() != spec["pid"]:
        raise OSError(0, "the first process of a PID namespace cannot start a child")
    program = base64.b64decode(spec["filter"])
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _do(libc, "prctl", _SECCOMP, 2, ctypes.create_string_buffer(header), 0, 0)


def _drop_capabilities(libc: Any) -> None:
    _do(libc, "prctl", _SECUREBITS, _ALL_SECUREBITS, 0, 0, 0)
    for capability in range(64):
        if libc.prctl(_DROP_BOUNDING, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break  # the kernel has no further capabilities
    _do(libc, "prctl", _AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    version = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
    _do(libc, "capset", version, ctypes.create_string_buffer(24))


def _do(libc: Any, function: str, *args: Any, name: str = "") -> None:
    ctypes.set_errno(0)
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    if getattr(libc, function)(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name or function} is not allowed here: {os.strerror(number)}")


def _run_program(spec: dict[str, Any]) -> None:
    import importlib.util

    module_spec = importlib.util.spec_from_file_location("sandbox_program", _PROGRAM)
    assert module_spec is not None
    assert module_spec.loader is not None
    program = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(program)
    program.run(spec)


if __name__ == "__main__":
    main()
