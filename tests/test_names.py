"""Names use the standard terms of the field: no name contains a word of the list below.

The tests check modules, classes, functions, parameters and attributes of the product; its keys of JSON; functions,
tables, columns, parameters and values in SQL; options of the command line; and modules, classes, functions, parameters
and attributes of the tests, the model, the benchmark, the tools and the examples.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

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
    ("parked", "suspended", ()),
    ("postponed", "deferred", ()),
    ("stay", "keep running", ()),
    ("stays", "remains", ()),
    ("go_on", "continue", ()),
    ("goes_on", "continues", ()),
    ("anew", "again", ()),
    ("let_go", "release, lose", ()),
    ("leave", "release, close, suspend; approval", ()),
    ("disown", "release", ()),
    ("give_up", "abandon, release", ()),
    ("given_up", "abandoned", ()),
    ("give_back", "release", ()),
    ("let_pass", "propagate", ()),
    ("told", "message", ()),
    ("tell", "emit, log, publish", ()),
    ("tells", "emits, reports", ()),
    ("untold", "not reported", ()),
    ("said", "message, payload, signals_emitted", ()),
    ("says", "message", ()),
    ("say", "emit, add", ("worker", "execution", "agent_loop", "turn", "reactive")),
    ("heard", "received, validated", ()),
    ("hear", "subscribe, validate", ()),
    ("hears", "subscribes", ()),
    ("knows", "has, contains, is_recorded", ()),
    ("want", "require", ()),
    ("wants", "requires, kind", ()),
    ("speak", "emit, stream", ()),
    ("speaks", "emits, streams", ()),
    ("spoken", "emitted", ()),
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
    ("owe", "add a pending reaction", ()),
    ("owes", "has pending", ()),
    ("debt", "pending reaction", ()),
    ("debts", "pending reactions", ()),
    ("stranger", "untrusted", ()),
    ("strangers", "untrusted", ()),
    ("people", "approval, question, human", ()),
    ("twin", "in-memory kernel", ()),
    ("refuse", "reject; raise, if it raises", ()),
    ("refuses", "rejects", ()),
    ("refused", "rejected", ()),
    ("refusal", "rejection", ()),
    ("refusals", "rejections", ()),
    ("things", "the objects' name", ()),
    ("somebody", "the actor's name", ()),
    ("whoever", "the actor's name", ()),
    ("whatever", "the object's name", ()),
    ("for_ever", "forever, or a number of seconds", ()),
    ("mend", "fix, restore", ()),
    ("held", "owned", ("worker", "execution", "agent_loop")),
    ("here", "local", ("worker", "execution", "agent_loop")),
    ("kit", "services", ("worker", "execution", "agent_loop")),
    ("left", "remaining, suspended", ("worker", "execution", "agent_loop", "client")),
    ("ask", "call", ("agent_loop",)),
    ("asks", "requests, number of questions", ("agent_loop",)),
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
    "test_every_message_that_says_pip_install_names_an_extra_of_heliograph": "a message may say something",
    "test_refused_connection_is_a_recoverable_failure": "the operating system refuses connections",
}
# The code beside the product. Its test modules may end in `kit`: shared fixtures and helpers.
BESIDE = (
    "tests/*", "tests/faces/**/*", "tests/journeys/**/*", "tests/kernel/**/*", "tests/reach/**/*", "tests/recording/**/*", "tests/rules/**/*", "tests/runtime/**/*",
    "tests/simulator/**/*", "tests/types/**/*", "tests/upgrade/**/*", "model/**/*", "bench/**/*", "tools/**/*", "examples/**/*",
)  # fmt: skip


def words_of(name: str) -> set[str]:
    """Return the words of a name, alone and in pairs."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_").split("_")
    return {*split, *("_".join(pair) for pair in pairwise(split))}


def banned_in(name: str, folder: str = "") -> list[str]:
    if name in ALLOWED:
        return []
    words = words_of(name)
    return [f"{name}: {word} -> {instead}" for word, instead, folders in BANNED
            if word in words and (not folders or folder in folders)]  # fmt: skip


def statements(body: list[Any]) -> Iterator[Any]:
    """Yield each statement, handler and case of a body, at any depth. Expressions define no names of interest, and are many."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, []))


def targets_of(node: Any) -> list[Any]:
    """The expressions to which a statement assigns."""
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    target = getattr(node, "target", None)
    return [] if target is None else [target]


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every name that a module defines, except local variables."""
    for node in statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
            yield from ((each.lineno, each.arg) for each in ast.walk(node.args) if isinstance(each, ast.arg))
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
            for member in node.body:
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield member.lineno, member.target.id
        for target in targets_of(node):
            for each in ast.walk(target):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                    yield each.lineno, each.attr
    for statement in tree.body:
        for target in targets_of(statement):
            if isinstance(target, ast.Name):
                yield statement.lineno, target.id


