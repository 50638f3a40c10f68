"""A new user: a fresh environment with a wheel of this project, an empty folder, and the files of the tutorial on tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILE = re.compile(r"```python (\S+\.py)\n(.*?)```", re.DOTALL)
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\npythonpath = .\n"


def run(folder: Path, python: Path, *args: str) -> str:
    """The output of a command of the fresh Python, without the variables of this project."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "CI")}
    done = subprocess.run(
        [python, "-m", *args], cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.long  # it installs a dozen packages from the configured index
def test_tutorial_of_tests_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    project, wheels = tmp_path / "project", tmp_path / "wheels"
    project.mkdir()
    run(ROOT, Path(sys.executable), "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT))
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / ("Scripts" if os.name == "nt" else "bin") / "python"
    [wheel] = wheels.glob("*.whl")
    run(project, python, "pip", "install", "-q", f"{wheel}[openai,test]")
    page = (ROOT / "docs" / "learn" / "testing.md").read_text(encoding="utf-8")
    files = FILE.findall(page)
    for name, text in files:
        (project / name).write_text(text, encoding="utf-8")
    (project / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    assert "1 passed" in run(project, python, "pytest", "-q", "--heliograph-record", "test_support_recorded.py")
    count = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for _, text in files)
    assert f"{count} passed" in run(project, python, "pytest", "-q")
