"""Tools that misbehave: each call ends by itself, with a reason that the model is told, and nothing else ends."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from heliograph import Heliograph, tool
from tests.runtime.kit import START, Rig, until
from tests.runtime.loop_kit import Model, agent, call, results


class Odd(BaseException):
    """An exception of a library that means to pass all handlers."""


def _raise(error: type[BaseException]) -> None:
    if error is SystemExit:
        sys.exit(2)
    raise error


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Odd, asyncio.CancelledError])
async def test_what_would_end_a_program_is_told_to_the_model_and_ends_no_other_turn(
    rig: Rig, error: type[BaseException], is_async: bool
) -> None:
    tries: list[int] = []

    def plain() -> None:
        tries.append(1)
        _raise(error)

    async def waits() -> None:
        tries.append(1)
        _raise(error)

    async def has_tried() -> bool:
        return bool(tries)

    model = Model([call("end")], "done")
    app = agent(model, [tool(name="end")(waits if is_async else plain)])

    @app.agent(activate_on=START, updates="other")
    async def other(_ctx: Any) -> str:
        await until(has_tried)
        return "unharmed"

    result = await rig.run(app)
    assert result.outcome == "success"
    assert result.state == {"out": "done", "other": "unharmed"}
    [[how, text]] = results(model.last)
    assert how == "error"
    assert text.startswith("TOOL_ERROR: ")
    assert tries == [1]
    assert {turn.attempts for turn in await rig.runtime.reader.turns()} == {0}


@pytest.mark.parametrize("error", [GeneratorExit, Odd])
async def test_an_agent_that_raises_what_passes_all_handlers_fails_by_itself(
    rig: Rig, error: type[BaseException]
) -> None:
    app = Heliograph("odd")

    @app.agent(activate_on=START)
    async def bad(_ctx: Any) -> None:
        raise error

    result = await rig.run(app)
    assert result.outcome == "failed"
    assert [turn.attempts for turn in await rig.runtime.reader.turns()] == [0]
