"""The package as a user gets it: its size, its imports, and a wheel in an empty environment without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.first_hour import FOLDER_MB_MAX, folder_mb

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "heliograph"
BASE_MB_MAX = 60
BASE_PACKAGES_MAX = 15  # with Heliograph itself
MODULES_MAX = 15  # of the standard library and ours: a count does not depend on the load of the machine, as a time does
HELLO = """\
from heliograph import Context, Heliograph

app = Heliograph("hello")

@app.agent(updates="words")
def counter(ctx: Context) -> int:
    return len(ctx.state["text"].split())
"""


def project() -> dict[str, list[str]]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def packages(*extras: str) -> dict[str, Distribution]:
    """The installed packages that Heliograph needs with these extras, by name; without Heliograph."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(line), "") for part in ("", *extras) for line in project()[part]]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        found[name] = distribution(name)
        needed = [Requirement(line) for line in found[name].requires or ()]
        waiting += [(each, chosen) for each in needed for chosen in ("", *requirement.extras)]
    return found


def files(package: Distribution) -> Iterator[tuple[Path, Path]]:
    """The files of an installed package: relative and absolute path. Compiled modules and scripts are not of its wheel."""
    for file in package.files or ():
        if file.suffix != ".pyc" and not str(file).startswith(".."):
            yield Path(str(file)), Path(str(package.locate_file(file)))


def test_base_install_is_small() -> None:
    base = packages()
    ours = sum(file.stat().st_size for file in SOURCE.rglob("*") if file.is_file() and file.suffix != ".pyc")
    size = ours + sum(path.stat().st_size for package in base.values() for _, path in files(package))
    assert len(base) + 1 <= BASE_PACKAGES_MAX, sorted(base)
    assert size < BASE_MB_MAX * 1_000_000, f"{size / 1e6:.1f} MB"


def test_import_of_heliograph_loads_few_modules() -> None:
    count = "import sys; before = set(sys.modules); import heliograph; print(*sorted(sys.modules.keys() - before))"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert len(loaded) <= MODULES_MAX, loaded
    assert {name.partition(".")[0] for name in loaded} - {*sys.stdlib_module_names, "heliograph"} == set()


def test_extra_that_combines_others_names_extras() -> None:
    [combined] = [Requirement(line) for line in project()["all"]]
    assert combined.name == "heliograph"
    assert combined.extras <= project().keys()


def test_listed_versions_of_python_are_those_of_the_environments() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = (ROOT / "tools" / "further.py").read_text(encoding="utf-8")
    listed = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)
    assert listed == re.findall(r"\(3, (\d+)\)", promised.partition("PROMISED = ")[2].partition("\n")[0])


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="a network namespace without a network is Linux")
@pytest.mark.timeout(300)
def test_wheel_runs_in_an_empty_environment_without_a_network(tmp_path: Path) -> None:
    python = environment(tmp_path, wheel_of_the_source_package(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    (work / "hello.py").write_text(HELLO, encoding="utf-8")
    helio = [str(python.parent / "helio"), "run", "hello.py:app", "--state", '{"text": "one two"}']
    offline = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-current-user"])]
    if subprocess.run([*offline, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run([*offline, *helio], cwd=work, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"words": 2' in done.stdout
    assert folder_mb(work / ".heliograph") < FOLDER_MB_MAX


def wheel_of_the_source_package(folder: Path) -> Path:
    """Build the source package, unpack it, and build the wheel from it with nothing but Python and hatchling, without git."""
    hatchling = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*hatchling, "-t", "sdist", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder / "source", filter="data")
    [unpacked] = (folder / "source").iterdir()
    bare = {"PATH": "/nowhere", "HOME": str(folder)}
    subprocess.run(
        [*hatchling, "-t", "wheel", "-d", str(folder)], cwd=unpacked, env=bare, check=True, capture_output=True
    )
    [wheel] = folder.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {f"heliograph/{path.relative_to(SOURCE)}" for path in SOURCE.rglob("*") if path.is_file()}
    assert {name for name in source if "__pycache__" not in name} <= names
    return wheel


def environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with the wheel, what it needs, and nothing else; return its Python."""
    venv.create(folder / "empty", with_pip=False, symlinks=True)
    python = folder / "empty" / "bin" / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    site = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    for package in packages("local").values():
        for relative, path in files(package):
            (site / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, site / relative)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-index"]
    subprocess.run([*uv, "--python", str(python), str(wheel)], check=True, capture_output=True)
    return python
