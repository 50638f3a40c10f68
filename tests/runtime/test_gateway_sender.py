"""The sender of calls to gateways, against hostile gateways, outages and malformed rows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.egress.post import Posted, PostFailed
from heliograph.errors import DelegationFailed, InvalidInput, StoreUnavailable
from heliograph.policy.gateway_answers import report_of
from heliograph.records import Reported
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.worker.gateway_sender import HIDDEN_SECONDS, GatewaySender
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import SECRET
from tests.runtime.kit import START, Rig, names, one
from tests.runtime.test_gateway_calls import REQUEST, response

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


class Clock:
    """A world whose time passes only in sleeps and requests."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tasks: list[asyncio.Task[Any]] = []
        self.threads = 0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def failpoint(self, _name: str) -> None: ...

    async def run_sync(self, function: Callable[..., Any], *args: Any) -> Any:
        self.threads += 1
        return await asyncio.to_thread(function, *args)

    def spawn(self, _name: str, work: Any) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


class Services:
    """The services of a project with commands to send. post: what the gateway does; it receives the seconds that are left."""

    def __init__(self, post: Callable[[float], Awaitable[Posted]], project: str = "p", rows: int = 1, **row: Any):
        body = {"gateway": "https://far.example/", "token": "t",
                "request": {"envelope": {"id": "e", "signal": {"type": "delegation", "payload": {"correlation_id": "c"}}}}}  # fmt: skip
        self.rows = [
            {"turn_id": f"turn_{n}", "call_id": "c1", "deadline": None, "delivery": 1, "pool": "a", "body": body, **row}
            for n in range(rows)
        ]
        self.project, self.world, self.post = project, Clock(), post
        self.gateways, self.ledger, self.tracer = SimpleNamespace(send=self._send), self, NULL_TRACER
        self.reports: list[Any] = []
        self.outages = 0

    async def _send(self, *_: Any, seconds: float, **__: Any) -> Posted:
        return await self.post(seconds)

    async def command_pools(self, _tool: str) -> list[str]:
        return sorted({row["pool"] for row in self.rows})

    async def take_commands(self, tools: Any, limit: int, _seconds: float) -> list[Any]:
        [tool] = tools
        taken = [row for row in self.rows if row["pool"] == tool["pool"]][:limit]
        self.rows = [row for row in self.rows if row not in taken]
        return taken

    async def report(self, item: Any) -> Reported:
        if self.outages > 0:
            self.outages -= 1
            raise StoreUnavailable("away")
        self.reports.append(item)
        return Reported(item["turn_id"], item["call_id"], "applied")

    async def sent(self) -> Any:
        """Send the commands, and return the only report; None without one."""
        await GatewaySender().send(self)  # type: ignore[arg-type]
        await asyncio.gather(*self.world.tasks)
        assert len(self.reports) < 2
        return self.reports[0] if self.reports else None


def answered(status: int, body: bytes = b"{}", *, retry_after: float = 0.0) -> Posted:
    return Posted(status, retry_after, body)


@pytest.mark.parametrize("left", [None, 0.5, 33.0])
async def test_no_request_lasts_longer_than_its_command_is_hidden_or_its_call_waits(left: float | None) -> None:
    ends: list[float] = []

    async def post(seconds: float) -> Posted:
        services.world.seconds += seconds  # a gateway that never answers
        ends.append(services.world.seconds)
        raise PostFailed("no answer")

    services = Services(post, deadline=None if left is None else (NOW + timedelta(seconds=left)).isoformat())
    assert await services.sent() is None
    assert max(ends) == pytest.approx(min(left or HIDDEN_SECONDS, HIDDEN_SECONDS))
    assert len(ends) == (1 if left == 0.5 else 2)


@pytest.mark.parametrize(("retry_after", "requests"), [(0.0, 13), (15.0, 3), (1e9, 1)])
async def test_sender_waits_as_long_as_the_gateway_requires_and_no_longer_than_its_command_is_hidden(
    retry_after: float, requests: int
) -> None:
    times: list[float] = []

    async def post(_seconds: float) -> Posted:
        times.append(services.world.seconds)
        return answered(429, retry_after=retry_after)

    services = Services(post)
    assert await services.sent() is None
    assert services.world.seconds == pytest.approx(HIDDEN_SECONDS)
    assert abs(len(times) - requests) <= 2 * (retry_after == 0)  # the back-off has a jitter


