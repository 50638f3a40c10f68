"""Run a PostgreSQL program under another identity, because PostgreSQL refuses to run as root.

A script, not a module: `process.py` runs it with `python -I -S`, so it uses only the standard library. A change of identity needs a
new process with a single thread: a process with threads cannot enter a user namespace, and must not use `preexec_fn`.

    launch.py IDENTITY wait   PROGRAM ARGUMENT...    change identity, then exec the program
    launch.py IDENTITY detach PROGRAM ARGUMENT...    the same, in a new session
    launch.py IDENTITY check  PATH...                exit 0 if it can enter or run every path

    IDENTITY  self              the caller's own
              mapped:UID        root, seen as UID within a new user namespace
              account:UID:GID   another account of this machine
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def main(arguments: list[str]) -> None:
    identity, mode, *rest = arguments
    become(identity)
    if mode == "check":
        sys.exit(next((f"{path}: no access" for path in rest if not os.access(path, os.X_OK)), None))
    if mode == "detach":
        if os.fork():
            os._exit(0)
        os.setsid()
    os.execv(rest[0], rest)  # noqa: S606 - no shell on purpose


def become(identity: str) -> None:
    kind, *ids = identity.split(":")
    if kind == "mapped":
        enter_user_namespace(int(ids[0]))
    elif kind == "account":
        uid, gid = (int(part) for part in ids)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def enter_user_namespace(uid: int) -> None:
    """Continue as `uid` in a user namespace, where this process still owns root's files.

    It needs no account and no wider permissions of folders: for the kernel this process is still root, only without the right to
    override permissions.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        sys.exit(f"user namespaces are not available: {os.strerror(ctypes.get_errno())}")
    # the kernel accepts a group map from an unprivileged writer only after setgroups is denied
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} 0 1")
    Path("/proc/self/gid_map").write_text(f"{uid} 0 1")


if __name__ == "__main__":
    main(sys.argv[1:])
