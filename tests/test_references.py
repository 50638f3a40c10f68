"""Every reference in the documentation, in docstrings and in comments leads to something that exists.

Checked are links between pages with their anchors, paths, decision numbers, rules of the kernel, dotted names of our
modules, and names in backticks that are written as a method, a function or a file of ours.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src", "tests", "tools", "model", "bench", "examples")
# The checksum of a released migration is stored in databases, so its comments cannot change.
RELEASED = "/sql/migrations/"

SKIPPED = (
    "CHANGELOG.md",  # speaks of former versions
    "docs/internals/conformance/",  # quotes the specifications, in their words
    "tests/faces/test_newsroom_",  # contains pages with broken links, for the newsroom to find
)
# Names of PostgreSQL, systemd, Linux and Prometheus that our code does not use, and the examples of the style page.
ELSEWHERE = frozenset(
    [
        "pg_stat_statements",
        "pg_stat_user_functions",
        "pg_stat_user_indexes",
        "pg_walinspect",
        "pg_dump",
        "DelegateSubgroup",
        "TimeoutStopSec",
        "no_new_privs",
        "attempts_max",
        "has_waits",
        "gen_ai_client_operation_duration_seconds",  # written with dots in the code
        "gen_ai_client_token_usage",
    ]
)

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")
PATH = re.compile(
    r"(?<![\w/.:-])((?:docs|src|tests|tools|model|bench|examples)/(?:[\w-]+[./])+(?:md|py|sql|toml|tsv|json|svg))\b"
)
DECISION = re.compile(r"\b[Dd]ecisions?[ /]\[?(\d+)")
RULE = re.compile(r"\bK([1-9]\d?)[a-z]?\b")
DOTTED = re.compile(r"(?<![\w/.@:-])heliograph((?:\.\w+)+)")
METHOD = re.compile(r"`([A-Z]\w+)\.(\w+)(?:\([^`]*\))?`")
NAME = re.compile(r"`((?:[A-Z][a-z0-9]+){2,}|_?[a-z]+(?:_[a-z]+)+|\w+(?=\(\)`))(?:\(\))?`")
FILE = re.compile(r"`([\w/]+\.(?:py|sql))`")
OTHER_DOCUMENT = re.compile(r"\b(?:kernel|design|requirements|security|speed|baselines)\.md section")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(page for top in CODE for page in (ROOT / top).rglob("*.md"))]
)
SOURCES = sorted(path for top in CODE for suffix in ("py", "sql") for path in (ROOT / top).rglob(f"*.{suffix}"))


@cache
def texts() -> dict[str, str]:
    return {relative(path): path.read_text(encoding="utf-8") for path in (*PAGES, *SOURCES)}


@cache
def prose() -> dict[str, str]:
    """Path -> its text for readers: a page, the comments of a source, the long strings of a Python file."""
    patterns = {".md": r"[\s\S]+", ".sql": r"--.*", ".py": r'"""[\s\S]*?"""|#.*'}
    return {
        name: "\n".join(re.findall(patterns[Path(name).suffix], text))
        for name, text in texts().items()
        if not name.startswith(SKIPPED) and RELEASED not in name
    }


@cache
def code() -> frozenset[str]:
    """Every word of the code outside of comments and docstrings, and the names of Python itself."""
    patterns = {".sql": r"--.*", ".py": r'"""[\s\S]*?"""|#.*'}
    return frozenset(dir(builtins)).union(*(
        re.findall(r"\w+", re.sub(patterns[suffix], "", text))
        for name, text in texts().items()
        if (suffix := Path(name).suffix) in patterns and not name.endswith("test_references.py")
    ))  # fmt: skip


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub derives them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: set[str] = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        unique = slug
        for number in range(1, 20):
            if unique not in seen:
                break
            unique = f"{slug}-{number}"
        seen.add(unique)
    return frozenset(seen)


@cache
def python_names() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Of our Python: class -> names of its members, class -> names of its bases."""
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for name, text in texts().items():
        if not name.startswith(("src/", "model/")) or not name.endswith(".py") or "class " not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                own = members.setdefault(node.name, set())
                bases.setdefault(node.name, set()).update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))
                own |= set(names_in(node))
    return members, bases


