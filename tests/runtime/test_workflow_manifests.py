"""Manifests of kind Workflow: their steps run in the order of their dependencies, and what cannot be carried out is rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph, ScriptedModel, tool
from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.cli.validate import check
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from tests.runtime.kit import Rig

HEAD = "apiVersion: ossa/v0.5\nkind: Workflow\nmetadata: {name: review}\n"
STEPS = """\
spec:
  triggers: [{type: manual}]
  inputs: {type: object, required: [id], properties: {id: {type: integer}}}
  context: {variables: {style: plain}}
  steps:
    - {id: tell, kind: Task, ref: ./tasks/notify.yaml, depends_on: [judge], input: {texts: ["${{ steps.judge.output }}", $step]}}
    - id: both
      kind: Parallel
      parallel:
        - {id: fetch-it, kind: Task, ref: fetch, input: {page: "${{ workflow.input.id }}"}}
        - {id: judge, kind: Agent, ref: ./judge.yaml, input: {title: "${{ steps.fetch-it.output.titles[1] }}", style: "${{ context.variables.style }}"}}
"""
JUDGE = "apiVersion: ossa/v0.4\nkind: Agent\nmetadata: {name: judge}\nspec: {role: You judge.}\n"


@tool(effect="pure")
def fetch(page: int) -> dict[str, Any]:
    """Fetch a page."""
    return {"titles": ["none", f"T{page}"]}


@tool(effect="pure")
def echo(value: Any) -> Any:
    """Return a value."""
    return value


@tool(effect="pure")
def notify(texts: list[str]) -> str:
    """Notify somebody."""
    return f"notified: {texts}"


def bound(**more: Any) -> Bindings:
    return Bindings(
        tools={"fetch": fetch, "notify": notify, "echo": echo},
        model=ScriptedModel(lambda request: f"<{request.prompt}>"),
        **more,
    )


def application(folder: Path, text: str = STEPS, bindings: Bindings | None = None) -> Heliograph:
    (folder / "judge.yaml").write_text(JUDGE)
    (folder / "workflow.yaml").write_text(HEAD + text)
    made, _ = load_manifest(folder / "workflow.yaml", bindings or bound())
    return made


def rejected(folder: Path, *steps: str) -> list[ManifestProblem]:
    lines = "".join(f"    - {each}\n" for each in steps)
    with pytest.raises(ManifestRejected) as caught:
        application(folder, f"spec:\n  steps:\n{lines}")
    return list(caught.value.problems)


@pytest.mark.more
async def test_steps_run_in_the_order_of_their_dependencies(rig: Rig, tmp_path: Path) -> None:
    result = await rig.run(application(tmp_path), {"id": 7})
    assert result.outcome == "success"
    assert result.state["output"] == """notified: ['<{"style": "plain", "title": "T7"}>', '$step']"""
    calls: list[Any] = [each.payload for each in result.signals if each.name == "tool:call"]
    assert [each["name"] for each in calls] == ["fetch", "notify"]


async def test_input_that_does_not_match_fails_before_the_first_step(rig: Rig, tmp_path: Path) -> None:
    result = await rig.run(application(tmp_path), {"id": "seven"})
    assert result.outcome == "failed"
    assert not [each for each in result.signals if each.name == "tool:call"]


async def test_value_from_outside_is_never_read_as_a_reference(rig: Rig, tmp_path: Path) -> None:
    steps = "{value: {out: '${{ workflow.input.texts }}', own: {$step: 1}}}"
    given = ["${{ workflow.input.secret }}", {"$step": 1}]
    made = application(tmp_path, f"spec: {{steps: [{{id: a, kind: Task, ref: echo, input: {steps}}}]}}\n")
    result = await rig.run(made, {"texts": given})
    assert result.state["output"] == {"out": given, "own": {"$step": 1}}


async def test_composition_passes_the_projected_output_to_the_next_agent(rig: Rig, tmp_path: Path) -> None:
    other = Heliograph("other")

    @other.agent(activate_on=["workflow:start"], updates="x")
    def first(ctx: Any) -> dict[str, Any]:
        return {"a": ctx.task["n"], "b": 2}

    @other.agent(activate_on=["workflow:start"], updates="y")
    def second(ctx: Any) -> Any:
        return ctx.task

    text = "composition: {sequential: [{agent: first, project: [a]}, {agent: second}]}\n"
    made = application(tmp_path, text, bound(agents=dict(other.workflow.agents)))
    result = await rig.run(made, {"n": 5})
    assert result.state == {"n": 5, "output": {"a": 5}}


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("{id: a, kind: Task, condition: x}", "condition"), ("{id: a, kind: Loop, loop: {over: x}}", "loop"),
        ("{id: a, kind: Conditional, branches: [{condition: x, steps: []}]}", "branches"),
        ("{id: a, kind: Task, continue_on_error: true}", "continue_on_error"), ("{id: a, kind: Task, on_error: {action: goto}}", "on_error"),
        ("{id: a, kind: Wait}", "Wait"), ("{id: a}", "None"),
    ],
)  # fmt: skip
def test_step_that_cannot_run_is_rejected_by_name(tmp_path: Path, step: str, name: str) -> None:
    found = rejected(tmp_path, step, "{id: b, kind: Task, ref: fetch, depends_on: [a]}")
    assert [(each.code, each.line) for each in found if not each.is_warning] == [("not_runnable", 6)]
    assert name in found[0].message


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (["{id: a, kind: Task, ref: fetch, depends_on: [b]}"], "unknown_step"),
        (["{id: a, kind: Task, ref: fetch, depends_on: [a]}"], "cycle"),
        (
            [
                "{id: a, kind: Task, ref: fetch, input: {x: '${{ steps.b.output }}'}}",
                "{id: b, kind: Task, ref: fetch, depends_on: [a]}",
            ],
            "cycle",
        ),
        (["{id: a, kind: Task, ref: fetch}", "{id: a, kind: Task, ref: notify}"], "duplicate_item"),
        (["{id: a, kind: Agent, ref: ../judge.yaml}"], "not_allowed"),
    ],
)
def test_steps_that_do_not_fit_together_are_rejected(tmp_path: Path, steps: list[str], code: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "judge.yaml").write_text(JUDGE)
    assert [each.code for each in rejected(folder, *steps) if not each.is_warning] == [code]


@pytest.mark.proves("G-30")
@pytest.mark.parametrize(
    "text",
    [
        "x ${{ workflow.input.a }}",
        "${{ a + b }}",
        "${{ steps.a.output == 1 }}",
        "${{ env.HOME }}",
        "${{ workflow.input.a() }}",
    ],
)
def test_expression_that_is_more_than_the_name_of_a_value_is_rejected(tmp_path: Path, text: str) -> None:
    (found,) = rejected(tmp_path, f"{{id: a, kind: Task, ref: fetch, input: {{x: '{text}'}}}}")
    assert (found.code, found.line) == ("expression_not_allowed", 6)


def test_missing_tool_and_agent_of_a_workflow_are_named_exactly(tmp_path: Path) -> None:
    (tmp_path / "workflow.yaml").write_text(
        HEAD
        + "spec:\n  steps:\n    - {id: a, kind: Task, ref: tasks/go.yaml}\n    - {id: b, kind: Agent, ref: writer}\n"
    )
    report = check(tmp_path / "workflow.yaml", Bindings()).to_json()
    assert (report["valid"], report["runnable"]) == (True, False)
    assert [(each["binding"], each["name"], each["line"]) for each in report["missing"]] == [
        ("tool", "go", 6),
        ("agent", "writer", 7),
    ]


def test_setting_of_a_step_without_an_effect_gets_a_warning(tmp_path: Path) -> None:
    (tmp_path / "workflow.yaml").write_text(
        HEAD
        + "spec:\n  concurrency: {group: g}\n  steps: [{id: a, kind: Task, ref: fetch, retry: {max_attempts: 2}}]\n"
    )
    _, warnings = load_manifest(tmp_path / "workflow.yaml", bound())
    assert {(each.code, each.pointer) for each in warnings} == {
        ("no_effect", "/spec/concurrency"),
        ("no_effect", "/spec/steps/0/retry"),
    }


def test_ref_that_is_too_long_for_a_file_is_a_missing_agent(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(HEAD + f"spec:\n  steps:\n    - {{id: one, kind: Agent, ref: {'a' * 300}.yaml}}\n")
    report = check(tmp_path / "w.yaml", bound())
    assert (report.reached, [each.code for each in report.problems]) == (2, ["missing_agent"])
