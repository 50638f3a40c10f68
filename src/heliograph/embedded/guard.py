"""Stop the embedded server when the last process that uses it is gone, however it went.

A script, not a module: `server.py` runs it with `python -I -S`, so it may use the
standard library only. It detaches itself and holds FOLDER/NAME.guard while it lives.

    guard.py FOLDER NAME SOCKETS      for example: .heliograph pg18 .heliograph/pg18

SOCKETS is where clients find the server: its data folder, or a link to it, which goes with it.

The theory stands in `server.py`. All files are opened relative to the folder that was
opened first: when that folder is moved the guard moves along, and when it is deleted and
made anew the guard never touches the server of the new one.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time

# A fast shutdown writes a checkpoint, which takes a slow disk a while. After this long the
# server is told to drop everything; it recovers from its log at the next start.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.02


def main(home: str, name: str, sockets: str) -> None:
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    # Opened first, so closed first when we are killed: whoever gets the gate then sees this lock free.
    alive = open_lock(folder, f"{name}.guard")
    if not can_take(alive):
        return  # another guard is at work
    child = os.fork()
    if child:
        os.ftruncate(alive, 0)
        os.write(alive, f"{child}\n".encode())  # for people; nothing of ours reads it back
        os._exit(0)  # the child keeps the lock: the caller may go on
    os.setsid()
    watch(folder, name, sockets, alive)


def watch(folder: int, name: str, sockets: str, alive: int) -> None:
    """Wait until nobody holds the server, stop it behind the closed gate, and leave."""
    holders = open_lock(folder, f"{name}.holders")
    gate = open_lock(folder, f"{name}.gate")
    while True:
        # Not kept while waiting for the gate: whoever has the gate may want to become a holder.
        fcntl.flock(holders, fcntl.LOCK_EX)
        fcntl.flock(holders, fcntl.LOCK_UN)
        fcntl.flock(gate, fcntl.LOCK_EX)
        if can_take(holders):
            break
        fcntl.flock(gate, fcntl.LOCK_UN)  # somebody came in between
    stop_server(folder, name)
    remove_link(folder, name, sockets)
    os.close(alive)  # before the gate opens: the next one in must see that it needs a new guard


def stop_server(folder: int, name: str) -> None:
    """Return when no process of the server is left; a server that is still starting is stopped too."""
    server = open_lock(folder, f"{name}.server")
    patience_ends = time.monotonic() + PATIENCE_SECONDS
    told = None
    while not can_take(server):
        order = signal.SIGINT if time.monotonic() < patience_ends else signal.SIGQUIT
        pid = find_postmaster(folder, name)
        if pid is not None and told != (pid, order):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, order)
            told = (pid, order)
        time.sleep(POLL_SECONDS)


def remove_link(folder: int, name: str, sockets: str) -> None:
    """Remove the link to our data folder; one that by now leads to another is somebody else's."""
    with contextlib.suppress(OSError):
        leads_here = os.path.samestat(os.stat(sockets), os.stat(name, dir_fd=folder))
        if leads_here and os.path.islink(sockets):
            os.unlink(sockets)


def find_postmaster(folder: int, name: str) -> int | None:
    """The server's process id; only asked while its lock is held, so the file is not a stale one."""
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
