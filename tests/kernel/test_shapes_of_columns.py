"""Calls from outside of this package: in SQL, the columns of one list of requests may have any shape. One shape is accepted."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.kit import Kernel

WITH_COLUMNS = {f"{name} {cast}": (name, cast) for name, function in KERNEL.items() for cast in function.casts
                if function.columns_at(cast)}  # fmt: skip
VALUES = {"text": "'worker-1'", "integer": "1", "float8": "30", "timestamptz": "'2026-01-01T00:00Z'"}
ONE, OTHERS = "'{null}'", ("'[0:0]={null}'", "null", "'{}'", "'{null,null}'", "'[2:2]={null}'", "'{{null}}'")
SHORT_OR_LONG = ("'{}'", "'{null,null}'")  # shapes that all columns of a list may have


def shapes(columns: int) -> Iterator[list[str]]:
    """One value for each column: all have another shape, or one has."""
    yield from ([other] * columns for other in OTHERS if other not in SHORT_OR_LONG)
    yield from ([other, *[ONE] * (columns - 1)] for other in OTHERS)
    yield from ([*[ONE] * n, other, *[ONE] * (columns - n - 1)] for n in range(1, columns) for other in OTHERS[:3])


def statement(function: str, cast: str, given: list[str]) -> str:
    """A call of this function; any other list of requests is empty."""
    arguments = ["$1"]
    for each in KERNEL[function].casts[1:]:
        if columns := KERNEL[function].columns_at(each):
            texts = given if each == cast else ["'{}'"] * len(columns)
            arguments += [f"{text}::{column.type}[]" for text, column in zip(texts, columns, strict=True)]
        else:
            arguments.append(f"{VALUES[each]}::{each}")
    return f"select heliograph.{function}({', '.join([*arguments, VALUES['timestamptz']])})"


@pytest.mark.parametrize("name", WITH_COLUMNS)
async def test_columns_that_do_not_all_begin_at_one_with_one_length_are_rejected(kernel: Kernel, name: str) -> None:
    function, cast = WITH_COLUMNS[name]
    for given in shapes(len(KERNEL[function].columns_at(cast))):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="the arrays of the items must begin at 1"):
            await kernel.connection.fetch(statement(function, cast, given), kernel.project)
