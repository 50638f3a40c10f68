"""`python -m bench.first_hour`: the time of `import heliograph`, the time of a first durable run, and its folder.

An import is the difference between two starts of Python, with and without it, which alternate; the median of ROUNDS pairs. A first run
is `helio run hello.py:app` as a process, in a folder with that file alone: it creates the database, installs the schema, runs and stops. Run it
on a machine without other work: two of the three figures are times. The folder is measured after the server has
stopped. The package, its extras and their sizes have tests (tests/faces/test_packaging.py).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, Figures

ROUNDS = 20
RUNS = 3
IMPORT_MS_MAX = 50.0
FIRST_RUN_SECONDS_MAX = 3.0
FOLDER_MB_MAX = 45.0
HELLO = """\
from heliograph import Context, Heliograph

app = Heliograph("hello")


@app.agent(updates="words")
def counter(ctx: Context) -> int:
    return len(ctx.state["text"].split())
"""


def import_ms(rounds: int = ROUNDS) -> float:
    """The time that `import heliograph` adds to a start of Python."""
    _start("import heliograph")  # compiles it
    return 1000 * statistics.median(_start("import heliograph") - _start("pass") for _ in range(rounds))


def _start(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603  our own program
    return time.perf_counter() - began


def first_run() -> tuple[float, float]:
    """The seconds of a first run, and the MB of its folder after the server has stopped."""
    with tempfile.TemporaryDirectory(prefix="heliograph-first-") as folder:
        Path(folder, "hello.py").write_text(HELLO, encoding="utf-8")
        command = [
            str(Path(sys.executable).with_name("helio")),
            "run",
            "hello.py:app",
            "--state",
            '{"text": "one two"}',
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, env=kept, check=True, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603
        seconds = time.perf_counter() - began
        home = Path(folder, ".heliograph")
        while (home / "pg18" / "postmaster.pid").exists():  # the guard stops the server after the last process
            time.sleep(0.05)
        return seconds, folder_mb(home)


def folder_mb(folder: Path) -> float:
    """The blocks that the files of a folder take, in MB."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


def main(arguments: Sequence[str]) -> int:
    runs, rounds = (1, 3) if "--quick" in arguments else (RUNS, ROUNDS)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    figures = Figures()
    figures.add(Figure("import heliograph", import_ms(rounds), "ms", target=IMPORT_MS_MAX))
    measured = [first_run() for _ in range(runs)]
    seconds, size = (statistics.median(column) for column in zip(*measured, strict=True))
    figures.add(Figure("from an empty folder to the end of a first run", seconds, "s", target=FIRST_RUN_SECONDS_MAX))
    figures.add(Figure("the folder of a new project", size, "MB", target=FOLDER_MB_MAX))
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
