"""Numbers that the database writes in another form are the same in a recording, in its file and in a replay."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.execution.packed_commit import as_jsonb
from heliograph.json_differences import differences
from heliograph.json_numbers import stored_number
from heliograph.playback.timeline import Timeline
from heliograph.recording.file import lines_of, read_recording, write_recording
from heliograph.recording.replay_recording import replay_recording
from tests.grids import share_of_examples
from tests.recording.number_app import IN_ANOTHER_FORM, NUMBERS, form_app, number_app
from tests.recording.simulated import record_simulated

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(FLOATS, st.sampled_from(NUMBERS), st.integers(-(10**30), 10**30))


@given(FLOATS)
def test_stored_number_has_the_value_and_type_of_its_decimal_text(number: float) -> None:
    written = f"{abs(number) if number == 0 else Decimal(repr(number)):f}"  # as jsonb does
    read = msgspec.json.decode(written)
    assert (stored_number(number), type(stored_number(number))) == (read, type(read))
    assert float(stored_number(number)) == number
    assert repr(stored_number(stored_number(number))) == repr(stored_number(number))


@given(st.lists(VALUES), VALUES)
def test_stored_value_does_not_differ_and_another_number_does(numbers: list[float], other: float) -> None:
    value = {"numbers": numbers}
    assert list(differences(value, as_jsonb(value))) == []
    found = list(differences(numbers[:1], [other]))
    assert (found == []) == (numbers != [] and stored_number(numbers[0]) == stored_number(other))


def test_number_differs_from_a_boolean() -> None:
    assert [each.path for each in differences([1, 0, 1.0], [True, False, 1])] == ["/0", "/1"]


@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "from the ledger"])
@given(numbers=st.lists(VALUES, min_size=1, max_size=4))
@share_of_examples(10)
def test_generated_numbers_are_replayed_from_a_file(
    tmp_path_factory: pytest.TempPathFactory, is_recorded: bool, numbers: list[float]
) -> None:
    path: Path = tmp_path_factory.mktemp("numbers") / "run.jsonl"
    recording = record_simulated(number_app(numbers), 1, state={"numbers": numbers}, record=is_recorded)
    assert recording.header.outcome == "success"
    write_recording(recording, path)
    found = read_recording(path)
    for each in (recording, found):
        replayed = replay_recording(each, number_app(numbers).workflow)
        assert replayed.is_same, list(replayed.lines())
        assert list(lines_of(replayed.recording)) == list(lines_of(found))


@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "from the ledger"])
@pytest.mark.parametrize("form", IN_ANOTHER_FORM)
def test_number_that_changes_its_form_in_the_state_is_replayed_and_played(form: str, is_recorded: bool) -> None:
    state = {"book": IN_ANOTHER_FORM[form][0]}
    recording = record_simulated(form_app(form), 1, state=state, record=is_recorded)
    assert recording.header.outcome == "success"
    replayed = replay_recording(recording, form_app(form).workflow)
    assert replayed.is_same, list(replayed.lines())
    timeline = Timeline()
    ended: Any = recording.signals[-1].payload
    assert str(timeline.snapshot(timeline.extend(recording.signals)).state) == str(ended["state"])
