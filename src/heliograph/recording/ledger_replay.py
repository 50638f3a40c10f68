"""Replay a turn that nobody recorded: run its code on the results that the ledger has, and compare its signals with the log.

The turn runs again from its beginning. Each step and each call receives its recorded result, and each model call the reply in the log, so the
turn never waits and calls no model. The clock, new ids and the moments at which workers died are not in the ledger; the signals do not
have them, except for the values that `expected_signals` names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import counted, format_exception
from heliograph.errors import HeliographError
from heliograph.execution.packed_commit import as_jsonb
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.runner import TurnRunner
from heliograph.json_differences import Difference, differences
from heliograph.key_patterns import without_secrets
from heliograph.ports import ModelReply, ModelRequest
from heliograph.recording.compared_values import plain
from heliograph.recording.detached_turn import no_harness
from heliograph.recording.detached_world import never
from heliograph.recording.divergence import Divergence, Kind
from heliograph.recording.draft_comparison import compared_draft, replayed_side
from heliograph.recording.ended_turn import (
    FROM_OUTSIDE,
    error_code,
    first_claim,
    is_model_call,
    is_not_admitted,
    why_incomplete,
)
from heliograph.recording.expected_signals import UNCOMPARED, ExpectedSignals
from heliograph.recording.ledger_parts import LEDGER
from heliograph.recording.ledger_requests import TEXTS, changed_texts, recorded_marks
from heliograph.recording.ledger_world import InputsOfTurn, LedgerOfTurn
from heliograph.recording.logged_replies import LoggedCall, logged_calls
from heliograph.recording.replay_loop import ReplayLoop
from heliograph.recording.server_tools import ServerTools
from heliograph.recording.step_arguments import StepArguments
from heliograph.recording.turn_of_ledger import TurnOfLedger
from heliograph.recording.virtual_world import VirtualWorld
from heliograph.records import BeginResult, Card, Claimed, Wait, WriteResult
from heliograph.signals.model import Signal
from heliograph.signals.payload import truncated
from heliograph.turn.calls import CallRequest, CallResult, result_of
from heliograph.turn.conversation import reply_of
from heliograph.turn.deliverable import read_output
from heliograph.turn.interruptions import Interruption
from heliograph.turn.journal import call_label
from heliograph.types import Json, JsonObject

_THREAD_SECONDS = 1.0
_ENDS = ("agent:completed", "agent:failed")


class LedgerReplay:
    """The replay of one turn. divergence: the first difference. gap: why it could be compared only in part."""

    def __init__(self, turn: TurnOfLedger):
        self._turn = turn
        ended = msgspec.convert(as_jsonb(turn.part.data["claimed"]), Claimed)
        own = [s for s in turn.recording.signals if s.turn_id == ended.turn_id]
        view = turn.claimed_view
        if any(
            signal.name == "ready" for signal in own
        ):  # it was claimed before its run began to end, or it would not have begun
            view = replace(view, status="running")
        self._claimed = first_claim(ended, view)
        data: Any = turn.part.data[LEDGER]
        self._outcome, self._content = data["outcome"], data["content"]
        self._boxes = msgspec.convert(as_jsonb(data.get("boxes", {})), dict[str, list[Card]])
        self._deaths, self._deferrals = ended.attempts, ended.defer_count
        self._is_ended_outside = self._outcome in FROM_OUTSIDE or ended.attempts + 1 >= ended.max_attempts
        self._why_incomplete = why_incomplete(self._outcome, self._content, ended.attempts)
        self._waits = {wait.call_id: wait for wait in ended.waits}
        reported = {wait.call_id for wait in self._waits.values() if wait.kind != "inline"}
        self._expected = ExpectedSignals(
            own, reported, {wait.call_id for wait in self._waits.values() if is_not_admitted(wait)}
        )
        self._arguments = StepArguments(own)
        self._calls = logged_calls(own)
        self._made: dict[str, Wait] = {}  # the calls that the code has made
        self._recorded: set[str] = set()  # the steps among them whose results it has recorded
        self._model_call: Wait | None = None
        self._request: JsonObject | None = None
        self._place: int | None = None  # where the last commit begins, once it is known
        self._made_deferrals = 0
        self._defers = False
        self._is_over = self._is_ended_by_kernel = False
        self._doubt: Divergence | None = (
            None  # the first request of which only hashes differ: a signal before it shows more
        )
        self.divergence: Divergence | None = None
        self.gap: str | None = None
        self.unmarked: list[int] = []  # the positions of the model requests of which the ledger has no hashes

    @property
    def signals(self) -> dict[int, Signal]:
        return self._expected.reproduced

    @property
    def attempt(self) -> str | None:
        """How the code attempted to reach the outside, which a replay forbids."""
        return self._loop.attempt

    @property
    def _spec(self) -> AgentSpec:
        return self._turn.workflow.agents[self._claimed.agent]

    def run(self) -> None:
        """Replay the turn. Sets `divergence` and `gap`."""
        if self._claimed.agent not in self._turn.workflow.agents:
            self._diverge("error", f"the application has no agent {self._claimed.agent} any more")
            return
        self._loop = ReplayLoop(self._is_waiting)
        try:
            self._loop.create_task(self._run_turn())
            self._loop.run_forever()
        finally:
            self._loop.drop()
        if self.divergence is None and not self._is_over:
            if (problem := self._loop.problem) is not None:
                self._end_outside(problem, "error")
            else:
                self._end_outside(f"the turn waits, where the log has signal {self._expected.next_seq}")
        if self.divergence is None and self.gap is None:
            self._compare_rest()
        if self._doubt is not None and (self.divergence is None or self._doubt.seq < self.divergence.seq):
            self.divergence = self._doubt

    async def _run_turn(self) -> None:
        turn, claimed = self._turn, self._claimed
        world = VirtualWorld(turn.recording.signals[0].timestamp)
        servers = ServerTools().of(self._spec, self._waits.values())
        ledger = LedgerOfTurn(world, "replayed", self, self._boxes, turn.conversations.get(claimed.agent, ()))
        services = ProjectServices(world, ledger, {claimed.target: turn.workflow}, inputs=InputsOfTurn(self, servers))
        try:
            while True:
                runner = TurnRunner(claimed, services, ModelAgentLoop(no_harness))
                runner.task = asyncio.current_task()
                await runner.run()
                if not self._defers:
                    break
                self._defers = False
                claimed = replace(
                    claimed, defer_count=claimed.defer_count + 1, waits=self._resolved, has_emitted_signals=True
                )
        except (Exception, Interruption) as error:  # of the application, where the runtime does not expect it
            message = error.message if isinstance(error, HeliographError) else format_exception(error)
            self._diverge("error", f"the turn cannot be replayed: {message}")
        self._loop.stop()

    def _is_waiting(self) -> bool:
        if self.divergence is not None or self._is_over:
            return False
        return self._loop.pass_time() or self._loop.is_woken(_THREAD_SECONDS)

    # ── What the turn does ──

    async def commit(self, item: Mapping[str, Any]) -> None:
        reproduced: list[Signal | None] = []
        for draft in item.get("signals") or []:
            is_compared = self.divergence is None and not self._is_over and draft["name"] not in UNCOMPARED
            reproduced.append(self._compare(draft, reproduced) if is_compared else None)
        await self._unless_diverged()

    async def record(self, item: Mapping[str, Any]) -> None:
        call_id = str(item["call_id"])
        if call_id not in self._made:  # it has no intent, because it has no effect
            await self._known(call_id, "inline", str(item["open_as"]["tool"]))
        self._recorded.add(call_id)
        await self.commit(item)

    @property
    def _resolved(self) -> list[Wait]:
        """The calls that have their results at this place of the turn."""
        return [wait for call_id, wait in self._waits.items() if call_id in self._recorded or (
                call_id in self._made and wait.kind != "inline" and wait.state == "resolved")]  # fmt: skip

    async def begin(self, item: Mapping[str, Any]) -> BeginResult:
        call_id = str(item["call_id"])
        wait = await self._known(call_id, "inline", str(item["tool"]))
        self._model_call = wait if wait.tool == "model" and is_model_call(call_id) else self._model_call
        is_in_doubt = wait.status == "unknown" and not self._expected.has_result(call_id)  # its worker died
        if is_in_doubt or is_not_admitted(wait):
            self._recorded.add(call_id)
            return BeginResult("in_doubt" if is_in_doubt else "done", wait.status, wait.content)
        return BeginResult("fresh")

    async def suspend(self, item: Mapping[str, Any]) -> WriteResult:
        for call in item["calls"]:
            wait = await self._known(call["call_id"], call["kind"], call["tool"])
            if is_not_admitted(wait):
                self._recorded.add(wait.call_id)
        await self.commit(item)
        if any(wait.state != "resolved" and wait.kind != "inline" for wait in self._made.values()):
            self._end_outside("the turn waits for a call without a result")
            await never()
        return WriteResult(item["turn_id"], "resolved", waits=self._resolved)

    async def step(self, request: CallRequest) -> CallResult:
        call_id = request.call_id
        if (found := self._arguments.changed(request)) is not None:
            self._diverge(
                "arguments",
                found.message,
                found.difference.left,
                found.difference.right,
                (found.difference,),
                found.seq,
            )
        await self._unless_diverged()
        wait = self._waits[call_id]
        if wait.state != "resolved":
            self._end_outside(f"step {wait.tool} ({call_id}) has no result")
            await never()
        return result_of(wait)

    def deferred(self) -> None:
        self._made_deferrals += 1
        if self._made_deferrals <= self._deferrals:
            self._defers = True
        elif error_code(self._content) == RESOURCE_EXHAUSTED:  # the kernel ended it in place of this deferral
            self._is_over = self._is_ended_by_kernel = True
        else:  # it may wait for something outside: each run of it would defer it again
            self._end_outside(
                f"the turn was deferred {counted(self._deferrals, 'time')}, and is deferred once more now"
            )

    async def finish(self, item: Mapping[str, Any]) -> WriteResult:
        drafts = item["signals"]
        if self._place is None:  # the run at the commit is known once it is known how many drafts precede the end
            own = next(
                n for n, each in enumerate(drafts) if each["name"] in _ENDS and each["agent"] == self._claimed.agent
            )
            end = next(
                (s for s in reversed(self._expected.all) if s.name in _ENDS and s.agent == self._claimed.agent), None
            )
            self._place = self._expected.next_seq if end is None else self._expected.commit_before(end, own)
            view = self._turn.view_before(self._place)
            is_last = any(s.name == "workflow:end" for s in self._expected.all)
            return WriteResult(item["turn_id"], "conflict", run=replace(view, pending_reactions=0 if is_last else 1))
        if self._is_ended_outside and plain(item["content"]) != without_secrets(self._content):
            self._end_outside(f"the turn ends with {item['outcome']}")
            await never()
        await self.commit(item)
        self._compare_end(item)
        await self._unless_diverged()
        self._is_over = True
        return WriteResult(item["turn_id"], "ok", first_seq=self._place)

    # ── Models ──

    def next_model_call(self, name: str, request: JsonObject) -> LoggedCall | None:
        self._request = {"model": name, **request}
        if self._calls:
            return self._calls.pop(0)
        self._end_outside(
            f"the ledger has no reply of {name} for this request; a replay calls no model, so restore the code that made fewer requests",
            "request", None, request,
        )  # fmt: skip
        return None

    def compare_request(self, name: str, call: LoggedCall, request: ModelRequest) -> bool:
        policy, seq = self._turn.policy, call.start.seq
        if policy.accepts_prompts:
            return True
        recorded, replayed = without_secrets(call.prompt), plain(truncated(request.prompt))
        if call.prompt is not None and (found := tuple(differences(recorded, replayed))):
            self._diverge("request", f"{name} would receive another prompt", recorded, replayed, found, seq)
        elif (marks := recorded_marks(self._model_call, call)) is None:
            if call.error is None:
                self.unmarked.append(seq)
        elif self._doubt is None and (
            texts := changed_texts(self._spec, request, marks, policy, is_prompt_logged=call.prompt is not None)
        ):
            names = " and another ".join(TEXTS[each.path[1:]] for each in texts)
            self._doubt = self._divergence_of(
                "request", f"{name} would receive another {names} (the ledger has hashes of them)",
                {each.path[1:]: each.left for each in texts}, {each.path[1:]: each.right for each in texts}, texts, seq)  # fmt: skip
        return self.divergence is None

    def reply_to(self, call: LoggedCall) -> ModelReply | None:
        wait, self._model_call = self._model_call, None
        if wait is not None and wait.status == "success":
            try:
                return reply_of(result_of(wait).output)
            except (AssertionError, KeyError, TypeError):  # of a file that was edited
                self._diverge(
                    "error", f"the recorded reply {wait.call_id} cannot be read; restore the file from its history"
                )
                return None
        output: Json = None
        if self._spec.output is not None and self._content is not None:
            output = read_output(self._content)
        return call.reply(output, is_cut=self._outcome == "partial")

    # ── Comparison ──

    async def _known(self, call_id: str, kind: str, tool: str) -> Wait:
        """The record of a call that the code makes."""
        wait = self._waits.get(call_id)
        if wait is None:
            self._end_outside(f"the ledger has no record of {call_label(kind, tool)} ({call_id})", "call")
        elif (wait.kind, wait.tool) != (kind, tool) and not is_not_admitted(wait):
            self._diverge("call", f"call {call_id} was {call_label(wait.kind, wait.tool)}, and is {call_label(kind, tool)} now",
                          {"kind": wait.kind, "name": wait.tool}, {"kind": kind, "name": tool})  # fmt: skip
        await self._unless_diverged()
        if wait is None:
            await never()
        self._made[call_id] = wait
        return wait

    def _compare(self, draft: Mapping[str, Any], before: Sequence[Signal | None]) -> Signal | None:
        """Compare a draft with its signal in the log, and return that. before: those of the drafts before it."""
        next_seq, side = self._expected.next_seq, replayed_side(draft)
        signal = self._expected.take(draft["name"], draft.get("agent"), side["payload"])
        if signal is None:
            self._end_outside(f"there is one more signal, {draft['name']}", "signal", None, side, next_seq)
            return None
        compared = compared_draft(draft, signal, before, is_untrusted=signal.seq in self._turn.recording.untrusted)
        if found := self._turn.policy.counted(compared.recorded, compared.differences):
            del self._expected.taken[signal.seq]
            if self._deaths and compared.is_in_doubt:
                self._end_outside(
                    "several of its parallel calls have no outcome, and the code fails for another one of them"
                )
                return None
            self._diverge("signal", f"{signal.name} differs", compared.recorded, compared.replayed, found, signal.seq)
        return signal

    def _compare_end(self, item: Mapping[str, Any]) -> None:
        recorded = {"outcome": self._outcome, "content": without_secrets(self._content)}
        replayed = {"outcome": item["outcome"], "content": plain(item["content"])}
        if self.divergence is None and (found := tuple(differences(recorded, replayed))):
            self._diverge("end", "the turn delivers something else", recorded, replayed, found)

    def _compare_rest(self) -> None:
        """What the code has not done again: calls, then signals. A turn with a dead worker may have both twice, so there it is a gap."""
        unmade = next((wait for wait in self._waits.values() if wait.call_id not in self._made and wait.state == "resolved"
                       and not is_not_admitted(wait)), None)  # fmt: skip
        if unmade is not None:
            message = f"the code no longer makes {call_label(unmade.kind, unmade.tool)} ({unmade.call_id})"
            if self._deaths:
                self._end_outside(message)
            else:
                self._diverge("call", message, {"kind": unmade.kind, "name": unmade.tool})
        elif (
            not self._deaths
            and (missing := self._expected.missing) is not None
            and not (self._is_ended_by_kernel and missing.name == "agent:failed")
        ):
            lone: JsonObject = {"name": missing.name, "payload": missing.payload, "agent": missing.agent}
            self._diverge("signal", f"there is one signal less, {missing.name}", lone, None, seq=missing.seq)

    def _end_outside(
        self, message: str, kind: Kind = "end", recorded: Any = None, replayed: Any = None, seq: int | None = None
    ) -> None:
        """The log has less than the code does: with a gap if the turn was ended from outside, and with a divergence otherwise."""
        if self._why_incomplete is None:
            self._diverge(kind, message, recorded, replayed, seq=seq)
        elif self.gap is None:
            self.gap = f"{self._why_incomplete}, and the ledger does not have where; from there on it is not compared: {message}"
            self._is_over = True

    def _diverge(
        self, kind: Kind, message: str, recorded: Any = None, replayed: Any = None, found: tuple[Difference, ...] = (),
        seq: int | None = None,
    ) -> None:  # fmt: skip
        if self.divergence is None:
            self.divergence = self._divergence_of(kind, message, recorded, replayed, found, seq)

    def _divergence_of(
        self, kind: Kind, message: str, recorded: Any, replayed: Any, found: tuple[Difference, ...], seq: int | None
    ) -> Divergence:
        return Divergence(kind, self._turn.part.name, self._claimed.agent, self._expected.next_seq if seq is None else seq,
                          message, recorded, replayed, found, self._request)  # fmt: skip

    async def _unless_diverged(self) -> None:
        if self.divergence is not None or self._is_over:
            await never()
