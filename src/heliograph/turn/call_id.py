"""The ids of the calls of one turn: how they are created, parsed and ordered.

| id                                | names                                                              |
|-----------------------------------|--------------------------------------------------------------------|
| `c3`, `chain_2-c3`                | the third call of an agent's function, or of its task `chain_2`    |
| `s3`, `chain_2-s3`                | the third step: a group of calls that start together               |
| `c3-again-2`, `m2-1-again-2`      | a call, made again for the second time                             |
| `c3-pause-2`, `m2-1-pause-2`      | the timer before that                                              |
| `c3-fallback`                     | the step that replaces a rejected call                             |
| `m2`, `m2-try3`                   | the second model call, and its third attempt                       |
| `m2-1`                            | the first tool call of the second model reply                      |
| `m2-1-approval`, `m2-1-approval-2`| the requests to approve that tool call                             |
| `m2-1-doubt`, `m2-1-doubt2`       | the questions to a person while that tool call is in doubt         |
| `m2-1-again`, `m2-1-again2`       | that tool call, made again after a person allowed it               |
| `init`, `plan-2`, `act-2`         | the end of a phase of an agent with hooks, in its second round     |
| `plan-2-c1`, `act-2-m1`           | a call of that phase                                               |

Ids are recorded, so their form never changes. A function may also choose its own ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

CALL_ID_MAX = 64
_INSTANCE_MAX = 160  # a caller may choose a long turn id; its end distinguishes it from other turn ids
_PHASE = r"((?:init-|terminate-|(?:plan|act|reflect)-[1-9][0-9]*-)?)"
_PATTERN = re.compile(_PHASE + r"m(\d+)(?:(-try\d+)?|-(\d+)(-approval(?:-\d+)?|-doubt\d*|-again\d*)?)")


@dataclass(frozen=True, slots=True)
class CallId:
    """The id of a model call, of a tool call of its reply, or of a follow-up; `str()` gives the recorded text.

    model_call: counted from 1. tool_call: the place in the reply, from 1; 0 for the model call itself. follow_up: the
    rest of the id. prefix: the phase of an agent with hooks, like `act-2-`.
    """

    model_call: int
    tool_call: int = 0
    follow_up: str = ""
    prefix: str = ""

    def __str__(self) -> str:
        place = f"-{self.tool_call}" if self.tool_call else ""
        return f"{self.prefix}m{self.model_call}{place}{self.follow_up}"

    @classmethod
    def parse(cls, text: str) -> CallId | None:
        """The parts of a recorded id; None for an id of a function's call."""
        match = _PATTERN.fullmatch(text)
        return match and cls(int(match[2]), int(match[4] or 0), match[3] or match[5] or "", match[1])

    @property
    def is_model_call(self) -> bool:
        return self.tool_call == 0

    def attempt(self, count: int) -> str:
        """The id of an attempt of a model call, counted from 1."""
        return str(self) if count == 1 else f"{self}-try{count}"

    def approval(self, count: int = 1) -> str:
        """The id of a request to approve this tool call, counted from 1."""
        return f"{self}-approval" if count == 1 else f"{self}-approval-{count}"

    def doubt(self, count: int) -> str:
        """The id of a question about this tool call while it is in doubt, counted from 1."""
        return f"{self}-doubt{_suffix(count)}"

    def again(self, count: int) -> str:
        """The id of this tool call when it is made again, counted from 1."""
        return f"{self}-again{_suffix(count)}"


class CallCounter:
    """Numbers the calls and steps of one run of an agent, separately for each of its tasks.

    task_name: returns the name of the current task. Parallel tasks interleave differently on each run, so only the order
    within one task identifies a call.
    """

    def __init__(self, task_name: Callable[[], str] = str):
        self._task_name = task_name
        self._calls: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def next_call(self) -> str:
        task = self._task_name()
        self._calls[task] = number = self._calls.get(task, 0) + 1
        return f"{task}c{number}"

    def next_step(self) -> str:
        task = self._task_name()
        self._steps[task] = number = self._steps.get(task, 0) + 1
        return f"{task}s{number}"

    def coming_steps(self, count: int) -> list[str]:
        """The ids of the next steps, which remain the next."""
        task = self._task_name()
        return [f"{task}s{self._steps.get(task, 0) + n}" for n in range(1, count + 1)]


def retry_id(call_id: str, count: int) -> str:
    """The id of a retry of a call, counted from 1."""
    return f"{call_id}-again-{count}"


def first_id(text: str, attempt: int) -> str:
    """The id of the first attempt of a call, or of its step. attempt: the number of the attempt with the id `text`, from 1."""
    return text if attempt == 1 else text.removesuffix(retry_id("", attempt - 1))


def fallback_id(call_id: str) -> str:
    """The id of the step that replaces a call which its circuit breaker rejected."""
    return f"{call_id}-fallback"


def pause_id(call_id: str, count: int) -> str:
    """The id of the timer before a retry of a call, counted from 1."""
    return f"{call_id}-pause-{count}"


def instance_of(turn_id: str, call_id: str) -> str:
    """The agent instance of a child turn that names none: its own, the same on every run of the parent."""
    return f"{turn_id}-{call_id}"[-_INSTANCE_MAX:]


def _suffix(count: int) -> str:
    return "" if count == 1 else str(count)
