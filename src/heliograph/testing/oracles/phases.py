"""The oracle of phases: the signals of a turn's phases are in the log once each, in the order of the phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from heliograph.testing.kernel.tables import Row

_LETTERS = {"ready": "r", "plan_ready": "p", "action_complete": "a", "reflection_complete": "f", "terminated": "t"}
# another round begins at plan or at act; each phase may be the last before the end, and the kernel ends turns without a signal
_LEGAL = re.compile(r"(r(p(afp?)*a?)?)?t?")
_WHOLE = re.compile(r"rp(afp?)*aft")  # of a turn that has succeeded


def check_phases(blame: Callable[[str, str], None], log: Sequence[Row]) -> None:
    """Blame each turn whose phases repeat, skip or reverse their signals, or that succeeds without all of them."""
    phases: dict[str, list[str]] = {}
    succeeded = set[str]()
    for signal in log:
        if signal["agent_turn_id"] is not None and signal["name"] in _LETTERS:
            phases.setdefault(signal["agent_turn_id"], []).append(signal["name"])
            if signal["name"] == "terminated" and signal["payload"]["status"] == "success":
                succeeded.add(signal["agent_turn_id"])
    for turn_id, names in phases.items():
        legal = _WHOLE if turn_id in succeeded else _LEGAL
        if not legal.fullmatch("".join(_LETTERS[name] for name in names)):
            blame("phases_out_of_order", f"{turn_id}: {', '.join(names)}")
