"""The harness over a real provider's protocol: streaming, usage, structured answers, and what goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from pydantic import BaseModel

from heliograph.errors import HarnessError, SetupError
from heliograph.harness.resolve import Harnesses
from heliograph.ports import Chunk, ModelReply, ModelRequest, TextDelta
from tests.reach.openai_server import Provider, serve


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with serve(Provider()) as serving:
        monkeypatch.setenv("OPENAI_BASE_URL", serving.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
        yield serving


async def ask(request: ModelRequest) -> list[Chunk]:
    harnesses = Harnesses("openai-chat:test")
    try:
        stream: AsyncIterator[Chunk] = harnesses(None).stream(request)
        return [chunk async for chunk in stream]
    finally:
        await harnesses.close()


@pytest.mark.proves("SIG-26", "SIG-28")
async def test_an_answer_streams_in_order_and_ends_with_its_text_and_usage(provider: Provider) -> None:
    chunks = await ask(ModelRequest("hello?", system="be brief"))
    assert [c.content for c in chunks if isinstance(c, TextDelta)] == ["hello ", "from ", "afar"]
    assert chunks[-1] == ModelReply("hello from afar", input_tokens=7, output_tokens=3)
    assert [m["role"] for m in provider.requests[0]["messages"]] == ["system", "user"]


async def test_a_structured_answer_is_validated_into_its_type(provider: Provider) -> None:
    class Verdict(BaseModel):
        score: float

    provider.arguments = '{"score": 0.5}'
    chunks = await ask(ModelRequest("score it", output=Verdict))
    assert isinstance(chunks[-1], ModelReply)
    assert chunks[-1].output == {"score": 0.5}


async def test_an_answer_that_does_not_fit_its_type_is_an_error_that_says_how(provider: Provider) -> None:
    class Verdict(BaseModel):
        score: float

    provider.arguments = '{"score": "high"}'
    with pytest.raises(HarnessError, match="does not fit Verdict"):
        await ask(ModelRequest("score it", output=Verdict))


async def test_a_provider_that_refuses_is_asked_once(provider: Provider) -> None:
    provider.status = 429
    with pytest.raises(HarnessError, match="429"):
        await ask(ModelRequest("hello?"))
    assert len(provider.requests) == 1


async def test_a_stream_cut_in_the_middle_is_an_error_and_no_short_answer(provider: Provider) -> None:
    provider.cut_after = 2
    with pytest.raises(HarnessError):
        await ask(ModelRequest("hello?"))


def test_a_name_that_means_nothing_says_how_to_name_a_model() -> None:
    with pytest.raises(SetupError, match="nobody:nothing") as raised:
        Harnesses("nobody:nothing")(None)
    assert "provider:model" in (raised.value.hint or "")


def test_no_model_at_all_names_the_variable() -> None:
    with pytest.raises(SetupError, match="HELIOGRAPH_MODEL"):
        Harnesses(None)(None)
