"""RuntimeSpec: its settings, all problems at once, and how they apply to an application."""

from __future__ import annotations

import pytest

from heliograph import Context, Heliograph
from heliograph.control.observability import Observability
from heliograph.control.rates import RateLimit
from heliograph.definitions.lifecycle import Lifecycle
from heliograph.errors import InvalidInput
from heliograph.manifest.problems import PROBLEMS_MAX, ManifestProblem, ManifestRejected
from tests.rules.manifest_kit import RUNTIME, application, found, rejected, runtime


def warned(app: Heliograph) -> list[str]:
    return [each for each in app.workflow.warnings if each.startswith("m.yaml:")]


def test_code_of_a_retry_that_heliograph_does_not_have_gets_a_warning() -> None:
    codes = "[TOOL_TIMEOUT, rate_limit]"
    spec = runtime(RUNTIME + f"control_signals: {{tool_call: {{retry: {{retryable_errors: {codes}}}}}}}\n")
    place = "/control_signals/tool_call/retry/retryable_errors/1"
    assert [(each.code, each.pointer, each.hint) for each in spec.warnings] == [
        ("unknown_error_code", place, "did you mean RATE_LIMITED?")
    ]


@pytest.mark.proves("CTL-70", "CTL-94", "CTL-71", "CTL-72", "CTL-73", "CTL-74")
def test_sections_become_the_settings_of_an_application() -> None:
    spec = runtime(RUNTIME + """\
lifecycle:
  phases: {act: {timeout_seconds: 12}}
  total_timeout_seconds: 99
control_signals:
  tool_call: {timeout_seconds: 7, rate_limit: 5/m, retry: {max_attempts: 4, backoff_ms: 500}}
  delegation: {circuit_breaker: {failure_threshold: 9}}
  halt: {force_after_seconds: 3}
  heartbeat: {interval_seconds: 11, missed_threshold: 4}
  error: {payload: {error_code: NETWORK_ERROR, recoverable: true, retry_count: 2}}
observability:
  tracing: {enabled: true, propagation: b3, sample_rate: 0.25}
""")  # fmt: skip
    workflow = application().configured(spec).workflow
    agent = workflow.agents["writer"]
    assert (agent.timeout_seconds, agent.ttl_seconds) == (12, 99)
    assert agent.lifecycle == Lifecycle(error_retries={"NETWORK_ERROR": 2}, error_recoverable={"NETWORK_ERROR": True})
    calls = workflow.tool_calls["writer"]
    assert (calls.timeout_seconds, calls.rate_limit) == (7, RateLimit(5, 60))
    assert calls.retry is not None
    assert (calls.retry.max_attempts, calls.retry.initial_delay_seconds) == (4, 0.5)
    breaker = workflow.delegations["writer"].circuit_breaker
    assert breaker is not None
    assert breaker.failure_threshold == 9
    assert workflow.grace_seconds == 3
    assert workflow.heartbeat is not None
    assert workflow.heartbeat.interval_seconds == 11
    assert isinstance(workflow.observability, Observability)
    assert workflow.observability.tracing.sample_rate == 0.25
    assert warned(application().configured(spec)) == []


@pytest.mark.proves("OBS-04", "OBS-05", "OBS-06", "OBS-07", "OBS-08")
def test_observability_is_a_frozen_value_with_the_defaults_of_no_telemetry() -> None:
    assert runtime(RUNTIME).observability is None
    made = runtime(RUNTIME + "observability: {}\n").observability
    assert made == Observability()
    assert (made.tracing.enabled, made.tracing.propagation, made.tracing.sample_rate, made.tracing.export) == (
        False,
        "w3c",
        1.0,
        None,
    )
    full = runtime(RUNTIME + """\
observability:
  signals: {metrics: [{name: signal_errors, type: counter, labels: [error_code]}]}
  tracing: {enabled: true, propagation: jaeger, sample_rate: 0, export: {endpoint: https://otel.example/v1/traces}}
""").observability  # fmt: skip
    assert full is not None
    assert full.tracing.export is not None
    assert [(each.name, each.type, each.labels) for each in full.signals.metrics] == [
        ("signal_errors", "counter", ("error_code",))
    ]
    assert (full.tracing.propagation, full.tracing.sample_rate, full.tracing.export.endpoint) == (
        "jaeger",
        0.0,
        "https://otel.example/v1/traces",
    )


