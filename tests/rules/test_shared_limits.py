"""Rate limits of calls that share a bucket: two different ones are rejected when the application is built."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Heliograph, external_tool, tool
from heliograph.errors import InvalidInput
from heliograph.reactive.workflow import Workflow
from tests.rules.reactive_kit import START


def search(query: str) -> str:
    """Search."""
    return query


def limited(rate: str | None) -> Any:
    return tool(name="search", rate_limit=rate, effect="pure")(search)


def built(*callers: dict[str, Any], hand_limit: str | None = None, **options: Any) -> Workflow:
    app = Heliograph("sharing", **options)
    for name, caller in zip("ab", callers, strict=False):
        app.prompt_agent(name, "Work.", model="test", activate_on=START, **caller)
    app.agent(name="hand", on_request=True, rate_limit=hand_limit)(lambda ctx: None)
    return app.workflow


def of_type(kind: str, rate: str) -> dict[str, Any]:
    return {"control_signals": {kind: {"rate_limit": rate}}}


TEN, FIVE = limited("10/s"), limited("5/s")
REMOTE = external_tool("search", "Search.", {"type": "object"}, rate_limit="5/s")


@pytest.mark.proves("G-24", "RTE-08")
@pytest.mark.parametrize(
    ("callers", "options", "path", "text"),
    [
        ([{"tools": [TEN]}, {"tools": [FIVE]}], {}, "/agents/b/tools",
         "tool search has the rate limit 10/s for the calls of agent a and 5/s for those of agent b, and they share one bucket"),
        ([{"tools": [TEN]}, {"tools": [REMOTE]}], {}, "/agents/b/tools", "10/s for the calls of agent a and 5/s for"),
        ([{"tools": [TEN]}, {"tools": [limited("600/m")]}], {}, "/agents/b/tools", "10/s for the calls of agent a and 600/m for"),
        ([{"tools": [search], **of_type("tool_call", "1/h")}, {"tools": [search], **of_type("tool_call", "2/h")}], {},
         "/agents/b/tools", "1/h for the calls of agent a and 2/h for"),
        ([{"tools": [search]}, {"tools": [search], **of_type("tool_call", "2/h")}], of_type("tool_call", "3/h"),
         "/agents/b/tools", "3/h for the calls of agent a and 2/h for"),
        ([{"agents": ["hand"]}, {"agents": ["hand"], **of_type("delegation", "2/h")}], of_type("delegation", "3/h"),
         "/agents/b/agents", "agent hand has the rate limit 3/h for the calls of agent a and 2/h for"),
    ],
)  # fmt: skip
def test_two_limits_of_one_bucket_are_rejected(
    callers: list[dict[str, Any]], options: dict[str, Any], path: str, text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        built(*callers, **options)
    assert (caught.value.code, caught.value.path) == ("conflicting_limits", path)
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("callers", "options"),
    [
        ([{"tools": [TEN]}, {"tools": [TEN]}], {}),
        ([{"tools": [TEN]}, {"tools": [limited("10/s")]}], {}),
        ([{"tools": [TEN]}, {"tools": [search]}], {}),
        ([{"tools": [TEN], **of_type("tool_call", "1/h")}, {"tools": [TEN], **of_type("tool_call", "2/h")}], {}),
        ([{"tools": [search], **of_type("tool_call", "1/h")}, {"tools": [], **of_type("tool_call", "2/h")}], {}),
        ([{"agents": ["hand"], **of_type("delegation", "1/h")}, {"agents": ["hand"], **of_type("delegation", "2/h")}],
         {"hand_limit": "9/s"}),
        ([{"agents": ["hand"]}, {"agents": ["hand"]}], of_type("delegation", "3/h")),
    ],
)  # fmt: skip
def test_equal_limits_and_limits_of_other_buckets_are_accepted(
    callers: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    assert sorted(built(*callers, **options).agents) == ["a", "b", "hand"]
