"""Check one open turn: run its agent's new code over its recorded calls, up to the first work that is not recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.agent_loop.model_call import HarnessOf
from heliograph.agent_loop.request_marks import changed_marks
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.error_text import counted, format_exception, safe_repr
from heliograph.errors import HeliographError, InvalidInput
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.runner import TurnRunner
from heliograph.json_differences import Difference, differences
from heliograph.key_patterns import without_secrets
from heliograph.ledger.rows import OpenTurnRow
from heliograph.reactive.workflow import Workflow
from heliograph.recording.detached_world import never
from heliograph.recording.ledger_requests import TEXTS
from heliograph.recording.replay_loop import ReplayLoop
from heliograph.recording.replay_part import replayable
from heliograph.recording.server_tools import ServerTools
from heliograph.recording.virtual_world import VirtualWorld
from heliograph.records import Card, Claimed, Wait
from heliograph.redaction import STARS
from heliograph.signals.payload import with_sorted_keys
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.call_id import CallId
from heliograph.turn.call_results import validated_result
from heliograph.turn.calls import GATEWAY, CallRequest, result_of
from heliograph.turn.decisions import first_event
from heliograph.turn.events import Hydrated
from heliograph.turn.input_hash import INPUT_HASH, input_hash
from heliograph.turn.interruptions import Interruption
from heliograph.turn.journal import Journal, call_label, is_not_made, is_record_of
from heliograph.types import Json, JsonObject
from heliograph.upgrade.checked_world import CheckedInputs, CheckedLedger
from heliograph.upgrade.divergence import Call, Kind, TurnDivergence

_MESSAGE_MAX = 500
_NAMES = ("/agent", "/tool")  # of a call through a gateway
_THREAD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CheckedApplication:
    """The new code. harness_of: names its models. toolbox: binds its tools, once for all turns."""

    workflow: Workflow
    project: str
    harness_of: HarnessOf
    toolbox: Toolbox = field(default_factory=Toolbox)
    server_tools: ServerTools = field(default_factory=ServerTools)

    @classmethod
    def of(cls, workflow: Workflow, project: str, harness_of: HarnessOf) -> CheckedApplication:
        """The application without its observers and its memory."""
        return cls(replayable(workflow), project, harness_of)


def check_turn(
    app: CheckedApplication, turn: OpenTurnRow, boxes: Mapping[str, Sequence[Card]], now: datetime
) -> TurnDivergence | None:
    """The divergence of a turn; None if the new code continues it. boxes: the cards that it may read.

    Arguments that are different in each run of the same code come from a clock or from chance, so they are no divergence.
    """
    varying: set[str] = set()
    found = _Check(app, turn, boxes, now, varying).run()
    for _ in range(2):  # twice, because chance may choose the same value again
        if found is None or found.kind != "arguments":
            break
        one, other = (_Check(app, turn, boxes, now, None) for _ in range(2))
        one.run()
        other.run()
        varying |= {call_id for call_id, sent in one.sent.items() if sent != other.sent.get(call_id, sent)}
        found = _Check(app, turn, boxes, now, varying).run()
    return found


def runs_no_code(claimed: Claimed, spec: AgentSpec) -> bool:
    """Whether the turn ends or continues without its agent's function, or has no calls that the function could miss."""
    if not claimed.waits or claimed.stop is not None:
        return True
    first = first_event(claimed, spec)
    return not isinstance(first, Hydrated) or (
        first.terminating_result is not None or first.awaits_terminating or first.is_run_over
        or (bool(first.recoveries) and not first.may_run_again)
    )  # fmt: skip


