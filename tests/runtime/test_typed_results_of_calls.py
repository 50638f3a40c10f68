"""The results of several calls and delegations have the types that these name; one that does not match is a failure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

from heliograph import Call, CallResult, Client, Context, Delegation, Heliograph
from tests.runtime.kit import START, Rig


class Review(BaseModel):
    score: int

    @model_validator(mode="after")
    def is_small(self) -> Review:
        assert self.score < 10, "too large"  # no JSON Schema says so
        return self


app = Heliograph("typed")


@app.agent(on_request=True)
async def reviewer(ctx: Context) -> Review:
    if ctx.task == 0:
        raise ValueError("no score")
    return Review.model_construct(score=int(ctx.task))


def described(results: list[CallResult[Review]]) -> list[Any]:
    assert all(each.output is None or isinstance(each.output, Review) for each in results)
    return [each.output.score if each.output else (each.error or {})["code"] for each in results]


@app.agent(activate_on=START, updates="found")
async def lead(ctx: Context) -> Any:
    children = await ctx.delegates([Delegation(reviewer, n) for n in (3, 12, 0)])
    plain = await ctx.delegates([Delegation("reviewer", 4)])
    calls = [Call("score", call_id=name, result_schema=Review, needs_token=False) for name in ("a", "b")]
    return [described(children), plain[0].output, described([each async for each in ctx.as_completed(calls)])]


async def test_results_of_several_calls_have_the_declared_types(rig: Rig) -> None:
    run = await rig.start(app)
    async with rig.serving(app):
        await rig.taken("score", count=2)  # both calls are open
        turn = await rig.turn_of("lead")
        client = Client.on(rig.runtime)
        await client.report(turn.turn_id, "b", result={"score": 12})
        await client.report(turn.turn_id, "a", result={"score": 5})
        await rig.ended(run)
    state = (await rig.runtime.reader.run(run)).state
    assert state["found"] == [[3, "result_schema", "ACTION_FAILED"], {"score": 4}, ["result_schema", 5]]
