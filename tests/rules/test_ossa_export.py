"""Manifests that are written from code load to the same agents."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import Heliograph
from heliograph.cli.agent_manifests import prompt_of
from heliograph.cli.bindings import Bindings
from heliograph.cli.export import _yaml
from heliograph.cli.load_target import load_manifest
from heliograph.definitions.agent import AgentSpec, define_agent
from heliograph.errors import InvalidInput
from heliograph.manifest.ossa import validate_ossa
from heliograph.manifest.ossa_export import manifest_of
from heliograph.manifest.reader import parse_manifest
from heliograph.models import ScriptedModel
from tests.grids import share_of_examples

TEXTS = st.text(st.sampled_from("ab \n\t:#'\"%&*!|>-?é$\u2028"), min_size=1, max_size=30).filter(
    lambda text: bool(text.strip())
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "system": TEXTS, "temperature": st.sampled_from([0, 0.5, 2]), "max_output_tokens": st.integers(1, 10**7),
    "max_steps": st.integers(1, 10_000), "timeout_seconds": st.sampled_from([0.5, 60, 300, 300.0]), "ttl_seconds": st.sampled_from([600, 3600, 3600.0]),
    "budget": st.sampled_from([{"tokens": 5}, {"usd": 1.5, "tool_calls": 3}, {"tokens": 5, "tool_calls": 3, "model_calls": 1}]),
    "retries": st.integers(0, 20), "effect": st.sampled_from(["once", "idempotent"]), "priority": st.sampled_from(["low", "normal", "critical"]),
    "updates": st.sampled_from(["output", "x", ["x"], ["x", "y"], ()]), "emits": st.just(["a:b"]), "asks_human": st.sampled_from([True, 30.0]),
    "version": st.sampled_from(["1", "1.2.3", "0.1.0-beta.1"]), "price": st.just({"input": 1, "output": 2}), "max_attempts": st.integers(1, 9),
    "activate_on": st.sampled_from([["workflow:start"], ["a:*"], ["a:b", "c:d"]]), "context_bytes_max": st.integers(1, 10**6),
    "model": st.sampled_from(["anthropic:m", "openai-chat:m", "weird:m", "openai:m", ["anthropic:a", "groq:b"]]),
}  # fmt: skip


def loaded(spec: AgentSpec) -> AgentSpec:
    """The agent of its own manifest, which is valid under its schema."""
    text = _yaml(manifest_of(spec, [], prompt_of))
    document = parse_manifest(text.encode(), "m.yaml")
    assert [*document.problems, *validate_ossa(document)] == []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.yaml"
        path.write_text(text, encoding="utf-8")
        application, warnings = load_manifest(path, Bindings(model=ScriptedModel(["Hi."])))
    assert [each.code for each in warnings] == ([] if spec.system else ["no_role"])
    (made,) = application.workflow.agents.values()
    return replace(made, model=spec.model)


@pytest.mark.more
@share_of_examples(25)
@given(
    st.fixed_dictionaries({}, optional=OPTIONS),
    st.text(st.sampled_from("abz09_-A"), min_size=1, max_size=64),
)
def test_exported_agent_loads_to_the_same_agent(options: dict[str, Any], name: str) -> None:
    given_options = {"model": "anthropic:m", "activate_on": ["workflow:start"], "updates": "output", **options}
    spec = define_agent(name, prompt="{state.input}", **given_options)
    assert loaded(spec) == spec


@pytest.mark.parametrize("name", ["a" * 64, "A" * 64, "a-" * 32, "_"])
def test_longest_name_of_an_agent_is_exported_unchanged(name: str) -> None:
    spec = define_agent(
        name, prompt="{state.input}", model="anthropic:m", activate_on=["workflow:start"], updates="output"
    )
    assert loaded(spec).name == name


def test_limits_that_code_gives_are_exported() -> None:
    app = Heliograph("x")
    spec = app.prompt_agent(
        "a",
        "p",
        model="anthropic:m",
        activate_on=["workflow:start"],
        updates="output",
        timeout_seconds=300,
        ttl_seconds=3600,
    )
    assert loaded(spec).own_limits == {"timeout_seconds", "ttl_seconds"}


def test_name_of_a_model_that_a_manifest_would_read_as_a_variable_is_rejected() -> None:
    spec = define_agent("a", prompt="p", model="openai-chat:${X}", activate_on=["workflow:start"])
    with pytest.raises(InvalidInput) as caught:
        manifest_of(spec, [], prompt_of)
    assert caught.value.code == "not_exportable"