class _Check:
    """One run of the code. varying: the ids of calls whose arguments are not compared; None for all. sent: the arguments of calls."""

    def __init__(
        self, app: CheckedApplication, turn: OpenTurnRow, boxes: Mapping[str, Sequence[Card]], now: datetime, varying: Collection[str] | None
    ):  # fmt: skip
        self._app = app
        self._claimed = turn.claimed
        self._requests = turn.requests
        self._recorded = {wait.call_id: wait for wait in turn.claimed.waits}
        self._places = {call_id: n for n, call_id in enumerate(self._recorded, 1)}
        self._boxes = boxes
        self._varying = varying
        self.sent: dict[str, Json] = {}
        self._world = VirtualWorld(now)
        self._journal: Journal | None = None
        self._rejected: CallRequest | None = None  # the last reached call, if its result does not match its schema
        self._waits_for: str | None = None  # the first new work
        self._is_deferred = False
        self._prompt: TurnDivergence | None = None  # the first reply to a request that is another one now
        self._divergence: TurnDivergence | None = None

    def run(self) -> TurnDivergence | None:
        claimed, workflow = self._claimed, self._app.workflow
        if (spec := workflow.agents.get(claimed.agent)) is None:
            known = ", ".join(sorted(workflow.agents)[:10])
            return self._divergence_of("agent", f"the application has no agent {claimed.agent}; it has {known}")
        if claimed.stop is not None:
            return None
        try:
            workflow.shape.load(claimed.run.state)
        except InvalidInput as error:
            return self._divergence_of("state", safe_repr(error.message, _MESSAGE_MAX), None, claimed.run.state)
        if runs_no_code(claimed, spec):
            return None
        if (removed := self._removed_tool()) is not None:  # its other calls differ for this reason, too
            return removed
        self._loop = ReplayLoop(self._continues)
        try:
            self._loop.create_task(self._turn())
            self._loop.run_forever()
        finally:
            divergence = self._final_divergence()
            self._loop.drop()
        return divergence

    async def _turn(self) -> None:
        claimed, app = self._claimed, self._app
        ledger = CheckedLedger(self._world, app.project, self, self._recorded.keys(), self._boxes)
        services = ProjectServices(self._world, ledger, {claimed.target: app.workflow}, toolbox=app.toolbox,
                                   inputs=CheckedInputs(self, app.server_tools.of(app.workflow.agents[claimed.agent], self._recorded.values())))  # fmt: skip
        try:
            runner = TurnRunner(claimed, services, ModelAgentLoop(app.harness_of))
            if (problem := runner.problem_of_phases) is not None:  # its terminate hook would run
                self._diverge("phases", problem)
                return
            runner.task = asyncio.current_task()
            await runner.run()
        except (Exception, Interruption) as error:  # of the application, where the runtime does not expect it
            message = error.message if isinstance(error, HeliographError) else format_exception(error, _MESSAGE_MAX)
            await self.ends("failed", {"message": message})

    def _continues(self) -> bool:
        """Nothing is ready. Virtual time passes only for calls that the code has not reached."""
        if self._divergence is not None or not self._is_behind:
            return False
        return self._loop.pass_time() or self._loop.is_woken(_THREAD_SECONDS)

    @property
    def _unreached(self) -> list[Wait]:
        """The recorded calls that the code has not reached.

        A function that was deferred may have made calls in an earlier run that it does not make any more.
        """
        if self._is_deferred:  # the function runs again later
            return []
        if self._journal is None:
            return list(self._recorded.values())
        unreached, claimed = self._journal.unreached, self._claimed
        if claimed.defer_count and self._app.workflow.agents[claimed.agent].run is not None:
            return [wait for wait in unreached if wait.state == "open" and wait.kind != "inline"]
        return unreached

    @property
    def _is_behind(self) -> bool:
        return bool(self._unreached)

    def _final_divergence(self) -> TurnDivergence | None:
        """The divergence after the code has stopped."""
        if self._divergence is not None:
            return self._divergence
        if self._loop.problem is not None:
            return self._divergence_of("deadline", self._loop.problem)
        if unreached := self._unreached:
            return self._missing(unreached[0], f"begins {self._waits_for}" if self._waits_for else "waits")
        if self._rejected is not None:
            request = self._rejected
            wait = self._recorded[request.call_id]
            problem = validated_result(request, wait).error
            return self._divergence_of("result", f"its recorded result does not match the result schema: {_message_of(problem)}", wait,
                              result_of(wait).output)  # fmt: skip
        return self._prompt

    def _removed_tool(self) -> TurnDivergence | None:
        """The divergence of a call of a model whose tool the agent does not have any more."""
        spec = self._app.workflow.agents[self._claimed.agent]
        names = {tool.name for tool in spec.tools if isinstance(tool, Tool)}
        if spec.run is not None or any(not isinstance(tool, Tool) for tool in spec.tools):
            return None
        for wait in self._recorded.values():
            parsed = CallId.parse(wait.call_id)
            if parsed is None or parsed.is_model_call or wait.tool in (*names, GATEWAY):
                continue
            if wait.kind in ("inline", "tool") or parsed.follow_up:
                return self._divergence_of("tool", f"the model has called {wait.tool}, and the agent has no such tool any more", wait, wait.tool,
                                  sorted(names)[:20])  # fmt: skip
        return None

    # ── What the code does ──

    def acting(self, journal: Journal) -> None:
        self._journal = journal

    def requested(self, request: CallRequest) -> None:
        wait = self._recorded.get(request.call_id)
        if wait is None or self._divergence is not None:
            return
        self._rejected = None
        if not is_record_of(wait, request):
            self._diverge("call", f"it was {call_label(wait.kind, wait.tool)} when it was recorded, and is "
                          f"{call_label(request.kind, request.tool)} now", wait,
                          {"kind": wait.kind, "name": wait.tool}, {"kind": request.kind, "name": request.tool})  # fmt: skip
        elif found := self._changed_arguments(wait, request):
            self._diverge(*_described(found), wait, self._requests[wait.call_id], _sent(wait, request))
        elif wait.status == "success" and result_of(wait).is_good and not validated_result(request, wait).is_good:
            self._rejected = request

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        wait = self._recorded.get(call_id)
        output = wait.content.get("output") if wait is not None and isinstance(wait.content, dict) else None
        recorded = output.get("marks") if isinstance(output, dict) else None
        if (
            wait is not None
            and self._prompt is None
            and isinstance(recorded, dict)
            and (changed := changed_marks(recorded, marks))
        ):
            names = " and the ".join(TEXTS[name] for name in changed)
            self._prompt = self._divergence_of("prompt", f"the {names} changed since this reply was recorded", wait)

    def _changed_arguments(self, wait: Wait, request: CallRequest) -> list[Difference]:
        if wait.call_id not in self._requests or is_not_made(wait, request):
            return []
        if self._varying is None:
            self.sent[wait.call_id] = _sent(wait, request)
        if self._varying is None or wait.call_id in self._varying:
            return []
        recorded, now = (
            without_secrets(self._requests[wait.call_id]),
            without_secrets(with_sorted_keys(_sent(wait, request))),
        )
        if now == {INPUT_HASH: None}:  # the arguments of a step have no canonical form any more
            return []
        return [each for each in differences(recorded, now) if not _is_starred(each)]

    async def suspends(self) -> NoReturn:
        assert self._journal is not None
        new = self._journal.new_calls
        await self.new_work(f"a new call, {call_label(new[0].kind, new[0].tool)}," if new else None)

    async def new_work(self, what: str | None) -> NoReturn:
        self._waits_for = self._waits_for or what
        if not self._is_behind:
            self._loop.stop()
        await never()

    async def defers(self) -> NoReturn:
        self._is_deferred = True
        self._loop.stop()
        await never()

    async def ends(self, outcome: str, error: JsonObject | None) -> NoReturn:
        if unreached := self._unreached:
            if error is None:
                self._divergence = self._divergence or self._missing(unreached[0], f"ends with {outcome}")
            else:
                self._diverge("error", f"the code raises before this call: {_message_of(error)}", unreached[0])
        self._loop.stop()
        await never()

    def _missing(self, wait: Wait, does: str) -> TurnDivergence:
        label = call_label(wait.kind, wait.tool)
        return self._divergence_of(
            "missing", f"the new code {does} and does not make this recorded call, {label}", wait
        )

    def _diverge(
        self, kind: Kind, message: str, wait: Wait | None = None, recorded: Any = None, now: Any = None
    ) -> None:
        if self._divergence is None:
            self._divergence = self._divergence_of(kind, message, wait, recorded, now)
        self._loop.stop()

    def _divergence_of(
        self, kind: Kind, message: str, wait: Wait | None = None, recorded: Any = None, now: Any = None
    ) -> TurnDivergence:
        claimed = self._claimed
        call = None if wait is None else Call(self._places[wait.call_id], wait.call_id, wait.tool, wait.kind)
        return TurnDivergence(kind, claimed.run_id, claimed.turn_id, claimed.agent, str(without_secrets(message)), call,
                              without_secrets(recorded), without_secrets(now))  # fmt: skip


