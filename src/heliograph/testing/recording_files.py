"""The files of recorded tests: which test has which file, and which files no test has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

FOLDER = "recordings"
MARK = "heliograph_recording"
_NAME_MAX = 120
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.,=+\[\]-]+")


class RecordingFiles:
    """The recordings of one test process."""

    def __init__(self) -> None:
        self._tests: dict[str, set[str]] = {}  # by path; some file systems ignore the case of letters
        self._modules: set[Path] = set()  # those of which all tests were collected

    def collect(self, items: Iterable[pytest.Item], *, is_whole: bool) -> None:
        """Note the files of collected tests. is_whole: all tests of their modules were collected."""
        for item in items:
            if is_whole:
                self._modules.add(item.path)
            if MARK in getattr(item, "fixturenames", ()):
                try:
                    self._note(item)
                except InvalidInput:
                    continue  # `file_of` raises it again in the test

    def file_of(self, item: pytest.Item) -> Path:
        """The file of a test. Raises InvalidInput (`wrong_type`, `duplicate_entry`) for a mark without a path, and a file of two tests."""
        path, tests = self._note(item)
        if len(tests) > 1:
            others = ", ".join(sorted(tests - {id_of(item)}))
            raise InvalidInput(f"recording {safe_repr(str(path))} belongs to two tests: {id_of(item)} and {others}; give each its own path in the mark "
                               f"{MARK}, or leave the path out", code="duplicate_entry")  # fmt: skip
        return path

    def unused(self) -> Iterator[Path]:
        """The recordings in the folders beside the collected modules that no test has. Those of renamed and deleted modules are among them."""
        for folder in sorted({module.parent / FOLDER for module in self._modules}):
            for inner in sorted(folder.iterdir()) if folder.is_dir() else ():
                module = folder.parent / f"{inner.name}.py"
                if module in self._modules or not module.exists():
                    yield from (file for file in sorted(inner.glob("*.jsonl")) if _key(file) not in self._tests)

    def _note(self, item: pytest.Item) -> tuple[Path, set[str]]:
        path = _path_of(item)
        tests = self._tests.setdefault(_key(path), set())
        tests.add(id_of(item))
        return path, tests


def id_of(item: pytest.Item) -> str:
    """The node id of a test, without the group that xdist adds to it with `--dist loadgroup` after the collection."""
    return item.nodeid if item.parent is None else f"{item.parent.nodeid}::{item.name}"


def _path_of(item: pytest.Item) -> Path:
    """The path that the mark names, relative to the test's file; or else one that the names of the file and the test give."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        names = [node.name for node in item.listchain() if isinstance(node, pytest.Class | pytest.Item)]
        return item.path.parent / FOLDER / item.path.stem / f"{_file_name('.'.join(names))}.jsonl"
    if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str) or not mark.args[0]:
        raise InvalidInput(f'the mark of {id_of(item)} must have a path: @pytest.mark.{MARK}("recordings/refund.jsonl")',
                           code="wrong_type")  # fmt: skip
    return item.path.parent / mark.args[0]


def _file_name(name: str) -> str:
    plain = _UNUSUAL.sub("_", name)[:_NAME_MAX]
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"


def _key(path: Path) -> str:
    return str(path.resolve()).casefold()
