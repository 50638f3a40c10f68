"""The reaction to new signals: signals, state changes and activations that commit together. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from heliograph.records import Outcome, RunStatus, RunView
from heliograph.signals.model import Draft
from heliograph.types import JsonObject


class Reaction(Struct):
    """The drafts, in log order, and the changes of the run that commit together.

    stops: the open turns that a terminating run stops: {turns, reason}, where turns is `all`, or `human_waits` for the turns that
    only wait for people. keeps_taint: the kernel keeps the untrusted keys that the run has recorded, because the reaction may
    have been computed without the run's memory.
    """

    version: int
    drafts: list[Draft] = field(default_factory=list)
    state: JsonObject | None = None
    memory: dict[str, Any] | None = None
    status: RunStatus | None = None
    outcome: Outcome | None = None
    activations: list[dict[str, Any]] = field(default_factory=list)
    stops: JsonObject | None = None
    keeps_taint: bool = False

    def to_item(self) -> dict[str, Any]:
        """The `reaction` part of a kernel call's item, without the unchanged parts. The version is a key of the item itself."""
        item: dict[str, Any] = {"activations": self.activations}
        for key in ("state", "memory", "status", "outcome", "stops"):
            value = getattr(self, key)
            if value is not None:
                item[key] = value
        if self.keeps_taint:
            item["keeps_taint"] = True
        return item

    def applied_to(self, view: RunView, closed: int) -> RunView:
        """The run view after this reaction has committed and ended `closed` turns."""
        return RunView(
            view.run_id,
            self.status or view.status,
            view.version + 1,
            view.state if self.state is None else self.state,
            view.memory if self.memory is None else self.memory,
            view.open_turns - closed + len(self.activations),
            view.pending_reactions,
            view.activations + len(self.activations),
        )
