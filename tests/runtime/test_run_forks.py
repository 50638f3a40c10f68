"""Forks and retries of real runs: what had happened does not happen again, and the rest happens with other code and state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph import Context, Heliograph, Signal
from heliograph.errors import Conflict, InvalidInput, NotFound, Rejected
from heliograph.models import ModelReply, ScriptedModel
from heliograph.playback.player import Player
from heliograph.recording.export import export_recording
from heliograph.recording.file import read_recording, write_recording
from heliograph.recording.options import RecordingOptions
from heliograph.recording.replay_recording import replay_recording
from heliograph.run_fork import Fork, fork_run, retry_run
from tests.runtime.kit import START, Rig
from tests.runtime.loop_kit import call


def _length(text: str) -> int:
    return len(text)


class Shop:
    """An application that pays, then mails. bonus: what another version of the code adds."""

    def __init__(self, bonus: int = 0, fails: bool = False):
        self.done: list[str] = []
        self.app = Heliograph("shop")
        self.fails = fails

        @self.app.agent(activate_on=["workflow:start"], emits=["paid"], updates="amount")
        async def payer(ctx: Context) -> Any:
            return await ctx.step("pay", self._pay)

        @self.app.agent(activate_on=["paid"], emits=["mailed"], updates="mail")
        async def mailer(ctx: Context) -> Any:
            text = await ctx.step("write", lambda: self._do("write", f"{ctx.state['amount'] + bonus} paid"))
            return await ctx.step("mail", lambda: self._mail(text))

        @self.app.agent(activate_when_all=["paid", "mailed"], updates="ended")
        async def closer(_ctx: Context) -> bool:
            return True

    def _pay(self) -> Any:
        return self._do("pay", 40)

    def _mail(self, text: str) -> Any:
        if self.fails:
            raise ValueError("no post today")
        return self._do("mail", text)

    def _do(self, what: str, value: Any) -> Any:
        self.done.append(what)
        return value


async def fork(rig: Rig, shop: Shop, at: str | int, state: Any = None, name: str = "fork") -> Fork:
    return await fork_run(rig.runtime, shop.app.workflow, "first", at, state, name)


async def first_run(rig: Rig, shop: Shop) -> dict[str, str]:
    """The ids of the signals of a run, by name; of several, that of the last."""
    result = await rig.runtime.run(shop.app.workflow, run_id="first")
    return {signal.name: signal.id for signal in result.signals}


async def test_fork_with_other_code_and_state_repeats_nothing_that_had_happened(rig: Rig) -> None:
    ids = await first_run(rig, Shop())
    again = Shop(bonus=2)
    made = await fork(rig, again, ids["paid"], {"amount": 50})
    assert [(turn.agent, turn.fate) for turn in made.turns] == [("mailer", "restarted")]
    result = await rig.runtime.run(again.app.workflow, run_id="fork")
    assert (result.outcome, result.state) == ("success", {"amount": 50, "mail": "52 paid", "ended": True})
    assert again.done == ["write", "mail"]
    assert [signal.seq for signal in result.signals] == list(range(1, len(result.signals) + 1))
    assert {signal.run_id for signal in result.signals} == {"first", "fork"}
    assert result.metrics["turns"] == 3
    row = await rig.runtime.reader.run("fork")
    assert (row.forked_from, f"sig_first_{row.forked_seq}") == ("first", made.signal)


async def test_turn_in_progress_continues_with_the_results_that_it_had(rig: Rig) -> None:
    shop = Shop()
    result = await rig.runtime.run(shop.app.workflow, run_id="first")
    at = next(s.seq for s in result.signals if s.name == "tool:result" and s.agent == "mailer")
    again = Shop(bonus=100)
    made = await fork(rig, again, at)
    assert [(turn.agent, turn.fate, turn.results, turn.unknown) for turn in made.turns] == [
        ("mailer", "continued", 1, 0)
    ]
    result = await rig.runtime.run(again.app.workflow, run_id="fork")
    assert again.done == ["mail"]
    assert result.state["mail"] == "40 paid"  # written by the code of the first run


async def test_failed_run_is_retried_from_its_failed_turn(rig: Rig) -> None:
    broken = Shop(fails=True)
    failed = await rig.runtime.run(broken.app.workflow, run_id="first")
    assert (failed.outcome, broken.done) == ("failed", ["pay", "write"])
    fixed = Shop()
    made = await retry_run(rig.runtime, fixed.app.workflow, "first", "again")
    assert [(turn.agent, turn.fate, turn.results) for turn in made.turns] == [("mailer", "continued", 1)]
    result = await rig.runtime.run(fixed.app.workflow, run_id="again")
    assert (result.outcome, fixed.done, result.state["mail"]) == ("success", ["mail"], "40 paid")
    with pytest.raises(Rejected) as caught:
        await retry_run(rig.runtime, fixed.app.workflow, "again")
    assert caught.value.code == "no_failed_turn"


async def test_fork_is_idempotent_by_its_id(rig: Rig) -> None:
    shop = Shop()
    ids = await first_run(rig, shop)
    made, again = await fork(rig, shop, ids["paid"]), await fork(rig, shop, ids["paid"])
    assert (made.is_new, again.is_new, made.turns) == (True, False, again.turns)
    with pytest.raises(Conflict):
        await fork(rig, shop, ids["paid"], {"amount": 1})
    await rig.runtime.run(shop.app.workflow, run_id="fork")


async def test_fork_that_cannot_work_names_the_problem_and_the_next_step(rig: Rig) -> None:
    shop = Shop()
    ids = await first_run(rig, shop)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (ids["workflow:end"], Rejected, "run_ended"), (999, NotFound, "unknown_signal"), ("sig_other_3", NotFound, "unknown_signal"),
        ("nonsense", NotFound, "unknown_signal"), (0, NotFound, "unknown_signal"), (2.5, InvalidInput, "wrong_type"),
    ]  # fmt: skip
    for at, kind, code in wrong:
        with pytest.raises(kind) as caught:
            await fork(rig, shop, at)
        assert caught.value.code == code  # type: ignore[attr-defined]
    with pytest.raises(NotFound) as missing:
        await fork_run(rig.runtime, shop.app.workflow, "nobody", 1)
    assert missing.value.code == "unknown_run"
    other = Heliograph("shop")
    other.agent(activate_on=["workflow:start"], name="payer")(lambda ctx: 1)
    with pytest.raises(NotFound, match="has no agent mailer"):
        await fork_run(rig.runtime, other.workflow, "first", ids["paid"])
    assert [row.run_id for row in await rig.runtime.reader.runs(10)] == ["first"]


async def test_agent_that_must_not_run_twice_ends_as_in_doubt_in_the_fork(rig: Rig) -> None:
    launched: list[str] = []
    app = Heliograph("base")

    @app.agent(activate_on=["workflow:start"], effect="once")
    async def launcher(ctx: Context) -> None:
        await ctx.step("count", lambda: None)
        launched.append("rocket")

    first = await rig.run(app, run_id="first")
    at = next(signal.id for signal in first.signals if signal.name == "tool:result")
    made = await fork_run(rig.runtime, app.workflow, "first", at, None, "fork")
    assert [(turn.fate, turn.new_turn_id) for turn in made.turns] == [("in_doubt", None)]
    result = await rig.run(app, run_id="fork")
    assert (result.outcome, [failure.code for failure in result.failures], launched) == (
        "failed",
        ["IN_DOUBT"],
        ["rocket"],
    )
    before = next(signal.id for signal in first.signals if signal.name == "agent:activated")
    made = await fork_run(rig.runtime, app.workflow, "first", before, None, "again")
    assert [turn.fate for turn in made.turns] == ["restarted"], "its turn was claimed after this signal"
    assert (await rig.run(app, run_id="again")).outcome == "success"


async def test_turn_that_ended_as_partial_after_the_signal_does_not_count_in_the_fork(rig: Rig) -> None:
    def wordy(reply: Any) -> Heliograph:
        app = Heliograph("wordy")
        app.prompt_agent(
            "writer",
            "Write.",
            model=ScriptedModel([reply], per_turn=True),
            activate_on=START,
            tools=[_length],
            max_steps=1,
        )
        return app

    result = await rig.run(wordy(ModelReply("so far", tool_calls=(call("_length", {"text": "a"}),))), run_id="first")
    assert result.outcome == "partial"
    at = next(signal.id for signal in result.signals if signal.name == "agent:activated")
    await fork_run(rig.runtime, wordy("done").workflow, "first", at, None, "fork")
    assert (await rig.run(wordy("done"), run_id="fork")).outcome == "success"


async def test_agent_that_must_not_run_twice_does_not_run_again_in_a_retry(rig: Rig) -> None:
    launched: list[str] = []
    app = Heliograph("base")

    @app.agent(activate_on=["workflow:start"], effect="once", retries=0)
    async def launcher(_ctx: Context) -> None:
        launched.append("rocket")
        raise ValueError("lost")

    assert (await rig.run(app, run_id="first")).outcome == "failed"
    made = await retry_run(rig.runtime, app.workflow, "first", "again")
    assert [turn.fate for turn in made.turns] == ["in_doubt"]
    await rig.run(app, run_id="again")
    assert launched == ["rocket"]


async def test_fork_of_a_recorded_run_is_recorded_and_replayed_with_the_log_that_it_shares(
    rig: Rig, tmp_path: Path
) -> None:
    shop = Shop()
    first = await rig.runtime.run(shop.app.workflow, run_id="first", record=RecordingOptions("shop", ["forked"]))
    at = next(signal.id for signal in first.signals if signal.name == "paid")
    await fork(rig, shop, at)
    second = await rig.runtime.run(shop.app.workflow, run_id="fork")
    await fork_run(
        rig.runtime, shop.app.workflow, "fork", next(s.id for s in second.signals if s.name == "mailed"), None, "again"
    )
    third = await rig.runtime.run(shop.app.workflow, run_id="again")
    assert {row.run_id for row in await rig.runtime.reader.recordings(name="shop")} == {"first", "fork", "again"}
    for result in (second, third):
        found = await export_recording(rig.runtime.reader, result.run_id)
        write_recording(found, tmp_path / "fork.jsonl")
        read = read_recording(tmp_path / "fork.jsonl")
        assert list(read.signals) == result.signals
        replayed = replay_recording(read, shop.app.workflow)
        assert replayed.is_same, list(replayed.lines())
        assert replayed.gaps == []
        assert replayed.signals == result.signals
        assert len(result.signals) - replayed.reproduced == _of_forks(result.signals)


async def test_message_keeps_its_options_in_forks_and_in_forks_of_forks(rig: Rig) -> None:
    app = Heliograph("desk")
    app.agent(activate_on=START, name="opener", priority="low", ttl_seconds=77.0)(lambda ctx: None)
    app.agent(on_request=True, name="clerk", priority="low")(lambda ctx: {"mood": "calm"})
    rig.ends_with_open_work = True
    await rig.start(app, run_id="first")
    fields = [{"name": "mood", "type": "string"}]
    await rig.client.enqueue("first", "clerk", "hello", priority="high", max_attempts=2, ttl_seconds=60.0, actor="ann",
                             result_fields=fields, budget={"tokens": 50})  # fmt: skip
    for origin, name in (("first", "second"), ("second", "third")):
        row = await rig.runtime.reader.run(origin)
        made = await fork_run(rig.runtime, app.workflow, origin, row.signal_count, None, name)
        assert {turn.agent: turn.is_message for turn in made.turns} == {"opener": False, "clerk": True}
    given = await rig.fetch(
        "select t.priority, t.max_attempts, t.actor, t.result_fields, extract(epoch from t.expires_at - t.created_at)::float8 as ttl,"
        " b.amount_max from heliograph.turn_overview t left join heliograph.budget_overview b using (project_id, turn_id)"
        " where t.project_id = $1 and t.run_id = any (array['first', 'third']) and coalesce(b.kind, 'tokens') = 'tokens'"
        " order by t.agent, t.run_id",
        rig.runtime.settings.project,
    )
    clerk, again, opener, opener_again = map(dict, given)
    assert (clerk["priority"], clerk["max_attempts"], clerk["actor"], clerk["ttl"], clerk["amount_max"]) == (
        2,
        2,
        "ann",
        60.0,
        50,
    )
    assert (again, opener_again) == (clerk, opener)
    assert (opener["priority"], opener["ttl"]) == (0, 77.0)


async def test_snapshot_of_a_fork_has_the_usage_of_the_log_that_it_shares(rig: Rig) -> None:
    app = Heliograph("writers")
    app.prompt_agent(
        "writer", "Write.", model=ScriptedModel(["one two"], per_turn=True), activate_on=START, emits=["written"]
    )
    app.prompt_agent("critic", "Judge.", model=ScriptedModel(["good"], per_turn=True), activate_on=["written"])
    first = await rig.run(app, run_id="first")
    await fork_run(
        rig.runtime, app.workflow, "first", next(s.id for s in first.signals if s.name == "written"), None, "fork"
    )
    second = await rig.run(app, run_id="fork")
    before, after = (Player(result.signals) for result in (first, second))
    before.to_end()
    after.to_end()
    assert after.snapshot.usage == before.snapshot.usage
    assert after.snapshot.agents["writer"].usage.output_tokens == 2


def _of_forks(signals: Sequence[Signal]) -> int:
    """How many signals the starts of forks have written: `workflow:forked`, and the activations of turns that start again."""
    payloads: list[Any] = [signal.payload for signal in signals if signal.name == "workflow:forked"]
    return sum(1 + len([line for line in payload["turns"] if "new_turn_id" in line]) for payload in payloads)
