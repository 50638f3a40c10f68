"""The reader of manifests: YAML 1.2 as plain JSON, the place of every value, and all problems of a text at once."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.manifest.document_builder import DEPTH_MAX, NODES_MAX
from heliograph.manifest.problems import PROBLEMS_MAX
from heliograph.manifest.reader import BYTES_MAX
from heliograph.manifest.secret_literals import is_secret_literal
from tests.rules.manifest_kit import found, parse


def problems(text: str | bytes, **more: Any) -> list[tuple[str, int, int]]:
    return found(tuple(parse(text, **more).problems))


@pytest.mark.proves("S10")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"), ("on", "on"), ("yes", "yes"), ("off", "off"), ("010", 10), ("12:30:45", "12:30:45"), ("1_000", "1_000"),
        ("2024-01-15", "2024-01-15"), ("2024-01-15T10:30:00Z", "2024-01-15T10:30:00Z"), ("0x1F", 31), ("0o17", 15), ("1.10", 1.1),
        ("1e3", 1000.0), ("+5", 5), ("-.5", -0.5), ("~", None), ("", None), ("null", None), ("Null", None), ("nUll", "nUll"),
        ("true", True), ("TRUE", True), ("tRue", "tRue"), ("'true'", "true"), ('"1"', "1"), ("0b1", "0b1"), ("1e", "1e"),
        ('"\\ud83d\\ude00"', "\U0001f600"), ("|\n  a\n  b\n", "a\nb\n"), (">\n  a\n  b\n", "a b\n"), ("[a, {b: 1}]", ["a", {"b": 1}]),
    ],
)  # fmt: skip
def test_scalars_are_those_of_the_core_schema(text: str, value: Any) -> None:
    document = parse(f"a: {text}\n")
    assert (document.problems, document.value) == ([], {"a": value})
    assert type(document.value["a"]) is type(value)


@pytest.mark.proves("S10")
def test_keys_are_texts_as_they_are_written() -> None:
    assert parse("on: 1\n1: 2\ntrue: 3\n~: 4\n1.10: 5\n").value == {"on": 1, "1": 2, "true": 3, "~": 4, "1.10": 5}


def test_every_value_and_key_has_its_place() -> None:
    document = parse("a:\n  - b: 1\n    'c d': {e: [x, y]}\n  - z\nf/g: 2\n")
    assert document.position_of("/a/0/b") == (2, 8)
    assert document.key_position_of("/a/0/c d") == (3, 5)
    assert document.position_of("/a/0/c d/e/1") == (3, 20)
    assert document.position_of("/a/1") == (4, 5)
    assert document.key_position_of("/f~1g") == (5, 1)
    assert document.position_of("/a/0/missing/deeper") == (2, 5)
    assert document.position_of("/nowhere") == (1, 1)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.more
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), JSON_VALUES, min_size=1, max_size=4),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_json_is_read_as_it_is(value: dict[str, Any], indent: Any, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    document = parse(text.encode("utf-8", "surrogatepass"), "m.json")
    if document.problems:
        assert {each.code for each in document.problems} <= {
            "nul_character",
            "invalid_unicode",
            "invalid_character",
            "encoding",
        }
    else:
        assert document.value == value


@pytest.mark.proves("S10")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("manifest_empty", 1, 1)]),
        ("# only\n# comments\n", [("manifest_empty", 1, 1)]),
        ("---\n", [("manifest_empty", 1, 1)]),
        ("null\n", [("manifest_empty", 1, 1)]),
        ("- a\n", [("manifest_not_mapping", 1, 1)]),
        ("\n\njust text\n", [("manifest_not_mapping", 3, 1)]),
        ("a:\n\tb: 1\n", [("yaml_syntax", 2, 1)]),
        ("a: 1\n---\nb: 2\n", [("yaml_multiple_documents", 2, 1)]),
        ("a: 1\nb: 2\na: 3\n", [("yaml_duplicate_key", 3, 1)]),
        ("a: {b: 1, b: 2}\nc: {c: 1, c: 2, c: 3}\n", [("yaml_duplicate_key", 1, 11), ("yaml_duplicate_key", 2, 11), ("yaml_duplicate_key", 2, 17)]),
        ("a: &x 1\nb: *x\n", [("yaml_aliases_not_allowed", 1, 4), ("yaml_aliases_not_allowed", 2, 4)]),
        ("*x : 1\n", [("yaml_aliases_not_allowed", 1, 1)]),
        ("<<: {a: 1}\n", [("yaml_merge_not_allowed", 1, 1)]),
        ("a: !!python/object:os.system x\nb: !!str 1\nc: !x [1]\nd: ! 1\n",
         [("yaml_tag_not_allowed", 1, 4), ("yaml_tag_not_allowed", 2, 4), ("yaml_tag_not_allowed", 3, 4), ("yaml_tag_not_allowed", 4, 4)]),
        ("%YAML 1.1\n---\na: 1\n", [("yaml_version", 1, 1)]),
        ("? [a]\n: 1\n", [("key_not_string", 1, 3)]),
        ("a: .inf\nb: -.INF\nc: .nan\n", [("out_of_range", 1, 4), ("out_of_range", 2, 4), ("out_of_range", 3, 4)]),
        ("a: 1e999\nb: " + "9" * 5000 + "\n", [("number_too_large", 1, 4), ("number_too_large", 2, 4)]),
        ("a: 0x" + "f" * 4000 + "\n", [("number_too_large", 1, 4)]),
        ('a: "\\0"\n', [("nul_character", 1, 4)]),
        ('a: "\\ud800"\n', [("invalid_unicode", 1, 4)]),
        (b"a: 1\nb: \x00\n", [("nul_character", 2, 4)]),
        (b"a: \x1b[31m\n", [("invalid_character", 1, 4)]),
        (b"a: 1\nb: \xff\n", [("encoding", 2, 4)]),
        ("a: 1\n".encode("utf-16"), [("encoding", 1, 1)]),
        ("a: 1\n".encode("utf-32"), [("encoding", 1, 1)]),
        ("a: 'x\n", [("yaml_syntax", 2, 1)]),
        ("a: b: c\n", [("yaml_syntax", 1, 5)]),
        ('a: "\\q"\n', [("yaml_syntax", 1, 6)]),
        ('a: "\\U00110000"\n', [("yaml_syntax", 1, 1)]),
        ("a: @x\n", [("yaml_syntax", 1, 4)]),
        ("a: {b: 1\n", [("yaml_syntax", 2, 1)]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, str | bytes) else "",
)  # fmt: skip
def test_text_that_is_no_manifest_is_reported_with_its_place(
    text: str | bytes, expected: list[tuple[str, int, int]]
) -> None:
    document = parse(text)
    assert found(tuple(document.problems)) == expected
    assert all(each.hint and each.file == "m.yaml" for each in document.problems)


@pytest.mark.more
@pytest.mark.proves("S10")
def test_sizes_are_bounded() -> None:
    assert problems(b"a: " + b"x" * (BYTES_MAX - 3)) == []
    assert problems(b"a: " + b"x" * (BYTES_MAX - 2)) == [("manifest_too_large", 1, 1)]
    assert problems(b"#" * (10 * 2**20)) == [("manifest_too_large", 1, 1)]
    nested = DEPTH_MAX - 1
    assert problems("a: " + "[" * nested + "]" * nested) == []
    assert problems("a: " + "[" * 2000) == [("yaml_too_deep", 1, 4 + nested)]
    assert problems("{a: " * 2000)[0][0] == "yaml_too_deep"
    assert problems("- " * 2000)[0][0] == "yaml_too_deep"
    assert problems("a: [" + "1," * (NODES_MAX - 4) + "1]") == []
    assert problems("a: [" + "1," * (NODES_MAX - 3) + "1]")[0][0] == "yaml_too_many_nodes"


@pytest.mark.proves("S10")
def test_bomb_of_aliases_is_not_expanded() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    document = parse(bomb)
    assert {each.code for each in document.problems} == {"yaml_aliases_not_allowed"}
    assert len(document.problems) == PROBLEMS_MAX + 1
    assert not document.is_readable


def test_second_value_of_a_repeated_key_is_dropped() -> None:
    document = parse("a: 1\na: {b: [2]}\nc: 3\n")
    assert document.value == {"a": 1, "c": 3}
    assert "in line 1 and in line 2" in document.problems[0].message
    assert document.position_of("/a/b") == (1, 4)


@pytest.mark.proves("G-30")
def test_variables_are_expanded_once_when_a_manifest_is_loaded() -> None:
    environment = {"HOST": "db", "PORT": "5432", "NESTED": "${HOST}", "EMPTY": "", "FLAG": "true"}
    text = """\
        plain: ${PORT}
        quoted: "${PORT}"
        part: http://${HOST}:${PORT}/
        default: ${MISSING:-7}
        empty: ${EMPTY:-none}
        nested: ${NESTED}
        literal: $${HOST}
        flag: ${FLAG}
        other: ${{ inputs.x }} {{ y }} $HOST
        list: ["${HOST}", x]
    """
    assert parse(text, environment=environment).value == {
        "plain": 5432, "quoted": "5432", "part": "http://db:5432/", "default": 7, "empty": "none", "nested": "${HOST}",
        "literal": "${HOST}", "flag": True, "other": "${{ inputs.x }} {{ y }} $HOST", "list": ["db", "x"],
    }  # fmt: skip
    assert parse(text).value["plain"] == "${PORT}"


@pytest.mark.proves("G-30")
def test_variable_that_is_not_set_is_named() -> None:
    document = parse("a: 1\nb: x-${NO_SUCH}-${NEITHER}-${SET}\n", environment={"SET": "value-of-set"})
    assert found(tuple(document.problems)) == [("env_missing", 2, 4)]
    assert "NO_SUCH, NEITHER" in document.problems[0].message
    assert "value-of-set" not in str(document.problems)


SECRETS = [
    ("x", "sk-" + "a1B2" * 8), ("x", "ghp_" + "a1B2" * 9), ("x", "AKIA" + "ABCD1234" * 2), ("x", "xoxb-123456789012-abcdef"),
    ("x", "-----BEGIN RSA PRIVATE KEY-----"), ("x", "Bearer abcdefghij0123456789xyz"), ("x", "postgresql://me:hunter2x@db/x"),
    ("x", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"), ("api_key", "Abcdefgh12345678"), ("apiKey", "Abcdefgh12345678"),
    ("auth-token", "Abcdefgh12345678"), ("password", "hunter2hunter2"), ("client_secret", "0123456789abcdef0123456789abcdef"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "secret"), SECRETS)
def test_secret_in_clear_text_is_reported_and_never_quoted(key: str, secret: str) -> None:
    document = parse(f"a:\n  {key}: {json.dumps(secret)}\n")
    assert found(tuple(document.problems)) == [("secret_literal", 2, 5 + len(key))]
    assert secret not in str(document.problems)
    assert document.text_of(f"/a/{key}", secret) == "***"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("api_key", "secret://openai"), ("api_key", "${OPENAI_API_KEY}"), ("x", "sk-...abc"), ("password", "{{ secrets.db }}"),
        ("routing_key", "agents-security-high-1"), ("token", "next page"), ("private_key", "/run/secrets/key-File-1"), ("max_tokens", "4096"),
        ("url", "https://user@host/x"), ("url", "postgresql://me:${PASSWORD}@db/x"), ("key_prefix", "sk-ant"), ("password", "<your password>"),
    ],
)  # fmt: skip
def test_references_and_ordinary_texts_are_no_secrets(key: str, text: str) -> None:
    assert parse(f"{key}: {json.dumps(text)}\n").problems == []


@given(st.text(alphabet="ab:{}[]-?|>&*!%@`'\"#,\n \t\\~<0.", max_size=40) | st.binary(max_size=30))
def test_any_text_has_a_value_or_a_problem_with_a_place(text: str | bytes) -> None:
    document = parse(text if isinstance(text, bytes) else text.encode())
    assert document.is_readable == (document.value is not None)
    assert document.is_readable or document.problems
    lines = 2 + (text.count(b"\n") if isinstance(text, bytes) else text.count("\n"))
    for each in document.problems:
        assert each.line >= 1
        assert each.column >= 1
        assert each.code
        assert each.message
        assert each.hint
        assert each.line <= lines + 10


def test_long_text_that_begins_like_a_token_again_and_again_is_read_in_linear_time() -> None:
    started = time.process_time()
    assert not is_secret_literal("note", "eyJ-" * 50_000)
    assert time.process_time() - started < 1.0  # quadratic steps would take minutes