def _described(found: Sequence[Difference]) -> tuple[Kind, str]:
    """What differs in a call: the kind of its divergence, and the message."""
    first = found[0]
    if first.path == f"/{INPUT_HASH}":
        return "arguments", "its arguments differ (the log has a hash of them)"
    if first.path in _NAMES:
        return "call", f"it was for {first.left} when it was recorded, and is for {first.right} now"
    more = f", and in {counted(len(found) - 1, 'more place')}" if len(found) > 1 else ""
    return "arguments", f"its arguments differ at {first.path or '/'}{more}"


def _sent(wait: Wait, request: CallRequest) -> Json:
    """The arguments of a call as the ledger keeps them; of one through a gateway, with the name of its agent or tool."""
    if wait.kind == "inline":
        return {INPUT_HASH: input_hash(request.arguments)}
    task: JsonObject = {"task": request.input, "context": request.context}
    if wait.tool == GATEWAY:
        name: JsonObject = {"agent" if request.kind == "child" else "tool": request.tool}
        return name | (task if request.kind == "child" else {"arguments": request.input})
    return task if wait.kind == "child" else request.input


def _message_of(error: Any) -> str:
    return safe_repr(str(error.get("message") if isinstance(error, dict) else error), _MESSAGE_MAX)


def _is_starred(difference: Difference) -> bool:
    """Whether a text differs that may be the same secret: this process need not know it."""
    return isinstance(difference.left, str) and STARS in difference.left and isinstance(difference.right, str)
