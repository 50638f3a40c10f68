"""Templates of prompts: values are never templates, and the cost of rendering is bounded."""

from __future__ import annotations

import time

import pytest

from heliograph.definitions.templates import RENDERED_MAX, placeholders, substitute
from heliograph.errors import InvalidInput

HOSTILE = (
    "{state.secret}",
    "{{",
    "}",
    "{",
    "{state.a.__class__}",
    "${HOME}",
    "{{ 7 * 7 }}",
    "%s%n",
    "{0}",
    "{state.a!r:>99999}",
)


@pytest.mark.proves("S8")
@pytest.mark.parametrize("value", HOSTILE)
def test_value_is_inserted_as_it_is_and_never_read_as_a_template(value: str) -> None:
    values = {"state.a": value, "state.secret": "hunter2"}
    assert substitute("<{state.a}|{state.a}>", values) == f"<{value}|{value}>"


@pytest.mark.proves("S8")
@pytest.mark.parametrize("name", ["state.a.__class__", "state.a!r", "state.a:>9999999999", "0", "", "state.a[0]"])
def test_placeholder_is_a_name_and_nothing_else(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        substitute(f"{{{name}}}", {"state.a": "x"})
    assert caught.value.code == "template_undefined"


@pytest.mark.proves("S8")
def test_rendered_text_is_bounded() -> None:
    values = {"state.a": "x" * 1_000_000}
    assert len(substitute("{state.a}" * 4, values)) == 4_000_000
    with pytest.raises(InvalidInput) as caught:
        substitute("{state.a}" * 100_000, values)
    assert caught.value.code == "rendered_too_long"
    assert str(RENDERED_MAX) in caught.value.message


@pytest.mark.more
@pytest.mark.proves("S8")
@pytest.mark.parametrize("piece", ["{{", "}}", "}", "{a}", "{{{a}}}", "x"])
def test_time_of_rendering_grows_with_the_length_of_the_template(piece: str) -> None:
    template, start = piece * 100_000, time.process_time()
    assert len(substitute(template, {"a": "1"})) <= len(template)
    assert len(placeholders(template)) <= 100_000
    assert time.process_time() - start < 5  # a quadratic one takes minutes


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("a}b", "a}b"),
        ("{{}", "{}"),
        ("{{}}", "{}"),
        ("}}}", "}}"),
        ("{ a }b", "1b"),
        ("{{{a}}}", "{1}"),
        ("a\n{a}\n", "a\n1\n"),
    ],
)
def test_braces_of_templates(template: str, text: str) -> None:
    assert substitute(template, {"a": "1"}) == text


@pytest.mark.parametrize("template", ["{", "a{b", "{{{", "{a}{"])
def test_brace_without_an_end_is_rejected(template: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        placeholders(template)
    assert caught.value.code == "template_syntax"
