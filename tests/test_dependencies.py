"""The dependencies of the package, read from pyproject.toml and the lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FEW = 8


def packages(requirements: list[str]) -> set[str]:
    """Names as the lock spells them, without extras, versions and markers."""
    return {
        re.split(r"[\[<>=~; ]", line, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")
        for line in requirements
    }


@pytest.mark.proves("S19")
def test_dependencies_are_few_and_the_lock_pins_and_hashes_each_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= FEW
    required = packages(
        [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    )

    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line for line in lock.splitlines() if line.strip() and not line.startswith("#")]
    pinned = [line for line in lines if not line.startswith(" ")]
    assert [line for line in pinned if not re.match(r"[a-z0-9.-]+==[^ *]+( ; .+)? \\$", line)] == []
    assert [
        line for line in lines if line.startswith(" ") and not re.match(r" +--hash=sha256:[0-9a-f]{64}( \\)?$", line)
    ] == []
    assert required - packages(pinned) == set()
