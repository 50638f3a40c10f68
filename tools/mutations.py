"""Check the proof marks: remove the behaviour that a requirement states, and check that its tests fail.

    python -m tools.mutations                     run every mutation, on two processes
    python -m tools.mutations L0-01 K14           run the mutations of these requirements
    python -m tools.mutations --sample 20         run twenty, drawn by --seed
    python -m tools.mutations --new               run those without a recorded kill: new ones, and those with changed tests
    python -m tools.mutations --check             run none; check that every mutation applies and every claim has one

tests/mutations/*.toml lists them, one small change of the product each:

    [[mutation]]
    ids = ["L0-01"]                  # the requirements whose behaviour the change removes
    file = "src/heliograph/..."
    old = '''text'''                # occurs exactly once in the file
    new = '''other text'''
    test = "tests/...py::test_x"     # optional: run only this claiming test, because the others take long

A mutation is killed when, for each of its ids, a test that claims to prove the id fails. A test whose setup
fails proves nothing: such a mutation is reported as broken. Each run records the kills in tests/mutations/killed.txt, see `tools.kills`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal
from xml.etree import ElementTree  # reads the report of our own pytest run

from tools.conformance import ROOT, BadMark, collect
from tools.kills import key_of, read_kills, write_kills

MUTATIONS = ROOT / "tests" / "mutations"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", ".heliograph", "dist", ".*_cache", ".hypothesis", "__pycache__")
SITE = ".venv-site"
KEYS = {"ids", "file", "old", "new", "test"}
QUICK_FIRST = ("rules", "kernel", "reach", "runtime", "simulator", "faces", "journeys")
Verdict = Literal["killed", "survived", "broken"]


class BadMutation(Exception):
    """A mutation with an error in its definition; the message names the file and the mutation."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A small change that removes behaviour. tests: the test nodes by requirement id. text: the changed file's content.

    key: see `tools.kills`.
    """

    where: str
    file: str
    text: str
    tests: Mapping[str, Sequence[str]]
    key: str


def read_mutations(folder: Path, claims: Mapping[str, Sequence[str]]) -> list[Mutation]:
    """Read every mutation of the folder. Raises BadMutation on the first that does not apply or names no claim."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for number, entry in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["mutation"], 1):
            found.append(_read(f"{path.name}, mutation {number} ({', '.join(entry.get('ids', []))})", entry, claims))
    return found


def _read(where: str, entry: Mapping[str, object], claims: Mapping[str, Sequence[str]]) -> Mutation:
    if (unknown := set(entry) - KEYS) or (missing := KEYS - {"test"} - set(entry)):
        raise BadMutation(
            f"{where}: unknown keys {sorted(unknown)}" if unknown else f"{where}: without {sorted(missing)}"
        )
    ids, file, old, new = entry["ids"], str(entry["file"]), str(entry["old"]), str(entry["new"])
    assert isinstance(ids, list)
    if unclaimed := [each for each in ids if each not in claims]:
        raise BadMutation(f"{where}: no test claims {unclaimed}; mark one, or remove the mutation")
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(old) != 1:
        raise BadMutation(
            f"{where}: the old text occurs {text.count(old)} times in {file}; quote a text that occurs once"
        )
    test = entry.get("test")
    if test is not None and (unclaimed := [each for each in ids if not _claims(str(test), claims[each])]):
        raise BadMutation(f"{where}: {test} does not claim {unclaimed}")
    tests = {each: [str(test)] if test is not None else sorted(claims[each], key=_cost) for each in ids}
    return Mutation(where, file, text.replace(old, new), tests, key_of(entry, tests, ROOT))


def _cost(node: str) -> int:
    """Return the rank of a test in the running order: quick folders first, because the first failure decides."""
    folder = node.split("/")[1]
    return QUICK_FIRST.index(folder) if folder in QUICK_FIRST else 0


def _claims(test: str, nodes: Sequence[str]) -> bool:
    """Whether a node, or one of its parameters, is among the claiming nodes or inside a claiming class or file."""
    plain = test.partition("[")[0]
    return any(plain == node or plain.startswith(f"{node}::") for node in nodes)


