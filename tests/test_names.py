"""Names use the standard terms of the field: no name contains a word of the list below.

The tests check modules, classes, functions, parameters and attributes of the product; functions, tables, columns and
parameters in SQL; options of the command line; and names of tests.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from heliograph.cli.commands import command_parser

ROOT = Path(__file__).parent.parent
PRODUCT = ROOT / "src/heliograph"

# A word, or words joined by `_`; its replacement; the folders of the product that it is banned in (none: everywhere).
BANNED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("put_off", "defer", ()),
    ("postpone", "defer", ()),
    ("due_again", "redelivery, defer_count", ()),
    ("park", "suspend", ()),
    ("asleep", "suspended", ()),
    ("stay", "keep running", ()),
    ("let_go", "release, lose", ()),
    ("leave", "release, close, suspend; approval", ()),
    ("disown", "release", ()),
    ("give_up", "abandon, release", ()),
    ("given_up", "abandoned", ()),
    ("give_back", "release", ()),
    ("let_pass", "propagate", ()),
    ("told", "message", ()),
    ("tell", "emit, log, publish", ()),
    ("said", "message, payload, signals_emitted", ()),
    ("say", "emit, add", ("worker", "execution", "agent_loop", "turn", "reactive")),
    ("heard", "received, validated", ()),
    ("hear", "subscribe, validate", ()),
    ("ear", "subscription", ()),
    ("voice", "signal buffer", ()),
    ("misfit", "mismatch, problem", ()),
    ("misfits", "problems", ()),
    ("fits", "matches, is valid", ()),
    ("shown", "safe_repr, listed", ()),
    ("carried", "truncated, executed", ()),
    ("carry", "execute", ()),
    ("errand", "delegation", ()),
    ("owed", "pending", ()),
    ("debt", "pending reaction", ()),
    ("debts", "pending reactions", ()),
    ("stranger", "untrusted", ()),
    ("strangers", "untrusted", ()),
    ("people", "approval, question, human", ()),
    ("twin", "in-memory kernel", ()),
    ("whoever", "the actor's name", ()),
    ("mend", "fix, restore", ()),
    ("held", "owned", ("worker", "execution", "agent_loop")),
    ("here", "local", ("worker", "execution", "agent_loop")),
    ("kit", "services", ("worker", "execution", "agent_loop")),
    ("left", "remaining, suspended", ("worker", "execution", "agent_loop", "client")),
    ("ask", "call", ("agent_loop",)),
    ("asked", "request", ("worker", "execution", "agent_loop", "turn")),
    ("asking", "replay", ("worker", "execution", "agent_loop", "turn")),
)

# Names that keep a banned word, each with its reason.
ALLOWED: dict[str, str] = {
    "ask_human": "the tool's name in the specification",
    "ASK_HUMAN": "the tool's name in the specification",
    "asks_human": "an agent's option, named like the tool",
    "errand": "an application of the simulated workload, known by this name in kept seeds",
    "hear": "an agent of the simulated workload, known by this name in kept seeds",
}
# Columns, and the fields that read them: only a migration changes them.
STORED = frozenset(
    {"owed", "hears_reports", "said", "said_seq", "people_since", "people_time", "runs_owed", "signals_owed"}
)


def words_of(name: str) -> set[str]:
    """Return the words of a name, alone and in pairs."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_").split("_")
    return {*split, *("_".join(pair) for pair in pairwise(split))}


def banned_in(name: str, folder: str = "") -> list[str]:
    if name in ALLOWED or name in STORED:
        return []
    words = words_of(name)
    return [f"{name}: {word} -> {instead}" for word, instead, folders in BANNED
            if word in words and (not folders or folder in folders)]  # fmt: skip


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every name that a module defines, except local variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if argument is not None:
                    yield argument.lineno, argument.arg
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
            for member in node.body:
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield member.lineno, member.target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
    for statement in getattr(tree, "body", []):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                yield statement.lineno, target.id


def test_names_in_python_have_no_banned_word() -> None:
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        place = path.relative_to(PRODUCT)
        folder = place.parts[0]
        found += [f"{place}: {problem}" for problem in banned_in(path.stem, folder)]
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{place}:{line}: {problem}" for problem in banned_in(name, folder)]
    assert not found, "\n".join(found)


def test_names_in_sql_have_no_banned_word() -> None:
    defined = re.compile(
        r"create (?:or replace )?(?:function|table|view|type|index|unique index|trigger)(?: if not exists)? (?:heliograph\.)?(\w+)"
        r"|\b(p_\w+|v_\w+)\b|^    (\w+) +(?:text|bigint|integer|boolean|jsonb|timestamptz|interval)\b|add column (\w+)",
        re.MULTILINE,
    )
    found = set()
    for path in sorted((PRODUCT / "ledger/sql").rglob("*.sql")):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        for match in defined.finditer(code):
            name = next(group for group in match.groups() if group)
            found |= {f"{path.name}: {problem}" for problem in banned_in(name)}
    assert not found, "\n".join(sorted(found))


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (option.lstrip("-") for option in action.option_strings)
        yield action.dest
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield name
                yield from options_of(below)


def test_names_on_the_command_line_have_no_banned_word() -> None:
    found = {problem for name in options_of(command_parser()) for problem in banned_in(name.replace("-", "_"))}
    assert not found, "\n".join(sorted(found))


def test_names_of_tests_have_no_banned_word() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT)
        found += [f"{place}: {problem}" for problem in banned_in(path.stem)]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found += [f"{place}:{node.lineno}: {problem}" for problem in banned_in(node.name)]
    assert not found, "\n".join(found)
