"""Models that fail in passing, are slow, or have others behind them; and providers that storm, over a socket."""

import asyncio
from typing import Any

import pytest

from heliograph.errors import HarnessError
from heliograph.models import ModelReply, ScriptedModel, TextDelta
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import Rig, names, one, until
from tests.runtime.loop_kit import agent, call

BUSY = HarnessError("busy", code="RATE_LIMITED", recoverable=True)


def add(a: int, b: int) -> int:
    return a + b


ADD = [call("add", {"a": 1, "b": 2})]


class Quotes(ScriptedModel):
    """A model with a name of its own."""

    def __init__(self, name: str, replies: Any):
        super().__init__(replies)
        self._name = name

    @property
    def model(self) -> str:
        return self._name


async def ended(rig: Rig, app: Any) -> Any:
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


# ── Several models ──


@pytest.mark.parametrize("error", [BUSY, HarnessError("no such key")], ids=["busy", "refused"])
async def test_failing_model_falls_back_to_the_next_and_the_next_step_starts_with_the_first(
    rig: Rig, error: Any
) -> None:
    first, second = Quotes("first", [error, "done"]), Quotes("second", [ADD])
    result = await rig.run(agent([first, second], [add]))
    assert result.state == {"out": "done"}
    starts: list[Any] = [s.payload for s in result.signals if s.name == "harness:start"]
    assert [start["model"] for start in starts] == ["first", "second", "first"]
    assert "defer" not in str(names(result.signals))


async def test_turn_is_deferred_when_one_of_its_failing_models_may_recover(rig: Rig, soon: None) -> None:
    first, second = Quotes("first", [BUSY, "there"]), Quotes("second", [HarnessError("no such key")])
    signals = await ended(rig, agent([first, second]))
    assert one(signals, "workflow:end")["state"] == {"out": "there"}
    assert (len(first.requests), len(second.requests)) == (2, 1)


async def test_each_model_call_has_its_own_stream_also_after_a_fallback_and_a_retry(rig: Rig, soon: None) -> None:
    class Breaks:
        model = "breaks"

        async def stream(self, _request: Any) -> Any:
            yield TextDelta("half a ")
            await asyncio.sleep(0.06)  # longer than a batch: it is in the log
            raise BUSY

    signals = await ended(rig, agent([Breaks(), Quotes("second", [BUSY, "the whole answer"])]))
    streams = [s for s in signals if s.name == "harness:start"]
    failures: list[Any] = []
    for start in streams:
        below: list[Any] = [s for s in signals if s.parent == start.id]
        deltas = [s.payload for s in below if s.name == "text:delta"]
        text = "".join(delta["content"] for delta in deltas)
        assert [delta["offset"] for delta in deltas] == [
            sum(len(d["content"]) for d in deltas[:n]) for n in range(len(deltas))
        ]
        whole = [s.payload["content"] for s in below if s.name == "text:complete"]
        assert whole in ([], [text])
        failures.append((start.payload["model"], text, bool(whole)))
    assert failures == [
        ("breaks", "half a ", False), ("second", "", False), ("breaks", "half a ", False),
        ("second", "the whole answer", True),
    ]  # fmt: skip


# ── Deferral ─


@pytest.mark.proves("L0-64")
async def test_recoverable_model_failure_defers_the_turn_and_repeats_no_call(rig: Rig, soon: None) -> None:
    ran: list[int] = []

    def count() -> int:
        ran.append(1)
        return len(ran)

    model = ScriptedModel([BUSY, call("count"), BUSY, BUSY, "done"])
    signals = await ended(rig, agent(model, [count], retries=2))
    assert one(signals, "workflow:end")["state"] == {"out": "done"}
    assert ran == [1]
    assert names(signals).count("harness:error") == 3
    turn = await rig.turn_of("worker")
    [row] = await rig.fetch("select retry_count from heliograph.inbox_overview where turn_id = $1", turn.turn_id)
    assert row["retry_count"] == 3  # more than `retries`, which are for each question


async def test_model_call_that_keeps_failing_ends_the_turn_with_its_error(rig: Rig, soon: None) -> None:
    model = ScriptedModel([ADD, *[BUSY] * 3])
    signals = await ended(rig, agent(model, [add], retries=2))
    assert one(signals, "agent:failed")["error"] == {"code": "RATE_LIMITED", "message": "busy", "recoverable": True}
    assert len(model.requests) == 1 + 3


