"""Commands of calls through gateways that no worker can send: each fails its own call, with a code of the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import DelegationFailed
from tests.runtime.gateway_kit import SECRET
from tests.runtime.kit import START, Rig, until

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        "body - 'gateway'",
        "jsonb_set(body, '{gateway}', '7')",
        "body - 'request'",
        "jsonb_set(body, '{request}', '[]')",
        "jsonb_set(body, '{request,envelope,signal}', '{}')",
        "body #- '{request,envelope,id}'",
        "body #- '{request,envelope,signal,payload,correlation_id}'",
    ],
)
async def test_malformed_command_fails_its_call_and_no_other(rig: Rig, change: str) -> None:
    app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [
        {"match": {"target_agent": "far-*"}, "destination": {"gateway": "http://127.0.0.1:1/"}}]})  # fmt: skip

    @app.agent(activate_on=START, updates="seen")
    async def caller(ctx: Context) -> Any:
        codes = []
        for name in ("far-first", "far-second"):
            try:
                await ctx.delegate(name, {"n": 1})
            except DelegationFailed as error:
                codes.append([error.error["code"], error.error.get("details")])
        return codes

    async def is_waiting() -> bool:
        return bool(await rig.fetch("select from heliograph.outbox where project_id = $1 and kind = 'cmd'", project))

    project = rig.runtime.settings.project
    run_id = await rig.start(app)
    async with rig.serving(app):  # without the secrets, so it sends nothing
        await until(is_waiting)
        await rig.fetch(f"update heliograph.outbox set body = {change} where project_id = $1 and kind = 'cmd'", project)
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    async with rig.serving(app):
        await rig.ended(run_id)
    state = (await rig.runtime.reader.run(run_id)).state
    assert state["seen"] == [["UNDECODABLE", None], ["DELEGATION_ERROR", {"reason": "egress_rejected"}]]
