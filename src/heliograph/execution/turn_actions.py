"""The actions of a turn apart from calls and delegations: questions to people, time, memory, signals, progress and cleanup."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from heliograph.definitions.signal_definition import SignalDefinition, name_of
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.human_tasks import APPROVE, ASK, answered, approval_question, approved, open_question
from heliograph.execution.turn_context import TurnContext
from heliograph.ports import MemoryHit
from heliograph.signals.error_payload import recoverable_error
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_payload
from heliograph.signals.values import to_json
from heliograph.turn.calls import CallRequest
from heliograph.turn.human_tasks import Grant
from heliograph.turn.interruptions import Defer
from heliograph.type_variables import Deps_co, State_co
from heliograph.types import Json

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

P = TypeVar("P")
R = TypeVar("R")


class TurnActions(TurnContext[State_co, Deps_co]):
    """The actions of one turn except calls and delegations, which `Context` adds."""

    # ── Approvals and questions ──

    def approve(
        self, question: str, *, arguments: Mapping[str, Any] | None = None, may_edit: bool = False,
        timeout: float | None = None, call_id: str | None = None,
    ) -> Coroutine[Any, Any, Grant]:  # fmt: skip
        """Request an approval from a person, and wait for it. The turn is suspended meanwhile.

        arguments: shown to the person, who approves them. may_edit: the person may change them; act on the arguments of the
        Grant. timeout: seconds; None waits without a deadline. Raises Denied, ToolTimedOut, InvalidInput.
        """
        self._requests.check_may_wait("approve")
        approval = approval_question(question, arguments, may_edit=may_edit)
        return approved(self._replay, approval, self._requests.human(APPROVE, approval, timeout, call_id))

    @overload
    def ask(
        self, question: str, *, form: type[R], timeout: float | None = None, call_id: str | None = None
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def ask(
        self, question: str, *, form: Mapping[str, Any] | UnionType | _SpecialForm, timeout: float | None = None,
        call_id: str | None = None,
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip

    @overload
    def ask(
        self, question: str, *, options: Sequence[str] = (), timeout: float | None = None, call_id: str | None = None
    ) -> Coroutine[Any, Any, str]: ...

    def ask(
        self, question: str, *, form: Any = None, options: Sequence[str] = (), timeout: float | None = None,
        call_id: str | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Ask a person a question, and wait for the answer. The turn is suspended meanwhile.

        form: a pydantic model or another type, which is the type of the answer; or a JSON Schema, for an answer in JSON.
        Without a form, the answer is a text; with options, it is one of them. timeout: as for `approve`.
        Raises Denied when the person declines, ToolFailed for an invalid answer, ToolTimedOut, InvalidInput.
        """
        self._requests.check_may_wait("ask")
        with_form, convert = open_question(question, form, options)
        return answered(self._replay, with_form, self._requests.human(ASK, with_form, timeout, call_id), convert)

    # ── Time ──

    def pause(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Suspend the turn for some seconds. For waits of milliseconds, use `sleep`.

        Raises InvalidInput (`out_of_range`), also for a pause longer than the rest of the turn's `ttl_seconds`.
        """
        self._requests.check_may_wait("pause")
        return self._pause(self._requests.pause(seconds))

    async def _pause(self, request: CallRequest) -> None:
        wait = self._replay.find(request)
        if wait is None and request.timeout_seconds is not None and request.timeout_seconds > self._ttl_seconds:
            raise InvalidInput(f"a pause of {request.timeout_seconds:g} s is longer than the rest of this turn's lifetime, "
                               f"{self._ttl_seconds:g} s; give agent {self.agent} a larger ttl_seconds",
                               code="out_of_range")  # fmt: skip
        if wait is None or wait.state != "resolved":
            await self._replay.suspend([request])

    async def sleep(self, seconds: float) -> None:
        """Wait in this worker, which keeps the turn meanwhile; in the simulator, in simulated time. See `pause`."""
        await self._world.sleep(seconds)

    def defer(self, reason: str, seconds: float) -> NoReturn:
        """Defer the turn, like `raise Defer(reason, seconds)`: the function runs again from its start after that time."""
        raise Defer(reason, seconds)

    # ── Memory ──

    def remember(self, text: str, /, **metadata: Any) -> Coroutine[Any, Any, None]:
        """Store a text in this agent's long-term memory, once, however often the turn runs.

        metadata: JSON values stored with the text. `trust="untrusted"` marks the text as untrusted; the runtime sets it once
        the turn has read untrusted content. Raises InvalidInput, and ToolFailed for a text that the memory rejects.
        """
        return self._memory.remember(text, metadata)

    def recall(self, query: str, limit: int = 5, *, everywhere: bool = False) -> Coroutine[Any, Any, list[MemoryHit]]:
        """Find the best memories of this agent and of the project; with `everywhere`, of all agents of the project.

        The result is recorded, so later runs of the turn return the same memories. An untrusted memory among them makes
        everything that the turn writes untrusted. Raises InvalidInput, ToolFailed.
        """
        return self._memory.recall(query, limit, everywhere=everywhere)

    # ── Signals, progress and cleanup ──

    @overload
    def emit(self, signal: SignalDefinition[P], payload: P | Mapping[str, Any], /) -> None: ...

    @overload
    def emit(self, signal: str, payload: Any = None) -> None: ...

    def emit(self, signal: str | SignalDefinition[Any], payload: Any = None) -> None:
        """Emit one of the agent's declared signals, by its name or its definition, when this turn commits.

        When an agent emits nothing itself, the runtime emits all of its `emits` with its output at the end of the turn.
        A signal that has a definition then has the output as its payload.
        Raises InvalidInput: `undeclared_signal`, `payload_too_large`, `invalid_payload`, or the problem of the payload.
        """
        name = name_of(signal)
        if name not in self._spec.emits:
            declared = ", ".join(self._spec.emits) or "nothing"
            raise InvalidInput(f"agent {self.agent} emits {declared}; declare {name!r} in emits first",
                               code="undeclared_signal", path=f"/agents/{self.agent}/emits")  # fmt: skip
        definition = self._definitions.get(name)
        self.emitted.append((name, check_payload(to_json(payload)) if definition is None else definition.dump(payload)))

    def report_error(
        self, code: str, message: str, *, details: Mapping[str, Any] | None = None, exception: BaseException | None = None
    ) -> Coroutine[Any, Any, None]:  # fmt: skip
        """Report an error from which the agent recovers: log the signal `error` now, once, and continue.

        code: one of docs/reference/errors.md, or your own. The code of another phase is replaced by that of this phase.
        details: JSON for programs, at most 8 KiB. exception: the end of its traceback becomes `stack_trace`. Secrets are
        redacted from all of it. To end the turn, raise an exception instead. Raises InvalidInput.
        """
        self._requests.check_may_wait("report_error")
        payload = recoverable_error(code, message, details, exception, self.phase)
        draft = Draft("error", payload, self.agent, self.activation_id, self._world.now())
        return self._replay.log(self._requests.step("error", "pure"), draft)

    def on_cleanup(self, function: Callable[..., Any], /, *args: Any) -> None:
        """Run `function(*args)`, plain or async, when this turn ends by success, failure, timeout or graceful stop.

        The last registered function runs first; the runtime logs its exceptions. No function runs when the turn suspends or is
        deferred (register it again in the next run), after a forced halt, or when the worker is lost. The functions of hooks
        that have ended do run then, because no later run registers them: release there what this process holds.
        Raises InvalidInput.
        """
        self._cleanups.add(function, args)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress to observers: `fraction` from 0 to 1. The runtime sends it soon, in batches."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidInput(
                f"progress must be a number from 0 to 1, not {safe_repr(repr_of(fraction))}", code="out_of_range"
            )
        payload: Json = {"agent": self.agent, "fraction": float(fraction), "message": str(message)}
        check_payload(payload)
        if not self.is_replaying:
            draft = Draft("agent:progress", payload, self.agent, self.activation_id, self._world.now())
            self._replay.steps.inputs.progress(draft)
            self._signals.add_urgent(draft)
