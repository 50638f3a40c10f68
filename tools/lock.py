"""Renew the locks, or check them without a network.

    python -m tools.lock            resolve again and write the locks (needs an index)
    python -m tools.lock --check    every pin is exact and hashed, no line names a host, an index or a
                                    path, and each requirement of pyproject.toml is met by a pin

requirements.lock belongs to the project, bench/requirements.lock to the peers that `make bench` compares with it, and
site/requirements.lock to the generator of the documentation site.
The user's pip configuration chooses the index, so the locks name none.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
# {}, pinned and hashed for all platforms.
# Written by `make lock`; checked by `make check`.
"""
RESOLVE = ["uv", "pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]

PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


@dataclass(frozen=True)
class Lock:
    """A lock file. name: its path from the root. is_library: whether it also contains the dependencies of the library and its build."""

    name: str
    holds: str
    groups: tuple[str, ...]
    is_library: bool

    @property
    def path(self) -> Path:
        return ROOT / self.name


LOCKS = (
    Lock(
        "requirements.lock",
        "Every package of every extra and every group but bench and site",
        ("test", "lint", "build"),
        True,
    ),
    Lock("bench/requirements.lock", "What Heliograph is measured beside", ("bench",), False),
    Lock("site/requirements.lock", "What builds the documentation site", ("site",), False),
)


def renew(lock: Lock) -> None:
    """Resolve again from the present pins, so that only necessary pins change; `--upgrade` updates all."""
    wanted = ["pyproject.toml", "--all-extras"] if lock.is_library else []
    wanted += [part for group in lock.groups for part in ("--group", group)]
    arguments = [*RESOLVE, *wanted, *sys.argv[1:], "--output-file", lock.name]
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lock.path.write_text(HEAD.format(lock.holds) + "\n" + re.sub(r"\A(?:#.*\n|\n)*", "", lock.path.read_text()))


def problems(lock: Lock, text: str, project: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of a lock's text, compared with the parsed pyproject.toml."""
    pins: dict[str, list[Version]] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if pin := PIN.fullmatch(line):
            pins.setdefault(canonicalize_name(pin[1]), []).append(Version(pin[2]))
            if number == len(lines) or not HASH.fullmatch(lines[number]):
                yield f"{lock.name}:{number}: {pin[1]} has no hash"
        elif line and not line.startswith("#") and not HASH.fullmatch(line):
            # Every other line: an index option, a URL, a path, an open range.
            yield f"{lock.name}:{number}: neither an exact pin nor a hash: {line.strip()}"
        elif "://" in line:
            yield f"{lock.name}:{number}: names a host: {line.strip()}"
    for requirement in required(lock, project):
        versions = pins.get(canonicalize_name(requirement.name))
        if versions is None:
            yield f"{requirement} of pyproject.toml has no pin in {lock.name}"
        elif not all(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"{requirement} of pyproject.toml is not met by {', '.join(map(str, versions))} in {lock.name}"


def required(lock: Lock, project: dict[str, Any]) -> Iterator[Requirement]:
    """Yield every direct requirement: of the build, the library and each extra (unless is_library is false), and of each group."""
    table, groups = project["project"], project["dependency-groups"]
    listed = [groups[name] for name in lock.groups]
    if lock.is_library:
        listed += [project["build-system"]["requires"], table["dependencies"], *table["optional-dependencies"].values()]
    found = (Requirement(line) for lines in listed for line in lines)
    yield from (each for each in found if each.name != table["name"])  # an extra that combines others


def main() -> int:
    is_check = "--check" in sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = {group for lock in LOCKS for group in lock.groups}
    found = [f"group {group} of pyproject.toml is in no lock" for group in project["dependency-groups"].keys() - locked]
    for lock in LOCKS:
        if not is_check:
            renew(lock)
        found += problems(lock, lock.path.read_text(), project)
    good = f"{', '.join(lock.name for lock in LOCKS)}: pinned, hashed, hostless, and they meet pyproject.toml"
    print("\n".join(found) or good)
    if found:
        print("Next: `make lock`, and commit the result.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
