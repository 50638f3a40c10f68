"""Manifests of kind Workflow: their steps run in the order of their dependencies, and what cannot be carried out is rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.cli.validate import check
from heliograph.manifest.document import Document
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.manifest.retry_settings import read_retry
from heliograph.models import ScriptedModel
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
        + """\
spec:
  concurrency: {group: g}
  steps:
    - {id: a, kind: Task, ref: fetch, output: {to: x}, retry: {max_attempts: 2, jitter: true}}
    - {id: b, kind: Parallel, timeout_seconds: 3, parallel: [{id: c, kind: Task, ref: fetch}]}
"""
    )
    _, warnings = load_manifest(tmp_path / "workflow.yaml", bound())
    assert {(each.code, each.pointer) for each in warnings} == {
        ("no_effect", "/spec/concurrency"), ("no_effect", "/spec/steps/0/output"), ("no_effect", "/spec/steps/0/retry/jitter"),
        ("no_effect", "/spec/steps/1/timeout_seconds"),
    }  # fmt: skip


def test_trigger_and_outputs_of_a_workflow_get_a_warning_with_the_reason(tmp_path: Path) -> None:
    triggers = "[{type: manual}, {type: cron, schedule: '0 6 * * *'}]"
    steps = "[{id: a, kind: Task, ref: fetch}]"
    (tmp_path / "w.yaml").write_text(
        f"{HEAD}spec: {{triggers: {triggers}, outputs: {{type: object}}, steps: {steps}}}\n"
    )
    found = {each.pointer: each.message for each in check(tmp_path / "w.yaml", bound()).problems}
    assert found == {
        "/spec/triggers/1": "spec.triggers[1] has no effect; other programs start runs",
        "/spec/outputs": "spec.outputs has no effect; the output of the last step is the result",
    }


def test_problems_of_all_agents_of_a_workflow_are_found(tmp_path: Path) -> None:
    steps = ""
    for name in ("one", "two"):
        steps += f"    - {{id: {name}, kind: Agent, ref: {name}.yaml}}\n"
        (tmp_path / f"{name}.yaml").write_text("apiVersion: ossa/v9\nkind: Agent\n")
    (tmp_path / "w.yaml").write_text(f"{HEAD}spec:\n  steps:\n{steps}    - {{id: c, kind: Task, ref: nowhere}}\n")
    report = check(tmp_path / "w.yaml", bound())
    errors = [(Path(each.file).name, each.code) for each in report.problems if not each.is_warning]
    assert errors == [
        ("one.yaml", "unsupported_version"),
        ("two.yaml", "unsupported_version"),
        ("w.yaml", "missing_tool"),
    ]


def test_step_that_delegates_to_a_workflow_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(f"{HEAD}spec: {{steps: [{{id: a, kind: Agent, ref: w.yaml}}]}}\n")
    (found,) = check(tmp_path / "w.yaml", bound()).problems
    assert (found.code, found.pointer, found.hint) == ("not_runnable", "/kind", "refer to a manifest of kind Agent")


def test_retry_and_timeout_of_a_step_in_another_form_are_rejected(tmp_path: Path) -> None:
    found = rejected(
        tmp_path,
        "{id: a, kind: Task, ref: fetch, retry: often, timeout_seconds: soon}",
        "{id: b, kind: Task, ref: fetch, retry: {backoff: sometimes}}",
        "{id: c, kind: Task, ref: fetch, retry: {max_attempts: 99}}",
    )
    assert [(each.code, each.line) for each in found] == [
        ("wrong_type", 6), ("out_of_range", 6), ("invalid_enum", 7), ("out_of_range", 8),
    ]  # fmt: skip


@pytest.mark.more
async def test_retry_and_timeout_of_a_step_hold_for_its_call(rig: Rig, tmp_path: Path) -> None:
    calls: list[str] = []

    @tool(effect="idempotent")
    async def flaky(name: str) -> str:
        """Fail twice."""
        calls.append(name)
        if name == "slow":
            await asyncio.sleep(60)
        if calls.count(name) < 3:
            raise ConnectionError("not yet")
        return name

    text = """\
spec:
  error_handling: {retry_policy: {max_attempts: 2, backoff: fixed, initial_delay_ms: 1}}
  steps:
    - {id: a, kind: Task, ref: flaky, input: {name: thrice}, retry: {max_attempts: 3, initial_delay_ms: 1}}
    - {id: b, kind: Task, ref: flaky, input: {name: slow}, timeout_seconds: 0.05}
