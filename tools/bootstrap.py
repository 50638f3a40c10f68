"""Make `.venv` from requirements.lock, once per content of the lock; `make` runs this before anything else.

    python3.11 tools/bootstrap.py           .venv: the project and its tools
    python3.11 tools/bootstrap.py bench     .venv-bench: the peers that `make bench` compares with
    python3.11 tools/bootstrap.py site      .venv-site: the generator of the documentation site
    python3.13 tools/bootstrap.py further   .venv-3.13: as .venv, for tests on a further interpreter

Requires only Python 3.11 with `venv`: pip installs uv, and uv the rest, because pip takes ten times as long. Where uv cannot, pip does.
The stamp is written last: an environment without a stamp is incomplete, and
one with another stamp belongs to another lock, interpreter or folder. Both are made again. A lock on the folder of an environment
serializes concurrent `make` processes; the system releases it when its owner is killed.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Python compiles a module at its first import; to compile all of them here takes as long as the rest, and most are never imported.
INSTALL = ["install", "-qq", "--disable-pip-version-check", "--no-input", "--no-compile"]
# Wheels only: a source package would fetch build tools that no hash covers.
# The lock is complete, so pip must not resolve again: for `google-auth[requests]` it would try the newest release, which has no hash.
# Then a new release of another project would break the installation.
LOCKED = ["--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement"]
CHECK = ["check", "--disable-pip-version-check"]  # whether the lock lacks a dependency
OURS = ["--no-index", "--no-deps", "--no-build-isolation", "--editable", "."]
# The settings of pip that choose where packages come from, and what uv calls them. A lock has hashes, so the place is no matter of trust.
PLACES = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"
}  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """One folder of packages. has_project: whether it contains this project, as an editable install."""

    name: str
    lock: str
    has_project: bool

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def stamp(self) -> Path:
        return self.folder / "heliograph.stamp"

    def wanted(self) -> str:
        """A hash of everything that the environment depends on. A change makes the environment again."""
        parts = [(ROOT / self.lock).read_text(encoding="utf-8")]
        if self.has_project:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            packaging = [project["project"], project["build-system"], project["tool"]["hatch"]]
            parts.append(json.dumps(packaging, sort_keys=True))
        parts += [sys.version, sys.base_prefix, str(ROOT)]  # an environment cannot be moved
        return hashlib.sha256("\0".join(parts).encode()).hexdigest() + "\n"

    def make(self, stamp: str, turn: int) -> None:
        """Replace the folder by a new environment. Raises CalledProcessError when a step fails.

        pip inherits the locked descriptor: if this process is killed and pip survives, the next `make` waits for pip.
        """
        print(f"Making {self.name} from {self.lock} (about a minute, once) ...", flush=True)
        self.stamp.unlink(missing_ok=True)
        venv.create(self.folder, clear=True, with_pip=True, symlinks=True)
        pip = [str(self.folder / "bin" / "python"), "-m", "pip"]
        if not self._is_installed_by_uv(pip, turn):
            subprocess.run([*pip, *INSTALL, *LOCKED, self.lock], cwd=ROOT, check=True, pass_fds=[turn])
        if self.has_project:
            subprocess.run([*pip, *INSTALL, *OURS], cwd=ROOT, check=True, pass_fds=[turn])
        subprocess.run([*pip, *CHECK], cwd=ROOT, check=True, pass_fds=[turn])
        self.stamp.write_text(stamp, encoding="utf-8")

    def _is_installed_by_uv(self, pip: list[str], turn: int) -> bool:
        """Install the lock with uv, which has to be installed first; return whether both succeeded."""
        only_uv = self.folder / "uv.lock"
        only_uv.write_text(_pin_of_uv(), encoding="utf-8")
        uv = [*pip[:-1], "uv", "pip", "install", "--quiet", "--python", pip[0], "--index-strategy", "unsafe-best-match"]
        environment = {**places_of_pip(pip), **os.environ}
        for command in ([*pip, *INSTALL, *LOCKED, str(only_uv)], [*uv, *LOCKED, self.lock]):
            if subprocess.run(command, cwd=ROOT, check=False, pass_fds=[turn], env=environment).returncode != 0:
                print(f"{self.name}: uv did not install the packages, so pip installs them.", flush=True)
                return False
        return True


def _pin_of_uv() -> str:
    """The lines of requirements.lock that pin uv, with its hashes."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pin = re.search(r"^uv==.*\n(?: .*\n)*", lock, re.MULTILINE)
    assert pin is not None, "requirements.lock has no uv"
    return pin[0]


def places_of_pip(pip: list[str]) -> dict[str, str]:
    """Return where pip takes packages from, as variables of uv, which does not read the configuration of pip."""
    listed = subprocess.run([*pip, "config", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    # the variables of the process overrule the files, and so come last
    found = sorted(re.findall(r"^(.*)\.([a-z-]+)=(.*)$", listed, re.MULTILINE), key=lambda each: each[0] == ":env:")
    taken = {PLACES[name]: ast.literal_eval(value).split() for _, name, value in found if name in PLACES}
    return {name: ("," if name == "UV_FIND_LINKS" else " ").join(places) for name, places in taken.items()}


PROJECT = Environment(".venv", "requirements.lock", has_project=True)
BENCH = Environment(".venv-bench", "bench/requirements.lock", has_project=False)
FURTHER = Environment(f".venv-{sys.version_info[0]}.{sys.version_info[1]}", "requirements.lock", has_project=True)
SITE = Environment(".venv-site", "site/requirements.lock", has_project=False)
ENVIRONMENTS = {"bench": BENCH, "site": SITE, "further": FURTHER}


def main() -> int:
    environment = ENVIRONMENTS[sys.argv[1]] if sys.argv[1:] else PROJECT
    stamp = environment.wanted()
    environment.folder.mkdir(exist_ok=True)
    turn = os.open(environment.folder, os.O_RDONLY)  # `venv` empties the folder, and never replaces it
    fcntl.flock(turn, fcntl.LOCK_EX)
    if environment.stamp.exists() and environment.stamp.read_text(encoding="utf-8") == stamp:
        return 0
    try:
        environment.make(stamp, turn)
    except subprocess.CalledProcessError as failed:
        name = environment.name
        print(f"{name} is not complete: {' '.join(failed.cmd)} ended with {failed.returncode}.", file=sys.stderr)
        print("Next: look at pip's message above; packages come from the index pip is set to.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
