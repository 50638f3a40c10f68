"""What a recording costs: nothing where it is off, and no row where it is on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.testing import ServedApplication, Simulation
from heliograph.testing.simulation.simulation import PROJECT
from heliograph.testing.simulator.world import SimWorld
from tests.recording.simulated import RUN, kernel_of, simulated
from tests.recording.test_replay import THIN, thin


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The kernel calls of all workers, by function, and the bytes of their arguments under `bytes`."""
    found: Counter[str] = Counter()
    call = SimWorld.call

    async def counted(self: SimWorld, function: str, *args: object) -> Any:
        found[function] += 1
        found["recordings"] += "'recording':" in str(args)
        return await call(self, function, *args)

    monkeypatch.setattr(SimWorld, "call", counted)
    return found


async def tables_of(sim: Simulation, served: ServedApplication) -> Any:
    await served.result(RUN)
    return kernel_of(sim).dump(PROJECT)


def run(calls: Counter[str], *, record: bool) -> tuple[Counter[str], Counter[str]]:
    """Run an application of three turns; return its calls of the kernel that write, and its rows by table."""
    calls.clear()
    tables = simulated(thin(), 1, tables_of, state=THIN, record=record)
    writes = ("start_runs", "begin_call", "record_call", "append", "suspend", "finish", "react", "recordings")
    rows = {name: len(rows) for name, rows in tables.items()} | {
        "recorded runs": sum(row["recording_tags"] is not None for row in tables["runs"])
    }
    return Counter({name: calls[name] for name in writes}), Counter(rows)


def test_recording_costs_nothing_when_off_and_no_row_when_on(calls: Counter[str]) -> None:
    off, rows_off = run(calls, record=False)
    on, rows_on = run(calls, record=True)
    assert (off["recordings"], rows_off["recorded runs"]) == (0, 0)
    assert rows_on - rows_off == Counter({"recorded runs": 1}), "no row more than without a recording"
    assert off - on == Counter()
    assert on - off == Counter(recordings=on["recordings"]), "no call more than without a recording"


def test_turn_without_inputs_records_little_beside_its_signals() -> None:
    app = Heliograph("noop")

    @app.agent(activate_on=["workflow:start"])
    async def noop(_: Context) -> dict[str, bool]:
        return {"ok": True}

    start, turn = (row["recording"] for row in simulated(app, 1, tables_of)["signals"])
    assert (len(start) < 200, len(turn) < 280) == (True, True), "what the row and the log have is not repeated"
