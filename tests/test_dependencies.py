"""The dependencies of the package, read from pyproject.toml and the lock."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.bootstrap import places_of_pip

ROOT = Path(__file__).resolve().parent.parent
FEW = 7


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
    ) - {project["name"]}  # an extra that combines others

    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line for line in lock.splitlines() if line.strip() and not line.startswith("#")]
    pinned = [line for line in lines if not line.startswith(" ")]
    assert [line for line in pinned if not re.match(r"[a-z0-9.-]+==[^ *]+( ; .+)? \\$", line)] == []
    assert [
        line for line in lines if line.startswith(" ") and not re.match(r" +--hash=sha256:[0-9a-f]{64}( \\)?$", line)
    ] == []
    assert required - packages(pinned) == set()


def test_problem_of_the_configuration_of_pip_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        places_of_pip([sys.executable, "-S", "-c", "import sys; sys.exit('pip.conf has no section headers')"])
    assert "no section headers" in capfd.readouterr().err


def test_uv_takes_packages_from_the_places_of_pip() -> None:
    listed = [":env:.find-links='/a /b'", "global.index-url='https://files/simple'", "global.find-links='/c'",
              "global.timeout='9'", r"user.extra-index-url='\nhttps://one\nhttps://two'"]  # fmt: skip
    found = places_of_pip([sys.executable, "-S", "-c", "print(" + repr("\n".join(listed)) + ")"])
    assert found == {"UV_DEFAULT_INDEX": "https://files/simple", "UV_INDEX": "https://one https://two",
                     "UV_FIND_LINKS": "/a,/b"}  # fmt: skip
