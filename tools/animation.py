"""Record a terminal session in which a worker is killed, and draw it as an animated SVG for README.md.

    python -m tools.animation           draw docs/images/killed-worker.svg from the recorded session
    python -m tools.animation --record  record the session first: docs/images/killed-worker.cast, an asciicast of version 2

The session is real: `helio run` executes examples/orders/app.py, is killed with SIGKILL in the middle of a step, and runs again.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CAST, DRAWING = IMAGES / "killed-worker.cast", IMAGES / "killed-worker.svg"
PROGRAM = IMAGES.parent.parent / "examples" / "orders" / "app.py"
COLUMNS = 92
COMMAND = "helio run orders.py:app --run-id order-7 --lease 2 --show 'agent:*'"
KILL_AFTER = "charge the card: done"
KILL_SECONDS = 0.5  # after that line: in the middle of the next step
PAUSE_SECONDS_MAX = 1.5  # longer pauses are cut in the drawing: a first start creates a database
HOLD_SECONDS = 4.0  # how long the last picture stays
LINE, CHARACTER, MARGIN = 18, 8.1, 16


def record() -> None:
    """Run the session in an empty folder and write what the terminal received, with its times."""
    events = [(0.0, f"$ {COMMAND}\r\n")]
    with tempfile.TemporaryDirectory(prefix="helio-") as folder:
        shutil.copy(PROGRAM, Path(folder, "orders.py"))
        events += _run(folder, events[-1][0] + 0.8, kill_after=KILL_AFTER)
        events.append((events[-1][0] + 0.6, "$ # kill -9: the process is gone. Run the same command again:\r\n"))
        events.append((events[-1][0] + 1.0, f"$ {COMMAND}\r\n"))
        events += _run(folder, events[-1][0] + 0.5)
    head = {"version": 2, "width": COLUMNS, "height": sum(text.count("\n") for _, text in events)}
    lines = [json.dumps(head), *(json.dumps([round(at, 1), "o", text]) for at, text in events)]
    CAST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run(folder: str, start: float, kill_after: str = "") -> list[tuple[float, str]]:
    """Run the command at a terminal; return its lines with times from `start`. Kill it after the line `kill_after`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {"PATH": path, "HOME": folder, "COLUMNS": str(COLUMNS), "TERM": "dumb", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    ours, theirs = pty.openpty()
    command = [shutil.which("bash") or "/bin/bash", "-c", f"exec {COMMAND}"]
    process = subprocess.Popen(command, cwd=folder, env=kept, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    lines, began = list[tuple[float, str]](), time.monotonic()
    with os.fdopen(ours, "rb") as terminal:
        for line in _lines(terminal.fileno()):
            lines.append((start + time.monotonic() - began, line + "\r\n"))
            if kill_after and kill_after in line:
                time.sleep(KILL_SECONDS)
                process.send_signal(signal.SIGKILL)
                break
    process.wait()
    return lines


def _lines(terminal: int) -> Iterator[str]:
    rest = ""
    while True:
        try:
            received = os.read(terminal, 4096)
        except OSError:  # Linux reports the end of a terminal so
            return
        if not received:
            return
        *whole, rest = (rest + received.decode()).split("\n")
        yield from (line.rstrip("\r") for line in whole)


def drawn(cast: str) -> str:
    """Return the SVG of a recorded session: each line appears at its time, and the drawing repeats."""
    head, *events = map(json.loads, cast.splitlines())
    shown, now, last = list[tuple[float, str]](), 0.0, 0.0
    for at, _, text in events:
        now, last = now + min(at - last, PAUSE_SECONDS_MAX), at
        shown += [(now, line) for line in text.rstrip("\r\n").split("\r\n")]
    total = shown[-1][0] + HOLD_SECONDS
    width, height = round(COLUMNS * CHARACTER) + 2 * MARGIN, len(shown) * LINE + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="13" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" xml:space="preserve">',
        "<style>text { white-space: pre }</style>",  # Chromium takes xml:space from each text, and not from the drawing
        "<title>A worker is killed in the middle of a step; the same command continues after the last finished step.</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#15181e"/>',
    ]
    for number, (at, line) in enumerate(shown):
        colour = "#7ee787" if line.startswith("$") else "#ffd479" if "done" in line else "#c9d1d9"
        appears = (
            f'<animate attributeName="opacity" values="0;1" keyTimes="0;{at / total:.4f}" calcMode="discrete" '
            f'dur="{total:.1f}s" repeatCount="indefinite"/>'
        )
        parts.append(
            f'<text x="{MARGIN}" y="{MARGIN + (number + 1) * LINE - 5}" fill="{colour}">{escape(_cut(line, head["width"]))}'
            f"{appears if at else ''}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _cut(line: str, width: int) -> str:
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return line if len(line) <= width else line[: width - 1] + "…"


def main() -> int:
    if "--record" in sys.argv[1:]:
        record()
    DRAWING.write_text(drawn(CAST.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
