"""The versions of a run that a worker makes: endings that follow each other read what the database would return."""

from __future__ import annotations

import asyncio

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


@pytest.mark.parametrize(("length", "follows"), [(200_000, True), (300_000, False)])
async def test_no_ending_follows_one_with_a_large_output(length: int, follows: bool) -> None:
    """A call has at most 128 MiB, so it has no room for 64 large outputs."""
    serializer = RunSerializer("r", {})
    serializer.sending("t", version(3, ["a"]), {"text": "x" * length})
    waiting = asyncio.ensure_future(serializer.ready(lambda turn_id: turn_id == "t"))
    await asyncio.sleep(0)
    assert waiting.done() is follows
    serializer.answered()
    await waiting


async def test_endings_that_wait_go_in_the_order_in_which_they_began_to_wait() -> None:
    serializer, went = RunSerializer("r", {}), list[int]()

    async def ending(number: int) -> None:
        await serializer.ready(lambda _turn_id: False)
        serializer.sending(f"t{number}", version(number, ["a"]))
        went.append(number)
        await asyncio.sleep(0)
        serializer.answered()

    await asyncio.gather(*map(ending, range(5)))
    assert went == list(range(5))
