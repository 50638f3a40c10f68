"""The import graph of the package: no cycle, counting imports for types only and imports inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in modules:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module


def import_graph() -> dict[str, set[str]]:
    modules = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
    return {
        module: set(imported(ast.parse(path.read_text(encoding="utf-8")), modules)) - {module}
        for module, path in modules.items()
    }


def find_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one cycle, in the order of their imports; empty where there is none."""
    done: set[str] = set()
    trail: list[str] = []

    def visit(module: str) -> list[str]:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in done:
            return []
        trail.append(module)
        found = next((cycle for each in sorted(graph[module]) if (cycle := visit(each))), [])
        trail.pop()
        done.add(module)
        return found

    return next((cycle for module in sorted(graph) if (cycle := visit(module))), [])


@pytest.mark.more  # reads all files
def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert find_cycle(import_graph()) == []


def test_search_for_cycles_finds_one() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
