"""Commands in forked processes of one warm `helio` (helio_server.py), started when the first command needs it."""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = Path(__file__).with_name("helio_server.py")
CLIENT = Path(__file__).with_name("helio_client.py")
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_")  # the interpreter reads such variables once
REQUEST_BYTES = 100_000


class WarmHelio:
    """A running server. `environment` is the one it was started with."""

    def __init__(self, environment: Mapping[str, str]):
        self._fixed = _fixed(environment)
        self._folder = Path(tempfile.mkdtemp())
        self._path = str(self._folder / "socket")
        self._process = subprocess.Popen([sys.executable, SERVER, self._path], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        atexit.register(self.close)

    def runs(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a forked process can replace a new one."""
        return _fixed(environment) == self._fixed and sum(map(len, command)) < REQUEST_BYTES

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, without input. Raises TimeoutExpired after killing it."""
        request = {"command": list(command), "folder": str(folder), "environment": dict(environment)}
        with (
            open("/dev/null", "rb") as stdin,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        ):
            server.settimeout(seconds)
            server.connect(self._path)
            streams = [stream.fileno() for stream in (stdin, stdout, stderr)]
            socket.send_fds(server, [json.dumps(request).encode()], streams)
            try:
                code = int(server.recv(100))
            except TimeoutError:
                raise subprocess.TimeoutExpired(list(command), seconds) from None
            texts = []
            for stream in (stdout, stderr):
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(list(command), code, *texts)

    def client(self, *command: str) -> list[str]:
        """The command of a process that stands for a forked one, for those who want to kill it or read its output as it comes."""
        return [sys.executable, "-I", "-S", str(CLIENT), self._path, *command]

    def close(self) -> None:
        atexit.unregister(self.close)
        self._process.communicate()
        shutil.rmtree(self._folder)


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
