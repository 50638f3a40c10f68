import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.turn.deliverable import deliverable_of, deliverable_of_error, read_output
from heliograph.types import Json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@pytest.mark.proves("L0-83")
@given(JSON)
def test_deliverable_has_text_or_fields_and_reads_back_as_the_output(output: Json) -> None:
    content = deliverable_of(output)
    assert list(content) in (["text"], ["fields"])
    assert read_output(content) == output


@pytest.mark.proves("L0-83")
@pytest.mark.parametrize("output", [{"output": 5}, {"output": {"output": 5}}, {"text": "a"}, {"error": "x"}, {}, ""])
def test_output_shaped_like_a_card_reads_back_unchanged(output: Json) -> None:
    assert read_output(deliverable_of(output)) == output


@pytest.mark.proves("L0-80", "L0-83")
def test_failure_is_delivered_as_text_with_the_error_beside_it_and_has_no_output() -> None:
    error: dict[str, Json] = {"code": "TIMEOUT", "message": "too long", "recoverable": False}
    content = deliverable_of_error(error)
    assert content == {"text": "too long", "error": error}
    assert read_output(content) is None