@pytest.mark.more
@pytest.mark.parametrize(("items", "threads"), [(10, 0), (100_000, 1)])
async def test_large_response_is_read_in_a_thread(items: int, threads: int) -> None:
    async def post(_seconds: float) -> Posted:
        return answered(200, json.dumps(response("c", result=[[]] * items)).encode())

    services = Services(post)
    report = await services.sent()
    assert (report["status"], report["result"], services.world.threads) == ("success", [[]] * items, threads)
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(("outages", "is_recorded"), [(3, True), (100, False)])
async def test_result_that_arrives_during_an_outage_of_the_database_is_reported_later(
    outages: int, is_recorded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def post(_seconds: float) -> Posted:
        return answered(200, json.dumps(response("c")).encode())

    services = Services(post)
    services.outages = outages
    report = await services.sent()
    assert (report is not None) is is_recorded
    assert ("was not recorded, so its request is sent again: away" in caplog.text) is not is_recorded
    assert services.world.seconds <= HIDDEN_SECONDS + 1


HOSTILE_GATEWAY: dict[str, tuple[int, bytes, str]] = {
    "redirect": (302, b"<html>", "status 302 is malformed"),
    "page": (200, b"<html>", "malformed"),
    "nothing": (204, b"", "malformed"),
    "compressed": (200, b"\x1f\x8b\x08\0", "not UTF-8"),
    "deep": (200, b"[" * 100_000, "nested"),
    "digits": (200, b'{"envelope": ' + b"9" * 100_000 + b"}", "too large"),
    "NUL": (200, b'{"envelope": "\\u0000"}', "U+0000"),
    "surrogate": (200, b'{"envelope": "\\ud800"}', "surrogate"),
    "two keys": (200, b'{"a": 1, "a": 2}', "twice"),
    "another task": (200, json.dumps(response("other")).encode(), "another request"),
    "unknown status": (200, json.dumps(response("c", status="done")).encode(), "one of accepted"),
    "unknown field": (200, json.dumps(response("c", __cg_control={})).encode(), "has no field"),
}


@pytest.mark.parametrize("name", HOSTILE_GATEWAY)
async def test_hostile_response_fails_the_call_at_once(name: str) -> None:
    status, body, text = HOSTILE_GATEWAY[name]

    async def post(_seconds: float) -> Posted:
        return answered(status, body)

    report = await Services(post).sent()
    assert (report["status"], report["error"]["code"]) == ("failed", "DELEGATION_ERROR")
    assert text in report["error"]["message"]
    assert len(report["error"]["message"]) < 3000


@pytest.mark.parametrize(("given", "is_name"), [("out_of_stock", True), ("x" * 201, False), ("a\x1b[31m", False)])
def test_code_of_another_deployment_is_a_short_printable_name(given: str, is_name: bool) -> None:
    error = {"code": given, "message": "m", "recoverable": True}
    failed = json.dumps(response("c", status="failed", result=None, error=error)).encode()
    report: Any = report_of(REQUEST, 200, failed, is_first=True)
    assert report["error"] == {**error, "code": given if is_name else "DELEGATION_ERROR"}
    rejected: Any = report_of(REQUEST, 400, json.dumps({"error": error}).encode(), is_first=True)
    assert rejected["error"]["details"] == {"status": 400, "reason": given if is_name else "rejected"}


def near(url: str) -> Heliograph:
    """An application whose agent delegates to another deployment, when the signal `go` wakes it."""
    route = {"match": {"target_agent": "appraiser"}, "destination": {"gateway": url}}
    app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [route]})

    @app.agent(activate_on=["go"], updates="seen")
    async def buyer(ctx: Context) -> Any:
        return await ctx.delegate("appraiser", {"n": 1})

    return app


@pytest.mark.proves("CTL-91", "ENV-06")
@pytest.mark.parametrize(
    "payload",
    [{"correlation_id": 5}, {"correlation_id": ""}, {"correlation_id": "c" * 600}, {"envelope": {"trace_id": "t\n"}},
     {"envelope": {"trace_id": {"a": 1}}, "correlation_id": "stranger"}, {"envelope": 5}],
)  # fmt: skip
async def test_payload_of_a_users_signal_is_no_request_of_another_system(rig: Rig, payload: Any) -> None:
    async with hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        app = near(hook.url)

        @app.agent(activate_on=START, emits=["go"])
        async def starter(ctx: Context) -> None:
            ctx.emit("go", payload)

        await rig.run(app)
        [sent] = [json.loads(request.body)["envelope"] for request in hook.requests]
    assert "parent_correlation_id" not in sent["signal"]["payload"]
    assert len(sent["trace_id"]) == 32


