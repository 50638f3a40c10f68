"""Every YAML example of the two control specifications: as written, as JSON, without each required key, and with misspelt keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heliograph.control.envelope import read_envelope
from heliograph.control.lifecycle_settings import read_lifecycle
from heliograph.control.settings import read_settings
from heliograph.control.signals import TYPES, payload_type, read_signal
from heliograph.manifest.document import Document
from heliograph.manifest.message_routing import read_message_routing
from heliograph.manifest.problems import ManifestRejected
from heliograph.manifest.reader import kind_of, parse_manifest
from heliograph.manifest.runtime_spec import read_runtime_spec
from tests.rules.control_examples import ENVELOPE, EXAMPLES, LIFECYCLES, ROUTES, SETTINGS
from tests.rules.manifest_kit import parse

FOLDER = Path(__file__).parent / "spec_examples"
HEADER = {"apiVersion": "ossa/v0.4.9", "kind": "RuntimeSpec"}


class Example(NamedTuple):
    """place: what the example is a part of. lines: those of its own text."""

    name: str
    place: str
    text: str
    value: Any


def _read(path: Path) -> Example:
    text = path.read_text(encoding="utf-8")
    place = text.splitlines()[2].removeprefix("# Read as: ")
    document = parse_manifest(text.encode(), path.name)
    assert document.problems == []
    return Example(path.stem, place, text, document.value)


ALL = [_read(path) for path in sorted(FOLDER.glob("*.yaml"))]
MANIFESTS = [each for each in ALL if each.place in ("RuntimeSpec", "MessageRouting")]
REJECTED = "tracing"  # its endpoint is Thrift: G-28
LOADED = [each for each in MANIFESTS if each.name != REJECTED]
PARTS = [each for each in ALL if each.place.startswith("/")]  # sections, which stand at their place in a manifest


def load(document: Document) -> Any:
    return (read_message_routing if kind_of(document) == "MessageRouting" else read_runtime_spec)(document)


def as_document(value: Any, *, is_json: bool = False) -> Document:
    return parse(json.dumps(value, indent=2), "m.json" if is_json else "m.yaml")


def complete(example: Example) -> dict[str, Any]:
    """The example with version and kind, which those of single sections omit."""
    value = example.value
    for key in reversed(example.place.split("/")[1:]):
        value = {key: value}
    return dict(value) if "kind" in value else {**HEADER, **value}


def ids(examples: list[Example]) -> list[str]:
    return [each.name for each in examples]


def test_every_example_has_its_specification_and_section() -> None:
    assert len(ALL) == 40
    for each in ALL:
        spec, section, place = each.text.splitlines()[:3]
        assert spec in ("# Specification: Control Signals", "# Specification: Agent Lifecycle")
        assert section.startswith("# Section: ")
        assert place.startswith("# Read as: ")


def test_examples_denote_the_values_that_the_other_tests_use() -> None:
    values = [each.value for each in ALL]
    for expected in (*(each.wire for each in EXAMPLES), ENVELOPE, ROUTES):
        assert expected in values
    signals = [each.value["control_signals"] for each in MANIFESTS if "control_signals" in each.value]
    signals += [each.value for each in ALL if each.place == "/control_signals"]
    signals += [{"tool_call": each.value} for each in ALL if each.place == "/control_signals/tool_call"]
    assert all(expected in signals for expected in SETTINGS.values())
    lifecycles = [each.value["lifecycle"] for each in MANIFESTS if "lifecycle" in each.value]
    lifecycles += [each.value for each in ALL if each.place == "/lifecycle"]
    assert all(expected in lifecycles for expected in LIFECYCLES.values())


@pytest.mark.proves("CTL-70", "CTL-94", "RTE-09", "G-32")
@pytest.mark.parametrize("example", LOADED, ids=ids(LOADED))
def test_manifest_loads_as_written_and_as_json(example: Example) -> None:
    written = load(parse(example.text))
    same = load(as_document(example.value, is_json=True))
    for made in (written, same):
        if example.place == "MessageRouting":
            assert made.table.to_wire() == example.value
        else:
            assert (made.lifecycle is not None) == ("lifecycle" in example.value)
            assert (made.observability is not None) == ("observability" in example.value)
    assert [each.code for each in written.warnings] == [each.code for each in same.warnings]
    expected = [] if "kind" in example.value else ["header_missing"]
    if example.name == "unrecoverable_errors":  # its message belongs to no setting
        expected.append("no_effect")
    assert [each.code for each in written.warnings] == expected


@pytest.mark.parametrize("example", [each for each in ALL if each not in MANIFESTS], ids=lambda each: each.name)
def test_other_examples_are_read_by_their_parsers(example: Example) -> None:
    readers: dict[str, Callable[[Any], Any]] = {
        "signal": read_signal, "envelope": read_envelope, "/control_signals": read_settings, "/lifecycle": read_lifecycle,
        "/control_signals/tool_call": lambda value: read_settings({"tool_call": value}),
    }  # fmt: skip
    if example.place == "structure":
        fields = payload_type(TYPES[example.value["type"]]).model_fields
        known = {field.serialization_alias or name for name, field in fields.items()}
        assert set(example.value["payload"]) <= known
    else:
        assert readers[example.place](example.value) is not None
    if example.place.startswith("/"):
        value = example.value
        for key in reversed(example.place.split("/")[1:]):
            value = {key: value}
        assert read_runtime_spec(as_document({**HEADER, **value})).document.is_readable


@pytest.mark.proves("G-28", "OBS-08")
def test_endpoint_of_the_example_is_thrift_and_is_rejected_with_the_one_of_otlp() -> None:
    example = next(each for each in ALL if each.name == REJECTED)
    with pytest.raises(ManifestRejected) as caught:
        load(parse(example.text))
    [problem] = [each for each in caught.value.problems if not each.is_warning]
    assert (problem.code, problem.line, problem.column) == ("jaeger_thrift_endpoint", 10, 17)
    assert problem.pointer == "/observability/tracing/export/endpoint"
    assert "OTLP" in problem.message
    assert problem.hint == "write http://jaeger:4318/v1/traces"
    changed = example.text.replace("14268/api/traces", "4318")
    tracing = read_runtime_spec(parse(changed)).observability
    assert tracing is not None
    assert tracing.tracing.to_wire() == {
        "enabled": True, "propagation": "w3c", "sample_rate": 0.1, "export": {"endpoint": "http://jaeger:4318"},
    }  # fmt: skip


REQUIRED = {
    "RuntimeSpec": ("apiVersion", "kind"), "MessageRouting": ("apiVersion", "kind", "routes"),
    "routes/": ("match", "destination"), "metrics/": ("name", "type"), "export": ("endpoint",), "error/payload": ("error_code",),
}  # fmt: skip


def objects_in(value: Any, pointer: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield pointer, value
        for key, item in value.items():
            yield from objects_in(item, f"{pointer}/{key}")
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from objects_in(item, f"{pointer}/{n}")


def required_at(example: Example, pointer: str) -> tuple[str, ...]:
    if not pointer:
        return REQUIRED["MessageRouting" if example.place == "MessageRouting" else "RuntimeSpec"]
    parts = pointer.split("/")
    return REQUIRED.get(f"{parts[-2]}/" if parts[-1].isdigit() else "/".join(parts[-2:]), REQUIRED.get(parts[-1], ()))


def without_each_required_key() -> Iterator[Any]:
    for example in (*MANIFESTS, *PARTS):
        for pointer, owner in objects_in(complete(example)):
            for key in required_at(example, pointer):
                if key in owner:
                    yield pytest.param(example, pointer, key, id=f"{example.name} {pointer}/{key}")


def changed(example: Example, pointer: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The complete example with a change of the object at a pointer."""
    value = copy.deepcopy(complete(example))
    if not pointer:
        return change(value)
    owner: Any = value
    *path, last = pointer.split("/")[1:]
    for key in path:
        owner = owner[int(key) if isinstance(owner, list) else key]
    index = int(last) if isinstance(owner, list) else last
    owner[index] = change(owner[index])
    return value


