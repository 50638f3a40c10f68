"""Lines and tables on a narrow terminal: they fit its width, keep every word, and do not break what a person copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.cli.layout import field_lines, table_lines, wrapped

TURN = "turn_0123456789abcdefghijk"
RUN = "run_0123456789abcdefghijk"
COMMAND = f'helio approval answer {TURN} m1-1-approval --value \'{{"a; b": 1, "c": 2}}\''
words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30)


@given(st.lists(words, min_size=1, max_size=20).map(" ".join), st.integers(40, 120))
def test_wrapped_lines_fit_and_keep_each_word(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == text.split()
    assert wrapped(text, None) == [text]


def test_further_lines_are_indented_like_the_first_and_keep_the_branches_of_a_tree() -> None:
    assert wrapped("    one two three", 12) == ["    one two", "      three"]
    assert wrapped("│  ├─ one two three", 14) == ["│  ├─ one two", "│  │    three"]
    assert wrapped("│  └─ one two three", 14) == ["│  └─ one two", "│       three"]


def test_command_to_copy_is_not_broken() -> None:
    assert wrapped(f"    {COMMAND}", 60) == [f"    {COMMAND}"]
    text = "run ink has not ended; resume it with: helio run press.py:app --run-id ink"
    assert wrapped(text, 60) == ["run ink has not ended; resume it with:", "  helio run press.py:app --run-id ink"]
    assert len(wrapped("no; helio run FILE.py:app creates one, and HELIOGRAPH_HOME selects another folder", 60)) == 2


def test_row_that_is_wider_than_the_terminal_continues_on_an_indented_line() -> None:
    rows = [(TURN, "writer", RUN, "success", "3 min ago"), (TURN, "critic", RUN, "running", "1 h ago")]
    headers = ("TURN", "AGENT", "RUN", "STATUS", "STARTED")
    assert table_lines(headers, rows, 60) == [
        "TURN                        AGENT",
        "    RUN                        STATUS   STARTED",
        f"{TURN}  writer",
        f"    {RUN}  success  3 min ago",
        f"{TURN}  critic",
        f"    {RUN}  running  1 h ago",
    ]
    assert len(table_lines(headers, rows, 100)) == len(table_lines(headers, rows)) == 3


def test_text_of_the_last_column_is_wrapped_in_it() -> None:
    rows = [("Agent", "an agent with a prompt, tools and limits, for any runtime that reads manifests")]
    assert table_lines(("KIND", "DESCRIPTION"), rows, 40) == [
        "KIND   DESCRIPTION",
        "Agent  an agent with a prompt, tools and",
        "       limits, for any runtime that",
        "       reads manifests",
    ]


@given(st.lists(st.tuples(words, words, words, words), min_size=1, max_size=5), st.integers(40, 130))
def test_lines_of_a_table_are_narrow_and_no_cell_is_lost(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table_lines(("A", "B", "C", "D"), rows, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == ["A", "B", "C", "D", *(cell for row in rows for cell in row)]


@pytest.mark.parametrize("width", [30, 60])
def test_field_is_wrapped_below_its_value(width: int) -> None:
    lines = field_lines({"run": "ink", "epoch": "2, the fencing token: it rises", "phase": None}, width)
    assert lines[0] == "run    ink"
    assert max(map(len, lines)) <= width
    assert all(line.startswith(" " * 7) for line in lines[2:])
