"""CPU time of the processes of a measurement, by role, from the accounting of the operating system (Linux: /proc).

    server       the connections' processes of PostgreSQL
    background   its autovacuum, checkpointer, log writer and other processes
    caller       the process that asks for the work
    worker       its descendants: the process that does the work

A process of the server that ends is counted by the postmaster, but without its role. So a thread looks every 20 milliseconds for
processes of autovacuum, which live briefly; its own time does not count.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SERVER, BACKGROUND, CALLER, WORKER = ROLES = ("server", "background", "caller", "worker")
LOOK_SECONDS = 0.02
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
# the titles of the server's other processes, without the names of databases and users that a connection's process has
_BACKGROUND = (
    "autovacuum", "checkpointer", "background writer", "walwriter", "logical replication", "io worker", "startup", "archiver", "logger",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    seconds: float
    ended_children: float


@dataclass(slots=True)
class _Reading:
    """CPU seconds so far. ended: of the server's ended processes, as their parent counts them."""

    server: dict[int, float]
    background: dict[int, float]
    ended: float
    caller: float
    workers: dict[int, float]
    machine: float


@dataclass(slots=True)
class Spent:
    """CPU seconds by role, filled when the measurement is over. others: those of all other processes of the machine."""

    by_role: dict[str, float] = field(default_factory=dict)
    others: float = 0.0


def is_supported() -> bool:
    return (_PROC / "self" / "schedstat").exists()


@contextmanager
def measuring(backend: int, caller: int) -> Iterator[Spent]:
    """Measure the CPU time of a block. backend: a process of the server. On other systems than Linux it stays empty."""
    spent = Spent()
    if not is_supported():
        yield spent
        return
    stat = _stat(backend)
    assert stat is not None, f"process {backend} has ended"
    postmaster = stat.parent
    watch = _Watch(postmaster)
    before = _read(postmaster, caller, watch)
    watch.start()
    try:
        yield spent
    finally:
        watch.stop()
    after = _read(postmaster, caller, watch)
    own = watch.own_seconds if caller == os.getpid() else 0.0
    _fill(spent, before, after, watch.background, own)


def _fill(spent: Spent, before: _Reading, after: _Reading, seen: dict[int, float], own: float) -> None:
    live = _grown(before.server, after.server)
    background = {**seen, **after.background}
    gone_background = _grown(before.background, {pid: cpu for pid, cpu in seen.items() if pid not in after.background})
    counted_before = sum(
        cpu
        for pid, cpu in {**before.server, **before.background}.items()
        if pid not in {*after.server, *after.background}
    )
    gone = max(0.0, after.ended - before.ended - counted_before)
    spent.by_role = {
        SERVER: live + max(0.0, gone - gone_background),
        BACKGROUND: _grown(before.background, background),
        CALLER: max(0.0, after.caller - before.caller - own),
        WORKER: _grown(before.workers, after.workers),
    }
    spent.others = max(0.0, after.machine - before.machine - sum(spent.by_role.values()))


def _grown(before: dict[int, float], after: dict[int, float]) -> float:
    return sum(max(0.0, cpu - before.get(pid, 0.0)) for pid, cpu in after.items())


class _Watch:
    """Follows the processes of the server, so that those that end have a role."""

    def __init__(self, postmaster: int):
        self.background: dict[int, float] = {}
        self.own_seconds = 0.0
        self._postmaster = postmaster
        self._roles: dict[int, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def role(self, pid: int) -> str | None:
        """Return the role of a process of the server; none as long as it has no title."""
        if pid not in self._roles:
            title = _text(_PROC / str(pid) / "cmdline")
            if ": " not in title:
                return None
            name = title.partition(": ")[2]
            self._roles[pid] = BACKGROUND if name.startswith(_BACKGROUND) else SERVER
        return self._roles[pid]

    def look(self) -> None:
        for pid in _children(self._postmaster):
            if self.role(pid) == BACKGROUND and (cpu := _precise(pid)) is not None:
                self.background[pid] = cpu

    def _follow(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()
        self.own_seconds = time.thread_time()


def _read(postmaster: int, caller: int, watch: _Watch) -> _Reading:
    stat = _stat(postmaster)
    assert stat is not None, "the server has ended"
    server: dict[int, float] = {}
    background = {postmaster: stat.seconds}
    for pid in _children(postmaster):
        if (cpu := _precise(pid)) is not None:
            (background if watch.role(pid) == BACKGROUND else server)[pid] = cpu
    of_caller = _stat(caller)
    workers = {
        pid: max(found.seconds, _of_threads(pid))
        for pid in _descendants(caller)
        if (found := _stat(pid)) and pid != postmaster
    }
    return _Reading(
        server, background, stat.ended_children, of_caller.seconds if of_caller else 0.0, workers, _machine_seconds()
    )


def _descendants(pid: int) -> Iterator[int]:
    for task in (_PROC / str(pid) / "task").iterdir():  # a thread may have started it
        for child in (int(each) for each in _text(task / "children").split()):
            yield child
            yield from _descendants(child)


def _children(pid: int) -> list[int]:
    return [int(each) for each in _text(_PROC / str(pid) / "task" / str(pid) / "children").split()]


def _precise(pid: int) -> float | None:
    """The CPU seconds of a process with one thread, to the nanosecond."""
    text = _text(_PROC / str(pid) / "schedstat")
    return int(text.split()[0]) / 1e9 if text else None


def _of_threads(pid: int) -> float:
    """The CPU seconds of the threads that a process has now, to the nanosecond."""
    texts = (_text(each) for each in (_PROC / str(pid) / "task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in texts if text) / 1e9


def _stat(pid: int) -> _Stat | None:
    """The CPU seconds of a process with all its threads, in ticks of usually 10 ms."""
    text = _text(_PROC / str(pid) / "stat")
    if not text:
        return None
    parent, *rest = (int(each) for each in text[text.rindex(")") + 4 :].split()[:14])
    user, system, children_user, children_system = rest[9:13]
    return _Stat(parent, (user + system) / _TICKS, (children_user + children_system) / _TICKS)


def _machine_seconds() -> float:
    user, nice, system, _idle, _wait, hard, soft = (int(each) for each in _text(_PROC / "stat").split(None, 8)[1:8])
    return (user + nice + system + hard + soft) / _TICKS


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended
        return ""
