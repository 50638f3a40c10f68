"""docs/internals/kernel-rules.md names existing things, and has every rule that the repository cites."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from heliograph.testing.mutants.catalog import MUTANTS
from model.rules import Rules

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "internals" / "kernel-rules.md").read_text(encoding="utf-8")
KERNEL = ROOT / "src" / "heliograph" / "ledger" / "sql" / "kernel"
SECTIONS = dict(re.findall(r"^### (K\d+): .*\n((?:(?!^##).*\n)*)", PAGE, re.MULTILINE))
FURTHER = set(re.findall(r"^\| (K\d+) \|", PAGE, re.MULTILINE))
CITED = re.compile(r"\bK([1-9]\d?)[a-z]?\b")


def required() -> list[str]:
    lines = (ROOT / "docs" / "internals" / "requirements.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if re.match(r"K\d+\t", line)]


def names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def part(section: str, label: str) -> str:
    """The text after a label, up to the next label or the end of its list item."""
    found = re.search(rf"{label}:((?:(?!Model:|Simulator:|Tests:|\n- |\n\n)[\s\S])*)", SECTIONS[section])
    return found[1] if found else ""


def functions() -> set[str]:
    return {
        name
        for path in KERNEL.glob("*.sql")
        for name in re.findall(r"^create function heliograph\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_page_has_a_section_for_each_rule() -> None:
    assert sorted(SECTIONS) == sorted(required())


@pytest.mark.parametrize("rule", required())
def test_section_names_functions_switches_and_test_files_that_exist(rule: str) -> None:
    assert names(part(rule, "Enforced by")) - {"now"} <= functions()
    assert names(part(rule, "Model")) <= {field.name for field in fields(Rules)}
    files = re.findall(r"`(tests/[a-z_/]+\.py)`", part(rule, "Tests"))
    assert files
    for file in files:
        assert f'"{rule}"' in (ROOT / file).read_text(encoding="utf-8"), f"{file} does not prove {rule}"


@pytest.mark.parametrize("rule", required())
def test_section_names_the_mutants_of_its_rule(rule: str) -> None:
    assert names(part(rule, "Simulator")) >= {name for name, mutant in MUTANTS.items() if rule in mutant.rules.split()}
    assert names(part(rule, "Simulator")) <= set(MUTANTS)


def test_functions_of_the_further_rules_exist() -> None:
    for rule, enforced in re.findall(r"^\| (K\d+) \|.*\| (.*) \|$", PAGE, re.MULTILINE):
        assert names(enforced) <= functions(), rule


def test_every_cited_rule_is_on_the_page() -> None:
    known = {rule[1:] for rule in (*SECTIONS, *FURTHER)}
    for folder, suffix in (("src", ".sql"), ("src", ".py"), ("model", ".py"), ("docs", ".md")):
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            unknown = set(CITED.findall(path.read_text(encoding="utf-8"))) - known
            assert not unknown, f"{path.relative_to(ROOT)} cites {sorted(unknown)}"
