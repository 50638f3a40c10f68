import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.definitions.agent import define_agent
from heliograph.errors import HeliographError, InvalidInput, Rejected
from heliograph.reactive.state import StateShape
from heliograph.reactive.workflow import Workflow, build_workflow
from tests.rules.reactive_kit import START, agent, nothing, workflow


@pytest.mark.proves("SIG-46")
def test_definition_has_the_written_options_and_safe_defaults() -> None:
    spec = define_agent("writer", prompt="Write {state.topic}", activate_on=START, emits=["draft:ready"], model="test")
    assert (spec.prompt, spec.model, spec.emits) == ("Write {state.topic}", "test", ("draft:ready",))
    assert [p.text for p in spec.patterns] == START
    assert (spec.effect, spec.priority, spec.timeout_seconds, spec.max_attempts) == ("idempotent", 1, 300.0, 5)


@pytest.mark.parametrize(
    ("options", "code", "path"),
    [
        ({"activate_on": "workflow:start"}, "wrong_type", "/agents/a/activate_on"),
        ({"activate_on": START, "emits": "x:y"}, "wrong_type", "/agents/a/emits"),
        ({"activate_when_all": "x:y"}, "wrong_type", "/agents/a/activate_when_all"),
        ({"activate_on": START, "run": None}, "required_field", "/agents/a"),
        ({"activate_on": START, "prompt": "both"}, "required_field", "/agents/a"),
        ({"activate_on": START, "priority": "urgent"}, "invalid_enum", "/agents/a/priority"),
        ({"activate_on": START, "priority": 1}, "invalid_enum", "/agents/a/priority"),
        ({"activate_on": START, "effect": "twice"}, "invalid_enum", "/agents/a/effect"),
        ({"activate_on": START, "timeout_seconds": 0}, "out_of_range", "/agents/a/timeout_seconds"),
        ({"activate_on": START, "timeout_seconds": math.nan}, "out_of_range", "/agents/a/timeout_seconds"),
        ({"activate_on": START, "timeout_seconds": math.inf}, "out_of_range", "/agents/a/timeout_seconds"),
        ({"activate_on": START, "timeout_seconds": "5"}, "out_of_range", "/agents/a/timeout_seconds"),
        ({"activate_on": START, "ttl_seconds": -1}, "out_of_range", "/agents/a/ttl_seconds"),
        ({"activate_on": START, "max_attempts": 0}, "out_of_range", "/agents/a/max_attempts"),
        ({"activate_on": START, "retries": -1}, "out_of_range", "/agents/a/retries"),
        ({"activate_on": START, "retries": 1.5}, "wrong_type", "/agents/a/retries"),
        ({"on_request": "yes"}, "wrong_type", "/agents/a/on_request"),
        ({"activate_on": START, "max_attempts": True}, "out_of_range", "/agents/a/max_attempts"),
    ],
)
def test_impossible_definition_is_rejected_with_its_location(options: dict[str, Any], code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        define_agent("a", **{"run": nothing, **options})
    assert (caught.value.code, caught.value.path) == (code, path)
    assert "agent a" in caught.value.message


@pytest.mark.parametrize("options", [{}, {"activate_on": []}, {"on_request": False}])
def test_agent_without_a_subscription_starts_with_the_run(options: dict[str, Any]) -> None:
    agent = define_agent("a", run=nothing, **options)
    assert [each.text for each in agent.activate_on] == ["workflow:start"]
    assert define_agent("a", run=nothing, activate_when_all=["x:y"]).activate_on == ()


def test_agent_on_request_needs_no_subscription() -> None:
    assert define_agent("a", run=nothing, on_request=True).patterns == ()


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a/b", "ä", "a:b", "a\0", 5, None])
def test_ambiguous_name_is_rejected(name: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        agent(name, START)
    assert caught.value.code == "invalid_identifier"


@pytest.mark.parametrize("pattern", ["", "a:***", "a:*b", "**", "*:**", "Ä:x"])
def test_forbidden_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(HeliographError):
        agent("a", [pattern])


@pytest.mark.proves("SIG-35")
def test_agent_may_emit_custom_names_and_no_reserved_ones() -> None:
    assert agent("a", START, emits=["draft:ready", "x"]).emits == ("draft:ready", "x")
    for name in ("workflow:end", "agent:completed", "harness:end", "state:x:changed", "text:delta"):
        with pytest.raises(Rejected):
            agent("a", START, emits=[name])


@pytest.mark.parametrize("pattern", ["draft:*", "draft:**"])
def test_agent_emits_names_and_no_patterns(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        agent("a", START, emits=[pattern])


async def _waits(_state: Any) -> bool:
    return True


def _three(_a: Any, _b: Any, _c: Any) -> bool:
    return True


@pytest.mark.parametrize("guard", [_waits, _three, lambda: True])
def test_guard_is_synchronous_and_takes_the_state_or_state_and_signal(guard: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        agent("a", START, when=guard)
    assert caught.value.path == "/agents/a/when"


def test_guard_may_be_anything_callable_of_one_or_two_arguments() -> None:
    assert agent("a", START, when=bool).when_arity == 1
    assert agent("a", START, when=partial(_three, None)).when_arity == 2
    assert agent("a", START, when=lambda _state, _signal: True).when_arity == 2


def test_agent_updates_one_key_with_its_output_or_several_with_parts_of_it() -> None:
    one, several = agent("a", START, updates="x"), agent("a", START, updates=["x", "y"])
    assert (one.updates, one.updates_one) == (("x",), True)
    assert (several.updates, several.updates_one) == (("x", "y"), False)


# ── The workflow as a whole ──


def test_workflow_without_agents_is_rejected() -> None:
    with pytest.raises(InvalidInput) as caught:
        build_workflow(Workflow("empty", {}, StateShape()))
    assert caught.value.code == "no_agents"


@pytest.mark.parametrize("limit", [0, -1, 1_000_001])
def test_activation_limit_of_a_run_is_a_reachable_number(limit: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        workflow(agent("a", START), max_activations=limit)
    assert caught.value.code == "out_of_range"


@dataclass
class Typed:
    text: str
    notes: list[str]


def test_updates_and_reducers_of_a_typed_state_name_keys_that_it_has() -> None:
    with pytest.raises(InvalidInput, match="notes, text") as caught:
        workflow(agent("a", START, updates="txet"), state=Typed)
    assert (caught.value.code, caught.value.path) == ("unknown_state_key", "/agents/a/updates")
    with pytest.raises(InvalidInput) as caught:
        workflow(agent("a", START), state=Typed, reducers={"tags": lambda _old, new: new})
    assert caught.value.path == "/reducers"


def test_pattern_that_cannot_match_is_a_warning_and_no_error() -> None:
    warnings = workflow(
        agent("a", ["workflow:start", "draft:raedy"]), agent("b", START, emits=["draft:ready"])
    ).warnings
    assert len(warnings) == 2
    assert "'draft:raedy' matches no signal; did you mean draft:ready?" in warnings[0]
    assert "agent b emits 'draft:ready', and no agent subscribes to it; did you mean draft:raedy?" in warnings[1]


def test_key_that_an_agent_updates_in_an_untyped_state_is_a_known_signal_source() -> None:
    assert workflow(agent("a", START, updates="x"), agent("b", ["state:x:changed"])).warnings == []


# ── The application in front of it ──


def test_two_agents_of_one_name_are_rejected() -> None:
    app = Heliograph("newsroom")
    app.agent(name="writer", activate_on=START)(nothing)
    with pytest.raises(InvalidInput) as caught:
        app.agent(name="writer", activate_on=START)(nothing)
    assert caught.value.code == "duplicate_agent"


def test_agent_is_named_after_its_function_which_remains_unchanged() -> None:
    app = Heliograph("newsroom")
    assert app.agent(activate_on=START)(nothing) is nothing
    assert list(app.workflow.agents) == ["nothing"]


def test_agent_added_after_the_workflow_was_read_belongs_to_it() -> None:
    app = Heliograph("newsroom")
    app.agent(name="a", activate_on=START)(nothing)
    assert list(app.workflow.agents) == ["a"]
    app.prompt_agent("b", "Say {state.x}", activate_on=START)
    assert list(app.workflow.agents) == ["a", "b"]


@pytest.mark.parametrize("name", ["", "News", "a b", "a" * 64, "a/b", "ä"])
def test_application_name_is_safe_in_a_subject_and_on_a_command_line(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Heliograph(name)
    assert caught.value.path == "/name"