@pytest.mark.proves("OBS-04")
def test_metric_is_published_with_all_of_its_labels() -> None:
    spec = runtime(RUNTIME + """\
observability:
  signals:
    metrics:
      - {name: signal_count, type: counter, labels: [status]}
      - {name: signal_errors, type: counter}
""")  # fmt: skip
    assert [(each.code, each.pointer, each.line) for each in spec.warnings] == [
        ("no_effect", "/observability/signals/metrics", 5),
        ("no_effect", "/observability/signals/metrics/0/labels", 6),
    ]


@pytest.mark.proves("OBS-04", "OBS-06", "OBS-07", "OBS-08", "G-28")
@pytest.mark.parametrize(
    ("section", "code", "pointer", "hint"),
    [
        ("signals: {metrics: [{name: signal_counts, type: counter}]}", "unknown_metric", "/signals/metrics/0/name", "did you mean signal_count?"),
        ("signals: {metrics: [{name: signal_count, type: histogram}]}", "wrong_metric_type", "/signals/metrics/0/type", "write type: counter"),
        ("signals: {metrics: [{name: signal_count, type: counter, labels: [run_id]}]}", "unknown_label", "/signals/metrics/0/labels/0", "remove it"),
        ("signals: {metrics: [{name: signal_count, type: gauge}]}", "invalid_enum", "/signals/metrics/0/type", "write one of these"),
        ("tracing: {propagation: b33}", "invalid_enum", "/tracing/propagation", "did you mean b3?"),
        ("tracing: {sample_rate: 1.5}", "out_of_range", "/tracing/sample_rate", "correct the value"),
        ("tracing: {enabled: 'true'}", "wrong_type", "/tracing/enabled", "remove the quotes"),
        ("tracing: {export: {endpoint: localhost}}", "invalid_url", "/tracing/export/endpoint", "for example"),
        ("tracing: {export: {endpoint: 'http://j/api/traces'}}", "jaeger_thrift_endpoint", "/tracing/export/endpoint", "write http://j:4318/v1/traces"),
        ("tracing: {export: {endpoint: 'https://j:14268'}}", "jaeger_thrift_endpoint", "/tracing/export/endpoint", "write https://j:4318/v1/traces"),
    ],
)  # fmt: skip
def test_telemetry_that_does_not_exist_is_rejected(section: str, code: str, pointer: str, hint: str) -> None:
    [problem] = rejected(f"{RUNTIME}observability:\n  {section}\n")
    assert (problem.code, problem.pointer, problem.line) == (code, f"/observability{pointer}", 4)
    assert hint in problem.hint


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
apiVersion: ossa/v9
kind: RuntimeSpec
lifecycle:
  phases:
    act: {timeout_seconds: "60"}
    plann: {timeout_seconds: 1}
  max_iterations: 0
control_signals:
  tool_call:
    timeout_second: 5
    retry: {enabled: NO, strategy: exponentail}
  tool_call:
    async: true
  delegation: {async: false}
  error: {payload: {recoverable: true}}
  ready: {payload: {version: "1"}}
