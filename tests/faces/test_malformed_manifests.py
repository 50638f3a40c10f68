"""Malformed manifests, one per case: each ends a command with file, line, column, code, next step and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.main import main
from tests.kept_logging import kept_logging

HEAD = "apiVersion: ossa/v0.4.9\nkind: RuntimeSpec\n"
ROUTES = "apiVersion: ossa/v0.4.9\nkind: MessageRouting\n"
BOMB = "a: &a [x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)
SECRET = "sk-" + "Ab12" * 10

# The text, the code of an error, and its line and column.
CASES: dict[str, tuple[str | bytes, str, int, int]] = {
    "empty": ("", "manifest_empty", 1, 1),
    "spaces": ("  \n\n", "manifest_empty", 1, 1),
    "only comments": ("# a\n# b\n", "manifest_empty", 1, 1),
    "only a start of a document": ("---\n...\n", "manifest_empty", 1, 1),
    "list": ("- a\n", "manifest_not_mapping", 1, 1),
    "scalar": ("RuntimeSpec\n", "manifest_not_mapping", 1, 1),
    "number": ("7\n", "manifest_not_mapping", 1, 1),
    "tab": (HEAD + "lifecycle:\n\tphases: {}\n", "yaml_syntax", 4, 1),
    "tab first": ("\tkind: RuntimeSpec\n", "yaml_syntax", 1, 1),
    "two documents": (HEAD + "---\n" + HEAD, "yaml_multiple_documents", 3, 1),
    "duplicate key": (HEAD + "kind: RuntimeSpec\n", "yaml_duplicate_key", 3, 1),
    "duplicate key in depth": (HEAD + "lifecycle:\n  max_iterations: 1\n  max_iterations: 2\n", "yaml_duplicate_key", 5, 3),
    "duplicate key in braces": (HEAD + "lifecycle: {max_iterations: 1, max_iterations: 1}\n", "yaml_duplicate_key", 3, 32),
    "alias": (HEAD + "lifecycle: &x {}\nobservability: *x\n", "yaml_aliases_not_allowed", 3, 12),
    "cycle of aliases": ("a: &a\n  b: *a\n", "yaml_aliases_not_allowed", 1, 4),
    "bomb": (BOMB, "yaml_aliases_not_allowed", 1, 4),
    "merge key": (HEAD + "lifecycle: {<<: {max_iterations: 1}}\n", "yaml_merge_not_allowed", 3, 13),
    "tag of Python": (HEAD + "lifecycle: !!python/object:os.system {}\n", "yaml_tag_not_allowed", 3, 12),
    "tag of text": (HEAD + "metadata: {name: !!str 7}\n", "yaml_tag_not_allowed", 3, 18),
    "YAML 1.1": ("%YAML 1.1\n---\n" + HEAD, "yaml_version", 1, 1),
    "deep list": (HEAD + "lifecycle: " + "[" * 2000 + "]" * 2000, "yaml_too_deep", 3, 43),
    "deep object": ("{a: " * 5000, "yaml_too_deep", 1, 129),
    "deep dashes": ("- " * 5000, "yaml_too_deep", 1, 65),
    "many nodes": ("a: [" + "1," * 20_000 + "1]", "yaml_too_many_nodes", 1, 19_999),
    "10 MB": ("a: " + "x" * 10_485_760, "manifest_too_large", 1, 1),
    "300 KB": (HEAD + "#" * 300_000, "manifest_too_large", 1, 1),
    "NUL": (HEAD.encode() + b"lifecycle: \x00\n", "nul_character", 3, 12),
    "escaped NUL": (HEAD + 'metadata: {name: "a\\0b"}\n', "nul_character", 3, 18),
    "escape sequence": (HEAD.encode() + b"# \x1b[2J\n", "invalid_character", 3, 3),
    "DEL": (HEAD.encode() + b"# \x7f\n", "invalid_character", 3, 3),
    "byte order mark inside": (HEAD + "# \ufeff\n", "invalid_character", 3, 3),
    "latin 1": (HEAD.encode() + "# müde\n".encode("latin-1"), "encoding", 3, 4),
    "UTF-16": (HEAD.encode("utf-16"), "encoding", 1, 1),
    "UTF-32": (HEAD.encode("utf-32"), "encoding", 1, 1),
    "cut off in UTF-8": (HEAD.encode() + b"# \xe2\x82", "encoding", 3, 3),
    "half of a surrogate pair": (HEAD + 'metadata: {name: "\\ud800"}\n', "invalid_unicode", 3, 18),
    "open quote": (HEAD + "metadata: {name: 'x\n", "yaml_syntax", 4, 1),
    "open brace": (HEAD + "metadata: {name: x\n", "yaml_syntax", 4, 1),
    "two colons": (HEAD + "metadata: name: x\n", "yaml_syntax", 3, 15),
    "bad escape": (HEAD + 'metadata: {name: "\\q"}\n', "yaml_syntax", 3, 20),
    "escape beyond Unicode": (HEAD + 'metadata: {name: "\\U00110000"}\n', "yaml_syntax", 3, 12),
    "bad indentation": (HEAD + "lifecycle:\n    max_iterations: 1\n  phases: {}\n", "yaml_syntax", 5, 3),
    "at sign": (HEAD + "metadata: {name: @x}\n", "yaml_syntax", 3, 18),
    "backtick": (HEAD + "metadata: {name: `x`}\n", "yaml_syntax", 3, 18),
    "key is a list": (HEAD + "? [a]\n: 1\n", "key_not_string", 3, 3),
    "JSON with a comma too many": ('{"kind": "RuntimeSpec",,}', "yaml_syntax", 1, 24),
    "JSON that is cut off": ('{"kind": "RuntimeSp', "yaml_syntax", 1, 20),
    "JSON with NaN": ('{"kind": "RuntimeSpec", "apiVersion": "ossa/v0.4.9", "lifecycle": {"max_iterations": NaN}}', "wrong_type", 1, 86),
    "no kind": ("apiVersion: ossa/v0.4.9\n", "required_field", 1, 1),
    "no version": ("kind: RuntimeSpec\n", "required_field", 1, 1),
    "other version": ("apiVersion: ossa/v9\nkind: RuntimeSpec\n", "unsupported_version", 1, 13),
    "version is a number": ("apiVersion: 0.4\nkind: RuntimeSpec\n", "unsupported_version", 1, 13),
    "other kind": ("apiVersion: ossa/v0.4.9\nkind: Deployment\n", "unknown_kind", 2, 7),
    "misspelt section": (HEAD + "lifecycel: {}\n", "unknown_field", 3, 1),
    "section is null": (HEAD + "lifecycle:\n", "wrong_type", 3, 1),
    "section is a list": (HEAD + "lifecycle: []\n", "wrong_type", 3, 12),
    "misspelt phase": (HEAD + "lifecycle: {phases: {acct: {}}}\n", "unknown_field", 3, 22),
    "timeout is a text": (HEAD + 'lifecycle: {phases: {act: {timeout_seconds: "60"}}}\n', "wrong_type", 3, 45),
    "timeout with a unit": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: 60 s}}}\n", "wrong_type", 3, 45),
    "timeout is negative": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: -5}}}\n", "out_of_range", 3, 45),
    "timeout is 0": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: 0}}}\n", "out_of_range", 3, 45),
    "timeout is huge": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: 1e99}}}\n", "out_of_range", 3, 45),
    "timeout is infinite": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: .inf}}}\n", "out_of_range", 3, 45),
    "timeout beyond a double": (HEAD + "lifecycle: {phases: {act: {timeout_seconds: 1e999}}}\n", "number_too_large", 3, 45),
    "5000 digits": (HEAD + "lifecycle: {max_iterations: " + "9" * 5000 + "}\n", "number_too_large", 3, 29),
    "flag is NO": (HEAD + "observability: {tracing: {enabled: NO}}\n", "wrong_type", 3, 36),
    "flag is on": (HEAD + "control_signals: {heartbeat: {enabled: on}}\n", "wrong_type", 3, 40),
    "underscored number": (HEAD + "lifecycle: {total_timeout_seconds: 1_000}\n", "wrong_type", 3, 36),
    "sexagesimal number": (HEAD + "lifecycle: {total_timeout_seconds: 12:30:45}\n", "wrong_type", 3, 36),
    "date": (HEAD + "lifecycle: {total_timeout_seconds: 2024-01-15}\n", "wrong_type", 3, 36),
    "unknown signal": (HEAD + "control_signals: {tool_calls: {}}\n", "unknown_field", 3, 19),
    "two ways to retry": (HEAD + "control_signals: {tool_call: {retry: {backoff_ms: 1, strategy: linear}}}\n", "two_retry_shapes", 3, 64),
    "breaker that cannot close": (HEAD + "control_signals: {tool_call: {circuit_breaker: {success_threshold: 9}}}\n", "out_of_range", 3, 68),
    "rate": (HEAD + "control_signals: {tool_call: {rate_limit: 10 per second}}\n", "invalid_rate", 3, 43),
    "policy without a code": (HEAD + "control_signals: {error: {payload: {retry_count: 1}}}\n", "required_field", 3, 36),
    "unknown expression": (HEAD + "control_signals: {tool_call: {payload: {x: '${os.environ}'}}}\n", "unknown_expression", 3, 44),
    "expression elsewhere": (HEAD + "metadata: {name: '${uuid()}'}\n", "expression_not_allowed", 3, 18),
    "missing variable": (HEAD + "metadata: {name: '${NO_SUCH_VARIABLE_ANYWHERE}'}\n", "env_missing", 3, 18),
    "secret": (HEAD + f"metadata: {{description: {SECRET}}}\n", "secret_literal", 3, 25),
    "secret in a label": (HEAD + f"metadata: {{labels: {{api_key: '{SECRET}'}}}}\n", "secret_literal", 3, 30),
    "password in a URL": (HEAD + "metadata: {annotations: {db: 'postgresql://u:hunter2x@h/d'}}\n", "secret_literal", 3, 30),
    "Thrift": (HEAD + "observability: {tracing: {export: {endpoint: 'http://j:14268/api/traces'}}}\n", "jaeger_thrift_endpoint", 3, 46),
    "route without a destination": (ROUTES + "routes:\n  - match: {tool_name: x}\n", "required_field", 4, 5),
    "route to nowhere": (ROUTES + "routes:\n  - match: {tool_name: x}\n    destination: {}\n", "queue_or_gateway", 5, 18),
    "route with regular expressions": (ROUTES + "routes:\n  - match: {signal_type: '(a+)+$'}\n    destination: {queue: q}\n", "invalid_wildcard", 4, 26),
    "routes is an object": (ROUTES + "routes: {}\n", "wrong_type", 3, 9),
    "$ref in a manifest": (HEAD + "lifecycle: {$ref: '#/lifecycle'}\n", "unknown_field", 3, 13),
}  # fmt: skip


AGENT = "apiVersion: ossa/v0.5\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  role: R\n"
CASES |= {
    "agent: cycle of $ref": (AGENT + "  functions: [{name: f, parameters: {$ref: '#'}}]\n", "invalid_schema", 6, 37),
    "agent: cycle of two $ref": (
        AGENT + "  tools: [{name: f, parameters: {$ref: '#/$defs/a', $defs: {a: {$ref: '#/$defs/b'}, b: {$ref: '#/$defs/a'}}}}]\n",
        "invalid_schema", 6, 33,
    ),
    "agent: secret in a header": (AGENT + f"  tools: [{{type: mcp, name: x, url: 'https://x.example', headers: {{a: {SECRET}}}}}]\n",
                                  "secret_literal", 6, 71),
    "agent: alias": (AGENT + "  tools: [*x]\n", "yaml_aliases_not_allowed", 6, 11),
    "agent: no name": (AGENT.replace("{name: clerk}", "{}"), "required_field", 3, 11),
    "agent: no metadata": (AGENT.replace("metadata: {name: clerk}\n", ""), "required_field", 1, 1),
    "agent: name with a control character": (AGENT.replace("clerk", '"a\\u0007b"'), "invalid_format", 3, 18),
    "agent: unknown version": (AGENT.replace("v0.5", "v9"), "unsupported_version", 1, 13),
    "agent: unknown kind": (AGENT.replace("Agent", "Agnet"), "unknown_kind", 2, 7),
    "agent: option that grants trust": (AGENT + "extensions: {heliograph: {trusted: true}}\n", "unknown_field", 6, 36),
    "agent: duration": (AGENT + "  lifecycle: {turn_timeout: soon}\n", "invalid_format", 6, 29),
    "agent: huge limit": (AGENT + "  lifecycle: {max_turns: 1e300}\n", "out_of_range", 6, 26),
    "agent: approval": (AGENT + "  autonomy: {approval_required: send}\n", "wrong_type", 6, 33),
    "agent: escaped duplicate key": (AGENT + '  tools: []\n  "to\\u006fls": []\n', "yaml_duplicate_key", 7, 3),
    "agent: tool without a binding": (AGENT + "  tools: [nowhere]\n", "missing_tool", 6, 11),
    "agent: server of the manifest": (AGENT + "  tools: [{type: mcp, name: x, url: 'https://x.example'}]\n", "missing_tool", 6, 11),
    "agent: no YAML": (AGENT + "  tools: [\n", "yaml_syntax", 7, 1),
}  # fmt: skip
APPLICATION = """
from heliograph import Heliograph

