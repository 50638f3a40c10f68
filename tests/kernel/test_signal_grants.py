"""Grants of signals: what one pattern contains of another, and what the store delivers to a login (S5)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from heliograph.signals.pattern import compile_pattern
from heliograph.world.bell_tokens import Tokens
from heliograph.world.seam import SIGNALS, SUBSCRIBERS, BellKey
from tests.kernel.kit import Kernel, draft
from tests.kernel.pattern_reference import alike_pairs, is_contained
from tests.logins import connected, login, name_of

SEGMENTS = ("a", "b", "*", "**")
# names over the letters of the patterns and one that no pattern has: long enough that a difference shows
NAMES = [":".join(parts) for length in range(1, 7) for parts in itertools.product("abz", repeat=length)]
CONTAINED = "select heliograph._first_outside(array[i], array[o]) is null from unnest($1::text[], $2::text[]) u (i, o)"


def some_patterns(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    found = {":".join(chance.choices(SEGMENTS, k=chance.randint(1, 4))) for _ in range(count * 3)}
    return sorted(pattern for pattern in found if pattern.split(":").count("**") <= 2)[:count]


async def contained(kernel: Kernel, pairs: list[tuple[str, str]]) -> list[bool]:
    rows = await kernel.connection.fetch(CONTAINED, [inner for inner, _ in pairs], [outer for _, outer in pairs])
    return [row[0] for row in rows]


@pytest.mark.proves("S5")
@pytest.mark.parametrize("count", [12, pytest.param(48, marks=pytest.mark.more)])
async def test_store_decides_exactly_whether_a_pattern_contains_another_and_matches_as_agents_do(
    kernel: Kernel,
    count: int,
) -> None:
    patterns = some_patterns(7, count)
    matched = {
        pattern: frozenset(name for name in NAMES if compile_pattern(pattern).matches(name)) for pattern in patterns
    }
    pairs = list(itertools.product(patterns, patterns))
    expected = [matched[inner] <= matched[outer] for inner, outer in pairs]
    assert await contained(kernel, pairs) == expected == [is_contained(*pair) for pair in pairs]
    assert {*expected} == {True, False}
    by_store = await kernel.connection.fetch(
        "select p, array(select n from unnest($2::text[]) n where ':' || n ~ heliograph._pattern_regex(p)) as names from unnest($1::text[]) p",
        patterns, NAMES[:1092],
    )  # fmt: skip
    assert {row["p"]: frozenset(row["names"]) for row in by_store} == {
        p: m & set(NAMES[:1092]) for p, m in matched.items()
    }


@pytest.mark.proves("S5")
@pytest.mark.parametrize("count", [300, pytest.param(3_000, marks=pytest.mark.more)])
async def test_store_compares_patterns_at_the_limits_of_names_as_two_automata_do(kernel: Kernel, count: int) -> None:
    pairs = alike_pairs(count)
    expected = [is_contained(*pair) for pair in pairs]
    assert await contained(kernel, pairs) == expected
    assert expected.count(True) > count / 20


async def test_first_pattern_that_no_single_grant_contains_is_found(kernel: Kernel) -> None:
    query = "select heliograph._first_outside($1::text[], $2::text[])"
    for patterns, grants, outside in (
        (["a:b", "a:*", "c"], ["a:*", "b", "c"], None),
        (["a:b", "a:*", "b", "d"], ["a:b", "b"], "a:*"),
        (["a:b", "*"], [], "a:b"),
        (["a:*", "a:**"], ["a:*", "a:*:**"], "a:**"),  # all but one of its names
        (["**"], ["*", "*:**"], None),
        (["**"], ["*", "*:*:**"], "**"),  # together, but each grant counts for itself
    ):
        assert await kernel.connection.fetchval(query, patterns, grants) == outside


@pytest.mark.proves("S5")
@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("order:*", "**", True),
        ("**", "order:**", False),
        ("order:**", "order:*", False),
        ("order:placed", "order:*", True),
        ("*", "*:**", True),
        ("**", "*:**", True),  # no name is empty
        ("**:*", "*:**", True),
        ("a:**:b", "**:b", True),
        ("a.b", "a-b", False),
        ("a.b", "axb", False),
        (":".join("abcdefghijklmno") + ":**", ":".join("abcdefghijklmno") + ":*", False),
        (":".join("abcdefghijklmnop"[:15]) + ":*:**", ":".join("abcdefghijklmnop"[:15]) + ":*", True),  # 16 segments at most
        ("x" * 199 + ":**", "x" * 199, True),  # 200 characters at most
        ("x" * 198 + ":**", "x" * 198, False),
    ],
)  # fmt: skip
async def test_containment_at_its_edges(kernel: Kernel, inner: str, outer: str, expected: bool) -> None:
    assert await contained(kernel, [(inner, outer)]) == [expected] == [is_contained(inner, outer)]


async def opened(kernel: Kernel, name: str, patterns: list[str]) -> None:
    while (answer := await kernel.call("subscribe", name, patterns, "start", {})) == {"outcome": "opening"}:  # noqa: ASYNC110  the kernel does not announce it
        await asyncio.sleep(0.001)
    assert answer["outcome"] == "subscribed"


@pytest_asyncio.fixture
async def subscriber(kernel: Kernel, shared_url: str) -> AsyncIterator[Kernel]:
    """A login that may only subscribe, with the grant `order:*`."""
    async with login(shared_url, kernel.project, services=("subscriber",)) as url, connected(url) as connection:
        name = name_of(url)
        await kernel.connection.fetchval(
            "select heliograph.grant_signals($1, $2, 'order:*', now())", kernel.project, name
        )
        yield Kernel(connection, kernel.project, datetime.now(UTC))
        await kernel.connection.execute("delete from heliograph.signal_grants where role_name = $1", name)


@pytest.mark.proves("S5")
async def test_login_receives_what_its_grants_contain_and_a_wider_pattern_is_rejected_as_a_whole(
    kernel: Kernel, subscriber: Kernel
) -> None:
    for patterns in (["**"], ["order:**"], ["order:*", "bill:*"], ["*:*"]):
        answer = await subscriber.call("subscribe", "s", patterns, "start", {})
        assert (answer["outcome"], answer["code"]) == ("rejected", "pattern_not_granted")
        assert patterns[-1] in answer["message"]
        assert "helio db grant LOGIN" in answer["message"]
    assert await kernel.call("list_subscriptions", None, 100) == []
    await opened(subscriber, "s", ["order:placed"])
    assert (await subscriber.call("take_signals", "s", "w", 1, 1.0))["outcome"] == "taken"
    # a name that a login with more rights has created gives nothing beyond the grant
    await opened(kernel, "all", ["**"])
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    assert (await subscriber.call("subscribe", "all", ["**"], "start", {}))["code"] == "pattern_not_granted"
    for call in (("take_signals", "all", "w", 1, 1.0), ("unsubscribe", "all")):
        assert await subscriber.call(*call) == {"outcome": "unknown"}
    item = {"name": "all", "subscriber": "w", "run_id": "run_a", "position": 9}
    assert await subscriber.call("record_positions", [item]) == [{"run_id": "run_a", "outcome": "stale"}]
    # a revoked grant ends a running subscriber
    name = await subscriber.connection.fetchval("select session_user")
    assert (
        await kernel.connection.fetchval("select heliograph.revoke_signals($1, $2, 'order:*')", kernel.project, name)
        == "revoked"
    )
    assert (await subscriber.call("take_signals", "s", "w", 1, 1.0))["code"] == "pattern_not_granted"


@pytest.mark.more
@pytest.mark.parametrize("narrower", ["**:a{}:b:**", "**:a{}:b:*:**", "**:x:a{}:b:c:**", "y:a{}:b"])
async def test_login_with_many_grants_that_subscribes_to_them_searches_in_little_time(
    kernel: Kernel, subscriber: Kernel, narrower: str
) -> None:
    name = await subscriber.connection.fetchval("select session_user")
    for number in range(100):
        await kernel.connection.fetchval(
            "select heliograph.grant_signals($1, $2, $3, now())", kernel.project, name, f"**:a{number}:b:**"
        )
    await opened(subscriber, "s", [narrower.format(number) for number in range(100)])
    seconds = []
    for _ in range(3):
        started = perf_counter()
        assert (await subscriber.call("take_signals", "s", "w", 1, 1.0))["outcome"] == "taken"
        seconds.append(perf_counter() - started)
    assert min(seconds) < 0.5  # each pattern compared with each grant by two automata took four seconds


@pytest.mark.proves("S5")
async def test_login_can_neither_use_nor_delete_the_subscription_of_another_one(
    kernel: Kernel, subscriber: Kernel, shared_url: str
) -> None:
    await opened(subscriber, "s", ["order:*"])
    claimed = await kernel.running()
    await kernel.append(claimed, draft("order:placed", claimed["activation_id"]))
    async with login(shared_url, kernel.project, services=("subscriber",)) as url, connected(url) as connection:
        thief = Kernel(connection, kernel.project, datetime.now(UTC))
        await kernel.connection.fetchval(
            "select heliograph.grant_signals($1, $2, 'order:*', now())", kernel.project, name_of(url)
        )
        theft: list[tuple[tuple[Any, ...], Any]] = [
            (("subscribe", "s", ["order:*"], "start", {}), {"outcome": "conflict"}),
            (("subscribe", "s", ["order:placed"], "start", {}), {"outcome": "conflict"}),
            (("take_signals", "s", "w", 1, 60.0), {"outcome": "unknown"}),
            (("unsubscribe", "s"), {"outcome": "unknown"}),
        ]
        for call, answer in theft:
            assert await thief.call(*call) == answer
        [run] = (await subscriber.call("take_signals", "s", "w", 1, 60.0))["runs"]
        item = {"name": "s", "subscriber": "w", "run_id": run["run_id"], "position": run["upto"]}
        assert await thief.call("record_positions", [item]) == [{"run_id": "run_a", "outcome": "stale"}]
        assert await subscriber.call("record_positions", [item]) == [{"run_id": "run_a", "outcome": "ok"}]
        # a successor that is a member of the login may use its subscription, and a login that reads logs any
        await kernel.connection.execute(
            f"grant {await subscriber.connection.fetchval('select session_user')} to {name_of(url)}"
        )
        assert (await thief.call("take_signals", "s", "w", 1, 60.0))["outcome"] == "taken"
        await kernel.connection.execute("delete from heliograph.signal_grants where role_name = $1", name_of(url))
    assert await kernel.call("unsubscribe", "s") == {"outcome": "unsubscribed"}


@pytest.mark.proves("S5")
async def test_positions_reveal_neither_runs_nor_signals_beyond_the_grant(kernel: Kernel, subscriber: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.append(claimed, draft("order:placed", claimed["activation_id"]))
    messages = set()
    for run_id, position in (("run_a", 0), ("run_a", 1), ("run_a", 4), ("run_x", 0), ("run_x", 3)):
        answer = await subscriber.call("subscribe", "s", ["order:*"], "now", {run_id: position})
        assert (answer["outcome"], answer["code"]) == ("rejected", "unknown_position")
        messages.add(answer["message"].replace(run_id, "RUN").replace(f"position {position}", "position N"))
    assert len(messages) == 1
    assert (await subscriber.call("subscribe", "s", ["order:*"], "now", {"run_a": 3}))["outcome"] == "opening"


@pytest.mark.proves("S5")
async def test_login_that_may_only_subscribe_reads_no_log_and_no_other_project(
    kernel: Kernel, subscriber: Kernel
) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    for statement in (
        "select * from heliograph.signal_log", "select * from heliograph.signals", "select * from heliograph.subscriptions",
        f"select * from heliograph.read_log('{kernel.project}', 'run_a', 0, 10)", f"select heliograph.list_subscriptions('{kernel.project}', null, 100, now())",
        f"select heliograph._signal_page('{kernel.project}', 'run_a', 0, '{{**}}', 9)",
        f"select heliograph.grant_signals('{kernel.project}', session_user, '**', now())",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await subscriber.connection.fetch(statement)
    for project in ("another", f"{kernel.project}x"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="not_found: no project"):
            await subscriber.call("subscribe", "s", ["order:placed"], "start", {}, project=project)
    own = await subscriber.connection.fetchval("select heliograph.list_signal_grants($1)", kernel.project)
    assert [row["pattern"] for row in own] == ["order:*"]


async def test_login_that_may_only_subscribe_computes_no_bell_of_a_run(kernel: Kernel, subscriber: Kernel) -> None:
    tokens, patterns = Tokens(), ["order:placed", "order:*", "order:7.a", "order:-"]
    tokens.add(kernel.project, await kernel.call("bell_key"))
    assert await subscriber.call("bell_key") == {}
    answers = [await subscriber.call("subscribe", "s", patterns, "start", {}) for _ in range(4)]
    names = [f"{kind}{pattern}" for kind in (SIGNALS, SUBSCRIBERS) for pattern in patterns]
    expected = {name: tokens.of(BellKey(kernel.project, name)) for name in names}
    assert answers[-1] == {"outcome": "duplicate", "bells": expected}
    assert {"outcome": "subscribed", "bells": expected} in answers
    assert "bells" not in await kernel.call("subscribe", "s", patterns, "start", {})


async def test_grants_are_checked_and_repeatable(kernel: Kernel) -> None:
    grant = "select heliograph.grant_signals($1, $2, $3, now())"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="whole segment"):
        await kernel.connection.fetchval(grant, kernel.project, "pg_monitor", "a:b*")
    with pytest.raises(asyncpg.UndefinedObjectError, match="there is no role"):
        await kernel.connection.fetchval(grant, kernel.project, "nobody at all", "a:*")
    assert [await kernel.connection.fetchval(grant, kernel.project, "pg_monitor", "a:*") for _ in range(2)] == [
        "granted",
        "duplicate",
    ]
    revoke = "select heliograph.revoke_signals($1, 'pg_monitor', 'a:*')"
    assert [await kernel.connection.fetchval(revoke, kernel.project) for _ in range(2)] == ["revoked", "unknown"]
