"""The workload: all applications, the model that they call, and their initial state.

Faults matter only with the right work: a zombie needs work that outlives its
lease, a lost update two turns that end together, a lost wake-up turns in a queue,
an early report a turn that is about to wait. `applications` and
`waiting_applications` have the applications, `clients` those around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.app import Heliograph
from heliograph.errors import HarnessError
from heliograph.harness.scripted import ScriptedModel
from heliograph.ports import ModelRequest
from heliograph.reactive.workflow import Workflow
from heliograph.testing.scenarios.applications import choir, errand, mill, wheel
from heliograph.testing.scenarios.building_blocks import Cast
from heliograph.testing.scenarios.waiting_applications import bench, clan, foundry
from heliograph.testing.simulator.world import SimWorld
from heliograph.types import JsonObject

SONG = "one two three four five six seven eight"
_WORDS = SONG.split()
APPLICATIONS: dict[str, Callable[[Cast], Heliograph]] = {
    "bench": bench, "choir": choir, "clan": clan, "errand": errand, "foundry": foundry, "mill": mill, "wheel": wheel,
}  # fmt: skip
FIRST_STATE: JsonObject = {"total": 0, "received": [], "nothing": None}


def make_workflows(cast: Cast) -> dict[str, Workflow]:
    return {name: make(cast).workflow for name, make in APPLICATIONS.items()}


def make_harness(world: SimWorld) -> Callable[[Any], ScriptedModel]:
    """Make a harness whose model streams a fixed text or is busy, in the virtual time of its process."""
    plan = world.stage.plan

    def reply(request: ModelRequest) -> str:
        if plan.draw("song/busy") < 0.1:
            raise HarnessError("the model is busy", recoverable=True)
        return " ".join(_WORDS[: 3 + plan.index("song", len(_WORDS) - 2)])

    return lambda _model: ScriptedModel(reply, pause=world.sleep, pause_seconds=plan.between("tempo", 0.01, 0.2))