observability: {tracing: {sample_rate: .inf}}
"""
    problems = rejected(text)
    errors = [each for each in problems if not each.is_warning]
    assert found(tuple(errors)) == [
        ("unsupported_version", 1, 13), ("wrong_type", 5, 28), ("unknown_field", 6, 5), ("out_of_range", 7, 19),
        ("unknown_field", 10, 5), ("wrong_type", 11, 22), ("invalid_enum", 11, 36), ("yaml_duplicate_key", 12, 3),
        ("no_effect", 14, 23), ("required_field", 15, 20), ("out_of_range", 17, 40),
    ]  # fmt: skip
    assert [(each.code, each.pointer) for each in problems if each.is_warning] == [
        ("no_effect", "/control_signals/ready/payload")
    ]
    hints = {each.pointer: each.hint for each in errors}
    assert hints["/lifecycle/phases/plann"] == "did you mean plan?"
    assert hints["/control_signals/tool_call/timeout_second"] == "did you mean timeout_seconds?"
    assert hints["/control_signals/tool_call/retry/strategy"] == "did you mean exponential?"
    assert hints["/lifecycle/phases/act/timeout_seconds"] == "write a number without quotes and unit"
    assert all(each.hint for each in problems)


def test_rejected_manifest_lists_its_problems_as_text_and_json() -> None:
    with pytest.raises(ManifestRejected) as caught:
        runtime("apiVersion: ossa/v0.4.9\nkind: RuntimeSpec\nlifecycl: {}\nobservabilty: {}\n")
    error = caught.value
    assert error.exit_code == 2
    assert error.message.splitlines() == [
        "m.yaml: 2 problems; nothing was loaded",
        "  m.yaml:3:1: unknown_field: the RuntimeSpec has no field 'lifecycl'",
        "    hint: did you mean lifecycle?",
        "  m.yaml:4:1: unknown_field: the RuntimeSpec has no field 'observabilty'",
        "    hint: did you mean observability?",
    ]
    envelope = error.envelope()["error"]
    assert {key: envelope[key] for key in ("code", "file", "line", "column", "path", "hint")} == {
        "code": "unknown_field", "file": "m.yaml", "line": 3, "column": 1, "path": "/lifecycl", "hint": "did you mean lifecycle?",
    }  # fmt: skip
    assert [each["path"] for each in envelope["problems"]] == ["/lifecycl", "/observabilty"]


def test_at_most_fifty_problems_are_listed() -> None:
    problems = rejected(RUNTIME + "".join(f"key_{n}: 1\n" for n in range(200)))
    assert len(problems) == PROBLEMS_MAX


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("kind: RuntimeSpecs\napiVersion: ossa/v0.4.9\n", "unknown_kind"),
        ("kind: Agent\nspec: {}\n", "unknown_kind"),
        ("kind: 7\n", "unknown_kind"),
    ],
)
def test_manifest_of_another_kind_has_one_problem(text: str, code: str) -> None:
    [problem] = rejected(text)
    assert (problem.code, problem.pointer) == (code, "/kind")


def test_settings_without_an_effect_are_named() -> None:
    spec = runtime(RUNTIME + """\
control_signals:
  tool_call:
    payload: {correlation_id: "${uuid()}"}
  error:
    payload: {error_code: TOOL_ERROR, message: x}
  ready: {payload: {}}
""")  # fmt: skip
    assert [(each.code, each.pointer, each.line) for each in spec.warnings] == [
        ("no_effect", "/control_signals/tool_call/payload", 5), ("no_effect", "/control_signals/error/payload/message", 7),
        ("no_effect", "/control_signals/ready/payload", 8),
    ]  # fmt: skip
    assert warned(application().configured(spec)) == [f"{each}; {each.hint}" for each in spec.warnings]


@pytest.mark.proves("G-30")
def test_expressions_are_evaluated_only_in_payloads() -> None:
    problems = rejected(RUNTIME + """\
metadata: {name: "${uuid()}"}
control_signals:
  tool_call:
    payload: {correlation_id: "${parent.corelation_id}", x: "${HOME}"}
""")  # fmt: skip
    assert [(each.code, each.pointer) for each in problems if not each.is_warning] == [
        ("expression_not_allowed", "/metadata/name"), ("unknown_expression", "/control_signals/tool_call/payload/correlation_id"),
    ]  # fmt: skip


@pytest.mark.proves("G-30")
def test_value_of_a_variable_is_never_in_a_message() -> None:
    environment = {"SECONDS": "hunter2hunter2", "RATE": "topsecret/s", "KIND": "Nonsense"}
    problems = rejected(
        RUNTIME + "lifecycle: {phases: {act: {timeout_seconds: \"${SECONDS}\"}}}\ncontrol_signals: {tool_call: {rate_limit: \"${RATE}\"}}\n",
        environment,
    )  # fmt: skip
    assert [each.code for each in problems] == ["wrong_type", "invalid_rate"]
    assert "${SECONDS}" in problems[0].message
    assert "${RATE}" in problems[1].message
    assert not any(value in str(each) + each.hint for each in problems for value in environment.values())
    [url] = rejected(
        RUNTIME + "observability: {tracing: {export: {endpoint: 'http://${HOST}:14268'}}}\n", {"HOST": "hidden.example"}
    )
    assert url.code == "jaeger_thrift_endpoint"
    assert "hidden.example" not in f"{url} {url.hint}"


def test_setting_of_a_manifest_replaces_that_of_the_application_and_narrower_ones_win() -> None:
    app = Heliograph(
        "press",
        control_signals={"tool_call": {"timeout_seconds": 5, "rate_limit": "1/s"}, "halt": {"force_after_seconds": 8}},
    )

    @app.agent(activate_on=["workflow:start"], timeout_seconds=300, lifecycle=Lifecycle(error_retries={"X": 1}))
    def own(ctx: Context) -> None: ...

    @app.agent(activate_on=["workflow:start"], control_signals={"tool_call": {"timeout_seconds": 2}})
    def other(ctx: Context) -> None: ...

    spec = runtime(RUNTIME + """\
