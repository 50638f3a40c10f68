"""The result of a call and the intents of the calls that follow it are one commit."""

from __future__ import annotations

from typing import Any

from heliograph import tool
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig
from tests.runtime.loop_kit import agent, call, results
from tests.runtime.test_commits_of_works import counted

CALLS = ["start_runs", "claim", "begin_call", "record_call", "record_call", "finish"]


@tool(effect="once")
def look(word: str = "") -> str:
    return f"seen {word}"


@tool(effect="pure", trusted=False)
def fetch() -> str:
    return "a page"


@tool(effect="once", concurrency=1)
def alone() -> int:
    return 1


def replying(*batches: list[Any]) -> ScriptedModel:
    return ScriptedModel([*batches, "done"])


async def waits_of(rig: Rig, app: Any) -> list[Any]:
    """The calls of a run of the application, in the order in which they began."""
    result = await rig.run(app)
    assert result.state == {"out": "done"}
    return await rig.fetch(
        "select w.* from heliograph.turn_waiting_tools w join heliograph.agent_turns t using (project_id, agent_turn_id)"
        " where t.run_id = $1 order by w.position",
        result.run_id,
    )


async def test_prompt_agent_with_one_local_tool_makes_six_kernel_calls(rig: Rig) -> None:
    writes = counted(rig)
    app = agent(replying([call("look")]), [look])
    assert (await rig.run(app)).state == {"out": "done"}
    assert writes.of_items == CALLS


async def test_parallel_calls_begin_with_the_reply_and_the_last_result_begins_the_next_model_call(rig: Rig) -> None:
    writes = counted(rig)
    batch = [call("look", {"word": word}, word) for word in "abc"]
    assert (await rig.run(agent(replying(batch), [look]))).state == {"out": "done"}
    assert writes.of_items == [*CALLS[:4], "record_call", "record_call", *CALLS[4:]]


async def test_next_model_call_has_the_taint_of_the_result_with_which_it_begins(rig: Rig) -> None:
    writes = counted(rig)
    waits = await waits_of(rig, agent(replying([call("fetch")], [call("fetch")]), [fetch]))
    assert writes.of_items == [*CALLS[:4], "record_call", "record_call", *CALLS[4:]]
    assert [(wait["tool"], wait["taint"]) for wait in waits] == [
        ("model", None), ("fetch", None), ("model", ["fetch"]), ("fetch", ["fetch"]), ("model", ["fetch"]),
    ]  # fmt: skip


async def test_call_that_has_to_wait_begins_when_it_may_start(rig: Rig) -> None:
    writes = counted(rig)
    assert (await rig.run(agent(replying([call("alone")]), [alone]))).state == {"out": "done"}
    assert writes.of_items == [*CALLS[:4], "begin_call", *CALLS[4:]]


async def test_ids_of_steps_are_those_of_calls_that_begin_by_themselves(rig: Rig) -> None:
    batch = [call("look", call_id="a"), call("look", {"word": 1}, "b"), call("look", call_id="c")]  # b is invalid
    waits = await waits_of(rig, agent(replying(batch), [look]))
    assert [(wait["tool_call_id"], wait["step_id"]) for wait in waits] == [
        ("m1", "s1"), ("m1-1", "s2"), ("m1-3", "s3"), ("m2", "s4"),
    ]  # fmt: skip


async def test_rule_of_approvals_is_asked_once_so_a_call_that_has_begun_needs_none(rig: Rig) -> None:
    asked: list[Any] = []

    def needs_approval(arguments: Any) -> bool:
        asked.append(arguments)
        return False

    @tool(effect="once", approval=needs_approval)
    def charge() -> str:
        return "charged"

    model = replying([call("charge")])
    assert (await rig.run(agent(model, [charge]))).state == {"out": "done"}
    assert (asked, results(model)) == ([{}], ["charged"])
