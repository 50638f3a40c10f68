"""Compare a signal that a replayed turn emits with the signal of the log that it should be: for turns that nobody recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.codes import IN_DOUBT
from heliograph.json_differences import Difference, differences
from heliograph.key_patterns import without_secrets
from heliograph.recording.compared_values import ordered, plain
from heliograph.recording.expected_signals import CAUSED, is_outside
from heliograph.signals.model import Signal
from heliograph.turn.drafts import parent_id
from heliograph.types import JsonObject


@dataclass(frozen=True, slots=True)
class ComparedDraft:
    """Both sides of a signal, and what differs; without times, ids and values from outside."""

    recorded: JsonObject
    replayed: JsonObject
    differences: tuple[Difference, ...]

    @property
    def is_in_doubt(self) -> bool:
        """Whether the turn fails on both sides because it is not known whether the effect of a call happened."""
        return _is_in_doubt(self.recorded) and _is_in_doubt(self.replayed)


def replayed_side(draft: Mapping[str, Any]) -> JsonObject:
    """A draft as it is compared."""
    return {"name": draft["name"], "payload": plain(draft.get("payload", {})), "agent": draft.get("agent"),
            "trust": draft.get("trust", "trusted")}  # fmt: skip


def compared_draft(
    draft: Mapping[str, Any], signal: Signal, before: Sequence[Signal | None], *, is_untrusted: bool
) -> ComparedDraft:
    """Compare a draft with its signal. before: the signals of the drafts before it in the same commit.

    Of an activation and a skip, the cause is compared, too: a reaction decides by which signal an agent wakes.
    """
    replayed = replayed_side(draft)
    recorded: JsonObject = {"name": signal.name, "payload": without_secrets(signal.payload), "agent": signal.agent,
                            "trust": "untrusted" if is_untrusted else "trusted"}  # fmt: skip
    if draft["name"] in CAUSED and (cause := _cause(draft.get("parent"), signal.run_id, before)) is not None:
        recorded, replayed = {**recorded, "parent": signal.parent}, {**replayed, "parent": cause}
    found = differences(ordered(recorded), ordered(replayed))
    return ComparedDraft(recorded, replayed, tuple(each for each in found if not is_outside(draft["name"], each.path)))


def _cause(parent: Any, run_id: str, before: Sequence[Signal | None]) -> str | None:
    """The id of the signal that caused a draft; None if it is not known."""
    if not isinstance(parent, int):
        return parent_id(run_id, 0, parent)
    found = before[parent]
    return None if found is None else found.id


def _is_in_doubt(signal: JsonObject) -> bool:
    payload: Any = signal["payload"]
    return signal["name"] == "error" and payload.get("error_code") == IN_DOUBT
