"""Untrusted content remains untrusted in steps that read it, derived values, and errors that quote it."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from heliograph import Context, Heliograph
from heliograph.turn.interruptions import Defer
from tests.runtime.kit import START, Rig
from tests.runtime.taint_kit import MAIL, reader, trust_of


@pytest.mark.proves("S24")
async def test_step_that_reads_the_state_itself_taints_the_turn_that_runs_again(rig: Rig) -> None:
    app = Heliograph("inside")
    reader(app, activate_on=START, updates="order", emits=["mail:read"])

    @app.agent(activate_on=["mail:read"], updates="report")
    async def clerk(ctx: Context) -> Any:
        text = await ctx.step("shorten", lambda: ctx.state["order"][:20])
        if not ctx.deferrals:
            raise Defer("later", 0.01)
        return text

    result = await rig.run(app)
    assert result.state["report"] == MAIL[:20]
    trust = await trust_of(rig, result.run_id)
    assert trust["state:report:changed"] == ["untrusted"]


class Case(pydantic.BaseModel):
    mail: str = ""
    opened: int = 0
    title: str = ""

    @pydantic.model_validator(mode="after")
    def derive(self) -> Case:
        if self.opened:
            self.title = self.mail[:20]
        return self


@pytest.mark.proves("S24")
async def test_value_that_a_validator_derives_from_an_untrusted_key_is_untrusted(rig: Rig) -> None:
    app = Heliograph("derived", state=Case)
    reader(app, activate_on=START, updates="mail", emits=["mail:read"])

    @app.agent(activate_on=["mail:read"], updates="opened")
    def opener(ctx: Context) -> int:
        return 1

    result = await rig.run(app, Case())
    assert result.state.title == MAIL[:20]
    trust = await trust_of(rig, result.run_id)
    assert (trust["state:opened:changed"], trust["state:title:changed"]) == (["trusted"], ["untrusted"])


@pytest.mark.proves("S24")
@pytest.mark.parametrize("where", ["when", "reducer", "defer"])
async def test_error_that_quotes_untrusted_content_is_untrusted(rig: Rig, where: str) -> None:
    def quotes(state: Any) -> Any:
        raise ValueError(f"not: {state if isinstance(state, str) else state.get('order')}")

    options: dict[str, Any] = (
        {"reducers": {"order": lambda old, new: quotes(old) if old else new}} if where == "reducer" else {}
    )
    app = Heliograph("quotes", **options)
    reader(app, activate_on=START, updates="order", emits=["mail:read"])

    @app.agent(activate_on=["mail:read"], updates="order", when=quotes if where == "when" else None, retries=0)
    def clerk(ctx: Context) -> Any:
        if where == "defer":
            raise Defer(ctx.state["order"], 0.01, at_most=0)
        return "new"

    result = await rig.run(app)
    trust = await trust_of(rig, result.run_id)
    name = "agent:skipped" if where == "when" else "agent:failed"
    query = (
        "select payload::text as payload from heliograph.signal_log where project_id = $1 and run_id = $2 and name = $3"
    )
    (row,) = await rig.fetch(query, rig.runtime.settings.project, result.run_id, name)
    assert MAIL in row["payload"]
    assert trust[name] == ["untrusted"]
