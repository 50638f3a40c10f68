"""The start of a run, recorded or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.execution.packed_commit import RECORDED, STARTED, commit_text
from heliograph.execution.tape import limits_of
from heliograph.ledger.rows import RecordingRow
from heliograph.reactive.react import react_to_start
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.workflow import Workflow
from heliograph.recording.options import RecordingOptions
from heliograph.turn.drafts import draft_items
from heliograph.types import JsonObject
from heliograph.world.seam import World


def start_of_run(
    world: World, workflow: Workflow, run_id: str, state: JsonObject, caller: Mapping[str, Any],
    record: RecordingOptions | None,
) -> tuple[Reaction, dict[str, Any]]:  # fmt: skip
    """Return the first reaction of a run, and the item that starts it, without its options.

    record: the name and the tags of its recording; None for a run that is not recorded.
    """
    if record is None:
        reaction = react_to_start(workflow, run_id, state, world.now(), world.new_id, caller)
        return reaction, _item(workflow, run_id, reaction)
    now = world.now()
    reads: list[Any] = [now]

    def new_id(kind: str) -> str:
        reads.append(("id", kind, identifier := world.new_id(kind)))
        return identifier

    reaction = react_to_start(workflow, run_id, state, now, new_id, {**caller, RECORDED: STARTED})
    item = _item(workflow, run_id, reaction)
    text, _ = commit_text(
        (
            "start",
            0,
            reads,
            1,
            "start_runs",
            limits_of(reaction.activations),
            [state, caller, reaction.memory],
        ),
        None,
    )
    item["recording"] = {"body": text, **record.item()}
    return reaction, item


def recorded_fork(reaction: Reaction, recording: RecordingRow | None) -> dict[str, Any]:
    """The keys with which a fork of a recorded run is recorded, too, under the same name. recording: of the run that is forked.

    The fork itself comes from outside, so its first signals have no inputs.
    """
    if recording is None or reaction.memory is None:
        return {}
    reaction.memory[RECORDED] = True
    return {"recording": RecordingOptions(recording.name, recording.tags).item()}


def _item(workflow: Workflow, run_id: str, reaction: Reaction) -> dict[str, Any]:
    return {
        "run_id": run_id, "target": workflow.name, "agents": sorted(workflow.agents), "signals": draft_items(reaction.drafts),
        "reaction": reaction.to_item(), "wakes_on_results": workflow.wakes_on_results,
    }  # fmt: skip
