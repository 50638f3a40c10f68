"""Targets of an application's signals: a receiver that fails delays no run, loses no signal and changes no order."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.adapters import JsonLines, Terminal, Webhook
from heliograph.egress.messenger import Messenger
from heliograph.errors import InvalidInput
from heliograph.policy.egress import EgressPolicy
from heliograph.redaction import keep_out
from heliograph.subscriptions.serving import serving_subscribers
from tests.reach.hook_server import OK, hooked
from tests.runtime.kit import START, Rig, until

CANARY = "canary-targets-8b3d"
SECRETS = ["whsec_" + base64.b64encode(bytes(32)).decode()]


def shop() -> Heliograph:
    app = Heliograph("shop")

    @app.agent(activate_on=START, emits=["order:placed"])
    def clerk(ctx: Context) -> None:
        for number in range(4):
            ctx.emit("order:placed", {"number": number, "key": CANARY})

    return app


@pytest.mark.more  # it waits
async def test_receiver_that_fails_hangs_and_rejects_loses_no_other_signal(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_out(CANARY)
    unavailable, rejected = b"HTTP/1.1 503 X\r\n\r\n", b"HTTP/1.1 422 X\r\n\r\n"
    async with hooked(unavailable, None, OK, OK, rejected, rejected, OK) as hook:
        serving, path = shop(), tmp_path / "orders.jsonl"
        serving.send_signals("order:*", to=Webhook(hook.url, timeout_seconds=0.2), max_attempts=2)
        serving.send_signals("order:*", to=JsonLines(path))
        messenger = Messenger(SECRETS, EgressPolicy(frozenset([hook.origin])))
        project = rig.runtime.settings.project
        with caplog.at_level(logging.INFO, "heliograph.subscriptions"):
            async with serving_subscribers(rig.runtime.world, [serving.workflow], {project: messenger}):
                result = await rig.run(shop())

                async def is_sent() -> bool:
                    return len(hook.requests) == 7

                await until(is_sent)
    assert result.outcome == "success"
    orders = [signal.id for signal in result.signals if signal.name == "order:placed"]
    assert [json.loads(line)["id"] for line in path.read_bytes().splitlines()] == orders
    first, second, third, fourth = orders
    assert [request.headers["webhook-id"] for request in hook.requests] == [first] * 3 + [second] + [third] * 2 + [
        fourth
    ]
    assert all(CANARY.encode() not in request.body for request in hook.requests)
    assert CANARY not in path.read_text() + caplog.text
    assert caplog.text.count("its signals wait in the log") == 1
    assert f"skips {third} after 2 attempts" in caplog.text
    assert "subscription shop.webhook continues" in caplog.text
    assert {row.name: row.behind for row in await rig.client.subscriptions()} == {
        "shop.webhook": 0,
        "shop.json-lines": 0,
    }


@pytest.mark.parametrize(
    ("patterns", "options", "code"),
    [
        (["a:b"], {"to": "signals.jsonl"}, "wrong_type"),
        (["a:b"], {"to": Terminal}, "wrong_type"),
        ([], {"to": Terminal()}, "required_field"),
        (["a:b*"], {"to": Terminal()}, "invalid_wildcard"),
        (["a:b"], {"to": Terminal(), "name": "taken"}, "duplicate_subscriber"),
        (["a:b"], {"to": Terminal(), "max_attempts": 0}, "out_of_range"),
    ],
    ids=["a path", "a class", "no pattern", "a pattern", "a name", "no attempt"],
)
def test_invalid_target_or_option_is_rejected(patterns: list[str], options: dict[str, Any], code: str) -> None:
    app = Heliograph("shop")
    app.send_signals("a:b", to=Terminal(), name="taken")
    with pytest.raises(InvalidInput) as caught:
        app.send_signals(*patterns, **options)
    assert caught.value.code == code
