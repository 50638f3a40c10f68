"""The reference pages name every option, attribute and method of the public classes, every environment variable, and no others."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from heliograph.app import Heliograph
from heliograph.client.client import Client
from heliograph.client.session import Reply, Session
from heliograph.definitions.tool import Tool, tool
from heliograph.execution.context import Context
from heliograph.run_result import RunResult
from heliograph.tools.context import ToolContext

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "heliograph"
PAGES = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"HELIOGRAPH_[A-Z_]*[A-Z]")
ROW = re.compile(r"^\| (`[^|]*) \|", re.MULTILINE)
PRINTED_ONLY = {"HELIOGRAPH_SEED"}  # the name of a number in the output of `helio sim`


def section(page: str, title: str) -> str:
    """The text of a section of a page, up to the next section of the same level."""
    text = (PAGES / page).read_text(encoding="utf-8")
    level = title.split(" ", maxsplit=1)[0]
    _, found, rest = text.partition(f"\n{title}\n")
    assert found, f"{page} has no section {title}"
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> set[str]:
    """The names in the first cells of a section's tables: `a`, `b(x, y=1)`, `await ctx.c(...)`."""
    cells = " ".join(ROW.findall(text))
    return {re.split(r"[(\[:=]", name.removeprefix("await ").rpartition(".")[2] if "(" not in name else
            name.removeprefix("await ").partition("(")[0].rpartition(".")[2])[0] for name in re.findall(r"`([^`]+)`", cells)}  # fmt: skip


def parameters(function: Callable[..., Any], *but: str) -> set[str]:
    """The names of the parameters of a function, without the collected ones."""
    kinds = inspect.Parameter
    found = inspect.signature(function).parameters.values()
    return {each.name for each in found if each.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)} - {"self", *but}


def members(kind: type) -> set[str]:
    """The public attributes and methods of a class, with those that its instances assign in `__init__`."""
    found = {*dir(kind), *(name for each in kind.__mro__ for name in inspect.get_annotations(each))}
    for each in kind.__mro__:
        if each.__module__.startswith("heliograph") and "__init__" in each.__dict__ and not is_dataclass(each):
            tree = ast.parse(textwrap.dedent(inspect.getsource(each.__dict__["__init__"])))
            found |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            }
    return {name for name in found if not name.startswith("_")}


RUN_OPTIONS = parameters(Heliograph.run, "state")


@pytest.mark.parametrize(
    ("page", "title", "names"),
    [
        ("agents.md", "## Application", parameters(Heliograph.__init__, "name")),
        ("agents.md", "## Agent", parameters(Heliograph.agent)),
        ("agents.md", "## Context", members(Context)),
        (
            "tools.md",
            "## Functions",
            {*Tool.__dataclass_fields__} - {"function", "parameters"} | members(ToolContext) - {"resolver"},
        ),
        ("running.md", "## Methods of an application", members(Heliograph) - {"name"} | RUN_OPTIONS),
        ("running.md", "## RunResult", members(RunResult)),
        ("running.md", "## Client", members(Client)),
        ("running.md", "## Session", members(Session)),
        ("running.md", "## Reply", members(Reply)),
    ],
    ids=lambda value: value.removeprefix("## ") if isinstance(value, str) else "",
)
def test_section_lists_every_public_name_and_no_other(page: str, title: str, names: set[str]) -> None:
    listed = rows(section(page, title))
    assert (sorted(names - listed), sorted(listed - names)) == ([], [])


def test_options_of_prompt_agents_are_those_of_both_pages() -> None:
    own = rows((PAGES / "models.md").read_text(encoding="utf-8").split("\n## ")[0])
    options = parameters(Heliograph.prompt_agent)
    assert sorted(own - options) == []
    assert sorted(options - own - rows(section("agents.md", "## Agent"))) == []


def test_shortened_options_of_a_tool_are_those_of_the_class() -> None:
    assert parameters(tool) - {"function"} <= members(Tool)


def variables() -> Iterator[str]:
    """The environment variables that the source names, outside of docstrings; `get("HOME")` of the settings included."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not VARIABLE.search(text):
            continue  # most files: to parse them all takes seconds
        tree = ast.parse(text)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield from VARIABLE.findall(node.value)
    for name in re.findall(r'\bget\("([A-Z_]+)"\)', (SOURCE / "config.py").read_text(encoding="utf-8")):
        yield f"HELIOGRAPH_{name}"


def test_every_environment_variable_of_the_source_is_in_the_table() -> None:
    listed = {
        name.removesuffix("_<NAME>")
        for name in re.findall(
            r"^\| `(HELIOGRAPH_[^`]*)`", section("configuration.md", "## Environment variables"), re.MULTILINE
        )
    }
    read = {*variables()} - PRINTED_ONLY
    assert (sorted(read - listed), sorted(listed - read)) == ([], [])
