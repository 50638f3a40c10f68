"""The record of the mutations that were killed, so that a check runs only those that are new or changed.

tests/mutations/killed.txt has a line `<key> <ids>` for each one. The key is a digest of the mutation and of the source of the tests that
claim its ids: a change of either makes the recorded kill void.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

RECORD = "killed.txt"


def key_of(entry: Mapping[str, object], tests: Mapping[str, Sequence[str]], root: Path) -> str:
    """The key of a mutation. tests: the test nodes by requirement id."""
    sources = {node: source_of(node, root) for nodes in tests.values() for node in nodes}
    text = json.dumps([entry, sources], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:24]


def source_of(node: str, root: Path) -> str:
    """The source of a test node: of a function, a class, or a file, with its marks."""
    file, *names = node.partition("[")[0].split("::")
    text, tree = _parsed(root / file)
    scope: ast.AST = tree
    for name in names:
        scope = next(each for each in ast.iter_child_nodes(scope) if getattr(each, "name", None) == name)
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return text
    first = min([scope.lineno, *(each.lineno for each in scope.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : scope.end_lineno])


def read_kills(folder: Path) -> dict[str, str]:
    """The recorded kills: ids by key."""
    path = folder / RECORD
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def write_kills(folder: Path, killed: Mapping[str, str], survived: Iterable[str], known: Iterable[str]) -> None:
    """Add kills to the record, sorted by their ids. survived, known: the keys that must not remain, and those of all mutations."""
    kept = (read_kills(folder) | dict(killed)).items()
    left = {key: ids for key, ids in kept if key in set(known) - set(survived)}
    lines = [f"{key} {ids}\n" for key, ids in sorted(left.items(), key=lambda line: (line[1], line[0]))]
    (folder / RECORD).write_text("".join(lines), encoding="utf-8")


@cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)
