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
time_limit.SECONDS = float(sys.argv[2])
time_limit.FAILS_AT = float(sys.argv[3])
sys.exit(pytest.main([sys.argv[1], "-q", "-p", "no:cacheprovider", "-p", "tests.time_limit", "-o", "markers=more"]))
"""


@pytest.mark.parametrize(
    ("mark", "limit", "fails_at", "code", "listed"),
    [
        pytest.param("", 1e-9, 1, 1, True, id="twice the limit"),
        pytest.param("", 1e-9, 1e12, 0, True, id="over the limit", marks=pytest.mark.more),
        pytest.param("", 60, 1, 0, False, id="below the limit", marks=pytest.mark.more),
        pytest.param("@pytest.mark.more", 1e-9, 1, 0, False, id="marked", marks=pytest.mark.more),
    ],
)
def test_unmarked_test_over_the_limit_is_listed_and_at_the_double_fails(
    tmp_path: Path, mark: str, limit: float, fails_at: float, code: int, listed: bool
) -> None:
    (tmp_path / "test_slow.py").write_text(f"import pytest\n{mark}\ndef test_slow(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), str(limit), str(fails_at)],
        cwd=ROOT, check=False, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("mark it `more`" in done.stdout) is listed


def test_limit_grows_with_the_load() -> None:
    assert [limit_seconds(load, 1, cores=2) for load in (0.0, 3.0, 8.0)] == [3.0, 4.5, 12.0]


def test_limit_grows_with_the_test_processes_before_the_load_average_does() -> None:
    assert [limit_seconds(load, 3, cores=2) for load in (0.0, 8.0)] == [4.5, 12.0]
