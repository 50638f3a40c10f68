"""Calls from outside of this package: in SQL, the columns of one list of requests may have any shape."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Kernel

CLAIM = "select heliograph.claim($1, $2, $3, $4::text[]::jsonb[], $5, 'worker-1', 1, 30, $6)"
FAIL = "select heliograph.fail_unclaimable($1, $2, $3, $4::text[]::jsonb[], $5, $6)"


@pytest.mark.parametrize("statement", [CLAIM, FAIL], ids=["claim", "fail_unclaimable"])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("column", [[], [None, None], None], ids=["shorter", "longer", "null"])
async def test_columns_of_targets_with_different_lengths_are_rejected(
    kernel: Kernel, statement: str, place: int, column: Any
) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    columns: list[Any] = [[TARGET], [None], [None], [None]]
    columns[place] = column
    with pytest.raises(asyncpg.InvalidParameterValueError, match="must have one length"):
        await kernel.connection.fetchval(statement, kernel.project, *columns, kernel.now)