async def test_model_call_past_its_timeout_is_retried_later(rig: Rig, soon: None) -> None:
    class Slow:
        model = "slow"
        calls_made = 0

        async def stream(self, _request: Any) -> Any:
            Slow.calls_made += 1
            yield TextDelta("here ")
            if Slow.calls_made == 1:
                await asyncio.Event().wait()
            yield ModelReply("here it is")

    signals = await ended(rig, agent(Slow(), model_timeout_seconds=0.1))
    error = one(signals, "harness:error")
    assert (error["code"], error["recoverable"]) == ("MODEL_TIMEOUT", True)
    assert one(signals, "workflow:end")["state"] == {"out": "here it is"}


async def test_silent_model_falls_back_to_the_next(rig: Rig) -> None:
    class Silent:
        model = "silent"

        async def stream(self, _request: Any) -> Any:
            await asyncio.Event().wait()
            yield

    result = await rig.run(agent([Silent(), ScriptedModel(["here"])], model_timeout_seconds=0.1))
    assert result.state == {"out": "here"}


# ── Providers, over a socket ──


@pytest.mark.more
@pytest.mark.parametrize("name", ["openai-chat:test", "anthropic:claude-test"])
async def test_turn_survives_rejections_truncations_and_nonsense_and_repeats_no_effect(
    rig: Rig, provider: Provider, soon: None, name: str
) -> None:
    did: list[int] = []

    async def note(n: int) -> str:
        did.append(n)
        return f"noted {n}"

    storm = [
        Answer(status=429, retry_after="0.01"),
        Answer(status=503),
        Answer(("half ", "an ", "answer"), cut_after=3),
    ]
    calls = (("t1", "note", '{"n": 1}'), ("t2", "note", '{"n": 2}'), ("t3", "note", '{"n": "q"}'), ("t4", "nope", "[]"),
             ("t5", "note", "{half"))  # fmt: skip
    provider.answers = [
        *storm, Answer(("I ", "note ", "it"), calls=calls),
        Answer(status=529), Answer(("x ", "y ", "z"), garble_after=3), Answer(calls=(("t1", "note", '{"n": 3}'),)),
        *storm, Answer(("all ", "noted"), ("sure",)),
    ]  # fmt: skip
    signals = await ended(rig, agent(name, [note]))
    assert one(signals, "workflow:end")["state"] == {"out": "all noted"}
    assert sorted(did) == [1, 2, 3]
    assert names(signals).count("harness:error") == 8
    assert len(provider.requests) == 11  # one request is one call: no SDK tries again by itself


async def test_delay_requested_by_a_provider_is_respected_without_occupying_a_worker(
    rig: Rig, provider: Provider
) -> None:
    provider.answers = [Answer(status=429, retry_after="3600")]
    app = agent("openai-chat:test")
    await rig.start(app)
    rig.ends_with_open_work = True
    query = """
        select extract(epoch from next_retry_at - clock_timestamp())::float8 as seconds from heliograph.agent_inbox
        where project_id = $1 and status = 'deferred'"""
    async with rig.serving(app) as worker:
        rows: list[Any] = []

        async def is_deferred() -> bool:
            rows[:] = await rig.fetch(query, rig.runtime.settings.project)
            return bool(rows)

        await until(is_deferred)
        assert 3000 < rows[0]["seconds"] <= 3600
        await until(lambda: not worker._running)
    assert len(provider.requests) == 1


async def test_results_and_errors_of_tools_reach_the_provider_in_their_order(rig: Rig, provider: Provider) -> None:
    provider.answers = [Answer(calls=(("t1", "add", '{"a": 1, "b": 1}'), ("t2", "add", "{}"))), Answer(("two",))]
    signals = await ended(rig, agent("openai-chat:test", [add]))
    assert one(signals, "workflow:end")["state"] == {"out": "two"}
    contents = [m["content"] for m in provider.requests[1]["messages"] if m["role"] == "tool"]
    assert contents[0] == "2"
    assert "are invalid" in contents[1]
