"""The problems of a workflow and of its agents' manifests are reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.cli.validate import check
from heliograph.manifest.problems import ManifestRejected

pytestmark = pytest.mark.more  # the schemas of manifests are compiled

AGENT = """\
apiVersion: ossa/v0.4
kind: Agent
metadata: {name: clerk, version: 1.2.0}
spec:
  role: Keep a shop.
  tools: [{type: function, name: stock.count}]
"""
WORKFLOW = """\
apiVersion: ossa/v0.4
kind: Workflow
metadata: {name: sale, version: 1.0.0}
spec:
  steps:
    - {id: count, kind: Task, ref: weigh.yaml}
    - {id: ask, kind: Agent, ref: ./clerk.yaml, depends_on: [count]}
"""


def problems_of(folder: Path, workflow: str, agent: str | None = AGENT) -> list[tuple[str, str, str]]:
    if agent is not None:
        (folder / "clerk.yaml").write_text(agent, encoding="utf-8")
    path = folder / "workflow.yaml"
    path.write_text(workflow, encoding="utf-8")
    with pytest.raises(ManifestRejected) as rejected:
        load_manifest(path, Bindings())
    checked = [each for each in check(path, Bindings()).problems if not each.is_warning]
    found = [each for each in rejected.value.problems if not each.is_warning]
    assert found == checked
    return [(Path(each.file).name, each.code, each.binding or each.pointer) for each in found]


MISSING = [
    ("clerk.yaml", "missing_model", "HELIOGRAPH_MODEL"),
    ("clerk.yaml", "missing_tool", "stock.count"),
    ("workflow.yaml", "missing_tool", "weigh"),
]


@pytest.fixture(autouse=True)
def without_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_MODEL", raising=False)


def test_valid_workflow_lacks_tools_of_its_own_and_of_its_agents(tmp_path: Path) -> None:
    assert problems_of(tmp_path, WORKFLOW) == MISSING


@pytest.mark.parametrize(("old", "new", "code", "pointer"), [
    ("version: 1.0.0", "version: [1]", "wrong_type", "/metadata/version"),
    ("depends_on: [count]", "depends_on: [no]", "unknown_step", "/spec/steps/1"),
    ("depends_on: [count]", "depends_on: [ask]", "cycle", "/spec/steps/1"),
    ("depends_on: [count]", "condition: 'x > 1'", "not_runnable", "/spec/steps/1/condition"),
])  # fmt: skip
def test_invalid_workflow_is_reported_with_what_it_and_its_agents_lack(
    tmp_path: Path, old: str, new: str, code: str, pointer: str
) -> None:
    found = problems_of(tmp_path, WORKFLOW.replace(old, new))
    assert sorted(found) == sorted([*MISSING, ("workflow.yaml", code, pointer)])
    assert found[:2] == MISSING[:2]


def test_errors_of_an_agent_do_not_hide_those_of_its_workflow(tmp_path: Path) -> None:
    invalid = AGENT.replace("kind: Agent", "kind: Gateway")
    found = problems_of(tmp_path, WORKFLOW.replace("depends_on: [count]", "condition: 'x > 1'"), invalid)
    assert found[0][:2] == ("clerk.yaml", "unknown_kind")
    assert ("workflow.yaml", "not_runnable", "/spec/steps/1/condition") in found


def test_step_that_cannot_be_executed_lacks_no_tool(tmp_path: Path) -> None:
    changed = WORKFLOW.replace("kind: Task, ref: weigh.yaml", "kind: Human")
    found = problems_of(tmp_path, changed)
    assert [each for each in found if each[0] == "workflow.yaml"] == [
        ("workflow.yaml", "not_runnable", "/spec/steps/0/kind")
    ]


def test_agent_without_a_file_is_missing_beside_other_errors(tmp_path: Path) -> None:
    found = problems_of(tmp_path, WORKFLOW.replace("version: 1.0.0", "version: [1]"), agent=None)
    assert ("workflow.yaml", "missing_agent", "clerk") in found
