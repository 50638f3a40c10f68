"""The embedded PostgreSQL: one server per folder, shared by all processes that open the folder.

It runs PostgreSQL itself, from the binaries of a wheel, for machines without a database. No process owns the server. Four lock files
coordinate its users, and the operating system releases a lock however its process ends, even by kill -9:

    gate      exclusive, briefly: create, start, join and stop happen one at a time
    holders   shared, by every process that uses the server, until it closes or dies
    guard     exclusive, by the guard process (guard.py) as long as it lives
    server    exclusive, inherited by every process of the server: while it is locked, the server runs

    open      gate -> holders -> a guard if there is none -> the server if it does not run
    close     release holders; nothing else
    guard     wait for holders -> gate -> still no holder? -> stop the server, end

So the server stops after its last user, even if that one was killed. A process that opens the server while the guard stops it waits
at the gate and starts it again. The next process that opens the server replaces a killed guard, and starts a killed server again
under the same URL; a holder that cannot connect also starts it (`ensure_running`). A holder never stops a server, and never checks
whether a process id is alive.

A forked child of a holder is not a holder: its copies of the locks are closed.
"""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from heliograph.embedded.cluster import Cluster, find_binaries
from heliograph.embedded.process import Lock, choose_identity, launch, run_script
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, SetupError

DEFAULT_VERSION = 18
DEFAULT_START_TIMEOUT_SECONDS = 60.0
GUARD = Path(__file__).with_name("guard.py")
POLL_SECONDS = 0.01
LOG_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class EmbeddedServer:
    """A running server that this process uses until `close()` or the end of the process.

    url: for asyncpg and libpq; it contains the password, so the repr omits it.
    bin: the folder of `psql`, `pg_dump` and the other programs of the same version.
    """

    url: str = field(repr=False)
    bin: Path
    log: Path
    _server: Path = field(repr=False)
    _hold: Lock = field(repr=False)
    _opening: _Opening = field(repr=False)

    def close(self) -> None:
        """Release the server; the guard stops it after its last holder. A second call does nothing."""
        self._hold.close()

    def ensure_running(self) -> None:
        """Start a killed server again, and return once it accepts connections. Blocks. Raises SetupError."""
        if self._hold.fd < 0:
            raise SetupError("this process has closed its embedded PostgreSQL; open it again")
        try:
            self._opening.restart()
        except OSError as error:
            raise SetupError(
                f"cannot start the embedded PostgreSQL again: {error}; remove this cause, and restart the process"
            ) from error

    def wait_stopped(self, timeout_seconds: float) -> bool:
        """Wait until the last process of the server has ended; return False after the timeout."""
        return _wait_until(lambda: not _is_running(self._server), time.monotonic() + timeout_seconds)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_embedded(
    home: Path,
    *,
    version: int = DEFAULT_VERSION,
    start_timeout_seconds: float | None = None,
    settings: Mapping[str, str] | None = None,
) -> EmbeddedServer:
    """Join the server of `home`, or create and start it. It blocks, so async callers use a thread.

    start_timeout_seconds: the limit of waiting, creating and starting together, crash recovery included; by default
    HELIOGRAPH_START_TIMEOUT, or 60.
    settings: PostgreSQL settings for a server that this call starts; a running server keeps its own.

    Raises NoDatabase if the wheel is not installed, InvalidInput for an invalid version or timeout, and SetupError for problems of the
    machine or the folder.
    """
    if sys.platform == "win32":
        raise SetupError("the embedded PostgreSQL needs Linux or macOS: set HELIOGRAPH_DATABASE_URL")
    limit_seconds = _start_timeout(start_timeout_seconds)
    binaries = find_binaries(version)
    try:
        cluster = Cluster(_prepare_home(home), version, binaries)
        return _Opening(cluster, limit_seconds, dict(settings or {})).run()
    except OSError as error:
        detail = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        raise SetupError(
            f"cannot keep a database in {home}: {detail}; "
            "set HELIOGRAPH_HOME to a folder that this user can write, or set HELIOGRAPH_DATABASE_URL"
        ) from error


def _start_timeout(given: float | None) -> float:
    text = os.environ.get("HELIOGRAPH_START_TIMEOUT", "")
    source = "start_timeout_seconds" if given is not None else "HELIOGRAPH_START_TIMEOUT"
    try:
        seconds = given if given is not None else float(text or DEFAULT_START_TIMEOUT_SECONDS)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        value = safe_repr(text if given is None else given)
        raise InvalidInput(
            f"{source} is {value}; expected a number of seconds above 0", code="out_of_range", path=source
        )
    return seconds


def _prepare_home(home: Path) -> Path:
    """Create the folder if it does not exist; return its real path.

    Raises SetupError if it belongs to another user or all users can write to it, and OSError if it cannot be used.
    """
    # if the user is root, others may pass through but not list it: PostgreSQL may run under another account
    home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    home = Path(os.path.realpath(home))
    found = home.stat()
    if found.st_uid != os.geteuid():
        raise SetupError(
            f"{home} belongs to user {found.st_uid}, this is user {os.geteuid()}; "
            "run as its owner, or set HELIOGRAPH_HOME to a folder of your own"
        )
    if found.st_mode & stat.S_IWOTH:
        raise SetupError(f"all users can write into {home}; set HELIOGRAPH_HOME to a folder that only you can write")
    return home


