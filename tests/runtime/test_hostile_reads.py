"""Readers treat ids from outside as values."""

from __future__ import annotations

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import NotFound
from tests.runtime.kit import START, Rig

HOSTILE = ["x' or '1'='1", "'; drop schema heliograph cascade; --", "%s", "$1", "{}", "x\\", '"', "turn_*", "тест"]


@pytest.mark.proves("S3")
@pytest.mark.parametrize("identifier", HOSTILE)
async def test_readers_take_hostile_ids_as_values_and_find_nothing(rig: Rig, identifier: str) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START)
    def quiet(_: Context) -> None:
        return None

    result = await rig.run(app)
    reader = rig.runtime.reader
    for read in (reader.run, reader.turn, reader.box):
        with pytest.raises(NotFound):
            await read(identifier)
    for each in (reader.cards, reader.waits, reader.leases, reader.delegations, reader.signals):
        assert await each(identifier) == []
    assert await reader.turns(run_id=identifier) == []
    assert (await reader.run(result.run_id)).outcome == "success"