class Runner:
    """Run mutations in parallel: each takes a copy of the project, and all share one database server.

    A copy is used again, because its compiled modules save most of the time of a run.
    """

    def __init__(self, scratch: Path, server_url: str):
        self._scratch = scratch
        self._environment = {**os.environ, "HELIOGRAPH_TEST_DATABASE_URL": server_url}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._free: SimpleQueue[Path] = SimpleQueue()

    def verdict(self, mutation: Mutation) -> tuple[Verdict, str]:
        """Return the verdict on a mutation, and the output of the run that decided it."""
        with self._copy() as folder, _changed(folder / mutation.file, mutation.text):
            for identifier, nodes in mutation.tests.items():
                killed, output = self._is_killed(folder, nodes)
                if killed != "killed":
                    return killed, f"{identifier}: {output}"
            return "killed", ""

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        try:
            folder = self._free.get_nowait()
        except Empty:
            folder = Path(tempfile.mkdtemp(dir=self._scratch))
            shutil.copytree(ROOT, folder, ignore=NOT_COPIED, dirs_exist_ok=True)
            (folder / SITE).symlink_to(
                ROOT / SITE
            )  # it has no part of the project, so the tests of the site may share it
        yield folder
        self._free.put(folder)

    def _is_killed(self, folder: Path, nodes: Sequence[str]) -> tuple[Verdict, str]:
        report = folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:tests.time_limit",  # a slow test is no verdict
            "-m",
            "not long",
            f"--junitxml={report}",
            *nodes,
        ]
        run = subprocess.run(
            command, cwd=folder, env={**self._environment, "PYTHONPATH": str(folder / "src"), "TMPDIR": str(folder.parent)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        tail = "\n".join((run.stdout + run.stderr).splitlines()[-15:])
        if not report.exists():
            return "broken", tail
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))  # noqa: S314 - written by our own pytest
        if any(_has_failed(case) for case in cases):
            return "killed", ""
        has_passed = run.returncode == 0 and any(case.find("skipped") is None for case in cases)
        return ("survived" if has_passed else "broken"), tail


@contextmanager
def _changed(path: Path, text: str) -> Iterator[None]:
    """Change a file until the block ends. Its time is restored too, so that Python compiles it again."""
    before, times = path.read_bytes(), path.stat()
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _has_failed(case: ElementTree.Element) -> bool:
    """Whether a test failed in its body or in the checks after it; an error before the body does not count."""
    error = case.find("error")
    return case.find("failure") is not None or (error is not None and "teardown" in error.get("message", ""))


@contextmanager
def shared_server(scratch: Path) -> Iterator[str]:
    """Start one database server for all runs; each test still has its own database."""
    from heliograph.testing.database import TestServer

    server = TestServer(scratch / "server")
    try:
        yield server.admin_url
    finally:
        server.close()


def run(mutations: Sequence[Mutation], jobs: int, every: Sequence[Mutation]) -> int:
    """Run the mutations, record the kills, print a line for each that survives, and return their number. every: all mutations."""
    counts: dict[Verdict, int] = {"killed": 0, "survived": 0, "broken": 0}
    known = [each.key for each in every]
    # a server that starts too late, or stops, still writes there: that error must not hide the first one
    scratch_folder = tempfile.TemporaryDirectory(prefix="mutations-", ignore_cleanup_errors=True)
    with scratch_folder as scratch, shared_server(Path(scratch)) as url:
        runner = Runner(Path(scratch), url)
        with ThreadPoolExecutor(jobs) as pool:
            for mutation, (verdict, output) in zip(mutations, pool.map(runner.verdict, mutations), strict=True):
                counts[verdict] += 1
                is_killed = verdict == "killed"
                kills = {mutation.key: ", ".join(mutation.tests)} if is_killed else {}
                write_kills(MUTATIONS, kills, [] if is_killed else [mutation.key], known)
                if verdict != "killed":
                    print(f"{verdict}: {mutation.where} in {mutation.file}\n{output}\n", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return counts["survived"] + counts["broken"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutations", description="Check the proof marks by mutations."
    )
    parser.add_argument("ids", nargs="*", help="requirements whose mutations to run; all of them by default")
    parser.add_argument(
        "--check", action="store_true", help="run nothing; check that each mutation applies and each claim has one"
    )
    parser.add_argument("--new", action="store_true", help="run those without a recorded kill")
    parser.add_argument("--sample", type=int, help="run this many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    options = parser.parse_args()
    try:
        claims = collect(ROOT / "tests")
        mutations = every = read_mutations(MUTATIONS, claims)
    except (BadMark, BadMutation) as bad:
        print(f"mutations: {bad}")
        return 1
    if options.check:
        missing = sorted(set(claims) - {each for mutation in mutations for each in mutation.tests})
        if missing:
            print(f"mutations: no mutation removes the behaviour of {', '.join(missing)}; add one to tests/mutations/")
        return 1 if missing else 0
    if options.ids:
        mutations = [mutation for mutation in mutations if set(options.ids) & set(mutation.tests)]
    if options.new:
        killed = read_kills(MUTATIONS)
        mutations = [mutation for mutation in mutations if mutation.key not in killed]
    if options.sample is not None:
        mutations = random.Random(options.seed).sample(mutations, min(options.sample, len(mutations)))  # noqa: S311 - a draw that can be repeated
    if not mutations:
        print("mutations: each one has a recorded kill")
        return 0
    return 1 if run(mutations, options.jobs, every) else 0


if __name__ == "__main__":
    sys.exit(main())