app = Heliograph("desk")


@app.agent(activate_on=["workflow:start"], updates="x")
def lead(ctx) -> int:
    return 1
"""

SLOW = dict.fromkeys(("deep list", "many nodes"), pytest.mark.more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an application. Its database cannot be reached, so a command that does not stop before it fails otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", "postgresql://127.0.0.1:1/nowhere")
    (tmp_path / "desk.py").write_text(APPLICATION)
    (tmp_path / "model.py").write_text(
        'from heliograph.models import ScriptedModel\n\nmodel = ScriptedModel(["hello"])\n'
    )
    with kept_logging():
        yield tmp_path


def run_of(data: bytes) -> list[str]:
    """The command that runs a manifest: as an agent, or applied to an application."""
    if b"Agent" in data or b"Agnet" in data:
        return ["run", "m.yaml", "--model", "model.py:model"]
    return ["run", "desk.py:app", "--routing" if b"MessageRouting" in data else "--runtime", "m.yaml"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in CASES])
def test_malformed_manifest_ends_the_command_with_its_place_and_runs_nothing(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, code, line, column = CASES[name]
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (folder / "m.yaml").write_bytes(data)
    before = sorted(folder.iterdir())
    assert main([*run_of(data), "--json"]) == 2
    out, err = capfd.readouterr()
    error = json.loads(out)["error"]
    assert (code, line, column) in [(each["code"], each["line"], each["column"]) for each in error["problems"]]
    assert {each["file"] for each in error["problems"]} == {error["file"]} == {"m.yaml"}
    assert all(each["hint"] and each["line"] >= 1 and each["column"] >= 1 for each in error["problems"])
    assert f"m.yaml:{line}:{column}: {code}: " in err
    assert "hint: " in err
    for hidden in ("Traceback", SECRET, "hunter2x", "\x1b", "\x07", "\0"):
        assert hidden not in out + err
    assert [each for each in sorted(folder.iterdir()) if each.name != "__pycache__"] == before


@pytest.mark.more
@pytest.mark.parametrize("name", CASES)
def test_malformed_manifest_is_not_valid_or_not_runnable(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = CASES[name][0]
    (folder / "m.yaml").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert main(["validate", "m.yaml", "--model", "model.py:model", "--level", "runnable", "--json"]) == 2
    report = json.loads(capfd.readouterr().out)
    assert report["runnable"] is False
    assert any(each["severity"] == "error" and each["hint"] and each["file"] == "m.yaml" for each in report["problems"])


def test_cases_are_as_many_as_the_page_of_malformed_inputs_has_manifests() -> None:
    assert len(CASES) >= 80
