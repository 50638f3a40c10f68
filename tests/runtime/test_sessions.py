"""Sessions: conversations that outlive their processes, with messages as turns and the ledger as their history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.client.arguments import check_stop
from heliograph.client.session import open_session
from heliograph.client.stops import stop_run
from heliograph.errors import Conflict, InvalidInput, NotFound, Rejected
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage, UserMessage
from heliograph.recording.options import RecordingOptions
from heliograph.run_fork import fork_run
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import Rig, kill, names, one, until
from tests.runtime.session_kit import chat, check_loop_was_limited, check_replay, echo, talking


async def test_messages_are_answered_with_the_earlier_ones_and_the_session_outlives_its_process(rig: Rig) -> None:
    model = ScriptedModel(echo)
    async with talking(rig, chat(model), closes=False) as session:
        reply = await session.send("Hello")
        assert (reply.text, reply.output, reply.outcome, reply.error) == ("1: Hello", "1: Hello", "success", None)
        pending = await session.post("How are you?")
        assert "".join([piece async for piece in pending]) == "3: How are you?" == (await pending.reply()).text
    async with talking(rig, chat(model)) as session:
        assert (await session.send("Bye")).text == "5: Bye"
        history = [(each.role, each.text, each.outcome) for each in await session.history()]
        [newest, _] = await session.history(1)
        assert [each.text for each in await session.history(1, before=newest.turn_id)] == [
            "How are you?",
            "3: How are you?",
        ]
        await session.close()
        await session.close()
        with pytest.raises(Rejected, match="takes no more messages"):
            await session.send("Anybody?")
    assert history == [
        ("user", "Hello", None), ("assistant", "1: Hello", "success"), ("user", "How are you?", None),
        ("assistant", "3: How are you?", "success"), ("user", "Bye", None), ("assistant", "5: Bye", "success"),
    ]  # fmt: skip
    assert model.requests[-1].messages == (
        UserMessage("Hello"), AssistantMessage("1: Hello"), UserMessage("How are you?"), AssistantMessage("3: How are you?"),
        UserMessage("Bye"),
    )  # fmt: skip
    signals = await rig.ended("anna")
    assert names(signals)[:2] == ["workflow:start", "user:message"]  # the start activates nobody
    end = one(signals, "workflow:end")
    assert (end["outcome"], end["reason"], end["metrics"]["turns"]) == ("success", "closed", 3)


@pytest.mark.proves("P-40")
async def test_repeated_message_is_answered_once_and_another_text_under_its_id_is_rejected(rig: Rig) -> None:
    async with talking(rig, chat()) as session:
        first, second = await asyncio.gather(
            session.send("Hello", message_id="1"), session.send("Hello", message_id="1")
        )
        assert first == second == await session.send("Hello", message_id="1")
        with pytest.raises(Rejected, match="exists with another message"):
            await session.send("Goodbye", message_id="1")
        assert len(await session.history()) == 2


@pytest.mark.proves("P-40")
async def test_several_processes_send_at_once_and_each_message_is_answered_once_in_the_order_of_the_log(
    rig: Rig,
) -> None:
    async with talking(rig, chat()) as session:

        async def sender(name: str) -> list[str]:
            async with open_session(rig.runtime, chat().workflow, "anna", worker=False) as own:
                return [(await own.send(f"{name}{n}")).text.split(": ")[1] for n in range(3)]

        assert list(await asyncio.gather(sender("a"), sender("b"))) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
        history = await session.history()
        sent = [each.payload["text"] async for each in _until_end(session) if each.name == "user:message"]
    assert [each.text for each in history if each.role == "user"] == sent
    assert sorted(sent) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    replies = [each.text for each in history if each.role == "assistant"]
    assert replies == [f"{2 * n + 1}: {text}" for n, text in enumerate(sent)]


async def _until_end(session: Any) -> Any:
    await session.close()
    async for signal in session.follow():
        yield signal


async def test_closed_session_answers_the_messages_that_no_turn_has_begun_yet_with_delegations(rig: Rig) -> None:
    app = Heliograph("desk")

    @app.agent(on_request=True)
    async def front(ctx: Context) -> Any:
        return await ctx.delegate("back", ctx.turn_id)

    app.agent(name="back", on_request=True)(lambda ctx: "known")
    async with talking(rig, app, agent="front", worker=False) as session:
        pending = [await session.post("One"), await session.post("Two")]
        await session.close()
        async with rig.serving(app):
            assert [(await each.reply()).text for each in pending] == ["known", "known"]
            end = one(await rig.ended("anna"), "workflow:end")
    assert (end["outcome"], end["reason"], end["metrics"]["turns"]) == ("success", "closed", 4)


@pytest.mark.proves("P-40")
async def test_message_survives_the_death_of_its_worker_and_is_answered_once(rig: Rig) -> None:
    begun, done = asyncio.Event(), list[str]()

    async def answer(request: ModelRequest) -> str:
        done.append(request.prompt)
        if len(done) == 1:
            begun.set()
            await asyncio.Event().wait()
        return f"to {request.prompt}"

    app = chat(ScriptedModel(answer))
    async with talking(rig, app, worker=False) as session:
        pending = await session.post("Hello", message_id="1")
        worker = rig.runtime.worker(app.workflow, lease_seconds=0.2)
        working = asyncio.create_task(worker.run())
        await begun.wait()
        await kill(worker, working)
        async with rig.serving(app):
            assert (await pending.reply()).text == (await session.send("Hello", message_id="1")).text == "to Hello"
            assert (await session.send("Again")).text == "to Again"
            await session.close()
            await rig.ended("anna")
    assert done == ["Hello", "Hello", "Again"]


async def test_stopped_reply_is_kept_and_marked(rig: Rig) -> None:
    streaming, requests = asyncio.Event(), list[ModelRequest]()

    class Slow:
        model = "slow"

        async def stream(self, request: ModelRequest) -> Any:
            from heliograph.models import ModelReply, TextDelta

            requests.append(request)
            if request.prompt == "Tell":
                yield TextDelta("Once upon ")
                yield TextDelta("a time")
                streaming.set()
                await asyncio.Event().wait()
            yield ModelReply("Sorry")

    async with talking(rig, chat(Slow())) as session:
        pending = await session.post("Tell")
        await streaming.wait()
        await pending.stop()
        reply = await pending.reply()
        assert (reply.text, reply.outcome, reply.was_stopped, reply.output) == (
            "Once upon a time",
            "canceled",
            True,
            None,
        )
        await session.send("Why?")
        assert await session.stop() == []
    assert requests[-1].messages == (
        UserMessage("Tell"), AssistantMessage("Once upon a time\n[This reply was stopped here.]"), UserMessage("Why?")
    )  # fmt: skip
    assert one(await rig.ended("anna"), "workflow:end")["outcome"] == "success"


@pytest.mark.proves("P-53")
@pytest.mark.parametrize("messages", [0, 1])
async def test_stop_of_a_session_without_a_turn_ends_its_run(rig: Rig, messages: int) -> None:
    async with talking(rig, chat(), closes=False) as session:
        for _ in range(messages):
            await session.send("Hello")
        assert (
            await stop_run(rig.runtime, "anna", check_stop(now=False, grace_seconds=1.0, reason="enough", actor=None))
        ).outcome == "stopping"
        signals = await rig.ended("anna")
    assert one(signals, "workflow:terminating") == {"reason": "enough"}
    assert one(signals, "workflow:end")["outcome"] == "canceled"


async def test_session_stops_the_reply_to_another_process(rig: Rig) -> None:
    begun = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    app = chat(ScriptedModel(answer))
    async with talking(rig, app) as session:
        pending = await session.post("Hello")
        await begun.wait()
        async with open_session(rig.runtime, app.workflow, "anna", worker=False) as other:
            assert await other.stop() == [pending.turn_id]
        assert (await pending.reply()).was_stopped


@tool(effect="pure")
def look(word: str) -> str:
    return word.upper() * 2000


def _looking(request: ModelRequest) -> Any:
    if isinstance(request.messages[-1], ToolMessage) or "look" not in request.prompt:
        return "done"
    return ToolCall("1", "look", {"word": "ab"})


async def test_tools_of_earlier_turns_are_messages_with_cut_results_and_a_failed_turn_has_no_reply(rig: Rig) -> None:
    def answer(request: ModelRequest) -> Any:
        if request.prompt == "fail":
            raise InvalidInput("no")
        return _looking(request)

    model = ScriptedModel(answer)
    app = chat(model, tools=[look], retries=0)
    async with talking(rig, app) as session:
        await session.send("look")
        failed = await session.send("fail")
        assert failed.error is not None
        assert (failed.text, failed.outcome) == ("", "failed")
        await session.send("and now?", files=["https://example.org/cat.png"])
    user, calling, result, said, fails, unanswered, newest = model.requests[-1].messages
    assert isinstance(calling, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert (user, said, fails) == (UserMessage("look"), AssistantMessage("done"), UserMessage("fail"))
    [call] = calling.tool_calls
    assert (call.tool, call.arguments, result.tool_call_id) == ("look", {"word": "ab"}, call.id)
    assert str(result.content).endswith("[cut: 4000 characters]")
    assert unanswered == AssistantMessage(f"[This message has no reply: {failed.error['code']}]")
    assert isinstance(newest, UserMessage)
    assert [each.url for each in newest.files] == ["https://example.org/cat.png"]


async def test_window_has_the_newest_whole_turns_and_a_note_for_the_rest(rig: Rig) -> None:
    model = ScriptedModel(lambda request: "x" * 400)
    async with talking(rig, chat(model, history_tokens=250)) as session:
        for n in range(4):
            await session.send(f"message {n}")
    assert [each.content for each in model.requests[-1].messages if isinstance(each, UserMessage)] == [
        "[The earlier messages of this conversation are left out.]", "message 1", "message 2", "message 3"
    ]  # fmt: skip


@pytest.mark.parametrize("model", ["openai-chat:test", "anthropic:claude-test"])
async def test_providers_receive_messages_with_roles_and_files_by_reference(
    rig: Rig, provider: Provider, model: str
) -> None:
    provider.answers = [Answer(("Yes.",))]
    async with talking(rig, chat(model, system="Be kind.")) as session:
        await session.send("A cat?", files=["https://example.org/cat.png"])
        assert (await session.send("Sure?")).text == "Yes."
    messages = [each for each in provider.requests[-1]["messages"] if each["role"] != "system"]
    assert [each["role"] for each in messages] == ["user", "assistant", "user"]
    assert "https://example.org/cat.png" in str(messages[0])
    assert "Yes." in str(messages[1])
    assert provider.rejected == []


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_session_is_replayed_without_models_whether_or_not_it_was_recorded(rig: Rig, is_recorded: bool) -> None:
    record = RecordingOptions("talk") if is_recorded else None
    app = chat(ScriptedModel(_looking), tools=[look])
    async with talking(rig, app, record=record) as session:
        for text in ("look", "hello", "look again"):
            await session.send(text)
    recording, reproduced = await check_replay(rig, chat(ScriptedModel([]), tools=[look]))
    assert reproduced >= len(recording.signals) - 8  # messages and the closing come from outside


async def test_fork_of_a_session_continues_it_from_an_earlier_message(rig: Rig) -> None:
    model = ScriptedModel(echo)
    app = chat(model)
    async with talking(rig, app) as session:
        first = await session.send("one")
        await session.send("two")
        log = await rig.runtime.reader.all_signals("anna")
        [place] = [s.seq for s in log if s.name == "agent:completed" and s.turn_id == first.turn_id]
        await fork_run(rig.runtime, app.workflow, "anna", place, None, "berta")
        async with open_session(rig.runtime, app.workflow, "berta") as fork:
            assert [each.text for each in await fork.history()] == ["one", "1: one"]
            assert (await fork.send("three")).text == "3: three"
            assert (await fork.send("four")).text == "5: four"
            await fork.close()
        assert (await session.send("five")).text == "5: five"
    assert model.requests[-2].messages[0] == UserMessage("one")
    await check_replay(rig, app, "berta")


async def test_ids_of_runs_and_agents_that_do_not_fit_are_named(rig: Rig) -> None:
    app = chat()
    app.prompt_agent("other", "{message}", model=ScriptedModel(echo), on_request=True)
    await rig.run(chat(), None, run_id="no_session")
    with pytest.raises(InvalidInput, match="name the one that answers: agent='assistant'"):
        async with open_session(rig.runtime, app.workflow):
            pass
    with pytest.raises(Conflict, match="exists and was started with another state"):
        async with open_session(rig.runtime, chat().workflow, "no_session"):
            pass
    async with talking(rig, app, agent="other") as session:
        with pytest.raises(NotFound, match="did you mean other"):
            await session.send("Hello", agent="othr")
        with pytest.raises(InvalidInput, match="https URL"):
            await session.send("Hello", files=["http://example.org/a.png"])
        with pytest.raises(InvalidInput, match="must be a text"):
            await session.send(1)  # type: ignore[arg-type]
        assert (await session.send("Hello")).text == "1: Hello"
        assert (await session.send("Hello", agent="assistant")).text == "1: Hello"  # a conversation of its own


async def test_limit_of_activations_does_not_count_messages_and_a_loop_still_meets_it(rig: Rig) -> None:
    app = Heliograph("chat", max_activations=3)
    app.prompt_agent("assistant", "{message}", model=ScriptedModel(echo), on_request=True, emits=["said"])

    @app.agent(activate_on=["said", "looped"], emits=["looped"], when=lambda _, signal: "loop" in str(signal.payload))
    def looping(ctx: Any) -> Any:
        return "loop"

    async with talking(rig, app, closes=False) as session:
        for n in range(5):
            assert (await session.send(f"message {n}")).outcome == "success"
        await session.send("loop")
        await until(lambda: _has_ended(rig))
    await check_loop_was_limited(rig)


async def _has_ended(rig: Rig) -> bool:
    return (await rig.runtime.reader.run("anna")).status == "ended"
