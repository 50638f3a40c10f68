"""The administrators of a simulated kernel: they set limits, store and fork boxes, and prune."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from heliograph.testing.scenarios.building_blocks import LONG
from heliograph.testing.simulator.world import SimWorld

# Small enough to affect the applications, large enough for runs to end.
_SMALL = {
    "queue_max": 1, "depth_max": 1, "fan_out_max": 1, "cards_max": 2, "waits_max": 2, "payload_bytes_max": 3_000,
    "card_bytes_max": 100, "result_bytes_max": 3_000, "blob_bytes_max": 3_000, "running_max": 2, "deferrals_max": 1,
    "dispatch_seconds_max": 6,
}  # fmt: skip


async def administer(world: SimWorld, function: str, *args: object) -> Any:
    """Make one call as an administrator, without faults."""
    await world.sleep(0.001)
    return world.stage.execute(world.process.name, function, args)


async def set_limits(world: SimWorld, project: str) -> None:
    """In some seeds, set some limits to small values."""
    plan = world.stage.plan
    if plan.draw("limits") < 0.55:
        chosen = {limit: small for limit, small in _SMALL.items() if plan.draw(f"limits/{limit}") < 0.35}
        await administer(world, "set_limits", project, chosen)


async def prune_old_turns(world: SimWorld, project: str) -> None:
    """In some seeds, prune turns that ended a few seconds ago."""
    plan = world.stage.plan
    if plan.draw("prune") > 0.4:
        return
    while True:
        await world.sleep(plan.between("prune", 1.0, 8.0))
        before = world.now() - timedelta(seconds=plan.between("prune/age", 0.5, 6.0))
        await administer(world, "prune", project, before, (1, 3, 1000)[plan.index("prune/limit", 3)])


async def use_boxes(world: SimWorld, project: str) -> None:
    """Put boxes, fork them and the boxes of turns, and read them. Turns use them only by mistake."""
    plan = world.stage.plan
    while not world.stage.is_calm:
        await world.sleep(plan.between("shelf", 0.5, 5.0))
        box_id = f"shelf_{plan.index('shelf/box', 4)}"
        way = plan.draw("shelf/way")
        if way < 0.45:
            content = "x" * LONG if plan.draw("shelf/long") < 0.3 else plan.index("shelf/content", 2)
            card_id = "card_taken" if plan.draw("shelf/card") < 0.25 else None
            card = {"card_id": card_id, "kind": "note", "content": content}
            await administer(world, "put_boxes", project, [{"box_id": box_id, "cards": [card]}])
        elif way < 0.9:
            known = sorted(world.stage.judge.books.turns) or ["turn_nobody"]
            turn_id = known[plan.index("shelf/turn", len(known))]
            base = (f"box_{turn_id}", f"shelf_{plan.index('shelf/base', 5)}")[plan.index("shelf/kind", 2)]
            fork = {
                "box_id": box_id,
                "base_box_id": base,
                "writer_turn_id": (None, None, turn_id)[plan.index("shelf/writer", 3)],
            }
            for _ in range(2 if plan.draw("shelf/twice") < 0.2 else 1):
                await administer(world, "fork_boxes", project, [fork])
        else:
            await administer(world, "read_box", project, box_id, 0, 10)