@pytest.mark.more  # reads all files
def test_names_in_python_have_no_banned_word() -> None:
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        place = path.relative_to(PRODUCT)
        folder = place.parts[0]
        found += [f"{place}: {problem}" for problem in banned_in(path.stem, folder)]
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{place}:{line}: {problem}" for problem in banned_in(name, folder)]
    assert not found, "\n".join(found)


def columns_of(statements: list[str]) -> set[str]:
    """Return the tables, columns and indexes that the migrations make, by the names that they have in the end."""
    found: set[tuple[str, str]] = set()
    for statement in statements:
        if made := re.match(r"create table heliograph\.(\w+) \(", statement):
            found.add((made[1], ""))
            found |= {(made[1], name) for name in re.findall(r"^    (\w+) +[a-z]+", statement, re.MULTILINE)}
        elif index := re.match(r"create (?:unique )?index (\w+)", statement):
            found.add(("", index[1]))
        elif index := re.match(r"alter index heliograph\.(\w+) rename to (\w+)", statement):
            found = found - {("", index[1])} | {("", index[2])}
        elif index := re.match(r"drop index heliograph\.(\w+)", statement):
            found -= {("", index[1])}
        elif table := re.match(r"alter table heliograph\.(\w+)", statement):
            found |= {(table[1], name) for name in re.findall(r"add column (\w+)", statement)}
            for old, new in re.findall(r"rename column (\w+) to (\w+)", statement):
                assert (table[1], old) in found, statement
                found = found - {(table[1], old)} | {(table[1], new)}
    return {part for pair in found for part in pair if part}


def test_names_in_sql_have_no_banned_word() -> None:
    """Functions, views, parameters and variables; words in quotes, which are keys of JSON and stored values; and columns."""
    defined = re.compile(
        r"create (?:or replace )?(?:function|view|type|trigger) (?:heliograph\.)?(\w+)|\b(p_\w+|v_\w+)\b"
        r"|'([a-z]\w*)'|\bas ([a-z]\w+)\b|\b(\w+) as (?:materialized )?\("
    )
    found, statements = set(), list[str]()
    for path in sorted((PRODUCT / "ledger/sql").rglob("*.sql")):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        found |= {f"{path.stem}: {problem}" for problem in banned_in(path.stem) if path.parent.name == "kernel"}
        if path.parent.name == "migrations":
            statements += [statement.strip() for statement in code.split(";")]
            continue
        for match in defined.finditer(code):
            name = next(group for group in match.groups() if group)
            found |= {f"{path.name}: {problem}" for problem in banned_in(name)}
    columns = columns_of(statements)
    assert {"runs", "pending_reactions", "human_wait_since", "runs_pending", "head_lease"} <= columns
    found |= {problem for name in columns for problem in banned_in(name)}
    assert not found, "\n".join(sorted(found))


@pytest.mark.more  # reads all files
def test_keys_and_values_in_python_have_no_banned_word() -> None:
    """Keys of requests, replies and rows: texts that index a dict, or that a dict is made with. Values that a `Literal` lists."""
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        place = path.relative_to(PRODUCT)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            keys = node.keys if isinstance(node, ast.Dict) else [node.slice] if isinstance(node, ast.Subscript) else []
            keys = [each for key in keys for each in (key.elts if isinstance(key, ast.Tuple) else [key])]
            texts = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            found += [f"{place}:{problem}" for text in texts if text.isidentifier() for problem in banned_in(text)]
    assert not found, "\n".join(found)


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


def test_each_folder_of_tests_is_searched() -> None:
    assert {f"tests/{path.parent.name}/**/*" for path in ROOT.glob("tests/*/*.py")} <= set(BESIDE)


@pytest.mark.more  # reads all files
@pytest.mark.parametrize("files", BESIDE)
def test_names_beside_the_product_have_no_banned_word(files: str) -> None:
    found = []
    for path in sorted(ROOT.glob(f"{files}.py")):
        place = path.relative_to(ROOT)
        found += [f"{place}: {problem}" for problem in banned_in(path.stem)]
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{place}:{line}: {problem}" for problem in banned_in(name)]
    assert not found, "\n".join(found)


@pytest.mark.more  # reads all files
def test_names_of_tests_begin_with_their_subject() -> None:
    """No article and no relative pronoun comes first."""
    first = re.compile(r"test_(a|an|the|what|who|whoever|whose|which|whether)_")
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            if first.match(name):
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found, "\n".join(found)