@pytest.mark.proves("CTL-70", "RTE-09")
@pytest.mark.parametrize(("example", "pointer", "key"), list(without_each_required_key()))
def test_manifest_without_a_required_key_is_rejected(example: Example, pointer: str, key: str) -> None:
    value = changed(example, pointer, lambda owner: {k: v for k, v in owner.items() if k != key})
    document = as_document(value)
    read = read_message_routing if example.place == "MessageRouting" else read_runtime_spec
    with pytest.raises(ManifestRejected) as caught:
        read(document)
    problem = next(each for each in caught.value.problems if each.code == "required_field")
    assert problem.pointer == f"{pointer}/{key}"
    assert (problem.line, problem.column) == document.position_of(pointer)
    assert f"'{key}'" in problem.message
    assert problem.hint.startswith("add ")


def every_key() -> Iterator[Any]:
    closed = [each for each in PARTS if each.name != "correlation_ids"]  # the keys of its payload are free
    for example in (*LOADED, *closed):
        for pointer, owner in objects_in(complete(example)):
            for key in owner:
                yield pytest.param(example, pointer, key, id=f"{example.name} {pointer}/{key}")


@pytest.mark.proves("CTL-94", "G-32")
@pytest.mark.parametrize(("example", "pointer", "key"), list(every_key()))
def test_misspelt_key_is_rejected_with_the_key_that_was_meant(example: Example, pointer: str, key: str) -> None:
    misspelt = key[:-1] + "x" + key[-1]
    value = changed(example, pointer, lambda owner: {misspelt if k == key else k: v for k, v in owner.items()})
    document = as_document(value)
    read = read_message_routing if example.place == "MessageRouting" else read_runtime_spec
    with pytest.raises(ManifestRejected) as caught:
        read(document)
    [problem] = [each for each in caught.value.problems if not each.is_warning]
    assert (problem.code, problem.pointer) == ("unknown_field", f"{pointer}/{misspelt}")
    assert problem.hint == f"did you mean {key}?"
    assert (problem.line, problem.column) == document.key_position_of(problem.pointer)
