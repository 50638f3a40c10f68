"""A request whose answer is too large is repeated with one row; any other rejection propagates."""

from __future__ import annotations

from typing import Any, cast

import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.pool import Database
from heliograph.ledger.reader import Reader
from heliograph.ledger.result_limits import CARDS_PER_PAGE, fitting
from heliograph.ledger.sqlstates import TOO_LONG


class Store:
    """Returns at most `rows_max` rows at once."""

    def __init__(self, rows_max: int, code: str = TOO_LONG):
        self.limits: list[int] = []
        self._rows_max = rows_max
        self._code = code

    async def read(self, limit: int) -> list[int]:
        self.limits.append(limit)
        if limit > self._rows_max:
            raise KernelRejected("too many", code=self._code)
        return list(range(limit))


@pytest.mark.parametrize(("rows_max", "limits"), [(20, [20]), (19, [20, 1]), (1, [20, 1])])
async def test_read_that_does_not_fit_is_repeated_with_one_row(rows_max: int, limits: list[int]) -> None:
    store = Store(rows_max)
    assert await fitting(store.read, 20) == list(range(limits[-1]))
    assert store.limits == limits


@pytest.mark.parametrize(
    ("store", "limit", "limits"),
    [(Store(0), 20, [20, 1]), (Store(0), 1, [1]), (Store(0, "payload_too_large"), 20, [20])],
    ids=["one row is too large", "one row is all that was asked for", "another code"],
)
async def test_rejection_that_one_row_does_not_avoid_propagates(store: Store, limit: int, limits: list[int]) -> None:
    with pytest.raises(KernelRejected):
        await fitting(store.read, limit)
    assert store.limits == limits


class LargeBox:
    """A database with one box, which returns one card at a time."""

    CARDS = 3

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def call(self, _function: str, _project: str, _box_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        self.limits.append(limit)
        if limit > 1:
            raise KernelRejected("too large", code=TOO_LONG)
        card = {"position": after + 1, "card_id": f"card_{after + 1}", "kind": "note", "content": "x", "turn_id": None, "epoch": None,
                "created_at": "2030-01-01T00:00:00Z"}  # fmt: skip
        return [card] if after < self.CARDS else []


@pytest.mark.proves("S22")
async def test_reader_reads_a_large_box_card_by_card() -> None:
    database = LargeBox()
    cards = await Reader(cast(Database, database), "project").cards_of_box("box_turn_a")
    assert [card.card_id for card in cards] == ["card_1", "card_2", "card_3"]
    assert database.limits == [CARDS_PER_PAGE, 1] * 4
