"""The map `lifecycle` of a runtime specification: its examples, defaults and malformed values, and the agent that it configures."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.agents import define_agent
from heliograph.control.lifecycle_settings import LifecycleSettings, read_lifecycle
from heliograph.control.settings import read_settings
from heliograph.definitions.lifecycle_options import lifecycle_options
from heliograph.errors import InvalidInput
from heliograph.phases import Lifecycle, PhaseContext
from heliograph.signals.json_parser import parse_json
from tests.rules.control_examples import LIFECYCLES, LIFECYCLES_BUILT, SETTINGS

START = ["workflow:start"]


async def reflect(_ctx: PhaseContext) -> None:
    raise AssertionError("no test runs it")


def warnings_of(wire: Any, signals: Any = None) -> list[str]:
    """The warnings of an application whose agent has these settings."""
    app = Heliograph("configured")
    app.agent(name="worker", activate_on=START, reflect=reflect, **lifecycle_options(wire, signals))(lambda ctx: None)
    return [each for each in app.workflow.warnings if each.startswith("phases_exceed_lifetime")]


@pytest.mark.proves("LC-14", "LC-24", "LC-34", "LC-42", "LC-54", "LC-71", "LC-90")
@pytest.mark.parametrize("name", LIFECYCLES)
def test_example_of_a_lifecycle_is_the_same_over_the_wire_and_in_python(name: str) -> None:
    received = read_lifecycle(parse_json(json.dumps(LIFECYCLES[name])))
    assert received == LIFECYCLES_BUILT[name]()
    sent: Any = received.to_wire()
    assert read_lifecycle(parse_json(json.dumps(sent))) == received
    assert_contains(sent, LIFECYCLES[name])


def assert_contains(sent: Any, given: Any) -> None:
    if not isinstance(given, dict):
        assert sent == given
        return
    for key, value in given.items():
        assert_contains(sent[key], value)


@pytest.mark.proves("LC-14", "LC-24", "LC-34", "LC-42", "LC-54", "LC-70", "LC-71", "LC-91", "LC-92", "LC-93", "LC-94",
                    "LC-95", "LC-96", "LC-97")  # fmt: skip
def test_defaults_are_those_of_the_complete_example_and_of_agents() -> None:
    assert read_lifecycle({}) == read_lifecycle(LIFECYCLES["complete"])
    options = lifecycle_options({})
    assert options == {"lifecycle": Lifecycle(), "timeout_seconds": 300, "ttl_seconds": 3600}
    app = Heliograph("configured")
    app.agent(name="plain", activate_on=START)(lambda ctx: None)
    spec = app.workflow.agents["plain"]
    assert (spec.timeout_seconds, spec.ttl_seconds, spec.lifecycle) == (300, 3600, Lifecycle())


@pytest.mark.proves("LC-90", "LC-91", "LC-92", "LC-93", "LC-94", "LC-95", "LC-96", "LC-97", "LC-71")
def test_each_setting_has_its_option() -> None:
    wire = {
        "phases": {
            "init": {"timeout_seconds": 1, "max_retries": 2}, "plan": {"timeout_seconds": 3}, "act": {"timeout_seconds": 4},
            "reflect": {"timeout_seconds": 5}, "terminate": {"timeout_seconds": 6, "force_after_seconds": 7},
        },
        "max_iterations": 8, "total_timeout_seconds": 900, "on_max_iterations": "deliver_best",
        "error_handling": {
            "on_timeout": "deliver_best", "on_resource_exhausted": "deliver_best", "on_tool_error": "skip", "max_tool_retries": 9,
        },
    }  # fmt: skip
    policy = {"error_code": "NETWORK_ERROR", "recoverable": True, "retry_count": 10}
    options = lifecycle_options(wire, {"error": {"payload": policy}})
    lifecycle = options["lifecycle"]
    assert lifecycle == Lifecycle(
        init_timeout_seconds=1, init_retries=2, plan_timeout_seconds=3, reflect_timeout_seconds=5, terminate_timeout_seconds=6,
        terminate_force_seconds=7, max_iterations=8, max_tool_retries=9, error_retries={"NETWORK_ERROR": 10},
        error_recoverable={"NETWORK_ERROR": True}, on_max_iterations="deliver_best", on_timeout="deliver_best", on_resource_exhausted="deliver_best", on_tool_error="skip",
    )  # fmt: skip
    assert (options["timeout_seconds"], options["ttl_seconds"]) == (4, 900)
    defaults = Lifecycle()
    same = [
        field.name for field in fields(Lifecycle) if getattr(lifecycle, field.name) == getattr(defaults, field.name)
    ]
    assert same == [], "each option of a Lifecycle can be set"


@pytest.mark.proves("LC-91")
def test_init_that_is_not_retried_has_no_retries() -> None:
    wire = {"phases": {"init": {"retry_on_failure": False, "max_retries": 3}}}
    assert lifecycle_options(wire)["lifecycle"].init_retries == 0


@pytest.mark.proves("LC-80", "LC-81", "LC-106")
@pytest.mark.parametrize(
    ("signals", "retries", "recoverable"),
    [
        (SETTINGS["recoverable error"], {"TOOL_ERROR": 3}, {"TOOL_ERROR": True}),
        (SETTINGS["unrecoverable error"], {"INIT_FAILED": 0}, {"INIT_FAILED": False}),
        ({"error": {"payload": {"error_code": "TOOL_ERROR", "recoverable": True}}}, {}, {"TOOL_ERROR": True}),
        ({"error": {"payload": {"error_code": "TOOL_ERROR", "retry_count": 2}}}, {"TOOL_ERROR": 2}, {}),
        ({"error": {"payload": {"message": "no policy"}}}, {}, {}),
        ({"error": {}}, {}, {}),
        ({}, {}, {}),
    ],
)
def test_error_policy_has_its_values_by_its_code(
    signals: Any, retries: dict[str, int], recoverable: dict[str, bool]
) -> None:
    for lifecycle in (lifecycle_options({}, signals)["lifecycle"],
                      lifecycle_options(LifecycleSettings(), read_settings(signals))["lifecycle"]):  # fmt: skip
        assert (lifecycle.error_retries, lifecycle.error_recoverable) == (retries, recoverable)


@pytest.mark.proves("CTL-45", "CTL-46", "CTL-47")
def test_signal_that_an_error_policy_composes_has_its_fields_without_the_count() -> None:
    settings = read_settings(SETTINGS["recoverable error"])
    error = settings.compose("error", {"message": "the scan failed"}, lambda: "id_1")
    assert error.to_wire()["payload"] == {"error_code": "TOOL_ERROR", "message": "the scan failed", "recoverable": True}
    assert settings.to_wire()["error"] == {
        "payload": {"error_code": "TOOL_ERROR", "recoverable": True, "retry_count": 3}
    }
    assert (
        read_settings(SETTINGS["unrecoverable error"]).compose("error", {}, lambda: "id_1").payload.to_wire()
        == (SETTINGS["unrecoverable error"]["error"]["payload"])
    )


@pytest.mark.proves("G-10")
def test_phases_that_cannot_fit_the_total_give_a_warning() -> None:
    [warning] = warnings_of(LIFECYCLES["complete"])
    assert "may take 3945 s together, and its turns live 3600 s (ttl_seconds)" in warning
    assert warnings_of(LIFECYCLES["fast"]) == []
    assert len(warnings_of({**LIFECYCLES["fast"], "total_timeout_seconds": 1244})) == 1
    assert warnings_of({**LIFECYCLES["fast"], "total_timeout_seconds": 1245}) == []


@pytest.mark.parametrize(
    ("wire", "code", "path"),
    [
        ([], "wrong_type", "/lifecycle"),
        ({"phase": {}}, "unknown_field", "/lifecycle/phase"),
        ({"phases": []}, "wrong_type", "/lifecycle/phases"),
        ({"phases": {"infer": {}}}, "unknown_field", "/lifecycle/phases/infer"),
        ({"phases": {"act": {"timeout_seconds": 0}}}, "out_of_range", "/lifecycle/phases/act/timeout_seconds"),
        ({"phases": {"act": {"timeout_seconds": "60"}}}, "wrong_type", "/lifecycle/phases/act/timeout_seconds"),
        ({"phases": {"act": {"timeout_seconds": None}}}, "wrong_type", "/lifecycle/phases/act/timeout_seconds"),
        ({"phases": {"plan": {"max_retries": 1}}}, "unknown_field", "/lifecycle/phases/plan/max_retries"),
        ({"phases": {"init": {"retry_on_failure": "yes"}}}, "wrong_type", "/lifecycle/phases/init/retry_on_failure"),
        ({"max_iterations": 0}, "out_of_range", "/lifecycle/max_iterations"),
        ({"max_iterations": 1.5}, "wrong_type", "/lifecycle/max_iterations"),
        ({"error_handling": {"on_tool_error": "ignore"}}, "invalid_enum", "/lifecycle/error_handling/on_tool_error"),
        ({"error_handling": {"on_timeout": "retry"}}, "invalid_enum", "/lifecycle/error_handling/on_timeout"),
    ],
)  # fmt: skip
def test_malformed_lifecycle_is_rejected_with_its_pointer(wire: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        lifecycle_options(wire)
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize(
    ("count", "code"), [(-1, "out_of_range"), ("3", "wrong_type"), (True, "wrong_type"), (1.5, "wrong_type"), (None, "wrong_type")]
)  # fmt: skip
def test_malformed_count_of_an_error_policy_is_rejected_with_its_pointer(count: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        lifecycle_options({}, {"error": {"payload": {"error_code": "TOOL_ERROR", "retry_count": count}}})
    assert (caught.value.code, caught.value.path) == (code, "/control_signals/error/payload/retry_count")


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_malformed_recoverable_of_an_error_policy_is_rejected_with_its_pointer(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        lifecycle_options({}, {"error": {"payload": {"error_code": "TOOL_ERROR", "recoverable": value}}})
    assert (caught.value.code, caught.value.path) == ("wrong_type", "/control_signals/error/payload/recoverable")


@pytest.mark.proves("LC-106")
@pytest.mark.parametrize("policy", [{"recoverable": True}, {"recoverable": False}, {"retry_count": 3}])
@pytest.mark.parametrize(
    ("given", "code"), [({}, "required_field"), ({"error_code": 5}, "wrong_type"), ({"error_code": ""}, "wrong_type")]
)
def test_error_policy_without_a_code_is_rejected(policy: Any, given: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        lifecycle_options({}, {"error": {"payload": {**given, **policy}}})
    assert (caught.value.code, caught.value.path) == (code, "/control_signals/error/payload/error_code")


NEED_HOOKS = [field.name for field in fields(Lifecycle) if field.name not in ("error_retries", "error_recoverable")]
OTHER_VALUES = {"terminate": "deliver_best", "retry": "skip", "fail": "deliver_best"}


@pytest.mark.proves("LC-90", "LC-96")
@pytest.mark.parametrize("name", NEED_HOOKS)
def test_setting_about_hooks_is_rejected_for_an_agent_without_hooks(name: str) -> None:
    default: Any = getattr(Lifecycle(), name)
    given: dict[str, Any] = {name: default + 1 if isinstance(default, int | float) else OTHER_VALUES[default]}
    with pytest.raises(InvalidInput) as caught:
        define_agent("worker", run=lambda ctx: None, activate_on=START, lifecycle=Lifecycle(**given))
    assert (caught.value.code, caught.value.path) == ("no_effect", f"/agents/worker/lifecycle/{name}")
    assert "has no effect, because the agent has no hooks" in caught.value.message
    hooks: Any = dict.fromkeys(("init", "plan", "reflect", "terminate"), reflect)
    if name != "terminate_timeout_seconds":  # which may not exceed terminate_force_seconds, also with hooks
        define_agent("worker", run=lambda ctx: None, activate_on=START, lifecycle=Lifecycle(**given), **hooks)


@pytest.mark.proves("LC-90", "LC-96")
@pytest.mark.parametrize(
    ("setting", "hook"),
    [
        ("init_timeout_seconds", "init"), ("init_retries", "init"), ("plan_timeout_seconds", "plan"),
        ("reflect_timeout_seconds", "reflect"), ("max_iterations", "reflect"), ("on_max_iterations", "reflect"),
        ("terminate_timeout_seconds", "terminate"), ("terminate_force_seconds", "terminate"),
        ("on_tool_error", "plan"), ("max_tool_retries", "plan"), ("on_timeout", None), ("on_resource_exhausted", None),
    ],
)  # fmt: skip
def test_setting_of_a_hook_that_the_agent_does_not_have_gives_a_warning(setting: str, hook: str | None) -> None:
    default: Any = getattr(Lifecycle(), setting)
    value = default - 1 if isinstance(default, int | float) else OTHER_VALUES[default]
    given: dict[str, Any] = {setting: 20 if setting == "terminate_force_seconds" else value}
    of_plans = setting in ("on_tool_error", "max_tool_retries")

    def warnings(without: str | None) -> list[str]:
        app = Heliograph("configured")
        hooks: Any = {each: reflect for each in ("init", "plan", "reflect", "terminate") if each != without}
        run = (lambda ctx: None) if without == "plan" or not of_plans else None
        app.add(
            define_agent(
                "worker", run=run, activate_on=START, lifecycle=Lifecycle(**given), ttl_seconds=86_400, **hooks
            )
        )
        return app.workflow.warnings

    assert warnings(None) == []
    if hook is not None:
        [warning] = warnings(hook)
        assert warning.startswith(
            f"setting_without_hook: lifecycle.{setting} of agent worker has no effect, because the agent has no {hook}"
        )


@pytest.mark.parametrize("option", ["error_retries", "error_recoverable"])
@pytest.mark.parametrize("given", [["TIMEOUT"], {1: 1}, {"TIMEOUT": "yes"}, {"TIMEOUT": None}])
def test_malformed_policy_of_codes_is_rejected(option: str, given: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        define_agent("worker", run=lambda ctx: None, activate_on=START, lifecycle=Lifecycle(**{option: given}))
    assert (caught.value.path or "").startswith(f"/agents/worker/lifecycle/{option}")


def test_code_that_resembles_one_of_the_runtime_gives_a_warning_for_each_policy() -> None:
    app = Heliograph("configured")
    lifecycle = Lifecycle(error_retries={"TIMEOUTS": 1, "own": 1}, error_recoverable={"TOOL_EROR": True})
    app.agent(name="worker", activate_on=START, lifecycle=lifecycle)(lambda ctx: None)
    first, second = [each for each in app.workflow.warnings if each.startswith("unknown_error_code")]
    assert first.endswith(
        "error_retries of agent worker has the code TIMEOUTS, which the runtime does not use; did you mean TIMEOUT?"
    )
    assert second.endswith("error_recoverable of agent worker has the code TOOL_EROR, which the runtime does not use; did you mean TOOL_ERROR?")  # fmt: skip