@pytest.mark.parametrize(
    ("url", "text"),
    [("http://127.0.0.1:1/", "over https only"), ("https://127.0.0.1/", "not on the public internet"),
     ("https://localhost/", "not on the public internet"), ("https://169.254.169.254/latest", "not on the public internet")],
)  # fmt: skip
async def test_gateway_at_a_private_address_is_a_violation_of_a_rule(rig: Rig, url: str, text: str) -> None:
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    app = near(url)

    @app.agent(activate_on=START, emits=["go"])
    async def starter(ctx: Context) -> None:
        ctx.emit("go", {})

    run_id = await rig.start(app)
    async with rig.serving(app):
        log = await rig.ended(run_id)
    error = one(log, "tool:result")["error"]
    assert (error["code"], error["details"], error["recoverable"]) == (
        "DELEGATION_ERROR",
        {"reason": "egress_rejected"},
        False,
    )
    assert text in error["message"]
    assert one(log, "halt")["reason"] == "policy_violation"


def test_password_in_the_url_of_a_gateway_is_rejected_without_quoting_it() -> None:
    for url in ("https://user:opensesame@far.example/", "https://far.example/#x", "https://", "https://[::1"):
        with pytest.raises(InvalidInput) as raised:
            near(url)
        assert (raised.value.code, raised.value.path) == ("invalid_url", "/routes/routes/0/destination/gateway")
        assert "opensesame" not in str(raised.value)
        with pytest.raises(InvalidInput) as raised:
            Heliograph("near", routes={"kind": "MessageRouting", "routes": []}, gateways={"far": url})
        assert (raised.value.code, raised.value.path) == ("invalid_url", "/gateways/far")
        assert "opensesame" not in str(raised.value)


@pytest.mark.more
async def test_gateway_that_closes_connections_or_answers_malformed_is_tried_until_the_call_times_out(rig: Rig) -> None:
    answers = (b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
               b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 202 X\r\n\r\n{}")  # fmt: skip
    async with hooked(*answers) as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        route = {"match": {"target_agent": "appraiser"}, "destination": {"gateway": hook.url}}
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(activate_on=START, updates="seen")
        async def buyer(ctx: Context) -> Any:
            try:
                return await ctx.delegate("appraiser", {"n": 1}, timeout=1.5)
            except DelegationFailed as error:
                return error.error["code"]

        run_id = await rig.start(app)
        async with rig.serving(app):
            log = await rig.ended(run_id)
        assert len(hook.requests) >= 2
    assert (await rig.runtime.reader.run(run_id)).state == {"seen": "DELEGATION_TIMEOUT"}
    assert "agent:failed" not in names(log)


@pytest.mark.proves("RTE-07")
async def test_task_of_any_type_reaches_the_gateway_as_an_object(rig: Rig) -> None:
    tasks: list[Any] = ["ink", 5, [1], None, {"a": 1}]
    async with hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        route = {"match": {"target_agent": "appraiser"}, "destination": {"gateway": hook.url}}
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(activate_on=START, updates="seen")
        async def buyer(ctx: Context) -> Any:
            return [each.error for each in await ctx.delegates([Delegation("appraiser", task) for task in tasks])]

        result = await rig.run(app)
        sent = [json.loads(request.body)["envelope"]["signal"]["payload"]["task"] for request in hook.requests]
    assert {error["details"]["status"] for error in result.state["seen"]} == {404}
    expected: list[Any] = [{"value": "ink"}, {"value": 5}, {"value": [1]}, {}, {"a": 1}]
    assert sorted(map(json.dumps, sent)) == sorted(map(json.dumps, expected))


@pytest.mark.parametrize("name", ["", "appr\0", "appr\ud800", "appr\n", "a" * 513, "a" * 70_000])
async def test_name_that_no_envelope_can_have_fails_the_delegation_and_not_its_turn(rig: Rig, name: str) -> None:
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    route = {"match": {"target_agent": "*"}, "destination": {"gateway": "https://far.example/"}}
    app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [route]})

    @app.agent(activate_on=START, updates="seen")
    async def buyer(ctx: Context) -> Any:
        try:
            return await ctx.delegate(name, {})
        except InvalidInput as error:
            return error.code

    assert (await rig.run(app)).state == {"seen": "invalid_id"}
