"""`make demo` as its users run it: a real document, a real kill -9, a report with figures of that document."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DOCUMENT = """# Bees

The the bee is an insect. Bees see ultraviolet light, as [a study](missing.md) found in 1882.

## Honey

Honey keeps for 3000 years. It is the oldest food of all.

## Wax

Wax is made by young bees. They build cells from it.
"""


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HELIOGRAPH_")}
    return subprocess.run(
        [sys.executable, "-m", "examples.newsroom.demo", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "HELIOGRAPH_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.more
def test_demo_reviews_a_document_loses_its_worker_and_finishes(tmp_path: Path) -> None:
    (tmp_path / "bees.md").write_text(DOCUMENT, encoding="utf-8")
    output = run_demo(tmp_path, "bees.md", "report.md")
    assert output.returncode == 0, output.stderr
    assert "kill -9" in output.stdout
    assert " 0 recovered" not in output.stdout
    assert "0 broken invariants" in output.stdout
    assert "workflow:start" in output.stdout
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert str(tmp_path / "report.md") in output.stdout
    assert "there is no missing.md beside the document" in report
    assert "the the" in report.lower()
    assert list(tmp_path.glob("*.part")) == []


def test_missing_document_is_reported_in_one_line_without_a_server(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "nowhere.md")
    assert output.returncode == 2
    assert output.stderr.count("\n") == 1
    assert "nowhere.md" in output.stderr
    assert not (tmp_path / "home").exists()
