"""The tracing of a runtime specification becomes the telemetry of the processes that run the application."""

from __future__ import annotations

import pytest

from heliograph import Context, Heliograph
from heliograph.manifest.reader import parse_manifest
from heliograph.manifest.runtime_spec import read_runtime_spec
from heliograph.runtime import telemetry_of

TRACED = b"""\
apiVersion: ossa/v0.4.9
kind: RuntimeSpec
observability:
  tracing: {enabled: true, propagation: b3, sample_rate: 0.1, export: {endpoint: "http://otel.example:4318"}}
"""


def application() -> Heliograph:
    app = Heliograph("press")

    @app.agent(activate_on=["workflow:start"])
    def writer(ctx: Context) -> None: ...

    return app


@pytest.mark.proves("OBS-05", "OBS-06", "OBS-07", "OBS-08")
def test_tracing_of_a_manifest_switches_telemetry_on_and_variables_override_it() -> None:
    plain = application()
    traced = plain.configured(read_runtime_spec(parse_manifest(TRACED, "m.yaml")))
    workflows = [plain.workflow, traced.workflow]
    made = telemetry_of(workflows, {})
    assert (made.is_on, made.propagation, made.sample_rate, made.endpoint) == (
        True,
        ("b3",),
        0.1,
        "http://otel.example:4318",
    )
    assert not telemetry_of([plain.workflow], {}).is_on
    assert not telemetry_of(workflows, {"HELIOGRAPH_OTEL": "0"}).is_on
    other = telemetry_of(
        workflows, {"OTEL_PROPAGATORS": "tracecontext", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other.example:4318"}
    )
    assert other.propagation == ("w3c",)
    assert other.endpoint is None or "other.example" in other.endpoint