"""
    result = await rig.run(application(tmp_path, text, Bindings(tools={"flaky": flaky}, model=ScriptedModel([]))), {})
    assert calls == ["thrice", "thrice", "thrice", "slow", "slow"]  # on_tool_error adds no repetitions
    assert (result.outcome, result.failures[-1].code) == ("failed", "TOOL_TIMEOUT")


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ("[TOOL_TIMEOUT, rate_limit]", [("unknown_error_code", "/spec/steps/0/retry/retryable_errors/1", "did you mean RATE_LIMITED?")]),
        ("['503']", [("unknown_error_code", "/spec/steps/0/retry/retryable_errors/0", "write a code of Heliograph, like TOOL_TIMEOUT")]),
        ("[NETWORK_ERROR]", []), ("[]", []),
        ("NETWORK_ERROR", [("wrong_type", "/spec/steps/0/retry/retryable_errors", "write a list, like [TOOL_TIMEOUT, NETWORK_ERROR]")]),
        ("[503]", [("wrong_type", "/spec/steps/0/retry/retryable_errors", "write a list, like [TOOL_TIMEOUT, NETWORK_ERROR]")]),
    ],
)  # fmt: skip
def test_code_of_a_retry_that_heliograph_does_not_have_gets_a_warning(
    tmp_path: Path, codes: str, found: list[tuple[str, str, str]]
) -> None:
    step = f"{{id: a, kind: Task, ref: fetch, retry: {{retryable_errors: {codes}}}}}"
    (tmp_path / "w.yaml").write_text(f"{HEAD}spec: {{steps: [{step}]}}\n")
    report = check(tmp_path / "w.yaml", bound())
    assert [(each.code, each.pointer, each.hint) for each in report.problems] == found


def test_empty_list_of_codes_repeats_nothing() -> None:
    document = Document("w.yaml", {"retry": {"retryable_errors": []}}, is_readable=True)
    policy = read_retry(ManifestFields(document, {}), "/retry")
    assert policy is not None
    assert not policy.allows("TOOL_TIMEOUT")


async def test_task_that_fails_on_an_error_makes_one_call(rig: Rig, tmp_path: Path) -> None:
    calls: list[int] = []

    @tool(effect="idempotent")
    def unreachable() -> str:
        """Fail."""
        calls.append(1)
        raise ConnectionError("not reachable")

    spec = "spec: {execution: {type: idempotent}, error_handling: {on_error: fail}}\n"
    (tmp_path / "task.yaml").write_text(f"apiVersion: ossa/v0.4\nkind: Task\nmetadata: {{name: unreachable}}\n{spec}")
    made, _ = load_manifest(tmp_path / "task.yaml", Bindings(tools={"unreachable": unreachable}))
    result = await rig.run(made, {})
    assert (result.outcome, len(calls)) == ("failed", 1)


@pytest.mark.more
async def test_retry_and_timeout_of_a_step_hold_for_its_delegation(rig: Rig, tmp_path: Path) -> None:
    other, calls = Heliograph("other"), list[str]()

    @other.agent(on_request=True)
    async def helper(ctx: Any) -> str:
        calls.append("helper")
        if len(calls) == 1:
            await asyncio.sleep(60)
        return "helped"

    text = "spec: {steps: [{id: b, kind: Agent, ref: helper, timeout_seconds: 0.2, retry: {max_attempts: 2, initial_delay_ms: 1}}]}\n"
    bindings = Bindings(agents=dict(other.workflow.agents), model=ScriptedModel([]))
    result = await rig.run(application(tmp_path, text, bindings), {})
    assert (result.state["output"], calls) == ("helped", ["helper", "helper"])


async def test_task_calls_its_tool_with_the_state_of_the_run(rig: Rig, tmp_path: Path) -> None:
    head = "apiVersion: ossa/v0.4\nkind: Task\nmetadata: {name: fetch}\n"
    spec = "execution: {type: idempotent, runtime: node, timeout_seconds: 5}, input: {type: object, required: [page]}, output: {type: object}"
    (tmp_path / "task.yaml").write_text(f"{head}spec: {{{spec}}}\n")
    made, warnings = load_manifest(tmp_path / "task.yaml", bound())
    assert [each.pointer for each in warnings] == ["/spec/execution/runtime", "/spec/output"]
    result = await rig.run(made, {"page": 4})
    assert result.state["output"] == {"titles": ["none", "T4"]}
    assert check(tmp_path / "task.yaml", bound()).reached == 3
    (tmp_path / "task.yaml").write_text(f"{head}spec: {{capabilities: [echo], {spec}}}\n")
    assert [each.name for each in load_manifest(tmp_path / "task.yaml", bound())[0].workflow.agents["fetch"].tools] == [
        "echo"
    ]


@pytest.mark.parametrize(
    "more",
    ["batch: {enabled: true}", "preconditions: [{expression: x}]", "dependencies: [{ref: other}]", "error_handling: {on_error: ignore}",
     "capabilities: [fetch, echo]"],
)  # fmt: skip
def test_task_that_cannot_run_is_rejected_by_name(tmp_path: Path, more: str) -> None:
    (tmp_path / "task.yaml").write_text(
        f"apiVersion: ossa/v0.4\nkind: Task\nmetadata: {{name: fetch}}\nspec:\n  execution: {{type: idempotent}}\n  {more}\n"
    )
    report = check(tmp_path / "task.yaml", bound())
    assert report.reached == 2
    assert [(each.code, each.line) for each in report.problems if not each.is_warning] == [("not_runnable", 6)]
    assert report.problems[0].pointer.split("/")[2] == more.partition(":")[0]


def test_ref_that_is_too_long_for_a_file_is_a_missing_agent(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(HEAD + f"spec:\n  steps:\n    - {{id: one, kind: Agent, ref: {'a' * 300}.yaml}}\n")
    report = check(tmp_path / "w.yaml", bound())
    assert (report.reached, [each.code for each in report.problems]) == (2, ["missing_agent"])
