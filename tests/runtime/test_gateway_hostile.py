"""Hostile requests to a gateway: each gets a clear error, and none writes a row."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliograph.errors import InvalidInput
from heliograph.gateway import Gateway
from heliograph.gateway.http import BODY_BYTES_MAX
from heliograph.policy.webhook_signature import sign_webhook
from tests.runtime.gateway_kit import OTHER_SECRET, SECRET, delegation, envelope, gateway_of
from tests.runtime.kit import Rig
from tests.runtime.test_gateway import application

PAYLOAD = "/envelope/signal/payload"


async def counts(rig: Rig) -> list[int]:
    """The number of rows that a task writes first, in each table."""
    tables = ("runs", "agent_turns", "signals", "agent_inbox", "outbox", "callbacks")
    return [(await rig.fetch(f"select count(*) from heliograph.{table}"))[0][0] for table in tables]


def without(*path: str) -> dict[str, Any]:
    """A delegation without the key at this path."""
    wire = delegation()
    inner: Any = wire
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return wire


def changed(value: Any, *path: str) -> dict[str, Any]:
    """A delegation with another value at this path."""
    wire = delegation()
    inner: Any = wire
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return wire


FIELDS = ("id", "timestamp", "source", "destination", "trace_id", "span_id", "signal")
HOSTILE: dict[str, tuple[Any, tuple[int, str, str | None]]] = {
    **{f"no {field}": (without("envelope", field), (400, "required_field", f"/envelope/{field}")) for field in FIELDS},
    "no envelope": ({}, (400, "required_field", "/envelope")),
    "no object": ([1], (400, "wrong_type", None)),
    "no type": (without("envelope", "signal", "type"), (400, "required_field", "/envelope/signal/type")),
    "no payload": (without("envelope", "signal", "payload"), (400, "required_field", PAYLOAD)),
    "no task": (without("envelope", "signal", "payload", "task"), (400, "required_field", f"{PAYLOAD}/task")),
    "task of another type": (
        changed("x", "envelope", "signal", "payload", "task"),
        (400, "wrong_type", f"{PAYLOAD}/task"),
    ),
    "unknown field": (
        changed(1, "envelope", "signal", "payload", "tsk"),
        (400, "unknown_field", f"{PAYLOAD}/tsk"),
    ),
    "unknown type": (
        changed("delegate", "envelope", "signal", "type"),
        (400, "unknown_signal_type", "/envelope/signal/type"),
    ),
    "unsupported type": (
        envelope({"type": "ready", "payload": {"capabilities": [], "version": "1"}}),
        (422, "unsupported_signal", "/envelope/signal/type"),
    ),
    "unknown agent": (delegation("doubl"), (404, "unknown_agent", f"{PAYLOAD}/target_agent")),
    "agent that is not exposed": (delegation("inner"), (404, "unknown_agent", f"{PAYLOAD}/target_agent")),
    "halt of a stranger": (
        envelope({"type": "halt", "payload": {"reason": "user_interrupt"}}, destination="run_x"),
        (404, "unknown_target", "/envelope/destination"),
    ),
    "halt of no id": (
        envelope({"type": "halt", "payload": {"reason": "user_interrupt"}}, destination="a/b"),
        (400, "invalid_id", "/envelope/destination"),
    ),
    "long source": (changed("x" * 300, "envelope", "source"), (400, "too_long", "/envelope/source")),
    "long trace id": (changed("x" * 513, "envelope", "trace_id"), (400, "too_long", "/envelope/trace_id")),
    "long correlation id": (delegation(correlation_id="ö" * 257), (400, "too_long", f"{PAYLOAD}/correlation_id")),
    "line break in the source": (changed("a\nb", "envelope", "source"), (400, "invalid_id", "/envelope/source")),
    "escape in the span id": (changed("a\x1b[31m", "envelope", "span_id"), (400, "invalid_id", "/envelope/span_id")),
    "surrogate in the id": (changed("a\ud800", "envelope", "id"), (400, "invalid_unicode", "/envelope/id")),
    "large task": (delegation(task={"x": "y" * 70_000}), (413, "payload_too_large", PAYLOAD)),
    "callback without a scheme": (delegation(callback="example.com"), (403, "egress_rejected", f"{PAYLOAD}/callback")),
    "no JSON": (b"{", (400, "invalid_json", None)),
    "no UTF-8": (b'{"envelope": "\xff"}', (400, "encoding", None)),
    "no body": (b"", (400, "invalid_json", None)),
    "NaN": (b'{"envelope": NaN}', (400, "json_non_finite", "/envelope")),
    "the same key twice": (b'{"envelope": {}, "envelope": {}}', (400, "json_duplicate_key", None)),
    "deep": (b"[" * 100 + b"]" * 100, (400, "json_too_deep", None)),
    "very deep": (b"[" * 200_000, (400, "json_too_deep", None)),
    "NUL": (delegation(task={"x": "\0"}), (400, "nul_character", "/envelope/signal/payload/task/x")),
}


@pytest.mark.proves("ENV-01", "ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-06", "ENV-07", "ENV-08")
async def test_malformed_and_unknown_requests_are_rejected_and_write_nothing(rig: Rig) -> None:
    async with gateway_of(rig, application()) as served:
        before = await counts(rig)
        for name, (wire, expected) in HOSTILE.items():
            answer = await served.post(wire)
            assert answer.error == expected, (name, answer.body)
        assert await counts(rig) == before
        assert "did you mean double?" in (await served.post(delegation("doubl"))).body["error"]["message"]


def _signed(**changes: str | None) -> Callable[[bytes], dict[str, str]]:
    """Headers with a valid signature and then these changes; None removes a header."""

    def headers(body: bytes) -> dict[str, str]:
        valid = sign_webhook("message_1", datetime.now(UTC), body, [SECRET])
        merged = {**valid, **{f"webhook-{name}": value for name, value in changes.items()}}
        return {name: value for name, value in merged.items() if value is not None}

    return headers


@pytest.mark.proves("S14")
async def test_request_without_a_valid_signature_is_rejected_before_its_body_is_parsed(rig: Rig) -> None:
    body, now = json.dumps(delegation()).encode(), datetime.now(UTC)
    async with gateway_of(rig, application()) as served:
        before = await counts(rig)
        attempts = [
            served.send(body, {}),
            *(served.send(body, _signed(**{name: None})(body)) for name in ("id", "timestamp", "signature")),
            served.send(body, _signed(signature="v1,AAAA")(body)),
            served.send(body, _signed(id="message_2")(body)),
            served.send(body + b" ", _signed()(body)),
            served.send(b"{", {}),
            served.send(body, {**_signed()(body), "Webhook-Signature": "v1,BBBB"}),  # twice
            served.post(delegation(), secret=OTHER_SECRET),
            served.post(delegation(), at=now - timedelta(minutes=6)),  # a recorded request, sent again later
            served.post(delegation(), at=now + timedelta(minutes=6)),
        ]
        for attempt in attempts:
            assert (await attempt).error == (401, "bad_signature", None)
        assert await counts(rig) == before


async def test_other_methods_content_types_and_slow_bodies_are_rejected(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway_of(rig, application()) as served:
        got = await served.send(b"", {}, method="GET")
        assert (got.status, got.headers["allow"]) == (405, "post")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
            assert (await served.post(delegation(), content_type=kind)).error == (415, "unsupported_media_type", None)
        assert (await served.post({}, content_type="Application/JSON; charset=utf-8")).status == 400
        declared = await served.send(b"", {"content-length": str(BODY_BYTES_MAX + 1)})  # rejected without its body
        assert declared.error == (413, "payload_too_large", None)
        monkeypatch.setattr("heliograph.gateway.http.BODY_SECONDS_MAX", 0.1)
        slow = await served.send(b"{", {"content-length": "100"})
        assert slow.error == (408, "request_timeout", None)


async def test_body_without_a_length_is_read_no_further_than_the_limit() -> None:
    chunks, sent = 0, list[Any]()

    async def receive() -> Any:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    await Gateway(application(), secrets=[SECRET])(scope, receive, send)
    assert (sent[0]["status"], chunks) == (413, BODY_BYTES_MAX // 65_536 + 1)


async def test_outage_and_defects_become_errors_without_details(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_of(rig, application()) as served:
        monkeypatch.setattr("heliograph.gateway.tasks.task_hash", lambda envelope: 1 / 0)
        answer = await served.post(delegation())
        assert (answer.status, answer.body["error"]["code"]) == (500, "INTERNAL_ERROR")
        assert "division" not in str(answer.body)


@pytest.mark.proves("S14")
async def test_gateway_without_a_secret_does_not_start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_GATEWAY_SECRETS", raising=False)
    with pytest.raises(InvalidInput) as caught:
        await Gateway(application(), url=rig.url, project="p").open()
    assert caught.value.code == "invalid_secret"
    with pytest.raises(InvalidInput):
        Gateway(application(), secrets=["short"])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    await Gateway(application(), url=rig.url, project="p")({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"


@pytest.mark.proves("S13")
async def test_log_of_a_gateway_has_no_content_and_no_secret(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    canary = "opensesame"
    requests = [
        delegation(canary), delegation("double", canary), delegation(priority=canary), delegation(callback=f"https://x y?{canary}"),
        delegation(callback=f"https://a:{canary}@b/"), delegation(correlation_id=f"{canary}\n"), changed(canary, "envelope", "signal"),
        changed(canary, "envelope", "timestamp"), envelope({"type": canary, "payload": {}}), canary.encode(),
        b'{"%s": 1, "%s": 2}' % (canary.encode(), canary.encode()),
        envelope({"type": "halt", "payload": {"reason": canary}}), envelope({"type": "halt", "payload": {"reason": "external_signal"}}, destination=canary),
    ]  # fmt: skip
    with caplog.at_level(logging.DEBUG):
        async with gateway_of(rig, application()) as served:
            for request in requests:
                assert (await served.post(request)).status in (400, 403, 404), request
            await served.send(b"{}", {"webhook-signature": f"v1,{canary}", "authorization": f"Bearer {canary}"})
    assert caplog.text.count("a request was rejected with") == len(requests) + 1
    for text in (canary, SECRET, SECRET.removeprefix("whsec_")):
        assert text not in caplog.text
