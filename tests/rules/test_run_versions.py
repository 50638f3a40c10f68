"""The versions of a run that a worker makes: endings that follow each other read what the database would return."""

from __future__ import annotations

import pytest

from heliograph.execution.run_serializer import RunSerializer
from heliograph.records import RunView

AS_STORED = ["a", "b", "list", "count"]


def version(number: int, keys: list[str]) -> RunView:
    return RunView("r", "running", number, dict.fromkeys(keys, 2.0**70), {}, 1, 0, 1)


@pytest.mark.proves("SIG-04")
def test_version_under_way_has_the_form_of_the_database() -> None:
    serializer = RunSerializer("r", {})
    serializer.sending("t", version(3, ["list", "count", "b", "a"]))
    newest = serializer.newest(version(2, ["a"]))
    assert (newest.version, list(newest.state), serializer.followed(newest)) == (3, AS_STORED, "t")
    assert serializer.newest(version(2, ["a"])) is newest, "it is converted once"


@pytest.mark.proves("SIG-04")
def test_committed_version_has_the_form_of_the_database() -> None:
    serializer = RunSerializer("r", {})
    serializer.committed(version(3, ["list", "count", "b", "a"]))
    newest = serializer.newest(version(2, ["a"]))
    assert (newest.version, list(newest.state), serializer.followed(newest)) == (3, AS_STORED, None)


def test_version_of_the_database_is_taken_as_it_is() -> None:
    serializer = RunSerializer("r", {})
    serializer.committed(version(3, ["b"]))
    read = version(4, ["b", "a"])
    assert serializer.newest(read) is read
