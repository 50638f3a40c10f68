"""What `.ci/run` asks once more (tools/again.py): tests that failed in a run which asked all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import again

FAILS = "def test_fails(): assert False\ndef test_passes(): pass\n"
BROKEN = "import nothing_of_this_name\n"


def noted(folder: Path, *options: str, **files: str) -> list[str] | None:
    """What a run over these files notes, if it notes anything."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    script = (
        f"import pathlib, sys\nfrom tools import again\nagain.NOTED = pathlib.Path({str(folder / 'failed.json')!r})\n"
    )
    script += f"import pytest\nsys.exit(pytest.main({[str(folder), '-q', '-p', 'no:cacheprovider', *options]!r}, plugins=[again]))"
    subprocess.run(
        [sys.executable, "-c", script], cwd=again.ROOT, env=dict(os.environ), check=False, capture_output=True
    )
    found = folder / "failed.json"
    return json.loads(found.read_text()) if found.exists() else None


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_what_failed_is_noted_and_nothing_where_all_is_well(tmp_path: Path, options: list[str]) -> None:
    [node] = noted(tmp_path, *options, one=FAILS) or []
    assert node.endswith("test_one.py::test_fails")
    (tmp_path / "failed.json").unlink()
    assert noted(tmp_path, *options, one="def test_passes(): pass\n") is None


def test_a_file_that_cannot_be_read_is_asked_again_with_the_rest(tmp_path: Path) -> None:
    files = {
        node.partition("::")[0].rpartition("/")[2] for node in noted(tmp_path, "-n", "2", one=FAILS, two=BROKEN) or []
    }
    assert files == {"test_one.py", "test_two.py"}


def test_a_run_that_is_broken_off_notes_nothing(tmp_path: Path) -> None:
    assert noted(tmp_path, "-x", one=FAILS, two=FAILS) is None
