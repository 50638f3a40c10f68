"""The end of a turn, as input of a reaction. Pure."""

from __future__ import annotations

from msgspec import Struct

from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.types import Json, JsonObject


class Ending(Struct, frozen=True):
    """The end of a turn, as reported by its owner.

    drafts: signals that the turn emitted and that are not recorded yet. emitted: the agent's own signals; if empty, all
    declared signals are emitted with the output. is_untrusted: the turn has read untrusted content, so its output is
    untrusted.
    """

    agent: str
    turn_id: str
    activation_id: str
    outcome: Outcome
    card_id: str
    output: Json = None
    error: JsonObject | None = None
    drafts: tuple[Draft, ...] = ()
    emitted: tuple[tuple[str, Json], ...] = ()
    usage: tuple[int, int] = (0, 0)
    is_untrusted: bool = False
