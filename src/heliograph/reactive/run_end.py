"""The outcome of a run that ends, with the reason and the code of its workflow:end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from heliograph.codes import NOTHING_RAN, RESOURCE_EXHAUSTED
from heliograph.reactive.run_memory import CLOSED, SESSION
from heliograph.reactive.workflow import Workflow
from heliograph.records import Outcome, RunFailure
from heliograph.signals.model import Draft

END_WHEN = "end_when"  # the reason of a run whose goal is met


class RunEnd(Struct, frozen=True):
    outcome: Outcome
    reason: str | None = None
    code: str | None = None


TOO_LARGE = "payload_too_large"  # the kernel's code for a signal above a limit


def state_too_large(message: str | None) -> RunFailure:
    """Why a run ends without its state in workflow:end: the kernel rejected the signal with this message."""
    return RunFailure(RESOURCE_EXHAUSTED, f"the run cannot end with its state: {message}")


def end_of_run(workflow: Workflow, memory: Mapping[str, Any], drafts: Iterable[Draft]) -> RunEnd:
    """The end of a run without open turns and without pending reactions. drafts: the signals of its last reaction."""
    reason, code = memory.get("stopped_by"), memory.get("code")
    if reason is None and memory.get(SESSION) is not None:  # each sender knows how its message ended
        return RunEnd("success", CLOSED)
    if memory.get("is_canceled"):  # the kernel recorded that a person stopped the run
        return RunEnd("canceled", reason, code)
    if reason != END_WHEN and (reason is not None or memory["failed"]):
        return RunEnd("failed", reason, code)
    if reason is None and not memory["turns"]:
        return RunEnd("failed", _why_nothing_ran(drafts), NOTHING_RAN)
    # a goal that was not met (G-12) and a turn without its whole result make the run partial
    is_met = reason == END_WHEN or workflow.end_when is None
    return RunEnd("success" if is_met and not memory.get("partial") else "partial", reason, code)


def _why_nothing_ran(drafts: Iterable[Draft]) -> str:
    skipped: list[Any] = [draft.payload for draft in drafts if draft.name == "agent:skipped"]
    if skipped:
        return "no agent ran: " + ", ".join(f"{each['agent']} was skipped ({each['reason']})" for each in skipped)
    return "no agent ran: none is activated by workflow:start"
