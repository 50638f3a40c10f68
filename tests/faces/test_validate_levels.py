"""The levels that `helio validate` reports for each kind of manifest, and the exact names of missing bindings."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from heliograph import external_tool
from heliograph.cli.bindings import Bindings
from heliograph.cli.commands import LEVELS
from heliograph.cli.load_target import load_manifest, load_target
from heliograph.cli.manifests import load_routing, load_runtime
from heliograph.cli.validate import Report, check, validate
from heliograph.errors import InvalidInput
from heliograph.manifest.problems import ManifestRejected
from heliograph.models import ScriptedModel

AGENT = "apiVersion: ossa/v0.5\nkind: Agent\nmetadata: {name: a}\nspec: {role: R}\n"
RUNTIME = "apiVersion: ossa/v0.4.9\nkind: RuntimeSpec\nlifecycle:\n  max_iterations: VALUE\n"
ROUTING = """\
apiVersion: ossa/v0.4.9
kind: MessageRouting
routes:
  - match: {signal_type: delegation}
    destination:
      queue: VALUE
"""


def checked(tmp_path: Path, text: str, bindings: Bindings | None = None) -> Report:
    (tmp_path / "m.yaml").write_text(text)
    return check(tmp_path / "m.yaml", bindings or Bindings())


def level(report: Report) -> str:
    return ("", *LEVELS)[report.reached]


@pytest.mark.parametrize("manifest", [RUNTIME, ROUTING])
@pytest.mark.parametrize(
    ("value", "reached"), [("5", "runnable"), ("${NOT_SET}", "valid"), ("{a: 1}", "parsed"), ("{", "")]
)
def test_levels_of_manifests_that_are_applied_to_applications(
    tmp_path: Path, manifest: str, value: str, reached: str
) -> None:
    value = "'5'" if value == "5" and manifest is ROUTING else value
    assert level(checked(tmp_path, manifest.replace("VALUE", value))) == reached


def test_variable_without_a_value_is_a_missing_binding(tmp_path: Path) -> None:
    (missing,) = checked(tmp_path, RUNTIME.replace("VALUE", "${NOT_SET}")).to_json()["missing"]
    assert (missing["binding"], missing["name"], missing["line"]) == ("variable", "NOT_SET", 4)


@pytest.mark.parametrize(
    ("lines", "binding", "name"),
    [
        ("  tools: [{type: function, name: stock.count}]", "tool", "stock.count"),
        ("  tools: [{type: a2a, name: writer}]", "agent", "writer"),
        ("  llm: {provider: anthropic, model: m}", "credential", "ANTHROPIC_API_KEY"),
        ("  llm: {provider: custom, model: m}", "model", "HELIOGRAPH_MODEL"),
        ("  llm: {provider: anthropic, model: m, maxTokens: '${SIZE}'}", "variable", "SIZE"),
    ],
)
def test_missing_binding_of_an_agent_is_named_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, binding: str, name: str
) -> None:
    for each in ("ANTHROPIC_API_KEY", "HELIOGRAPH_MODEL", "SIZE"):
        monkeypatch.delenv(each, raising=False)
    report = checked(tmp_path, AGENT.replace("{role: R}", f"\n  role: R\n{lines}"))
    assert level(report) == "valid"
    assert (binding, name) in [(each["binding"], each["name"]) for each in report.to_json()["missing"]]


def test_text_that_looks_like_a_secret_is_allowed_by_the_operator(tmp_path: Path) -> None:
    text = AGENT + "extensions: {x: {api_key: 'Abcdefgh12345678'}}\n"
    report = checked(tmp_path, text, Bindings(model=ScriptedModel([])))
    assert level(report) == "parsed"
    assert "--allow-secret-literals" in report.problems[0].hint
    report = checked(tmp_path, text, Bindings(model=ScriptedModel(["Hi."]), allows_secrets=True))
    assert level(report) == "runnable"
    assert ("secret_literal", True) in [(each.code, each.is_warning) for each in report.problems]
    assert "Abcdefgh12345678" not in str(report.to_json())


@pytest.mark.parametrize(("manifest", "option"), [(RUNTIME, "--runtime"), (ROUTING, "--routing")])
def test_run_of_a_manifest_that_is_no_agent_names_the_right_command(tmp_path: Path, manifest: str, option: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(manifest.replace("VALUE", "5"))
    with pytest.raises(ManifestRejected) as caught:
        load_manifest(path, Bindings())
    (found,) = caught.value.problems
    assert (found.code, found.hint) == ("not_runnable", f"write helio run FILE.py:app {option} {path}")


def test_at_most_a_hundred_warnings_of_a_manifest_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(AGENT.replace("role: R", "role: R, " + ", ".join(f"x{n}: 1" for n in range(103))))
    bindings = {"tools": None, "start_servers": False, "external_tools": False, "allow_secret_literals": False}
    options = Namespace(files=[str(file)], json=False, level="valid", model=None, **bindings)
    assert validate(options) == 0
    printed = capsys.readouterr().out
    assert (printed.count("  warning: "), "  3 more warnings; --json prints all of them\n" in printed) == (100, True)
    assert printed.count("missing_model") == 1
    assert sum(each["code"] == "no_effect" for each in check(file, Bindings()).to_json()["problems"]) == 103
    (tmp_path / "models.py").write_text("from heliograph.models import ScriptedModel\n\nmodel = ScriptedModel([])\n")
    load_target(str(file), Namespace(**{**vars(options), "model": f"{tmp_path / 'models.py'}:model"}))
    printed = capsys.readouterr().err
    assert (printed.count("warning: "), "\n3 more warnings; helio validate --json" in printed) == (100, True)


@pytest.mark.parametrize(("manifest", "load"), [(RUNTIME, load_runtime), (ROUTING, load_routing)])
def test_text_that_looks_like_a_secret_is_allowed_in_each_kind(tmp_path: Path, manifest: str, load: Any) -> None:
    value = "'q'" if manifest is ROUTING else "5"
    text = manifest.replace("VALUE", value) + "metadata: {api_key: 'Abcdefgh12345678'}\n"
    assert level(checked(tmp_path, text)) == "parsed"
    report = checked(tmp_path, text, Bindings(allows_secrets=True))
    assert level(report) == "runnable"
    assert ("secret_literal", True) in [(each.code, each.is_warning) for each in report.problems]
    path = str(tmp_path / "m.yaml")
    with pytest.raises(ManifestRejected):
        load(path, allows_secrets=False)
    assert [each.code for each in load(path, allows_secrets=True).warnings] == ["secret_literal"]


def test_option_for_secrets_applies_to_the_manifests_of_an_application(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from heliograph import Heliograph\n\napp = Heliograph('desk')\n"
                                     "app.prompt_agent('lead', 'Go.', activate_on=['workflow:start'])\n")  # fmt: skip
    bindings = {
        "tools": None,
        "model": None,
        "start_servers": False,
        "external_tools": False,
        "allow_secret_literals": True,
    }
    app = f"{tmp_path / 'app.py'}:app"
    assert load_target(app, Namespace(**bindings, runtime="r.yaml", routing=None)).name == "desk"
    with pytest.raises(InvalidInput, match="--allow-secret-literals is for manifests"):
        load_target(app, Namespace(**bindings, runtime=None, routing=None))


def test_missing_bindings_are_reported_beside_invalid_values(tmp_path: Path) -> None:
    for spec, more, code in (
        (", lifecycle: {turn_timeout: soon}", "", "invalid_format"),
        ("", "security: 7\n", "wrong_type"),
    ):
        text = AGENT.replace("role: R", f"role: R, tools: [nowhere]{spec}") + more
        report = checked(tmp_path, text, Bindings(model=ScriptedModel([])))
        assert [each.code for each in report.problems if not each.is_warning] == ["missing_tool", code]


@pytest.mark.parametrize("kind", ["Agent", "Workflow"])
def test_problem_of_only_the_schema_of_v0_4_6_is_a_warning(tmp_path: Path, kind: str) -> None:
    spec = "{role: R}" if kind == "Agent" else "{steps: [{id: a, kind: Task, ref: look}]}"
    text = f"apiVersion: ossa/v0.4\nkind: {kind}\nmetadata: {{name: a, identity: {{agent_id: a}}}}\nspec: {spec}\n"
    bindings = Bindings(tools={"look": external_tool("look", "")}, model=ScriptedModel([]))
    report = checked(tmp_path, text, bindings)
    assert level(report) == "runnable"
    assert [(each.code, each.pointer) for each in report.problems] == [("unknown_field", "/metadata/identity")]
    assert [each.pointer for each in load_manifest(tmp_path / "m.yaml", bindings)[1]] == ["/metadata/identity"]


def test_invalid_manifest_starts_none_of_its_servers(tmp_path: Path) -> None:
    started = tmp_path / "started"
    spec = (
        f"lifecycle: {{turn_timeout: soon}}, tools: [look, {{type: mcp, name: stock, command: [touch, '{started}']}}]"
    )
    report = checked(tmp_path, AGENT.replace("role: R", f"role: R, {spec}"), Bindings(starts_servers=True))
    assert level(report) == "valid"
    assert not started.exists()
    assert [each.code for each in report.problems if not each.is_warning] == ["missing_model", "invalid_format"]


def test_invalid_manifest_also_lists_missing_tools_that_no_server_may_have(tmp_path: Path) -> None:
    server = "{type: mcp, name: stock, command: [touch, x], tools: [count]}"
    spec = f"lifecycle: {{turn_timeout: soon}}, tools: [look, {server}]"
    bindings = Bindings(model=ScriptedModel([]), starts_servers=True)
    report = checked(tmp_path, AGENT.replace("role: R", f"role: R, {spec}"), bindings)
    assert [each["name"] for each in report.to_json()["missing"]] == ["look"]
