"""Renew requirements.lock, or check without a network that it is what we promise.

    python -m tools.lock            resolve again and write the lock (needs an index)
    python -m tools.lock --check    every pin is exact and hashed, no line names a host, an index or a
                                    path, and each requirement of pyproject.toml is met by a pin

Which index the wheels come from is the user's own pip configuration, so the lock names none.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"

HEAD = """\
# Every package of every extra and every group, pinned and hashed for all platforms.
# Written by `make lock`; checked by `make check`.
"""
RESOLVE = ["uv", "pip", "compile", "pyproject.toml", "--all-extras", "--group", "test", "--group", "lint"]
RESOLVE += ["--group", "build", "--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]

PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def renew() -> None:
    """Resolve from the present pins, so that only what has to move moves; `--upgrade` moves all."""
    arguments = [*RESOLVE, *sys.argv[1:], "--output-file", LOCK.name]
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    LOCK.write_text(HEAD + "\n" + re.sub(r"\A(?:#.*\n|\n)*", "", LOCK.read_text()))


def problems(lock: str, project: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the lock's text, measured against the parsed pyproject.toml."""
    pins: dict[str, list[Version]] = {}
    lines = lock.splitlines()
    for number, line in enumerate(lines, 1):
        if pin := PIN.fullmatch(line):
            pins.setdefault(canonicalize_name(pin[1]), []).append(Version(pin[2]))
            if number == len(lines) or not HASH.fullmatch(lines[number]):
                yield f"requirements.lock:{number}: {pin[1]} has no hash"
        elif line and not line.startswith("#") and not HASH.fullmatch(line):
            # Whatever is neither a pin nor a hash: an index option, a URL, a path, an open range.
            yield f"requirements.lock:{number}: neither an exact pin nor a hash: {line.strip()}"
        elif "://" in line:
            yield f"requirements.lock:{number}: names a host: {line.strip()}"
    for requirement in required(project):
        versions = pins.get(canonicalize_name(requirement.name))
        if versions is None:
            yield f"{requirement} of pyproject.toml has no pin"
        elif not all(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"{requirement} of pyproject.toml is not met by {', '.join(map(str, versions))}"


def required(project: dict[str, Any]) -> Iterator[Requirement]:
    """Every direct requirement: the build's, the library's, each extra's and each group's."""
    table = project["project"]
    extras, groups = table.get("optional-dependencies", {}), project.get("dependency-groups", {})
    for listed in (project["build-system"]["requires"], table["dependencies"], *extras.values(), *groups.values()):
        yield from (Requirement(line) for line in listed)


def main() -> int:
    if "--check" not in sys.argv[1:]:
        renew()
    found = list(problems(LOCK.read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())))
    print("\n".join(found) or "requirements.lock: pinned, hashed, hostless, and it meets pyproject.toml")
    if found:
        print("Next: `make lock`, and commit the result.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
