"""Comparing two runs: the first difference, agents in their own order, and what differs between any two runs."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Iterable
from tempfile import TemporaryFile
from typing import IO

import pytest

from heliograph.cli.diff import compare
from heliograph.errors import InvalidInput
from heliograph.json_differences import ABSENT, Difference
from heliograph.playback import digest_queue
from heliograph.playback.comparison import Comparison
from heliograph.playback.digest_queue import CHUNK_BYTES, DIGEST_BYTES, ChunkFile, DigestQueue
from heliograph.signals.model import Signal
from tests.rules.playback_kit import signal


async def served(signals: Iterable[Signal]) -> AsyncIterator[Signal]:
    for each in signals:
        yield each


def compared(left: list[Signal], right: list[Signal], *, is_exact: bool = False) -> Comparison:
    return asyncio.run(compare(served(left), served(right), is_exact=is_exact))


def numbered(*parts: tuple[str, str | None, object]) -> list[Signal]:
    return [signal(seq, name, agent, None, payload) for seq, (name, agent, payload) in enumerate(parts, 1)]  # type: ignore[arg-type]


LEFT = numbered(
    ("workflow:start", None, {"state": {}}), ("a:x", "a", {"n": [1, 2]}), ("b:x", "b", 1), ("workflow:end", None, None)
)


def test_equal_runs_have_no_difference() -> None:
    result = compared(LEFT, list(LEFT))
    assert (result.is_equal, result.left_count, result.agents["a"].equal) == (True, 4, 1)


@pytest.mark.proves("P-14")
def test_first_difference_names_both_signals_and_the_places() -> None:
    right = [*LEFT[:1], signal(2, "a:x", "a", None, {"n": [1, 3], "more": True}), *LEFT[2:]]
    result = compared(LEFT, right)
    assert result.first is not None
    assert (result.first.left, result.first.right) == (LEFT[1], right[1])
    assert result.first.differences == (Difference("/payload/more", ABSENT, True), Difference("/payload/n/1", 2, 3))
    assert {name: (agent.equal, agent.first) for name, agent in result.agents.items()} == {
        "-": (2, None),
        "a": (0, 1),
        "b": (1, None),
    }
    assert not result.differs_in_order_only


def test_other_interleaving_is_a_difference_of_order_only() -> None:
    right = numbered(
        ("workflow:start", None, {"state": {}}),
        ("b:x", "b", 1),
        ("a:x", "a", {"n": [1, 2]}),
        ("workflow:end", None, None),
    )
    result = compared(LEFT, right)
    assert (result.is_equal, result.differs_in_order_only) == (False, True)


def test_log_that_ends_early_differs_where_it_ends() -> None:
    result = compared(LEFT, LEFT[:2])
    assert result.first is not None
    assert (result.first.left, result.first.right, result.first.differences) == (LEFT[2], None, ())
    assert {name: agent.first for name, agent in result.agents.items()} == {"-": 2, "a": None, "b": 1}


def test_ids_durations_and_deltas_are_compared_only_exactly() -> None:
    one, two = "turn_01m8c6s7fkwfvp1q5hf0b6nqhf", "turn_01m8c6s7qzfj9baxn6xb5qjjeg"
    left = numbered(
        ("text:delta", "a", {"content": "ab"}), ("x:y", "a", {"card_id": f"card:{one}:end", "duration_ms": 4})
    )
    right = numbered(("text:delta", "a", {"content": "a"}), ("text:delta", "a", {"content": "b"}),
                     ("x:y", "a", {"card_id": f"card:{two}:end", "duration_ms": 5}))  # fmt: skip
    assert compared(left, right).is_equal
    exact = compared(left, right, is_exact=True)
    assert exact.first is not None
    assert exact.first.differences == (Difference("/payload/content", "ab", "a"),)


def test_differences_of_the_first_signals_are_bounded() -> None:
    result = compared(numbered(("a:x", "a", {str(n): n for n in range(99)})), numbered(("a:x", "a", {})))
    assert result.first is not None
    assert len(result.first.differences) == 20


def test_null_and_a_missing_key_differ() -> None:
    result = compared(numbered(("a:x", "a", {"n": None})), numbered(("a:x", "a", {})))
    assert result.first is not None
    assert result.first.as_json()["differences"] == [{"path": "/payload/n", "left": None}]


def test_number_and_boolean_differ() -> None:
    result = compared(numbered(("a:x", "a", {"n": 1})), numbered(("a:x", "a", {"n": True})))
    assert (result.is_equal, result.agents["a"].equal) == (False, 0)


def test_whole_number_equals_the_same_fraction() -> None:
    result = compared(numbered(("a:x", "a", {"n": 1})), numbered(("a:x", "a", {"n": 1.0})))
    assert (result.is_equal, result.agents["a"].equal) == (True, 1)


def test_agent_far_ahead_takes_no_more_memory_than_two_chunks() -> None:
    count, peak = 3 * CHUNK_BYTES // DIGEST_BYTES, 0
    ones = [signal(seq, "a:x", "a", None, seq) for seq in range(1, count + 1)]
    others = [signal(seq, "b:x", "b", None, seq) for seq in range(count + 1, 2 * count + 1)]
    with ChunkFile(TemporaryFile) as file:
        comparison = Comparison(file)
        for left, right in zip([*ones, *others], [*others, *ones], strict=True):
            comparison.add(left, right)
            peak = max(peak, *(agent.memory_bytes for agent in comparison.agents.values()))
        comparison.end()
        assert file.chunk_count > 1
    assert comparison.differs_in_order_only
    assert [(agent.equal, agent.memory_bytes) for agent in comparison.agents.values()] == [(count, CHUNK_BYTES)] * 2
    assert CHUNK_BYTES < peak <= 2 * CHUNK_BYTES


def test_queues_that_share_a_file_return_what_they_received_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_queue, "CHUNK_BYTES", 2 * DIGEST_BYTES)
    with ChunkFile(TemporaryFile) as file:
        _exercise(file)
        assert 20 < file.chunk_count < 400, "places are used again"


def _exercise(file: ChunkFile) -> None:
    drawn = random.Random(1)
    queues = [(DigestQueue(file), deque[bytes]()) for _ in range(3)]
    for step in range(3000):
        queue, expected = drawn.choice(queues)
        if drawn.random() < (0.6 if step < 1000 else 0.45):
            digest = drawn.randbytes(DIGEST_BYTES)
            queue.append(digest)
            expected.append(digest)
        elif expected:
            assert queue.popleft() == expected.popleft()
        assert bool(queue) == bool(expected)
        assert queue.memory_bytes <= 4 * DIGEST_BYTES


def test_disk_without_room_is_an_error_with_the_next_step() -> None:
    def full() -> IO[bytes]:
        raise OSError(28, "No space left on device")

    with pytest.raises(InvalidInput, match="free some space") as caught:
        ChunkFile(full).write(b"x")
    assert caught.value.code == "unwritable_file"
