"""Pools and routes of an application: what agents, workers and route tables may name, and which route a call takes."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.control.routing import read_routes
from heliograph.definitions.pools import check_pools
from heliograph.errors import InvalidInput
from heliograph.execution.call_routes import destination_of_call, priority_of_delegation
from heliograph.policy.app_routes import check_routes
from heliograph.turn.calls import CallRequest
from tests.rules.control_examples import ROUTES

BAD_NAMES: list[Any] = ["", "g pu", "gpu/1", "gpu:1", "gpu*", "ä", "x" * 64, 7, None, True]


def table(*routes: tuple[dict[str, Any], dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"kind": "MessageRouting", "routes": [{"match": m, "destination": d} for m, d in routes], **more}


def application(routes: Any = None, **options: Any) -> Heliograph:
    app = Heliograph("press", routes=routes)

    @app.agent(on_request=True, priority="low", **options)
    async def painter(ctx: Context) -> None: ...

    return app


def rejected(**given: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        application(**given)
    return caught.value


@pytest.mark.proves("RTE-05")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_pool_with_an_invalid_name_is_rejected(name: Any) -> None:
    error = rejected(pool=name)
    assert (error.code, error.path) == ("invalid_id", "/agents/painter/pool")
    with pytest.raises(InvalidInput):
        check_pools([name])


@pytest.mark.proves("RTE-05")
def test_agent_records_its_pool_with_its_turns_unless_it_is_the_default_one() -> None:
    assert application(pool="gpu").workflow.agents["painter"].limits["pool"] == "gpu"
    assert "pool" not in application().workflow.agents["painter"].limits
    assert (check_pools(()), check_pools(["gpu", "default", "gpu"])) == (("default",), ("default", "gpu"))
    with pytest.raises(InvalidInput):
        check_pools("gpu")


@pytest.mark.proves("RTE-05")
def test_application_has_the_pools_of_its_agents_and_routes() -> None:
    routes = table(({"tool_name": "a"}, {"queue": "one"}), default={"queue": "rest"})
    assert application(routes, pool="gpu").workflow.pools == ("gpu", "one", "rest")
    assert application(read_routes(routes)).workflow.pools == ("default", "one", "rest")


def request(kind: Any, tool: str, priority: int | None = None) -> CallRequest:
    return CallRequest("c1", "c1", tool, kind, priority=priority)


@pytest.mark.proves("RTE-03", "RTE-04", "RTE-05", "G-24")
def test_first_route_that_matches_a_call_is_its_destination() -> None:
    routes = table(({"target_agent": "pai*"}, {"queue": "gpu"}), ({"tool_name": "ext_*"}, {"queue": "out"}),
                   ({"signal_type": "tool_call"}, {"queue": "tools"}))  # fmt: skip
    flow = application(routes).workflow

    def queue(kind: Any, name: str) -> str | None:
        found = destination_of_call(flow, request(kind, name))
        return None if found is None else found.queue

    assert (queue("child", "painter"), queue("tool", "ext_mail"), queue("tool", "search")) == ("gpu", "out", "tools")
    assert [queue(kind, "ext_mail") for kind in ("inline", "human", "timer")] == [None] * 3
    assert destination_of_call(application().workflow, request("child", "painter")) is None


@pytest.mark.proves("G-25", "RTE-06")
@pytest.mark.parametrize(
    ("destination", "own", "expected"),
    [(None, None, 0), (None, 2, 2), ({}, None, 0), ({}, 2, 2), ({"priority": "high"}, None, 2),
     ({"priority": "high"}, 1, 1), ({"priority": "high", "force": True}, 3, 2), ({"priority": "high", "force": True}, None, 2)],
)  # fmt: skip
def test_priority_is_that_of_the_delegation_unless_the_route_forces_its_own(
    destination: dict[str, Any] | None, own: int | None, expected: int
) -> None:
    routes = None if destination is None else table(({"target_agent": "painter"}, {"queue": "gpu", **destination}))
    flow, asked = application(routes).workflow, request("child", "painter", own)
    assert priority_of_delegation(flow, asked, destination_of_call(flow, asked)) == expected


@pytest.mark.proves("RTE-07")
def test_route_to_a_gateway_without_a_url_is_rejected_when_the_application_is_built() -> None:
    destination = {"gateway": "out"}
    error = rejected(routes=table(({"tool_name": "a"}, {"queue": "q"}), ({"tool_name": "b"}, destination)))
    assert (error.code, error.path) == ("unknown_gateway", "/routes/routes/1/destination/gateway")
    assert rejected(routes=table(default=destination)).path == "/routes/default/gateway"


@pytest.mark.proves("RTE-07", "RTE-01")
def test_routes_name_the_gateways_of_the_application() -> None:
    """An application accepts the table of the specification, whose gateway is a name."""
    gateways = {"external-gateway": "https://agents.example/"}
    made = Heliograph("press", routes=ROUTES, gateways=gateways)
    made.agent(name="painter", on_request=True)(print)
    found = destination_of_call(made.workflow, request("tool", "external_mail"))
    assert found is not None
    assert (found.gateway, str(found.rate_limit)) == ("https://agents.example/", "10/s")
    plain = table(({"tool_name": "*"}, {"gateway": "http://127.0.0.1:8000/"}), default={"gateway": "external-gateway"})
    routes = check_routes(plain, gateways)
    assert [each.gateway for each in routes.destinations] == ["http://127.0.0.1:8000/", "https://agents.example/"]


@pytest.mark.proves("RTE-07")
@pytest.mark.parametrize(
    ("gateways", "code", "path"),
    [
        ({"external-gatewai": "https://a.example/"}, "unknown_gateway", "/routes/routes/1/destination/gateway"),
        ({"a/b": "agents.example"}, "invalid_url", "/gateways/a~1b"),
        ({"a": 7}, "invalid_url", "/gateways/a"),
        (["https://a.example/"], "wrong_type", "/gateways"),
    ],
)
def test_gateway_without_a_url_is_rejected(gateways: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Heliograph("press", routes=ROUTES, gateways=gateways)
    assert (caught.value.code, caught.value.path) == (code, path)
    if code == "unknown_gateway":
        assert "did you mean external-gatewai?" in caught.value.message


def test_gateways_without_routes_are_checked_and_kept_for_those_of_a_manifest() -> None:
    made = Heliograph("press", gateways={"external-gateway": "https://a.example/"})
    made.agent(name="painter", on_request=True)(print)
    assert made.workflow.routes is None
    with pytest.raises(InvalidInput) as caught:
        Heliograph("press", gateways={"a": "agents.example"})
    assert (caught.value.code, caught.value.path) == ("invalid_url", "/gateways/a")


@pytest.mark.proves("RTE-01")
def test_route_table_of_an_application_is_read_like_any_other() -> None:
    assert rejected(routes={"routes": []}).path == "/routes/kind"
    assert rejected(routes=table(({"tool_name": "a"}, {"queue": "q*"}))).code == "invalid_id"
