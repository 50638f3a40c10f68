"""remember, recall, forget: stored once by id, found by words and permission, removed at expiry."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Connect, Item, Kernel
from tests.kernel.test_prune import NOTHING, prune


async def remember(kernel: Kernel, memory_id: str, text: str, agent: str | None = "writer", **fields: Any) -> Item:
    item = {"memory_id": memory_id, "agent": agent, "text": text, **fields}
    [answer] = await kernel.call("remember", [item])
    return dict(answer)


async def recall(kernel: Kernel, query: str = "", agent: str | None = "writer", limit: int = 10) -> list[str]:
    return [found["memory_id"] for found in await kernel.call("recall", query, agent, limit)]


async def test_repeated_memory_id_is_a_duplicate_with_equal_content_and_else_a_conflict(kernel: Kernel) -> None:
    assert await remember(kernel, "m1", "the sun is far", metadata={"task": 1}) == {
        "memory_id": "m1",
        "outcome": "remembered",
    }
    before = await kernel.everything()
    kernel.wait(5)
    assert (await remember(kernel, "m1", "the sun is far", metadata={"task": 1}))["outcome"] == "duplicate"
    others: list[Item] = [{"text": "near"}, {"metadata": {}}, {"agent": None}]
    for other in others:
        item = {"memory_id": "m1", "agent": "writer", "text": "the sun is far", "metadata": {"task": 1}} | other
        [answer] = await kernel.call("remember", [item])
        assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


@pytest.mark.parametrize(("query", "found"), [
    ("meeting", ["m1"]),  # as English takes it
    ("Kündigung", ["m2"]),  # as it is, in any language
    ("the customer", ["m3", "m1"]),
    ('"customer asked"', ["m3"]),
    ("refund or kündigung", ["m3", "m2"]),
    ("customer -refund", ["m1"]),
    ("nothing of this", []),
    ("!!! & | ( ' \\", []),
    ("", ["m3", "m2", "m1"]), ("  ", ["m3", "m2", "m1"]),
], ids=str)  # fmt: skip
async def test_memory_is_found_by_its_words(kernel: Kernel, query: str, found: list[str]) -> None:
    for n, text in enumerate(("Meetings with the customer", "die Kündigung kam", "The customer asked the refund"), 1):
        await remember(kernel, f"m{n}", text)
        kernel.wait(1)
    assert sorted(await recall(kernel, query)) == sorted(found)
    if not query.strip():
        assert await recall(kernel, query) == found


@pytest.mark.parametrize(("query", "found"), [
    ("日本語", ["m1"]), ("テスト", ["m1", "m2"]), ("日本語 テスト", ["m1"]), ("日本語\u3000テスト", ["m1"]), ('"日本語"', ["m1"]),
    ("中国", []), ("ündig", ["m3"]), ("undig", []),
], ids=ascii)  # fmt: skip
async def test_part_of_a_text_is_found_in_a_language_without_spaces(
    kernel: Kernel, query: str, found: list[str]
) -> None:
    for n, text in enumerate(("日本語テスト", "英語のテスト", "die Kündigung"), 1):
        await remember(kernel, f"m{n}", text)
    assert sorted(await recall(kernel, query)) == found


async def test_memories_rank_by_frequency_and_then_by_age(kernel: Kernel) -> None:
    for n, text in enumerate(("sun", "sun sun sun", "sun"), 1):
        await remember(kernel, f"m{n}", text)
        kernel.wait(1)
    assert await recall(kernel, "sun") == ["m2", "m3", "m1"]
    assert await recall(kernel, "sun", limit=2) == ["m2", "m3"]
    [first] = await kernel.call("recall", "sun", "writer", 1)
    assert first.keys() == {"memory_id", "agent", "text", "metadata", "trust", "created_at", "rank"}
    assert (first["agent"], first["text"], first["metadata"]) == ("writer", "sun sun sun", {})
    assert first["rank"] > 0


async def test_agent_recalls_its_own_and_project_memories_and_others_only_on_request(kernel: Kernel) -> None:
    for agent in ("writer", "critic", None):
        await remember(kernel, f"of {agent}", "sun", agent)
    assert await recall(kernel, "sun", "writer") == ["of None", "of writer"]
    assert await recall(kernel, "sun", "stranger") == ["of None"]
    assert await recall(kernel, "sun", None) == ["of None", "of critic", "of writer"]


@pytest.mark.proves("S1")
async def test_memories_of_another_project_are_neither_found_nor_forgotten(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    other.project += " too"
    await remember(kernel, "m1", "sun")
    assert await recall(other, "sun", None) == []
    assert await other.call("forget", [{"memory_id": "m1"}]) == [{"memory_id": "m1", "outcome": "unknown"}]
    assert (await remember(other, "m1", "moon"))["outcome"] == "remembered"
    assert await recall(kernel, "moon", None) == []


@pytest.mark.proves("S11")
async def test_memory_beyond_a_limit_is_rejected_and_the_others_of_its_call_are_kept(kernel: Kernel) -> None:
    await kernel.call("set_limits", {"memories_max": 2, "memory_bytes_max": 20})
    items = [
        {"memory_id": f"m{n}", "agent": "writer", "text": text} for n, text in enumerate(("x" * 18, "x" * 21, "y", "z"))
    ]
    items[0]["metadata"] = {}  # type: ignore[assignment]
    answers = await kernel.call("remember", items)
    assert [answer.get("code", answer["outcome"]) for answer in answers] == [
        "remembered",
        "memory_too_large",
        "remembered",
        "too_many_memories",
    ]
    assert answers[3]["message"] == (
        "2 memories of agent writer are kept; at most 2 are allowed: forget some, give them a time to live, "
        "or raise the limit with helio db limits memories_max=NUMBER"
    )
    assert (await remember(kernel, "m9", "z", None))["outcome"] == "remembered"  # the project's are counted apart
    await kernel.call("forget", [{"memory_id": "m2"}])
    assert (await remember(kernel, "m3", "z"))["outcome"] == "remembered"


@pytest.mark.parametrize(("item", "field"), [
    ({"memory_id": "a:b"}, "memory id"), ({"memory_id": None}, "memory id"), ({"text": None}, "text"), ({"text": " "}, "text"),
    ({"text": 5}, "text"), ({"agent": ""}, "agent"), ({"agent": 5}, "agent"), ({"metadata": []}, "metadata"),
    ({"ttl_seconds": 0}, "ttl_seconds"), ({"ttl_seconds": "1"}, "ttl_seconds"),
], ids=str)  # fmt: skip
async def test_malformed_memory_is_rejected_by_its_field_name(kernel: Kernel, item: Item, field: str) -> None:
    good = {"memory_id": "m1", "text": "sun"}
    with pytest.raises(asyncpg.DataError, match=field):
        await kernel.call("remember", [{**good, "memory_id": "m0"}, good | item])
    assert await recall(kernel) == []


@pytest.mark.parametrize(
    ("query", "limit", "problem"), [("x" * 8193, 5, "8192"), ("x", 0, "limit"), ("x", 1001, "limit")]
)
async def test_search_arguments_have_limits(kernel: Kernel, query: str, limit: int, problem: str) -> None:
    with pytest.raises(asyncpg.DataError, match=problem):
        await kernel.call("recall", query, None, limit)


async def test_memory_is_removed_at_its_expiry_or_on_request_and_not_with_its_turn(
    kernel: Kernel,
) -> None:
    await remember(kernel, "brief", "sun", ttl_seconds=60)
    await remember(kernel, "long", "sun")
    await remember(kernel, "wrong", "sun")
    assert await kernel.call("forget", [{"memory_id": "wrong"}, {"memory_id": "none"}]) == [
        {"memory_id": "wrong", "outcome": "forgotten"},
        {"memory_id": "none", "outcome": "unknown"},
    ]
    kernel.wait(60)
    assert await recall(kernel, "sun") == ["long"]
    assert await prune(kernel, days=0.0001) == NOTHING | {"memories": 1}
    kernel.wait(1e8)
    assert await prune(kernel) == NOTHING
    assert await recall(kernel, "sun") == ["long"]
