"""What a user of a strict type checker writes. `test_types.py` runs two checkers over it, and over copies with one mistake each."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

from pydantic import BaseModel

from heliograph import (
    Call,
    CallResult,
    Client,
    Context,
    Delegation,
    Heliograph,
    RunResult,
    Session,
    Signal,
    Step,
    Tool,
    ToolContext,
    define_signal,
    tool,
)
from heliograph.agents import Agent, AgentSpec
from heliograph.client import EndedRun
from heliograph.phases import GoalAchieved, IterationNeeded, PhaseContext, Plan, ToolStep
from heliograph.testing import ApplicationServer


class Post(BaseModel):
    text: str
    words: int = 0
    verdict: str = ""


class Review(BaseModel):
    good: bool
    reason: str


class Counted(BaseModel):
    words: int


class Note(TypedDict):
    text: str


@dataclass(frozen=True)
class Clients:
    sender: str


counted = define_signal("words:counted", Counted)
noted = define_signal("note:taken", Note)
app = Heliograph(
    "posts", state=Post, deps=Clients("press@example.org"), end_when=lambda post: post.words > 1000,
    reducers={"words": lambda old, new: old + new},
)  # fmt: skip
notes = Heliograph("notes", state=Note)
anything = Heliograph("anything")


@tool
def price(order: str, context: ToolContext[Clients]) -> int:
    """Look up the price of an order."""
    return len(order) + len(context.deps.sender)


@tool(effect="idempotent", timeout_seconds=5)
async def mail(text: str) -> bool:
    """Send a mail."""
    return bool(text)


@app.agent(activate_on=["workflow:start"], emits=[counted], updates="words")
def counter(ctx: Context[Post]) -> int:
    ctx.emit(counted, Counted(words=len(ctx.state.text.split())))
    return len(ctx.state.text.split())


def is_long(post: Post) -> bool:
    return post.words > 2


@app.agent(activate_on=[counted], when=is_long, updates="verdict")
async def editor(ctx: Context[Post, Clients]) -> str:
    review = await ctx.ask("Is it good?", form=Review)
    quote = await ctx.call("quote", {"text": ctx.state.text}, result_schema=Counted)
    name = await ctx.ask("Who are you?")
    return f"{review.reason} {quote.words + 1} {name.upper()} {ctx.deps.sender}"


def charge(order: str, amount: int = 1) -> Counted:
    return Counted(words=len(order) * amount)


async def book(connection: object, seats: int) -> bool:
    return connection is not None and seats > 0


@app.agent(activate_on=["order:placed"])
async def cashier(ctx: Context[Post]) -> int:
    charged = await ctx.step("charge", charge, ctx.state.text, amount=3)
    slow = await ctx.step(Step("charge", effect="pure", timeout=5), charge, "lamp")
    sent = await ctx.step("send", mail, "Hello")
    booked = await ctx.step(Step("book", effect="transactional"), book, 5)
    assert_type((charged, slow, sent, booked), tuple[Counted, Counted, bool, bool])
    return charged.words


@app.agent(activate_on=["note:taken"])
async def lead(ctx: Context[Post]) -> int:
    review = await ctx.delegate(reviewer, ctx.state.text, timeout=5)
    name = await ctx.delegate(title)
    counts = await ctx.map(counter, ["one", "two"], limit=2)
    anything_else = await ctx.delegate("reviewer")
    assert_type((review, name, counts, anything_else), tuple[Review, str, list[int], Any])
    reviews = await ctx.delegates([Delegation(reviewer, text, timeout=5) for text in ("one", "two")])
    titles = await ctx.delegates([Delegation(title), Delegation(editor, priority="low")], limit=1)
    quotes = await ctx.calls(
        [Call("quote", result_schema=Counted), Call("quote", {"text": "a"}, result_schema=Counted)]
    )
    assert_type(
        (reviews, titles, quotes), tuple[list[CallResult[Review]], list[CallResult[str]], list[CallResult[Counted]]]
    )
    async for each in ctx.as_completed([Call("quote"), Call("other", effect="pure")]):
        print(each.output["text"] if each.output else each.error)
    mixed = await ctx.calls([Call("quote", result_schema=Counted), Delegation(counter, "one")], timeout=5)
    print([each.status for each in mixed])
    best = [each.output.reason for each in reviews if each.output is not None]
    return len(review.reason) + len(best) + sum(each.output.words for each in quotes if each.output)


@app.agent(on_request=True, emits=[counted, noted])
async def title(ctx: Context[Post]) -> str:
    verdict = await ctx.ask("Which?", form=Literal["good", "bad"])
    quote = await ctx.call("quote", result_schema=Counted | None)
    ctx.emit(counted, {"words": counter(ctx) + 1})
    ctx.emit(noted, {"text": "a title"})
    return f"{verdict} {quote} {await editor(ctx)}"


@notes.agent(activate_on=["workflow:start"], when=lambda note: note["text"] == "", updates="text")
def first(ctx: Context[Note]) -> str:
    return ctx.state["text"]


@anything.agent(activate_on=["workflow:start"], when=lambda state: state["text"] == "")
def second(ctx: Context) -> str:
    return f"{ctx.state['text']}"


@app.agent(activate_on=["workflow:start"], when=lambda post, signal: post.words > 2 and signal.name.startswith("w"))
class Critic(Agent):
    async def act(self, ctx: PhaseContext[Post]) -> int:
        return ctx.state.words


@app.agent(activate_on=["note:taken"])
class Chief(Critic):
    def init(self, ctx: PhaseContext[Any, Clients]) -> None:
        ctx.working_memory["sender"] = self.greeting() + ctx.deps.sender

    def greeting(self) -> str:
        return "Dear"

    async def reflect(self, ctx: Context[Post]) -> GoalAchieved:
        return GoalAchieved(learnings=[ctx.state.verdict])


@app.agent(activate_on=["note:taken"])
class Clerk(Agent):
    def plan(self, ctx: PhaseContext) -> Plan:
        return Plan([ToolStep("mail", {"text": ctx.state.text})])


def open_desk(ctx: PhaseContext[Post, Clients]) -> None:
    ctx.working_memory["sender"] = ctx.deps.sender


async def judge(ctx: PhaseContext[Post]) -> GoalAchieved | IterationNeeded:
    return GoalAchieved() if ctx.iteration > 1 else IterationNeeded(ctx.state.verdict)


@app.agent(on_request=True, init=open_desk, reflect=judge, terminate=lambda ctx: print(ctx.outcome, ctx.state.words))
async def desk(ctx: Context[Post]) -> str:
    return ctx.state.text


@app.on_signal(counted)
def watch(signal: Signal[Counted]) -> None:
    print(signal.payload.words + 1)


@app.on_signal("note:*")
async def keep(signal: Signal) -> None:
    print(signal.payload)


def request(ctx: Context[Post]) -> str:
    return ctx.state.text


reviewer = app.prompt_agent(
    "reviewer", lambda ctx: ctx.state.text, output=Review, tools=[price, mail], when=lambda post: post.words > 5,
    activate_on=[counted], priority="high", init=open_desk, plan=Plan, reflect=lambda ctx: GoalAchieved(output=ctx.iteration),
)  # fmt: skip
writer = app.prompt_agent("writer", "Write about {state.text}.", on_request=True)
critics = app.prompt_agent("critics", request, output=Review | None, activate_on=["note:taken"])


async def start(application: Heliograph) -> RunResult:
    return await application.run()


async def chat(session: Session) -> str:
    reply = await session.send("Hello")
    history = await session.history(limit=5)
    return reply.text if reply.outcome == "success" else history[0].text


async def try_out(serve: ApplicationServer) -> str:
    async with serve(app) as served:
        tested = await served.run(Post(text="one"))
        return tested.state.verdict


async def names_of(client: Client) -> list[str]:
    known = await client.follow("run_1")
    return [each.name async for each in known] + [each.id async for each in client.follow("run_1", after=3)]


async def results_of(client: Client) -> tuple[int, object]:
    run_id = await client.start(app, Post(text="one"))
    typed, untyped = await client.result(run_id, app), await client.result(run_id)
    assert_type(typed, EndedRun[Post])
    assert_type(untyped, EndedRun[dict[str, Any]])
    return typed.state.words, untyped.state["words"]


async def main() -> None:
    result = await app.run(Post(text="one two"))
    assert_type(app, Heliograph[Post, Clients])
    assert_type(app.configured(), Heliograph[Post, Clients])
    assert_type(result, RunResult[Post])
    assert_type(result.state.verdict, str)
    assert_type(reviewer, AgentSpec[Review])
    assert_type(writer, AgentSpec[str])
    assert_type(await mail("Hello"), bool)
    assert_type((Chief(), Chief().greeting()), tuple[Chief, str])
    assert isinstance(price, Tool)
    print([await start(each) for each in (app, notes, anything)])