lifecycle: {phases: {act: {timeout_seconds: 44}}, total_timeout_seconds: 55}
control_signals:
  tool_call: {timeout_seconds: 9}
  error: {payload: {error_code: Y, retry_count: 3}}
""")  # fmt: skip
    configured = app.configured(spec)
    agents = configured.workflow.agents
    assert [(agent.timeout_seconds, agent.ttl_seconds) for agent in agents.values()] == [(300, 55), (44, 55)]
    assert [dict(agent.lifecycle.error_retries) for agent in agents.values()] == [{"X": 1}, {"Y": 3}]
    calls = configured.workflow.tool_calls
    assert [calls[name].timeout_seconds for name in ("own", "other")] == [9, 2]
    assert [calls[name].rate_limit for name in ("own", "other")] == [RateLimit(1, 1), RateLimit(1, 1)]
    assert configured.workflow.grace_seconds == 8
    assert app.workflow.agents["other"].timeout_seconds == 300
    assert app.workflow.tool_calls["own"].timeout_seconds == 5


def test_agents_receive_settings_of_the_hooks_that_they_have() -> None:
    app = application()

    @app.agent(activate_on=["workflow:start"], plan=lambda ctx: [], terminate=lambda ctx: None)
    def planner(ctx: Context) -> None: ...

    spec = runtime(RUNTIME + """\
lifecycle:
  phases:
    init: {timeout_seconds: 1, retry_on_failure: false}
    plan: {timeout_seconds: 2}
    terminate: {timeout_seconds: 3, force_after_seconds: 4}
  max_iterations: 7
  error_handling: {on_timeout: deliver_best, on_tool_error: skip}
""")  # fmt: skip
    made = app.configured(spec)
    assert made.workflow.agents["writer"].lifecycle == Lifecycle()
    assert made.workflow.agents["planner"].lifecycle == Lifecycle(
        plan_timeout_seconds=2, terminate_timeout_seconds=3, terminate_force_seconds=4, on_timeout="deliver_best"
    )
    assert [each.split(": ", 1)[1].rpartition(": ")[2].removesuffix("; remove it") for each in warned(made)] == [
        "no agent has the hook init", "no agent has the hook reflect", "no agent has a plan that the runtime executes", "no agent has the hook init",
    ]  # fmt: skip


def test_setting_that_does_not_suit_an_agent_is_rejected_at_its_place() -> None:
    app = Heliograph("press")

    @app.agent(activate_on=["workflow:start"], ttl_seconds=18, terminate=lambda ctx: None)
    def short(ctx: Context) -> None: ...

    with pytest.raises(ManifestRejected) as caught:
        app.configured(runtime(RUNTIME + "lifecycle:\n  phases:\n    terminate: {timeout_seconds: 20}\n"))
    [problem] = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("out_of_range", 5, 34)
    assert "short" in problem.message


def test_application_errors_are_not_blamed_on_the_manifest() -> None:
    with pytest.raises(InvalidInput) as caught:
        application(gateways={"a": 7})
    assert not isinstance(caught.value, ManifestRejected)


def test_problem_has_a_place_and_a_form_for_programs() -> None:
    problem = ManifestProblem("f.yaml", 2, 3, "c", "m", "/p", "h", is_warning=True)
    assert str(problem) == "f.yaml:2:3: c: m"
    assert problem.to_json() == {
        "severity": "warning", "code": "c", "message": "m", "file": "f.yaml", "line": 2, "column": 3, "path": "/p", "hint": "h",
    }  # fmt: skip


def test_list_of_metrics_selects_nothing_and_the_others_are_named() -> None:
    (found,) = runtime(RUNTIME + "observability: {signals: {metrics: []}}\n").warnings
    assert (found.code, found.pointer, found.column) == ("no_effect", "/observability/signals/metrics", 27)
    assert "signal_latency_ms, signal_count, signal_errors are published too" in found.message


def test_settings_of_tracing_that_nothing_enables_get_a_warning_each() -> None:
    found = runtime(RUNTIME + "observability: {tracing: {propagation: b3, sample_rate: 0.5}}\n").warnings
    assert {each.code for each in found} == {"no_effect"}
    assert [each.pointer.rpartition("/")[2] for each in found] == ["propagation", "sample_rate"]
    assert runtime(RUNTIME + "observability: {tracing: {enabled: false, propagation: b3}}\n").warnings == ()
