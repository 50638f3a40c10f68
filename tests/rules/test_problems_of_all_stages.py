"""The problems of a RuntimeSpec and a MessageRouting on an application are reported at once."""

from __future__ import annotations

import pytest

from heliograph import Context, Heliograph
from heliograph.manifest.problems import ManifestRejected
from tests.rules.manifest_kit import ROUTING, RUNTIME, routing, runtime


def test_settings_that_do_not_suit_and_unknown_gateways_are_reported_together() -> None:
    app = Heliograph("press", control_signals={"tool_call": {"timeout_seconds": 5}})

    @app.agent(activate_on=["workflow:start"], ttl_seconds=18, terminate=lambda ctx: None, init=lambda ctx: None)
    def short(ctx: Context) -> None: ...

    spec = runtime(
        RUNTIME + "lifecycle:\n  phases:\n    terminate: {timeout_seconds: 20}\n    init: {timeout_seconds: 20}\n"
    )
    routes = "routes:\n  - match: {tool_name: x}\n    destination: {gateway: nowhere}\n"
    with pytest.raises(ManifestRejected) as caught:
        app.configured(spec, routing(ROUTING + routes))
    assert sorted((each.code, each.line) for each in caught.value.problems) == [
        ("out_of_range", 5), ("unknown_gateway", 5),
    ]  # fmt: skip
