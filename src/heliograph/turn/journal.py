"""The journal of one run of an agent: it matches the calls of the run with the recorded calls of the turn. Pure.

A turn that waits releases its worker. When a result arrives, its function runs again from its start, and each call finds
its recorded result, up to the first call without one. So the function has to make the same calls each time. The place of a
call in the order of calls identifies it, unless the agent gives it an id. A recorded call of another tool fails the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from heliograph.codes import (
    ACTION_FAILED,
    BUDGET_EXCEEDED,
    CIRCUIT_OPEN,
    NOT_DETERMINISTIC,
    RATE_LIMITED,
    RESOURCE_EXHAUSTED,
)
from heliograph.errors import AgentFailed, InvalidInput
from heliograph.records import Wait
from heliograph.turn.call_id import CALL_ID_MAX, CallCounter, CallId
from heliograph.turn.calls import GATEWAY, CallRequest, Join, check_name

CALLS_MAX = 10_000  # far above any limit of a project: only a loop that swallows its own suspension makes so many calls


class Journal:
    """Matches the calls of one run of an agent's function with the recorded calls of its turn.

    awaited: the calls without a result that the function waits for. error: why the turn cannot continue. wait_forbidden:
    why the function may not wait now. deferrals_before: the deferrals before the agent last made progress. tokens: the input
    and output tokens of its models. task_name: returns the name of the current task; each task counts its own calls.
    prefix: begins the ids of the calls of this run, which is one phase of an agent with hooks.
    """

    def __init__(self, agent: str, waits: Sequence[Wait], task_name: Callable[[], str] = str, prefix: str = ""):
        self._agent = agent
        self.prefix = prefix
        self._task_name = task_name
        self._recorded: dict[str, Wait] = {}
        self._requested: set[str] = set()
        for wait in waits:
            self._recorded[wait.call_id] = wait
            if not wait.call_id.startswith(prefix):  # the calls of earlier phases are over
                self._requested.add(wait.call_id)
        self._is_streaming = False
        self.awaited: dict[str, CallRequest] = {}
        self.error: AgentFailed | None = None
        self.wait_forbidden: str | None = None
        self.deferrals_before = 0
        self.tokens = (0, 0)

    @cached_property  # most functions make no calls
    def _counter(self) -> CallCounter:
        return CallCounter(lambda: f"{self.prefix}{self._task_name()}")

    @property
    def is_replaying(self) -> bool:
        """Whether the function repeats an earlier run: it has not reached all recorded calls yet."""
        return not self._recorded.keys() <= self._requested

    @property
    def unreached(self) -> list[Wait]:
        """The recorded calls that the function has not reached yet, in the order in which they were opened."""
        return [wait for call_id, wait in self._recorded.items() if call_id not in self._requested]

    def has_call(self, call_id: str) -> bool:
        """Whether a call of this id is recorded, with or without a result."""
        return call_id in self._recorded

    def call_id(self, model_call: int, tool_call: int = 0) -> CallId:
        """The id of a model call of this run, or of a tool call of its reply, both counted from 1."""
        return CallId(model_call, tool_call, prefix=self.prefix)

    def new_step(self) -> str:
        """The id of the next step."""
        return self._counter.next_step()

    def coming_steps(self, count: int) -> list[str]:
        """The ids of the next steps, which remain the next."""
        return self._counter.coming_steps(count)

    def new_call(self, given: str | None = None) -> str:
        """The id of the next call: `given` after the prefix, or its place in the order of calls of its task.

        Raises InvalidInput (`invalid_id`).
        """
        by_place = self._counter.next_call()  # a chosen id also takes a place, so the ids of later calls stay the same
        if given is None:
            return by_place
        check_name(given, "a call id", CALL_ID_MAX)
        if given.startswith(self.prefix):
            return given
        return check_name(self.prefix + given, f"a call id in phase {self.prefix[:-1]}, which begins it,", CALL_ID_MAX)

    def find(self, request: CallRequest) -> Wait | None:
        """The record of a call; None for a new call.

        Raises InvalidInput (`duplicate_call_id`), AgentFailed (NOT_DETERMINISTIC) where another call is recorded.
        """
        if request.call_id in self._requested:
            raise InvalidInput(f"agent {self._agent} uses the call id {request.call_id!r} twice; each call has its own",
                               code="duplicate_call_id")  # fmt: skip
        if len(self._requested) >= CALLS_MAX:
            raise self._fail(RESOURCE_EXHAUSTED, f"it made {CALLS_MAX} calls in one run")
        self._requested.add(request.call_id)
        wait = self._recorded.get(request.call_id)
        if wait is not None and not is_record_of(wait, request):
            raise self._fail(
                NOT_DETERMINISTIC,
                f"call {request.call_id} was {call_label(wait.kind, wait.tool)} when it was recorded and is now "
                f"{call_label(request.kind, request.tool)}: between calls, a function may depend only on its context and on "
                "results; if the order of its calls varies, pass a call_id to each",
            )  # fmt: skip
        return wait

    def wait_for(self, requests: Iterable[CallRequest], *, each: bool = False) -> None:
        """Wait for all of these calls or, with `each`, for each one."""
        self.awaited |= {call.call_id: call for call in requests}
        self._is_streaming |= each

    @property
    def new_calls(self) -> tuple[CallRequest, ...]:
        """The awaited calls that are not recorded yet, in the order of the function."""
        return tuple(call for call in self.awaited.values() if call.call_id not in self._recorded)

    @property
    def join(self) -> Join:
        """'each' while a stream waits, or while calls are open that nothing awaits, which must not delay the turn."""
        open_calls = {
            wait.call_id for wait in self._recorded.values() if wait.state == "open" and wait.kind != "inline"
        }
        return "each" if self._is_streaming or open_calls - self.awaited.keys() else "all"

    def check_not_waiting(self) -> None:
        """Check that a function that ended does not wait.

        Raises AgentFailed for a function that caught its own suspension, or continued after an error of the journal.
        """
        if self.error is not None:
            raise self.error
        if self.awaited:
            raise self._fail(
                ACTION_FAILED,
                f"it caught the exception that suspends its turn for call {next(iter(self.awaited))}: an except clause "
                "around a call must not take BaseException, and a bare except: does, as gather(return_exceptions=True) does; "
                "catch Exception, or ToolFailed",
            )

    def _fail(self, code: str, why: str) -> AgentFailed:
        self.error = self.error or AgentFailed(f"agent {self._agent}: {why}", code=code)
        return self.error


def is_record_of(wait: Wait, request: CallRequest) -> bool:
    """Whether a record with the id of a call is of this call."""
    return (
        (wait.kind, wait.tool) == (request.kind, request.tool) or is_not_made(wait, request) or _is_sent(wait, request)
    )


def is_not_made(wait: Wait, request: CallRequest) -> bool:
    """Whether the call was not made: a budget, a breaker or a rate limit rejected it, or another call failed first."""
    error = wait.content.get("error") if isinstance(wait.content, dict) else None
    is_it = isinstance(error, dict) and (
        error.get("code") in (BUDGET_EXCEEDED, CIRCUIT_OPEN, RATE_LIMITED) or "first_failed_call" in error
    )
    return is_it and request.kind in ("tool", "child") and (wait.kind, wait.tool) == ("inline", request.tool)


def _is_sent(wait: Wait, request: CallRequest) -> bool:
    """Whether a route sent this call or delegation to a gateway when it was made; later changes of the routes do not matter."""
    return request.kind in ("tool", "child") and (wait.kind, wait.tool) == ("tool", GATEWAY)


def call_label(kind: str, tool: str) -> str:
    """A call as a message names it."""
    return {"tool": f"tool {tool}", "child": f"a delegation to {tool}", "inline": f"step {tool}",
            "timer": "a pause", "human": f"an approval by {tool}"}.get(kind, kind)  # fmt: skip
