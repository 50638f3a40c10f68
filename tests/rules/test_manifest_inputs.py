"""Every property of every schema is carried out, rejected or named by a warning. The schemas are walked, so new keys are checked too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path as Folder
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.manifest.agent_manifest import INFORMATION, gather_agent, read_agent
from heliograph.manifest.apply import unused_settings
from heliograph.manifest.document import Document
from heliograph.manifest.message_routing import read_message_routing
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.manifest.runtime_spec import read_runtime_spec
from heliograph.manifest.schema_descriptions import properties_with_places
from heliograph.manifest.schemas import schema_of_kind
from heliograph.manifest.unsupported_inputs import rows
from tests.rules.manifest_properties import Path, pointer_of, properties, samples, with_value, without

Outcome = tuple[Any, list[str]]  # what a manifest means, and the pointers of its problems

AGENT = {
    "apiVersion": "ossa/v0.4", "kind": "Agent", "metadata": {"name": "reader"},
    "spec": {"role": "Read.", "llm": {"provider": "openai", "model": "m"}},
}  # fmt: skip
SURROUNDINGS: list[tuple[Path, Any]] = [
    (("spec", "tools", 0), {"type": "function", "name": "send"}),
    (("spec", "functions", 0), {"name": "send", "description": "d", "parameters": {}}),
    (("spec", "llm", "fallback_models", 0), {"provider": "openai", "model": "n"}),
    (("protocols", "mcp"), {"role": "client", "version": "1", "servers": [{"name": "send", "command": "server"}]}),
    (("control_signals", "error", "payload"), {"error_code": "TOOL_ERROR"}),
    (("observability", "signals", "metrics", 0), {"name": "signal_count", "type": "counter"}),
    (("governance", "authorization", "tool_permissions", 0), {"tool": "sample", "requires_approval": True}),
]
RUNTIME = {"apiVersion": "ossa/v0.4.9", "kind": "RuntimeSpec"}
ROUTING = {
    "apiVersion": "ossa/v0.4.9", "kind": "MessageRouting", "routes": [{"match": {"tool_name": "x"}, "destination": {"queue": "q"}}],
}  # fmt: skip


_AT_ONCE = 40  # properties in one document


def problems_at(problems: Any) -> list[str]:
    found: list[ManifestProblem] = list(problems)
    return [each.pointer for each in found]


def agent_outcome(value: Any) -> Outcome:
    try:
        made = read_agent(Document("m.yaml", value, is_readable=True), {})
    except ManifestRejected as rejected:
        return None, problems_at(rejected.problems)
    meaning = {
        each.name: getattr(made, each.name)
        for each in dataclasses.fields(made)
        if each.name not in ("document", "warnings")
    }
    for key in ("tools", "servers", "models"):
        meaning[key] = [dataclasses.replace(each, pointer="") for each in meaning[key]]
    return repr(meaning), problems_at(made.warnings)


@cache
def application() -> Heliograph:
    """An application on which each setting of a RuntimeSpec has an effect: its agent has all hooks."""
    app = Heliograph("desk")

    def hook(_ctx: Context) -> None: ...

    def plan(_ctx: Context) -> Any: ...

    options: dict[str, Any] = {"init": hook, "plan": plan, "reflect": hook, "terminate": hook}
    app.prompt_agent("lead", "Go.", activate_on=["workflow:start"], **options)
    return app


def runtime_outcome(value: Any) -> Outcome:
    try:
        spec = read_runtime_spec(Document("m.yaml", value, is_readable=True))
        app = application()
        made = app.configured(spec).workflow
        unused = problems_at(unused_settings(app.name, app.workflow.agents, spec))
    except ManifestRejected as rejected:
        return None, problems_at(rejected.problems)
    agent = made.agents["lead"]
    meaning = (agent.timeout_seconds, agent.ttl_seconds, agent.lifecycle, made.signal_settings, made.heartbeat, made.grace_seconds,
               made.observability, spec.error_retries, spec.error_recoverable)  # fmt: skip
    return repr(meaning), [*problems_at(spec.warnings), *unused]


def routing_outcome(value: Any) -> Outcome:
    try:
        made = read_message_routing(Document("m.yaml", value, is_readable=True))
    except ManifestRejected as rejected:
        return None, problems_at(rejected.problems)
    return repr(made.table), problems_at(made.warnings)


def lost(
    root: Mapping[str, Any], base: Any, outcome: Callable[[Any], Outcome], is_information: Callable[[str], bool]
) -> tuple[list[str], int]:
    """Return the properties without any effect and without a problem that names them, and how many were checked.

    Of each object, a key that no schema has is checked as well.
    """
    leaves = {path: samples(root, schema) for path, schema in properties(root, root) if path}
    owners = {path[:n] for path in leaves for n in range(1, len(path)) if not isinstance(path[n], int)}
    leaves |= {(*owner, "mystery"): [7] for owner in owners}
    found: list[str] = []
    known: dict[str, Outcome] = {}

    def outcome_of(document: Any) -> Outcome:
        key = repr(document)
        if key not in known:
            known[key] = outcome(document)
        return known[key]

    for path, values in leaves.items():
        around = base
        for place, value in SURROUNDINGS:
            if path[: len(place)] == place:
                around = with_value(around, place, value)
        is_lost = not any(_counts(path, with_value(around, path, value), outcome_of) for value in values)
        if is_lost and not is_information(pointer_of(path)):
            found.append(pointer_of(path))
    return found, len(leaves)


def _counts(path: Path, document: Any, outcome: Callable[[Any], Outcome]) -> bool:
    """Whether a value changes what the manifest means, or a problem names it or what contains it."""
    pointer = pointer_of(path)
    meaning, problems = outcome(document)
    is_named = any(pointer == each or (each and pointer.startswith(f"{each}/")) for each in problems)
    return is_named or meaning != outcome(without(document, path))[0]


def of_agents(name: str) -> Mapping[str, Any]:
    """The schema of a version, with what it says about kind Agent."""
    schema = schema_of_kind(name)
    if "AgentSpec" in schema["definitions"]:
        schema["properties"]["spec"] = {"$ref": "#/definitions/AgentSpec"}
    return schema


@pytest.mark.more
@pytest.mark.parametrize(
    ("schema", "version", "count"), [("Agent", "ossa/v0.4", 1500), ("Agent-v0.5", "ossa/v0.5", 200)]
)
def test_every_property_of_an_agent_has_effect_or_is_named(schema: str, version: str, count: int) -> None:
    def is_information(pointer: str) -> bool:
        return any(pointer == each or pointer.startswith(f"{each}/") for each in INFORMATION)

    found, checked = lost(of_agents(schema), {**AGENT, "apiVersion": version}, agent_outcome, is_information)
    assert found == []
    assert checked > count


@pytest.mark.more
@pytest.mark.parametrize(("schema", "version"), [("Agent", "ossa/v0.4"), ("Agent-v0.5", "ossa/v0.5")])
def test_property_whose_description_denies_an_effect_has_none(schema: str, version: str) -> None:
    root = of_agents(schema)
    own = {path for node, path, _ in properties_with_places(root) if "description" in node}
    wrong, meanings = list[str](), dict[str, Any]()
    for path, each in properties(root, root):
        pointer = "".join(f"/{key}" for key in path if not isinstance(key, int))
        around = {**AGENT, "apiVersion": version}
        for place, value in SURROUNDINGS:
            if path[: len(place)] == place:
                around = with_value(around, place, value)
        for value in samples(root, each) if pointer not in own else ():
            document = with_value(around, path, value)
            base = without(document, path)
            if repr(base) not in meanings:
                meanings[repr(base)] = agent_outcome(base)[0]
            if agent_outcome(document)[0] != meanings[repr(base)]:
                wrong.append(pointer)
    assert wrong == []


@pytest.mark.parametrize(("schema", "version"), [("Agent", "ossa/v0.4"), ("Agent-v0.5", "ossa/v0.5")])
def test_every_property_of_an_agent_without_effect_has_its_reason_in_the_table_of_the_page(
    schema: str, version: str
) -> None:
    root, unexplained = of_agents(schema), []
    made = [(path, samples(root, each)[0]) for path, each in properties(root, root) if path]
    for n in range(0, len(made), _AT_ONCE):
        value: Any = {**AGENT, "apiVersion": version}
        for path, each in made[n : n + _AT_ONCE]:
            value = with_value(value, path, each)
        _, found = gather_agent(Document("m.yaml", value, is_readable=True), {})
        unexplained += [each.pointer for each in found if "does not know" in each.message and each.pointer != "/spec"]
    assert unexplained == []
    page = (Folder(__file__).parents[2] / "docs" / "reference" / "manifests.md").read_text(encoding="utf-8")
    assert page.count("| Input that is not carried out |") == 1
    assert [row for row in rows() if f"| {' | '.join(row)} |\n" not in page] == []


@pytest.mark.proves("CTL-94", "RTE-09")
@pytest.mark.parametrize(
    ("schema", "base", "outcome", "count"),
    [("RuntimeSpec", RUNTIME, runtime_outcome, 100), ("MessageRouting", ROUTING, routing_outcome, 20)],
)
def test_every_property_of_a_deployment_has_effect_or_is_named(
    schema: str, base: Any, outcome: Callable[[Any], Outcome], count: int
) -> None:
    found, checked = lost(schema_of_kind(schema), base, outcome, lambda pointer: pointer.startswith("/metadata"))
    assert found == []
    assert checked > count
