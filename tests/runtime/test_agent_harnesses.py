"""The harness port: a plain function, an Agent of pydantic-ai, and their streams."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.models import infer_model

from heliograph import Signal
from heliograph.errors import HarnessError, InvalidInput
from heliograph.models import (
    AgentHarness,
    FunctionHarness,
    ModelReply,
    ModelRequest,
    ScriptedModel,
    TextDelta,
    ThinkingDelta,
    ToolMessage,
    UserMessage,
)
from heliograph.testing import eventually
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import SOON_SECONDS, Rig, names, one
from tests.runtime.loop_kit import agent, call, payloads, problem_of


async def ended(rig: Rig, app: Any) -> list[Signal]:
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ── A plain function ──


@pytest.mark.parametrize("is_async", [True, False])
async def test_plain_function_is_a_model_with_tools(rig: Rig, is_async: bool) -> None:
    threads: list[str] = []

    def answer(request: ModelRequest) -> str | ModelReply:
        threads.append(threading.current_thread().name)
        assert problem_of(request) is None
        if isinstance(result := request.messages[-1], ToolMessage):
            return f"it is {result.content}"
        return ModelReply("", tool_calls=(call("add", {"a": 1, "b": 2}),), input_tokens=5, cost_usd=0.25)

    async def answer_soon(request: ModelRequest) -> str | ModelReply:
        return answer(request)

    signals = await ended(rig, agent(FunctionHarness(answer_soon if is_async else answer), [add]))
    assert one(signals, "workflow:end")["state"] == {"out": "it is 3"}
    assert one(signals, "text:delta") == {"content": "it is 3", "offset": 0}
    assert one(signals, "text:complete") == {"content": "it is 3"}
    assert [payload["usage"].get("costUsd") for payload in payloads(signals, "harness:end")] == [0.25, None]
    assert [payload["model"] for payload in payloads(signals, "harness:start")] == [
        "answer_soon" if is_async else "answer"
    ] * 2
    assert ("MainThread" in threads) is is_async


async def test_function_model_is_retried_after_a_lost_connection_and_not_after_a_bug(rig: Rig, soon: None) -> None:
    calls_made: list[int] = []

    def lost(_request: ModelRequest) -> str:
        calls_made.append(1)
        if len(calls_made) < 3:
            raise ConnectionResetError("gone")
        return "there"

    assert one(await ended(rig, agent(FunctionHarness(lost))), "workflow:end")["state"] == {"out": "there"}
    wrongs: list[tuple[Any, str]] = [(lambda _: 1 / 0, "broken: ZeroDivisionError: division by zero"),
                        (lambda _: 5, "broken returned 5; it must return a text or a ModelReply"),
                        (lambda _: next(iter(())), "broken: RuntimeError: the function raised StopIteration: ")]  # fmt: skip
    for wrong, message in wrongs:
        signals = await ended(rig, agent(FunctionHarness(wrong, model="broken")))
        assert one(signals, "agent:failed")["error"]["message"] == message


async def test_blocking_function_model_delays_nothing_else_and_is_abandoned_at_its_timeout(rig: Rig) -> None:
    free = threading.Event()

    def blocks(_request: ModelRequest) -> str:
        free.wait(20)
        return "late"

    model = [FunctionHarness(blocks), FunctionHarness(lambda _: "there", model="other")]
    result = await rig.run(agent(model, model_timeout_seconds=0.1))
    free.set()
    assert result.state == {"out": "there"}


@pytest.mark.parametrize("given", ["text", None, ScriptedModel])
def test_invalid_function_or_agent_is_rejected(given: Any) -> None:
    with pytest.raises(InvalidInput, match="FunctionHarness must be a function"):
        FunctionHarness(given)
    with pytest.raises(InvalidInput, match=r"AgentHarness must be a pydantic_ai\.Agent"):
        AgentHarness(given)


# ── An Agent of pydantic-ai, over a real protocol ──


class Weather(BaseModel):
    celsius: int


BOTH = pytest.mark.parametrize("name", ["openai-chat:test", "anthropic:claude-test"])


@pytest_asyncio.fixture
async def known(provider: Provider) -> AsyncIterator[Callable[..., Agent[Any, Any]]]:
    """Makes agents of a model by its name; their clients are closed when the test is over."""
    clients: list[Any] = []

    def make(name: str, **options: Any) -> Agent[Any, Any]:
        model: Any = infer_model(name)
        clients.append(model.client)
        made: Agent[Any, Any] = Agent(model, name="meteo", instructions="Be brief.", deps_type=dict, **options)

        @made.tool
        def look_up(ctx: RunContext[dict[str, int]], city: str) -> int:
            return ctx.deps[city]

        return made

    yield make
    for client in clients:
        await client.close()


@BOTH
async def test_pydantic_ai_agent_uses_its_own_tools_and_those_of_heliograph_durably(
    rig: Rig, provider: Provider, known: Any, name: str
) -> None:
    provider.answers = [
        Answer(("looking ",), calls=(("t1", "look_up", '{"city": "Oslo"}'),)),
        Answer(calls=(("t2", "add", '{"a": -3, "b": 1}'), ("t3", "look_up", '{"city": "Rome"}'))),
        Answer(("it ", "is ", "-2")),
    ]
    harness = AgentHarness(known(name), deps={"Oslo": -3, "Rome": 20})
    signals = await ended(rig, agent(harness, [add], system="Also be kind."))
    assert one(signals, "workflow:end")["state"] == {"out": "it is -2"}
    assert [payload["name"] for payload in payloads(signals, "tool:call")] == ["add"]
    assert [payload["content"] for payload in payloads(signals, "text:complete")] == ["looking ", "it is -2"]
    assert {payload["model"] for payload in payloads(signals, "harness:start")} == {"meteo"}
    assert [payload["usage"]["inputTokens"] for payload in payloads(signals, "harness:end")] == [14, 7]
    assert "Be brief." in str(provider.requests[0])
    assert "Also be kind." in str(provider.requests[0])
    assert len(provider.requests) == 3


@BOTH
async def test_output_type_of_a_pydantic_ai_agent_is_its_answer(
    rig: Rig, provider: Provider, known: Any, name: str
) -> None:
    provider.answers = [Answer(calls=(("t1", "final_result", '{"celsius": -3}'),))]
    signals = await ended(rig, agent(AgentHarness(known(name, output_type=Weather), deps={})))
    assert one(signals, "workflow:end")["state"] == {"out": {"celsius": -3}}


@BOTH
async def test_failing_provider_of_a_pydantic_ai_agent_defers_the_turn(
    rig: Rig, provider: Provider, soon: None, known: Any, name: str
) -> None:
    provider.answers = [Answer(status=429, retry_after="0.01"), Answer(("x ", "y"), cut_after=2), Answer(("fine",))]
    signals = await ended(rig, agent(AgentHarness(known(name), deps={})))
    assert one(signals, "workflow:end")["state"] == {"out": "fine"}
    assert names(signals).count("harness:error") == 1  # the 429 was met by the SDK itself: that client is not ours
    assert len(provider.requests) == 3


@BOTH
async def test_truncated_pydantic_ai_agent_reports_the_usage_of_all_its_replies(
    provider: Provider, known: Any, name: str
) -> None:
    provider.answers = [Answer(calls=(("t1", "look_up", '{"city": "Oslo"}'),)), Answer(("it is",), is_cut=True)]
    harness = AgentHarness(known(name), deps={"Oslo": -3})
    with pytest.raises(HarnessError, match="limit of output tokens") as caught:
        [_ async for _ in harness.stream(ModelRequest((UserMessage("?"),)))]
    assert (caught.value.tokens, len(provider.requests)) == (20, 2)


# ── Signals of a follower ─


class StreamingModel:
    """Streams thoughts and text in pieces, each when the test allows it."""

    model = "speaks"

    def __init__(self, pieces: int, *, fails_at: int | None = None):
        self.pieces = [f"piece {n}, " for n in range(pieces)]
        self.may_continue = asyncio.Semaphore(0)
        self.fails_at = fails_at

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        yield ThinkingDelta("hm")
        for n, piece in enumerate(self.pieces):
            async with asyncio.timeout(60):
                await self.may_continue.acquire()
            if n == self.fails_at:
                self.fails_at = None
                raise HarnessError("lost", recoverable=True)
            yield TextDelta(piece)
        yield ModelReply("".join(self.pieces), thinking="hm")


@pytest.mark.proves("SIG-28", "SIG-29", "G-48")
async def test_follower_that_reconnects_after_each_delta_misses_and_repeats_nothing(rig: Rig) -> None:
    model = StreamingModel(6)
    app = agent(model)
    run_id = await rig.start(app)
    streamed: list[Signal] = []
    async with rig.serving(app):
        while not streamed or streamed[-1].name != "workflow:end":
            async for signal in rig.runtime.follow(run_id, after=streamed[-1].seq if streamed else 0):
                streamed.append(signal)
                if signal.name in ("text:delta", "thinking:delta"):
                    model.may_continue.release()  # the next piece comes after this one was seen: each is a signal of its own
                    break
    assert streamed == await rig.runtime.reader.all_signals(run_id)
    deltas: list[Any] = [s.payload for s in streamed if s.name == "text:delta"]
    text = "".join(delta["content"] for delta in deltas)
    assert [delta["content"] for delta in deltas] == model.pieces
    assert [text[delta["offset"] :].startswith(delta["content"]) for delta in deltas] == [True] * 6
    assert one(streamed, "text:complete")["content"] == text


async def test_running_tool_call_is_visible_with_its_arguments(rig: Rig) -> None:
    may_end = asyncio.Event()

    async def long(name: str) -> str:
        async with asyncio.timeout(60):
            await may_end.wait()  # the test ends it after it has seen the call
        return name.upper()

    app = agent(ScriptedModel([call("long", {"name": "bob"}), "done"]), [long])
    run_id = await rig.start(app)
    async with rig.serving(app):
        seen = await eventually(rig, run_id, "tool:call", within_seconds=SOON_SECONDS)
        may_end.set()
        signals = await rig.ended(run_id)
    assert seen.payload == {"id": "m1-1", "name": "long", "input": {"name": "bob"}, "timeout_seconds": 60.0}
    assert one(signals, "tool:call") == seen.payload
    assert one(signals, "tool:result") == {"id": "m1-1", "name": "long", "status": "success", "output": "BOB"}


async def test_each_attempt_of_a_model_call_streams_from_its_start(rig: Rig, soon: None) -> None:
    model = StreamingModel(4, fails_at=2)
    for _ in range(7):
        model.may_continue.release()
    signals = await ended(rig, agent(model))
    starts = [s for s in signals if s.name == "harness:start"]
    assert len(starts) == 2
    for start in starts:
        deltas: list[Any] = [s.payload for s in signals if s.parent == start.id and s.name == "text:delta"]
        offset = 0
        for delta in deltas:
            assert delta["offset"] == offset
            offset += len(delta["content"])
    whole = next(s for s in signals if s.name == "text:complete")
    assert whole.parent == starts[1].id
    assert whole.payload == {"content": "".join(model.pieces)}


async def test_unstreamed_text_is_streamed_at_the_end_and_a_different_text_is_rejected(rig: Rig) -> None:
    class Half:
        model = "half"

        def __init__(self, reply_text: str):
            self.reply_text = reply_text

        async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
            yield TextDelta(self.reply_text)
            yield ModelReply("hello world", thinking="well")

    signals = await ended(rig, agent(Half("hello ")))
    assert "".join(str(payload["content"]) for payload in payloads(signals, "text:delta")) == "hello world"
    assert one(signals, "thinking:delta") == {"content": "well", "offset": 0}
    signals = await ended(rig, agent(Half("good bye")))
    assert (
        one(signals, "agent:failed")["error"]["message"]
        == "the harness for half streamed another text than its reply has"
    )
