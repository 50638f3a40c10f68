"""The result of a run that has ended, read from its signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from heliograph.reactive.workflow import Workflow
from heliograph.signals.model import Signal
from heliograph.signals.run_end import read_end
from heliograph.signals.trace import TurnFailure, failure_of
from heliograph.type_variables import State_co


@dataclass(frozen=True)
class EndedRun(Generic[State_co]):
    """How a run ended.

    reason and code: why the run ended before its work was done; None for a run that did its work. See docs/reference/errors.md.
    """

    run_id: str
    outcome: str
    state: State_co
    metrics: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class RunResult(EndedRun[State_co]):
    """How a run ended, with its whole log in order. `state` has the application's type."""

    signals: list[Signal] = field(kw_only=True)

    @property
    def failures(self) -> list[TurnFailure]:
        """The turns that failed or timed out, each with its full reason."""
        return [failure for signal in self.signals if (failure := failure_of(signal)) is not None]


def result_of_run(run_id: str, workflow: Workflow, signals: Sequence[Signal]) -> RunResult[Any]:
    """The result in the signals of a run, of which the last is workflow:end."""
    end = ended_run(run_id, read_end(run_id, signals[-1] if signals else None), workflow)
    return RunResult(end.run_id, end.outcome, end.state, end.metrics, end.reason, end.code, signals=list(signals))


def ended_run(run_id: str, end: Mapping[str, Any], workflow: Workflow | None) -> EndedRun[Any]:
    """How a run ended. end: the payload of its workflow:end. workflow: gives the state its type; a JSON object without it."""
    state = end["state"] if workflow is None else workflow.shape.load(end["state"])
    return EndedRun(run_id, end["outcome"], state, end["metrics"], end.get("reason"), end.get("code"))