def names_in(cls: ast.ClassDef) -> Iterator[str]:
    """Methods, fields and attributes that a class defines or assigns."""
    for node in ast.walk(cls):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def has_member(cls: str, name: str) -> bool:
    members, bases = python_names()
    if cls not in members:
        return True  # a class of another library
    if name in members[cls]:
        return True
    return any(base not in members or has_member(base, name) for base in bases[cls] - {cls, "Protocol"})


@cache
def sql_names() -> frozenset[str]:
    return frozenset(
        found
        for name, text in texts().items()
        if name.endswith(".sql")
        for found in re.findall(r"\bheliograph\.(\w+)", re.sub(r"--.*", "", text))
    )


def resolves(dotted: str) -> bool:
    """Whether `heliograph.<dotted>` is a module, a name in one, or a table or function of the schema."""
    parts = dotted.split(".")
    if parts[0] in sql_names() or hasattr(builtins, dotted):
        return True
    for length in range(len(parts), -1, -1):
        try:
            found: object = importlib.import_module(".".join(["heliograph", *parts[:length]]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part) and not has_member(getattr(found, "__name__", ""), part):
                return False
            found = getattr(found, part, None)
        return True
    return False


def test_links_between_pages_lead_to_pages_and_anchors_that_exist() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in LINK.findall(FENCE.sub("", texts()[relative(page)])):
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
                broken.append(f"{relative(page)}: {target}#{anchor}")
    assert broken == []


def test_paths_exist() -> None:
    assert [
        f"{where}: {path}"
        for where, text in prose().items()
        for path in PATH.findall(text)
        if not (ROOT / path).exists()
    ] == []


def test_files_in_backticks_exist() -> None:
    """Pages for users name files that the reader writes, so they are not checked."""
    known = "\n".join(f"/{relative(path)}" for path in SOURCES) + "\n"
    assert [
        f"{where}: {file}"
        for where, text in prose().items()
        if not where.startswith(("docs/learn", "docs/how-to", "docs/reference", "README", "CONTRIBUTING", "examples"))
        for file in FILE.findall(FENCE.sub("", text))
        if f"/{file}\n" not in known
    ] == []


def test_cited_decisions_exist() -> None:
    known = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert [
        f"{where}: {number}"
        for where, text in prose().items()
        for number in DECISION.findall(text)
        if number not in known
    ] == []


def test_cited_rules_of_the_kernel_exist() -> None:
    page = (ROOT / "docs" / "internals" / "kernel-rules.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^(?:### |\| )K(\d+)\b", page, re.MULTILINE))
    assert [f"{where}: K{n}" for where, text in prose().items() for n in RULE.findall(text) if n not in known] == []


@pytest.mark.more  # reads all files
def test_dotted_names_exist() -> None:
    assert [
        f"{where}: heliograph{dotted}"
        for where, text in prose().items()
        for dotted in DOTTED.findall(FENCE.sub("", text))
        if not resolves(dotted.removeprefix("."))
    ] == []


def test_methods_in_backticks_exist() -> None:
    assert [
        f"{where}: {cls}.{name}"
        for where, text in prose().items()
        for cls, name in METHOD.findall(FENCE.sub("", text))
        if not has_member(cls, name)
    ] == []


@pytest.mark.more  # reads all files
def test_names_in_backticks_exist() -> None:
    assert sorted({
        f"{where}: {name}"
        for where, text in prose().items()
        for name in NAME.findall(FENCE.sub("", text))
        if name not in code() | ELSEWHERE
    }) == []  # fmt: skip


def test_journey_has_one_row_for_each_file_and_names_its_package() -> None:
    page = (ROOT / "docs" / "internals" / "journey.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`|kernel) \| `([\w/]+\.(?:py|sql))` \|", page, re.MULTILINE)
    files = [file for _, file in rows]
    assert len(files) > 50
    assert [file for file in files if not (ROOT / "src" / "heliograph" / file).is_file()] == []
    assert sorted({file for file in files if files.count(file) > 1}) == []
    assert [(package, file) for package, file in rows
            if not file.startswith("ledger/sql/kernel/" if package == "kernel" else package.strip("`"))] == []  # fmt: skip


def test_no_reference_leads_to_a_document_outside_the_repository() -> None:
    assert [where for where, text in prose().items() if OTHER_DOCUMENT.search(text)] == []
