"""No SQL is made of data (S3): the only statements put together at run time are the installer's, of names in the catalog."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SQL = Path(__file__).resolve().parent.parent / "src" / "heliograph" / "ledger" / "sql"
# Functions cannot: tools/sqllint.py reads them as syntax trees. These are blocks that run once, at installation.
MAY_EXECUTE = {
    "0001_tables.sql",
    "0015_plain_names.sql",
    "0061_changing_columns_last.sql",
    "95_plans.sql",
    "96_roles.sql",
}
EXECUTE = re.compile(r"\bexecute\s+(?!on\b)(?P<what>[^\s(]+)", re.IGNORECASE)


def text_of(path: Path) -> str:
    return re.sub(r"--.*", "", path.read_text(encoding="utf-8"))


@pytest.mark.proves("S3")
def test_only_blocks_of_the_installer_execute_text() -> None:
    executing = {path.name: EXECUTE.findall(text_of(path)) for path in sorted(SQL.rglob("*.sql"))}
    assert {name for name, found in executing.items() if found} == MAY_EXECUTE
    for name in MAY_EXECUTE:
        assert set(executing[name]) == {"format"}, f"{name} executes something else than format(..)"


@pytest.mark.proves("S3")
def test_blocks_of_the_installer_execute_only_text_from_the_catalog() -> None:
    for name in ("95_plans.sql", "96_roles.sql"):
        text = text_of(SQL / "kernel" / name)
        assert "create function" not in text  # so no caller can pass a parameter
        assert not re.search(r"\bfrom\s+heliograph\.(?!project_grants g where)", text)  # nor a row of ours


def test_no_line_of_the_kernel_is_longer_than_120_characters() -> None:
    long = [
        f"{path.name}:{number}: {len(line)} characters"
        for path in sorted((SQL / "kernel").glob("*.sql"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []
