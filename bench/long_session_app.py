"""The application of `bench.long_session`: an agent with a model that answers at once, and one reply that never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from heliograph import Heliograph
from heliograph.models import ModelReply, ModelRequest, TextDelta

ENDLESS = "Never stop."
REPLY = "As you said: {}" + " and so on" * 20


class Talker:
    """A model without a provider. It streams the beginning of each reply."""

    model = "talker"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        text = REPLY.format(request.prompt)
        yield TextDelta(text[:40])
        if request.prompt == ENDLESS:
            await asyncio.Event().wait()
        yield TextDelta(text[40:])
        yield ModelReply(text)


app = Heliograph("talk")
app.prompt_agent("talker", "{message}", model=Talker(), history_tokens=2000)
