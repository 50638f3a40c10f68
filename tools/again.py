"""Ask the tests that failed in the last run once more, alone, and name them. `.ci/run` does so, `make test` does not.

The suite kills processes and waits for others, thousands of times, on whatever machine there is: docs/decisions/0021.

python -m tools.again
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
AT_MOST = 3  # more is no accident


def main() -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text(encoding="utf-8"))) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= AT_MOST:
        print(f"{len(failed)} tests failed: none is asked again", flush=True)
        return 1
    print("once more, alone, for each of these failed beside the others and is to be looked into:", *failed, sep="\n  ", flush=True)  # fmt: skip
    return subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
