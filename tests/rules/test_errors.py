import errno
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import errors
from heliograph.error_text import is_network_error, safe_repr, without_keys
from heliograph.errors import HeliographError, InvalidInput, NotFound, RecoverableError, Rejected, StoreUnavailable

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HeliographError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_a_code_an_exit_code_and_a_recoverable_flag(
    kind: type[HeliographError],
) -> None:
    error = kind("what, which, next")
    assert error.code == kind.default_code
    assert error.exit_code in (1, 2, 3, 4)
    assert error.recoverable is (kind in (StoreUnavailable, RecoverableError))
    assert str(error) == error.message == "what, which, next"


@pytest.mark.parametrize("kind", CLASSES)
def test_tree_in_the_docstring_names_every_class(kind: type[HeliographError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


def test_exit_code_distinguishes_bad_input_missing_objects_and_forbidden_actions() -> None:
    assert [kind("x").exit_code for kind in (HeliographError, InvalidInput, NotFound, Rejected)] == [1, 2, 3, 4]


def test_envelope_omits_unknown_fields() -> None:
    assert InvalidInput("no").envelope() == {"error": {"code": "invalid_input", "message": "no"}}
    whole = InvalidInput("no", code="c", path="/p", hint="h").envelope()
    assert whole == {"error": {"code": "c", "message": "no", "path": "/p", "hint": "h"}}


@given(st.text() | st.binary() | st.integers() | st.lists(st.text()), st.integers(1, 200))
def test_message_is_one_printable_line_of_bounded_length(value: object, limit: int) -> None:
    text = safe_repr(value, limit)
    assert len(text) <= limit
    assert text.isprintable()
    json.dumps(text).encode("utf-8")


def test_control_characters_and_lone_surrogates_are_escaped() -> None:
    assert safe_repr("a\0b\n\ud800") == "a\\x00b\\n\\ud800"


@pytest.mark.proves("ERR-10")
@pytest.mark.parametrize(
    ("error", "is_network"),
    [
        (ConnectionRefusedError("no"), True), (OSError(errno.EHOSTUNREACH, "no route"), True), (socket.gaierror(-2, "no name"), True),
        (FileNotFoundError("no file"), False), (TimeoutError("slow"), False), (ValueError("x"), False),
    ],
    ids=repr,
)  # fmt: skip
def test_connection_error_is_recognized_also_as_the_cause_of_another_error(error: Exception, is_network: bool) -> None:
    assert is_network_error(error) is is_network
    outer = LookupError("outer")
    outer.__cause__ = RuntimeError("inner")
    outer.__cause__.__cause__ = error
    assert is_network_error(outer) is is_network
    error.__cause__ = outer  # a circle ends
    assert is_network_error(outer) is is_network


def test_text_without_keys_keeps_three_characters_of_each_long_word() -> None:
    assert without_keys("the key 'sk-test-9876543210fedcba' is not known") == "the key 'sk-…' is not known"
    assert without_keys("Bearer eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx") == "Bearer eyJ…"
