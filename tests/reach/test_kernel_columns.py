"""A list of requests as arrays: one per key of the declared type; nothing that is not of that type becomes a value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.decoding import decode_row
from heliograph.ledger.kernel_columns import Column, arrays_of, columns_of
from heliograph.redaction import STARS, keep_out
from heliograph.requests import RecordCall, Renewal

RENEWAL = columns_of(Renewal)


def arrays(items: Any, columns: tuple[Column, ...] = RENEWAL) -> list[list[Any]]:
    return arrays_of(columns, items, msgspec.json.encode)


def test_type_of_a_key_decides_the_type_of_its_column() -> None:
    assert RENEWAL == (("agent_id", "text"), ("turn_id", "text"), ("epoch", "bigint"), ("phase", "text"))
    types = dict(columns_of(RecordCall))
    assert [types[key] for key in ("result", "error", "taint", "terminates", "rate_tokens", "phase")] == [
        "jsonb", "jsonb", "jsonb", "boolean", "bigint", "text",
    ]  # fmt: skip


def test_missing_key_is_null_and_a_json_null_is_a_value() -> None:
    columns = (Column("turn_id", "text"), Column("result", "jsonb"))
    assert arrays([{"turn_id": "a", "result": None}, {}, {"result": 1}], columns) == [
        ["a", None, None],
        [b"null", None, b"1"],
    ]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([{"epoch": [1]}], "epoch has the type bigint, not list"),
        ([{"epoch": True}], "epoch has the type bigint, not bool"),
        ([{"epoch": "1"}], "epoch has the type bigint, not str"),
        ([{"turn_id": b"a"}], "turn_id has the type text, not bytes"),
        ([{"phase": "init"}, {"phase": 1}], "phase has the type text, not int"),
        ([{"epoch": 1, 2: "a", "b": 3}], 'unknown key "2"'),
        (["a"], "a list of objects, not of str"),
        ({"epoch": 1}, "a list of objects, not of dict"),
        (None, "a list of objects, not of NoneType"),
    ],
)
def test_value_of_another_type_is_rejected(items: Any, problem: str) -> None:
    with pytest.raises(KernelRejected, match=problem):
        arrays(items)


def test_text_is_redacted() -> None:
    keep_out("columns-canary-1")
    assert arrays([{"turn_id": "turn columns-canary-1"}])[1] == [f"turn {STARS}"]


def test_row_has_no_key_for_a_column_that_is_null_and_names_json_that_cannot_be_decoded() -> None:
    assert decode_row({"turn_id": "a", "outcome": None, "stop": b'{"reason": null}'}, ["stop"]) == {
        "turn_id": "a", "stop": {"reason": None},
    }  # fmt: skip
    assert (
        "stop/a is a number of 5000 digits"
        in decode_row({"stop": b'{"a": %s}' % (b"1" * 5000)}, ["stop"])["undecodable"]
    )
