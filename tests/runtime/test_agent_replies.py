"""Any reply of a model or harness: the turn continues, falls back to the next model, or fails with the reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.definitions.agent import define_agent
from heliograph.errors import ToolFailed
from heliograph.models import ModelReply, ScriptedModel, TextDelta, ThinkingDelta, ToolCall
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import START, Rig, names, one
from tests.runtime.loop_kit import agent, payloads, results

BAD = "a\0b\ud800c"
GOOD = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


class Replying:
    """A custom harness that yields these chunks."""

    model = "says"

    def __init__(self, *chunks: Any):
        self._chunks = chunks

    async def stream(self, _request: Any) -> Any:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def echo(s: Any = "") -> str:
    return f"echo {s}"


# ── Unstorable values ────────


async def test_unstorable_text_is_stored_with_a_mark_in_its_place(rig: Rig) -> None:
    speaking = Replying(ThinkingDelta(BAD), TextDelta(BAD), TextDelta("\0"), ModelReply(BAD + "\0!", thinking=BAD))
    result = await rig.run(agent(speaking))
    assert result.state == {"out": GOOD + "\N{REPLACEMENT CHARACTER}!"}
    deltas = payloads(result.signals, "text:delta")
    assert "".join(delta["content"] for delta in deltas) == payloads(result.signals, "text:complete")[0]["content"]
    assert payloads(result.signals, "thinking:complete") == [{"content": GOOD}]


@pytest.mark.parametrize("arguments", [{"s": BAD}, {"s": float("nan")}, BAD, {"s": {1: ()}}], ids=str)
async def test_unstorable_arguments_return_an_error_to_the_model_and_the_turn_continues(
    rig: Rig, arguments: Any
) -> None:
    model = ScriptedModel([[ToolCall("x", "echo", arguments), ToolCall("y", BAD, {})], "done"])
    result = await rig.run(agent(model, [echo]))
    assert result.state == {"out": "done"}
    (kind, why), (_, unknown) = results(model)
    assert kind == "error"
    assert "JSON object" in why
    assert unknown.startswith(f"there is no tool {GOOD}")


@pytest.mark.parametrize("error", [ToolFailed(BAD, code="A\0B"), ValueError(BAD)], ids=["ours", "foreign"])
async def test_error_of_a_tool_reaches_the_model_with_any_text(rig: Rig, error: Exception) -> None:
    def fail() -> None:
        raise error

    model = ScriptedModel([ToolCall("x", "fail", {}), "done"])
    result = await rig.run(agent(model, [fail]))
    assert result.state == {"out": "done"}
    assert results(model)[0][0] == "error"


# ── Calls with missing or repeated ids ──


@pytest.mark.parametrize("ids", [("c1", "c1"), ("", ""), ("a", "\0"), (None, None)], ids=str)
async def test_calls_with_one_id_get_distinct_ids_and_each_is_answered(rig: Rig, ids: Any) -> None:
    calls = [ToolCall(ids[0], "echo", {"s": 1}), ToolCall(ids[1], "echo", {"s": 2})]
    model = ScriptedModel([calls, calls, "done"])
    result = await rig.run(agent(model, [echo], retries=0))
    assert result.state == {"out": "done"}
    assert results(model) == ["echo 1", "echo 2"] * 2
    assert "defer" not in str(names(result.signals))


# ── Harnesses that are wrong ──


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (ModelReply("x", input_tokens=None), "input_tokens None; it must be a whole number"),  # type: ignore[arg-type]
        (ModelReply("x", output_tokens=-1), "output_tokens -1"),
        (ModelReply("x", output_tokens=True), "output_tokens True"),
        (ModelReply("x", cost_usd=float("nan")), "cost_usd nan"),
        (ModelReply(None), "text None"),  # type: ignore[arg-type]
        (ModelReply("x", tool_calls=({"name": "echo"},)), "a tuple of ToolCall"),  # type: ignore[arg-type]
    ],
)
async def test_malformed_reply_is_rejected_with_the_wrong_part(rig: Rig, reply: Any, message: str) -> None:
    result = await rig.run(agent(Replying(reply)))
    assert result.outcome == "failed"
    assert message in one(result.signals, "agent:failed")["error"]["message"]


# ── The next model replaces any failed one ────────


@pytest.mark.parametrize(
    "first",
    [
        "openai-chat:no-key", "nonsense:model", Replying(ValueError("x")), Replying(ConnectionError("x")), Replying(AssertionError()),
        Replying(), Replying("no chunk"), Replying(ModelReply("x", input_tokens=None)), Replying(ModelReply("x", output=float("nan"))),  # type: ignore[arg-type]
    ],
    ids=["no key", "no such model", "ValueError", "ConnectionError", "AssertionError", "nothing", "nonsense", "no reply", "no output"],
)  # fmt: skip
async def test_any_failure_of_a_model_falls_back_to_the_next(
    rig: Rig, first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = await rig.run(agent([first, ScriptedModel(["here"])]))
    assert result.state == {"out": "here"}
    assert [name for name in names(result.signals) if name.startswith("harness:")] == [
        "harness:start", "harness:error", "harness:start", "harness:end",
    ]  # fmt: skip


async def test_silent_model_does_not_use_the_time_of_the_next_by_default(rig: Rig) -> None:
    class Silent:
        model = "silent"

        async def stream(self, _request: Any) -> Any:
            await asyncio.Event().wait()
            yield

    result = await rig.run(agent([Silent(), ScriptedModel(["here"])], timeout_seconds=1.0))
    assert result.state == {"out": "here"}
    assert one(result.signals, "harness:error")["code"] == "MODEL_TIMEOUT"


def test_single_model_has_the_whole_time_of_its_turn() -> None:
    def seconds(model: Any, **options: Any) -> float | None:
        return define_agent("a", prompt="x", model=model, activate_on=START, **options).model_call_timeout_seconds

    assert seconds("a:b") is None
    assert seconds(["a:b", "c:d"]) == 120.0
    assert seconds(["a:b", "c:d"], model_timeout_seconds=7) == 7


# ── Providers, over a socket ──


@pytest.mark.more
@pytest.mark.parametrize("name", ["openai-chat:test", "anthropic:claude-test"])
async def test_truncated_call_never_runs_with_partial_arguments(
    rig: Rig, provider: Provider, soon: None, name: str
) -> None:
    did: list[str] = []

    def wipe(path: str = "/") -> str:
        did.append(path)
        return "wiped"

    call = (("t1", "wipe", '{"path": "/here"}'),)
    provider.answers = [Answer(calls=call, ends_after=2), Answer(calls=call), Answer(("done",))]
    result = await rig.run(agent(name, [wipe]))
    assert result.state == {"out": "done"}
    assert did == ["/here"]


def test_only_the_text_of_a_reply_is_positional() -> None:
    reply: Any = ModelReply
    with pytest.raises(TypeError, match="positional"):
        reply("text", (ToolCall("1", "echo", {}),))
