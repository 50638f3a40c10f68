"""The benchmark runs: every row is there and counted something. What it counts is for a quiet machine to say."""

from __future__ import annotations

import json

import pytest

from bench.__main__ import BASE, RESULTS, ROWS, measure_all
from bench.place import Place, in_lanes
from bench.report import as_json, print_report, read_header
from heliograph.ledger.embedded_cluster import find_binaries
from heliograph.testing.database import TestServer


@pytest.fixture
def place(postgres: TestServer) -> Place:
    return Place(postgres.url("postgres"), find_binaries(18))


async def test_every_row_is_measured_and_shown(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    rows = await measure_all(place, list(ROWS), seconds=0.1, reps=1)
    header = await read_header(place.url, 0.1, 1)
    print_report(header, rows, BASE)
    shown = capsys.readouterr().out
    assert [row.name for row in rows] == list(ROWS)
    for row in rows:
        assert row.name in shown
        assert row.items_per_second > 0
        assert row.transactions_per_item > 0
        assert row.wal_bytes_per_item > 0
    assert {row.name for row in rows if row.p50_ms is None} == {name for name in ROWS if "caller" in name}
    document = json.loads(json.dumps(as_json(header, rows)))
    assert document["header"]["postgresql"]["server_version"].startswith("18")


async def test_lanes_count_what_each_of_them_did() -> None:
    asked = 0

    async def one() -> int:
        nonlocal asked
        asked += 1
        return 3

    items, durations = await in_lanes(4, 0.01, one)
    assert items == 3 * asked
    assert len(durations) == asked


def test_the_kept_result_names_its_machine_and_commit_and_has_every_row() -> None:
    kept = json.loads((RESULTS / "reference.json").read_text(encoding="utf-8"))
    assert kept["header"]["commit"]
    assert kept["header"]["machine"]
    assert [row["name"] for row in kept["rows"]] == list(ROWS)
