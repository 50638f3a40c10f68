from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Item, Kernel, activation, draft, turn_item


async def ended_by_kernel(kernel: Kernel) -> None:
    """A run with a pending reaction: a sweep has ended its only turn."""
    await kernel.running(ttl_seconds=10)
    kernel.wait(10)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a"]


@pytest.mark.proves("K25", "L0-87", "L0-80")
async def test_turn_ended_by_the_kernel_creates_a_pending_reaction(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    (pending,) = await kernel.pending()
    assert (
        pending["target"],
        pending["run"]["run_id"],
        pending["run"]["pending_reactions"],
        pending["run"]["open_turns"],
    ) == (
        TARGET,
        "run_a",
        1,
        0,
    )
    (signal,) = pending["signals"]
    assert (signal["seq"], signal["name"], signal["agent"], signal["turn_id"]) == (
        3,
        "agent:failed",
        "writer",
        "turn_a",
    )
    assert signal["payload"]["outcome"] == "timeout"
    assert signal["payload"]["error"]["code"] == "TIMEOUT"
    assert signal["payload"]["deliverable_card_id"] == "card:turn_a:end"


@pytest.mark.proves("K25", "K26")
async def test_run_ends_only_without_pending_reactions(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.connection.execute(
            "update heliograph.runs set status = 'ended', outcome = 'failed', ended_at = now() where project_id = $1",
            kernel.project,
        )
    (pending,) = await kernel.pending()
    end = draft("workflow:end", "sig_run_a_3")
    answer = await kernel.react("run_a", pending["run"]["version"], end, status="ended", outcome="failed")
    assert answer == {"run_id": "run_a", "outcome": "ok", "targets": []}
    run = await kernel.run("run_a")
    assert (run["status"], run["outcome"], run["pending_reactions"]) == ("ended", "failed", 0)
    assert await kernel.pending() == []


@pytest.mark.proves("K25", "SIG-60")
async def test_committed_reaction_wakes_agents_with_its_pending_signal(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    (pending,) = await kernel.pending()
    wakes = [activation("critic", "turn_c", 0, cause={"seq": 3})]
    activated = draft("agent:activated", "sig_run_a_3", agent="critic")
    answer = await kernel.react("run_a", pending["run"]["version"], activated, activations=wakes, state={"failed": 1})
    assert answer["targets"] == [TARGET]
    claimed = await kernel.claim_one()
    assert (claimed["cause"]["id"], claimed["cause"]["name"], claimed["activation_id"]) == (
        "sig_run_a_3",
        "agent:failed",
        "sig_run_a_4",
    )
    assert claimed["run"]["state"] == {"failed": 1}


async def test_cause_beyond_the_log_is_no_signal_and_stops_no_claim(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"}, cause={"seq": 10**12})
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    claimed = {each["turn_id"]: each for each in await kernel.claim()}
    assert claimed["turn_a"]["cause"] is None
    assert claimed["turn_b"]["cause"]["name"] == "workflow:start"


@pytest.mark.proves("K24", "K25")
async def test_pending_reaction_is_committed_once(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    (pending,) = await kernel.pending()
    version = pending["run"]["version"]
    end = draft("workflow:end", "sig_run_a_3")
    await kernel.react("run_a", version, end, status="ended", outcome="failed")
    before = await kernel.everything()
    again = await kernel.react("run_a", version, end, status="ended", outcome="failed")
    assert again == {"run_id": "run_a", "outcome": "conflict", "targets": []}
    assert await kernel.everything() == before


@pytest.mark.proves("K24")
async def test_signal_that_becomes_pending_after_the_reaction_was_computed_is_not_lost(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer", "turn_2": "critic"}, ttl_seconds=10)
    claimed = await kernel.claim()
    await kernel.append(claimed[0], draft("finding", claimed[0]["activation_id"], is_pending=True))
    (pending,) = await kernel.pending()
    await kernel.append(claimed[1], draft("finding", claimed[1]["activation_id"], is_pending=True))
    assert (await kernel.react("run_a", pending["run"]["version"]))["outcome"] == "conflict"
    (pending,) = await kernel.pending()
    assert [each["seq"] for each in pending["signals"]] == [4, 5]
    assert (await kernel.react("run_a", pending["run"]["version"]))["outcome"] == "ok"
    assert await kernel.pending() == []


async def test_append_without_pending_signals_does_not_conflict_with_a_reaction(kernel: Kernel) -> None:
    claimed = await kernel.running()
    version = (await kernel.run("run_a"))["version"]
    await kernel.append(claimed, draft("text:delta", claimed["activation_id"]))
    assert (await kernel.run("run_a"))["version"] == version
    assert (await kernel.finish(claimed, version=version, wakes={"turn_c": "critic"}))["outcome"] == "ok"


@pytest.mark.parametrize("version", [None, -1, 0, 99, 2**62])
async def test_reaction_without_a_matching_version_is_a_conflict(kernel: Kernel, version: int | None) -> None:
    await ended_by_kernel(kernel)
    before = await kernel.everything()
    if version is None:
        (answer,) = await kernel.call("react", [{"run_id": "run_a", "signals": [], "reaction": {}}])
    else:
        answer = await kernel.react("run_a", version)
    assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


async def test_reaction_of_a_run_that_does_not_exist_is_a_conflict(kernel: Kernel) -> None:
    assert await kernel.react("run_x", 1) == {"run_id": "run_x", "outcome": "conflict", "targets": []}


@pytest.mark.proves("K26")
@pytest.mark.parametrize("reaction", [{}, {"status": "running"}, {"status": "ended", "outcome": "failed"}], ids=str)
async def test_ended_run_neither_ends_again_nor_resumes(kernel: Kernel, reaction: dict[str, str]) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    before = await kernel.everything()
    version = (await kernel.run("run_a"))["version"]
    answer = await kernel.react("run_a", version, draft("workflow:end", "sig_run_a_1"), **reaction)
    assert (answer["outcome"], answer["code"], answer["targets"]) == ("rejected", "23514", [])
    assert await kernel.everything() == counted(before, "run_a")


def counted(rows: dict[str, list[Item]], run_id: str) -> dict[str, list[Item]]:
    """The rows with one more rejection of this run, and no other change."""
    runs = [run | {"rejections": run["rejections"] + (run["run_id"] == run_id)} for run in rows["runs"]]
    return rows | {"runs": sorted(runs, key=repr)}


REJECTED = [
    ("nobody", {"cause": {"seq": 3}}, "23503"), ("critic", {"cause": "nonsense"}, "22023"), ("critic", {"priority": 9}, "22023"),
    ("critic", {"turn_id": "turn_a", "cause": {"seq": 3}}, "23505"),
]  # fmt: skip


@pytest.mark.proves("K23")
@pytest.mark.parametrize(("agent", "fields", "code"), REJECTED)
async def test_unstorable_reaction_commits_nothing_and_is_counted(
    kernel: Kernel, agent: str, fields: Item, code: str
) -> None:
    await ended_by_kernel(kernel)
    (pending,) = await kernel.pending()
    before = await kernel.everything()
    wakes = [activation(agent, "turn_c", 0) | fields]
    answer = await kernel.react(
        "run_a", pending["run"]["version"], draft("agent:activated", "sig_run_a_3"), activations=wakes
    )
    assert (answer["outcome"], answer["code"]) == ("rejected", code)
    assert await kernel.everything() == counted(before, "run_a")
    (pending,) = await kernel.pending()
    assert pending["rejections"] == 1


@pytest.mark.proves("K23")
@pytest.mark.parametrize("activations", [None, {}, 5, "x", True], ids=str)
async def test_activations_that_are_no_array_are_rejected_with_their_item_alone(
    kernel: Kernel, activations: Any
) -> None:
    for name in "ab":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    wrong, right = await kernel.pending()
    items = [
        {"run_id": each["run"]["run_id"], "signals": signals, "version": each["run"]["version"], "reaction": reaction}
        for each, signals, reaction in (
            (wrong, [], {"activations": activations}),
            (right, [draft("workflow:end", "sig_run_b_3")], {"status": "ended", "outcome": "failed"}),
        )
    ]
    answers = await kernel.call("react", items)
    assert [(each["outcome"], each.get("code")) for each in answers] == [("rejected", "22023"), ("ok", None)]
    (pending,) = await kernel.pending()
    assert (pending["run"]["run_id"], pending["rejections"]) == ("run_a", 1)


@pytest.mark.proves("K23", "K25")
async def test_runs_with_a_rejected_reaction_block_no_others(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    for turn_of in ("run_a", "run_b", "run_c", "run_a", "run_b"):
        (pending,) = await kernel.pending(limit=1)
        assert pending["run"]["run_id"] == turn_of
        await kernel.react(turn_of, pending["run"]["version"], status="asleep")
    assert [(each["run"]["run_id"], each["rejections"]) for each in await kernel.pending()] == [
        ("run_c", 1), ("run_a", 2), ("run_b", 2),
    ]  # fmt: skip
    (pending,) = await kernel.pending(limit=1)
    end = draft("workflow:end", "sig_run_c_3")
    assert (await kernel.react("run_c", pending["run"]["version"], end, status="ended", outcome="failed"))[
        "outcome"
    ] == "ok"
    assert (await kernel.run("run_c"))["rejections"] == 0


@pytest.mark.proves("K23")
async def test_one_rejected_reaction_does_not_disturb_the_others_of_its_call(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    items = [
        {"run_id": each["run"]["run_id"], "signals": [draft("workflow:end", f"sig_{each['run']['run_id']}_3")],
         "version": each["run"]["version"], "reaction": {"status": "ended", "outcome": outcome}}
        for each, outcome in zip(await kernel.pending(), ("failed", "excellent", "failed"), strict=True)
    ]  # fmt: skip
    assert [each["outcome"] for each in await kernel.call("react", items)] == ["ok", "rejected", "ok"]
    assert [each["run"]["run_id"] for each in await kernel.pending()] == ["run_b"]


async def test_runs_of_other_pools_are_not_returned(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    assert await kernel.call("sweep_pending_reactions", ["other"], 10) == []
    assert await kernel.call("sweep_pending_reactions", [], 10) == []
    assert len(await kernel.call("sweep_pending_reactions", ["other", TARGET], 10)) == 1


async def test_one_call_commits_reactions_of_many_runs_and_answers_in_order(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    pending = await kernel.pending(limit=2)
    assert [each["run"]["run_id"] for each in pending] == ["run_a", "run_b"]
    items = [
        {"run_id": each["run"]["run_id"], "signals": [draft("workflow:end", f"sig_{each['run']['run_id']}_1")],
         "version": each["run"]["version"], "reaction": {"status": "ended", "outcome": "failed"}}
        for each in reversed(pending)
    ]  # fmt: skip
    answers = await kernel.call("react", items)
    assert [(each["run_id"], each["outcome"]) for each in answers] == [("run_b", "ok"), ("run_a", "ok")]
    assert [each["run"]["run_id"] for each in await kernel.pending()] == ["run_c"]


async def pending_within(kernel: Kernel, bytes_max: int, limit: int = 100) -> list[Item]:
    """The answer of sweep_pending_reactions, with another bound than its own."""
    query = "select heliograph._runs_with_pending($1, $2, $3, $4)"
    answer: list[Item] = await kernel.connection.fetchval(query, kernel.project, [TARGET], limit, bytes_max)
    return answer


async def three_owing(kernel: Kernel) -> list[Item]:
    """Three runs with a pending reaction each, as a worker reads them."""
    for n in (1, 2, 3):
        await kernel.start(f"run_{n}", ["writer"], {f"turn_{n}": "writer"}, ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    return await kernel.pending()


async def enlarge_state(kernel: Kernel, size: int) -> None:
    """Replace the state of the first of the three runs by a larger one."""
    await kernel.connection.execute(
        "update heliograph.runs set state = jsonb_build_object('text', repeat('x', $2::integer))"
        " where project_id = $1 and run_id = 'run_1'", kernel.project, size,
    )  # fmt: skip


@pytest.mark.proves("K23", "S22")
async def test_answer_leaves_out_the_runs_that_exceed_its_bytes(kernel: Kernel) -> None:
    runs = await three_owing(kernel)
    lengths = [len(await pending_within(kernel, bytes_max)) for bytes_max in range(1200, 6000, 200)]
    assert lengths == sorted(lengths)
    assert set(lengths) == {1, 2, 3}
    assert await pending_within(kernel, 6000) == runs


async def test_size_of_a_run_includes_the_calls_of_its_ended_turns(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=10)
    calls: list[Item] = [{"call_id": f"c{n}", "step_id": f"c{n}", "tool": "t", "effect": "once"} for n in range(60)]
    await kernel.call("begin_call", [turn_item(claimed, **call) for call in calls])
    kernel.wait(10)
    await kernel.sweep("expired")
    (pending,) = await kernel.pending()
    assert len(pending["signals"][0]["ended"]["calls"]) == 60
    query = """select heliograph._bytes_of_pending($1, r), octet_length(heliograph._run_with_pending($1, r)::text)
                 from heliograph.runs r where r.project_id = $1"""
    [(measured, built)] = await kernel.connection.fetch(query, kernel.project)
    assert measured > 0.9 * built


@pytest.mark.proves("K23", "S22")
async def test_run_that_exceeds_an_answer_alone_comes_without_contents(kernel: Kernel) -> None:
    await three_owing(kernel)
    await enlarge_state(kernel, 5000)
    large = (await kernel.pending())[0]
    (pending,) = await pending_within(kernel, 4000)
    failure = pending.pop("failure")
    assert pending == {**large, "signals": [], "run": {**large["run"], "state": {}, "memory": {}}}
    assert failure["code"] == "RESOURCE_EXHAUSTED"
    assert failure["message"].endswith("workers read at most 4000")
    end = draft("workflow:end", "sig_run_1_3")
    assert (await kernel.react("run_1", pending["run"]["version"], end, status="ended", outcome="failed"))[
        "outcome"
    ] == "ok"
    assert [each["run"]["run_id"] for each in await pending_within(kernel, 4000)] == ["run_2", "run_3"]


@pytest.mark.proves("K23", "S22")
async def test_large_run_behind_others_comes_with_them(kernel: Kernel) -> None:
    await three_owing(kernel)
    await kernel.connection.execute(
        "update heliograph.runs set rejections = 1 where project_id = $1 and run_id = 'run_1'", kernel.project
    )
    await enlarge_state(kernel, 5000)
    assert ["failure" in each for each in await pending_within(kernel, 4000)] == [False, False, True]


async def test_reaction_that_never_read_the_memory_keeps_its_untrusted_keys(kernel: Kernel) -> None:
    await ended_by_kernel(kernel)
    await kernel.connection.execute(
        'update heliograph.runs set memory = \'{"untrusted_keys": ["mail"]}\' where project_id = $1', kernel.project
    )
    (pending,) = await kernel.pending()
    end = draft("workflow:end", "sig_run_a_3")
    given = {"memory": {"code": "RESOURCE_EXHAUSTED", "untrusted_keys": []}, "keeps_taint": True}
    await kernel.react("run_a", pending["run"]["version"], end, status="ended", outcome="failed", **given)
    ((memory,),) = await kernel.rows("runs", "memory")
    assert memory == {"code": "RESOURCE_EXHAUSTED", "untrusted_keys": ["mail"]}
