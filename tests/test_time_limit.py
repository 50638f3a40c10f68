"""The suite's limit on the time of a test (tests/time_limit.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.time_limit import limit_seconds

ROOT = Path(__file__).resolve().parent.parent
RUN = """
import sys, pytest
from tests import time_limit
time_limit.SECONDS = -1.0
sys.exit(pytest.main([sys.argv[1], "-q", "-p", "no:cacheprovider", "-p", "tests.time_limit", "-o", "markers=more"]))
"""


@pytest.mark.parametrize(("mark", "code"), [("", 1), ("@pytest.mark.more", 0)], ids=["unmarked", "marked"])
def test_unmarked_test_over_the_limit_fails(tmp_path: Path, mark: str, code: int) -> None:
    (tmp_path / "test_slow.py").write_text(f"import pytest\n{mark}\ndef test_slow(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT, check=False, text=True, capture_output=True)  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("mark it `more`" in done.stdout) is bool(code)


def test_limit_grows_with_the_load() -> None:
    assert [limit_seconds(load, cores=2) for load in (0.0, 3.0, 8.0)] == [3.0, 4.5, 12.0]
