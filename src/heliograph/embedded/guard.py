"""Stop the embedded server after the last process that uses it has ended, in any way.

A script, not a module: `server.py` runs it with `python -I -S`, so it uses only the standard library. It detaches itself, and locks
FOLDER/NAME.guard as long as it lives.

    guard.py FOLDER NAME SOCKETS      for example: .heliograph pg18 .heliograph/pg18

SOCKETS is the folder where clients find the server: its data folder, or a link to it, which the guard removes.

`server.py` explains the protocol. All files are opened relative to the folder that was opened first. If that folder is moved, the
guard follows it. If it is deleted and created again, the guard never touches the server of the new one.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time

# A fast shutdown writes a checkpoint, which takes time on a slow disk. After this long the server gets an
# immediate shutdown; it recovers from its log at the next start.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.02


def main(home: str, name: str, sockets: str) -> None:
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    # Opened first: after a kill the operating system closes it first, and the next process behind the gate finds it free.
    alive = open_lock(folder, f"{name}.guard")
    if not can_take(alive):
        return  # another guard runs
    child = os.fork()
    if child:
        os.ftruncate(alive, 0)
        os.write(alive, f"{child}\n".encode())  # for people who look for the process
        os._exit(0)  # the child keeps the lock
    os.setsid()
    watch(folder, name, sockets, alive)


def watch(folder: int, name: str, sockets: str, alive: int) -> None:
    """Wait until no process uses the server, stop it behind the closed gate, and end."""
    holders = open_lock(folder, f"{name}.holders")
    gate = open_lock(folder, f"{name}.gate")
    while True:
        # Released before waiting for the gate, because the process that has the gate may become a holder.
        fcntl.flock(holders, fcntl.LOCK_EX)
        fcntl.flock(holders, fcntl.LOCK_UN)
        fcntl.flock(gate, fcntl.LOCK_EX)
        if can_take(holders):
            break
        fcntl.flock(gate, fcntl.LOCK_UN)  # a new holder came in between
    stop_server(folder, name)
    remove_link(folder, name, sockets)
    os.close(alive)  # before the gate opens: the next process must find that it needs a new guard


def stop_server(folder: int, name: str) -> None:
    """Stop the server, even while it starts; return when none of its processes remains."""
    server = open_lock(folder, f"{name}.server")
    patience_ends = time.monotonic() + PATIENCE_SECONDS
    sent = None
    while not can_take(server):
        order = signal.SIGINT if time.monotonic() < patience_ends else signal.SIGQUIT
        pid = find_postmaster(folder, name)
        if pid is not None and sent != (pid, order):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, order)
            sent = (pid, order)
        time.sleep(POLL_SECONDS)


def remove_link(folder: int, name: str, sockets: str) -> None:
    """Remove the link to this data folder, unless it leads to another folder now."""
    with contextlib.suppress(OSError):
        leads_here = os.path.samestat(os.stat(sockets), os.stat(name, dir_fd=folder))
        if leads_here and os.path.islink(sockets):
            os.unlink(sockets)


def find_postmaster(folder: int, name: str) -> int | None:
    """Return the server's process id; None before it has written its file. The server has its lock, so the file is not stale."""
    try:
        file = os.open(f"{name}/postmaster.pid", os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(file) as lines:
        first = lines.readline().strip()
    return int(first) if first.isdecimal() else None


def open_lock(folder: int, file: str) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)


def can_take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