class _Opening:
    """One call of `open_embedded`: its steps and their deadline."""

    def __init__(self, cluster: Cluster, limit_seconds: float, settings: dict[str, str]) -> None:
        self.cluster = cluster
        self.limit_seconds = limit_seconds
        self.deadline = time.monotonic() + limit_seconds
        self.settings = settings

    def run(self) -> EmbeddedServer:
        cluster = self.cluster
        with self._start_lock() as start_lock:
            hold = Lock(cluster.path("holders"))
            try:
                # the guard takes this lock briefly, without the gate, to look for holders
                if not _wait_until(hold.take_shared, self.deadline):
                    raise self._too_late("its guard does not release it")
                self._ensure_guard()
                self._ensure_server(start_lock)
                return EmbeddedServer(cluster.url(), cluster.bin, cluster.log, cluster.path("server"), hold, self)
            except subprocess.TimeoutExpired:
                hold.close()
                raise self._too_late("it was still being created or started") from None
            except BaseException:
                hold.close()
                raise

    def restart(self) -> None:
        """Start a killed guard or server again for a holder, within the timeout of a first start."""
        self.deadline = time.monotonic() + self.limit_seconds
        with self._start_lock() as start_lock:
            try:
                self._ensure_guard()
                self._ensure_server(start_lock)
            except subprocess.TimeoutExpired:
                raise self._too_late("it was still being started") from None

    @contextmanager
    def _start_lock(self) -> Iterator[Lock]:
        with self._closing("gate") as start_lock:
            if not _wait_until(start_lock.take_exclusive, self.deadline):
                raise self._too_late("another process is starting or stopping it")
            yield start_lock

    def _ensure_guard(self) -> None:
        """Start the guard before the server, so that a running server always has one."""
        cluster = self.cluster
        with self._closing("guard") as lock:
            if not lock.take_exclusive():
                return
        with self._log() as (log, since):
            arguments = [str(GUARD), str(cluster.home), cluster.name, str(cluster.socket_folder())]
            ended = run_script(arguments, timeout_seconds=self._remaining_seconds(), log=log)
        if ended.returncode != 0:
            raise SetupError(f"the guard of {cluster.home} did not start: {cluster.log_tail(since)}; see {cluster.log}")

    def _ensure_server(self, start_lock: Lock) -> None:
        """Return when the server accepts connections; start it at most once, after an earlier server has ended."""
        cluster = self.cluster
        since: int | None = None
        while not cluster.is_answering():
            with self._closing("server") as lock:
                if lock.take_exclusive():
                    if since is not None:
                        raise SetupError(
                            f"PostgreSQL {cluster.version} did not start: {cluster.log_tail(since)}; see {cluster.log}"
                        )
                    since = self._start(start_lock, lock)
            if time.monotonic() > self.deadline:
                raise self._too_late("it is still starting, and crash recovery can take long")
            time.sleep(POLL_SECONDS)

    def _start(self, start_lock: Lock, lock: Lock) -> int:
        """Start the server, which inherits its lock; return the position in the log where its messages begin."""
        cluster = self.cluster
        is_made = cluster.is_made()
        identity = choose_identity(cluster.data, [cluster.home, cluster.bin / "postgres"])
        if not is_made:
            cluster.make(identity, start_lock.fd, self._remaining_seconds())
        cluster.clear_leftovers()
        with self._log() as (log, since):
            command = cluster.server_command(self.settings)
            launch(identity, "detach", command, timeout_seconds=self._remaining_seconds(), keep=[lock.fd], log=log)
        return since

    @contextmanager
    def _closing(self, suffix: str) -> Iterator[Lock]:
        lock = Lock(self.cluster.path(suffix))
        try:
            yield lock
        finally:
            lock.close()

    @contextmanager
    def _log(self) -> Iterator[tuple[int, int]]:
        """Open the log for appending; yield its descriptor and length. A long log is renamed first."""
        path = self.cluster.log
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(self.cluster.path("log.old"))
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield fd, os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _remaining_seconds(self) -> float:
        return max(self.deadline - time.monotonic(), POLL_SECONDS)

    def _too_late(self, reason: str) -> SetupError:
        return SetupError(
            f"the embedded PostgreSQL was not ready after {self.limit_seconds:g} s: {reason}; "
            f"raise HELIOGRAPH_START_TIMEOUT (seconds), or read {self.cluster.log}"
        )


def _is_running(server: Path) -> bool:
    """Whether a process of the server is alive. The check itself takes the lock for a moment."""
    if not server.exists():
        return False
    lock = Lock(server)
    try:
        return not lock.take_shared()
    finally:
        lock.close()


def _wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Poll at least once until the condition is true or the monotonic `deadline` has passed; return whether it became true."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
