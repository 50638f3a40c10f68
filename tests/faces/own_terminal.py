"""Run `helio` on a pseudo-terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import termios
from contextlib import suppress

from tests.faces.cli_support import HELIO, Shell


def own_terminal() -> None:
    """Make the standard input the controlling terminal, as a login does."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def on_terminal(shell: Shell, answers: dict[bytes, bytes], *command: str, term: str = "xterm") -> tuple[int, str]:
    """Run a command on a pseudo-terminal of its own, and type an answer once its key is on the screen."""
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": term, "LINES": "40", "COLUMNS": "100"}
    process = subprocess.Popen([HELIO, *command], cwd=shell.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
                               close_fds=True, start_new_session=True, preexec_fn=own_terminal)  # noqa: PLW1509  # fmt: skip
    os.close(theirs)
    screen, waiting = b"", dict(answers)
    with suppress(OSError):  # Linux raises it when the other side is closed
        while piece := os.read(ours, 65536):
            screen += piece
            for prompt in [each for each in waiting if each in screen]:
                os.write(ours, waiting.pop(prompt))
    os.close(ours)
    return process.wait(30), screen.decode()
