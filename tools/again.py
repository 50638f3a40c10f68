"""Ask tests that failed once more, alone, and name them. `.ci/run` does so, `make test` does not.

The suite kills processes and waits for others, thousands of times, on whatever machine there is: docs/decisions/0021.

As a plugin of pytest (`-p tools.again`) it notes what failed in a run, which `python -m tools.again` then asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTED = ROOT / ".pytest_cache" / "failed.json"
AT_MOST = 3  # more is no accident
_failed: dict[str, None] = {}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that was broken off notes nothing: it does not know what else would have failed."""
    is_broken_off = bool(session.shouldfail or session.shouldstop)
    if exitstatus == pytest.ExitCode.TESTS_FAILED and not is_broken_off and not hasattr(session.config, "workerinput"):
        NOTED.parent.mkdir(exist_ok=True)
        NOTED.write_text(json.dumps(list(_failed)), encoding="utf-8")


def main() -> int:
    failed = json.loads(NOTED.read_text(encoding="utf-8")) if NOTED.exists() else []
    if not 0 < len(failed) <= AT_MOST:
        print(f"{len(failed)} tests are noted as failed: none is asked again", flush=True)
        return 1
    print(
        "These failed beside the others, and are to be looked into. Once more, alone:", *failed, sep="\n  ", flush=True
    )
    return subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
