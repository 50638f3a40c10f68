"""Helpers of the tests of human tasks: people who decide, and an agent that pays after an approval."""

from typing import Any

from heliograph import Heliograph, Tool, tool
from heliograph.client import HumanTask
from heliograph.models import ModelRequest, ScriptedModel, ToolCall, ToolMessage
from tests.runtime.kit import START, Rig, until


async def open_tasks(rig: Rig, count: int = 1, run_id: str | None = None) -> list[HumanTask]:
    """Wait until this many human tasks are open, and return them."""
    found: list[HumanTask] = []

    async def is_there() -> bool:
        found[:] = await rig.client.approvals(run_id)
        return len(found) == count

    await until(is_there)
    return found


class Till:
    """A tool that pays, an agent that makes `calls` of it, and the last result that the model received."""

    def __init__(self, *calls: ToolCall, tools: tuple[Any, ...] = (), **options: Any):
        self.paid: list[tuple[int, str]] = []
        self.model_calls = 0
        self.results: dict[str, ToolMessage] = {}
        agent_options = {key: options.pop(key) for key in ("asks_human", "agents") if key in options}
        self.pay: Tool = tool(**{"approval": True, "name": "pay", **options})(self._pay())
        self.app = Heliograph("till")
        self.app.prompt_agent("clerk", "Pay", model=ScriptedModel(self._script(list(calls))), activate_on=START,
                              updates="out", tools=[self.pay, *tools], **agent_options)  # fmt: skip

    def _pay(self) -> Any:
        def pay(amount: int, to: str) -> str:
            """Pay somebody."""
            self.paid.append((amount, to))
            return f"{amount} to {to}"

        return pay

    def _script(self, calls: list[ToolCall]) -> Any:
        def script(request: ModelRequest) -> Any:
            self.model_calls += 1
            answers = [m for m in request.messages if isinstance(m, ToolMessage)]
            self.results = {m.tool_call_id: m for m in answers}
            return calls if not answers else "done"

        return script


PAY = ToolCall("x1", "pay", {"amount": 5, "to": "bob"})


async def is_open_question(rig: Rig, question: str) -> bool:
    return [task.question for task in await rig.client.approvals()] == [question]
