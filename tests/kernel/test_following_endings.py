"""Several endings of one run in one call: each is computed from the run that the one before it makes (K24d)."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Item, Kernel, draft, ending, following

AGENTS = ("a", "b", "c")


async def three(kernel: Kernel) -> list[Item]:
    """Three running turns of one run."""
    await kernel.start("run_a", [*AGENTS, "editor"], {f"turn_{name}": name for name in AGENTS})
    return sorted(await kernel.claim(), key=lambda claimed: str(claimed["turn_id"]))


async def outcomes(kernel: Kernel, items: list[Item]) -> list[str]:
    return [row["outcome"] for row in await kernel.call("finish", items)]


@pytest.mark.proves("K24")
async def test_endings_of_a_run_commit_together_as_one_after_another(kernel: Kernel) -> None:
    turns = await three(kernel)
    first, second, third = following(turns, ends="success")
    first["reaction"]["state"] = {"n": 1}
    assert await outcomes(kernel, [first, second, third]) == ["ok"] * 3
    run = await kernel.run("run_a")
    assert (run["version"], run["open_turns"], run["status"]) == (turns[0]["run"]["version"] + 3, 0, "ended")
    assert (run["state"], run["memory"]) == ({"n": 1}, {"turns": 3})
    log = await kernel.rows("signal_log", "seq, name, turn_id", "run_id = 'run_a'")
    assert [(s["name"], s["turn_id"]) for s in log[-4:]] == [
        ("agent:completed", "turn_a"), ("agent:completed", "turn_b"), ("agent:completed", "turn_c"), ("workflow:end", "turn_c"),
    ]  # fmt: skip
    assert [s["seq"] for s in log] == list(range(1, len(log) + 1))
    assert set(await kernel.checks(quiescent=True)) == {"I8"}


@pytest.mark.proves("K24")
async def test_ending_counts_only_if_the_one_that_it_follows_is_accepted(kernel: Kernel) -> None:
    first, second, third = following(await three(kernel))
    second["content"] = {"text": 1}
    answers = await kernel.call("finish", [first, second, third])
    assert [row["outcome"] for row in answers] == ["ok", "rejected", "conflict"]
    assert answers[2]["run"]["version"] == (await kernel.run("run_a"))["version"] == third["version"] - 1


@pytest.mark.proves("K24")
async def test_ending_does_not_follow_a_run_of_the_same_version_that_others_have_made(kernel: Kernel) -> None:
    turns = await three(kernel)
    first, second, _ = following(turns)
    await kernel.finish(turns[2])  # the run now has the version that the first ending would have made
    assert await outcomes(kernel, [first, second]) == ["conflict", "conflict"]
    assert await outcomes(kernel, [second]) == ["conflict"]


async def test_ending_that_follows_a_lost_turn_is_a_conflict(kernel: Kernel) -> None:
    first, second, third = following(await three(kernel))
    assert await outcomes(kernel, [first | {"epoch": 9}, second, third | {"epoch": 9}]) == [
        "stale",
        "conflict",
        "stale",
    ]


async def test_chain_that_is_repeated_after_a_lost_reply_is_a_duplicate(kernel: Kernel) -> None:
    items = following(await three(kernel), ends="success")
    assert await outcomes(kernel, items) == ["ok"] * 3
    assert await outcomes(kernel, items) == ["duplicate"] * 3


async def test_ending_that_wakes_turns_follows_in_a_round_of_its_own(kernel: Kernel) -> None:
    turns = await three(kernel)
    first, _, _ = following(turns)
    second = ending(turns[1], version=first["version"] + 1, wakes={"turn_e": "editor"}, memory={})
    third = ending(turns[2], version=first["version"] + 2, memory={"turns": 3})
    items = [first, second | {"follows": "turn_a"}, third | {"follows": "turn_b"}]
    assert await outcomes(kernel, items) == ["ok"] * 3
    run = await kernel.run("run_a")
    assert (run["open_turns"], run["activations"], run["memory"]) == (1, 4, {"turns": 3})
    assert (await kernel.turn("turn_e"))["state"] == "active"


async def test_one_turn_does_not_end_twice_in_a_following(kernel: Kernel) -> None:
    first, *_ = following(await three(kernel))
    again = first | {"follows": "turn_a", "version": first["version"] + 1}
    assert await outcomes(kernel, [first, again]) == ["ok", "duplicate"]


async def test_signal_of_a_chain_may_name_a_signal_of_an_ending_before_it_as_its_parent(kernel: Kernel) -> None:
    first, second, _ = following(await three(kernel))
    newest = (await kernel.run("run_a"))["signal_seq"]
    second["signals"] = [draft("x", f"sig_run_a_{newest + 1}")]
    assert await outcomes(kernel, [first, second]) == ["ok", "ok"]


async def test_signal_of_a_chain_names_no_later_signal_as_its_parent(kernel: Kernel) -> None:
    first, second, _ = following(await three(kernel))
    newest = (await kernel.run("run_a"))["signal_seq"]
    second["signals"] = [draft("x", f"sig_run_a_{newest + 2}")]
    assert await outcomes(kernel, [first, second]) == ["ok", "rejected"]
