"""The recorded ends of phases, and the results that they pass to later phases. Pure.

A record has no value twice, because its size is limited: the plan, the results and the decision are in the working memory already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from heliograph.records import Wait
from heliograph.turn.events import PhaseEnded, Raised
from heliograph.types import Json, JsonObject

PHASE_END = re.compile(r"init|(?:plan|act|reflect)-[1-9][0-9]*")
_RESULTS = "action_results"
_KEY_OF_VALUE = {"plan": "current_plan", "reflect": "last_reflection"}  # in the working memory


class PhaseResults(Struct, frozen=True):
    """The results that earlier phases leave to the later ones, beside their signals.

    memory: the working memory. emitted: the agent's own signals. tokens: the input and output tokens of its models.
    deferrals: those of the turn before the last phase ended. sources: the untrusted content that it has read.
    """

    memory: JsonObject = field(default_factory=dict)
    emitted: tuple[tuple[str, Json], ...] = ()
    tokens: tuple[int, int] = (0, 0)
    deferrals: int = 0
    sources: tuple[str, ...] = ()

    def record(self, call_id: str, value: JsonObject | None, later: PhaseResults, following: str) -> JsonObject:
        """Return the recorded result of a phase that returned `value`. later: the results after it. following: the id of the next phase."""
        dropped: list[Json] = [key for key in self.memory if key not in later.memory]
        emitted: list[Json] = [[name, payload] for name, payload in later.emitted[len(self.emitted) :]]
        return {
            **_packed(call_id, value), "memory": _changes(self.memory, later.memory), "dropped": dropped, "emitted": emitted,
            "tokens": [later.tokens[0] - self.tokens[0], later.tokens[1] - self.tokens[1]], "deferrals": later.deferrals,
            "following": following,
        }  # fmt: skip

    def after(self, wait: Wait) -> PhaseResults:
        """The results after the phase of this record."""
        output = wait.content.get("output") if isinstance(wait.content, dict) else None
        sources = tuple(dict.fromkeys([*self.sources, *(wait.taint or ())]))
        if not isinstance(output, dict):  # a phase that failed leaves nothing
            return replace(self, sources=sources)
        kept = {key: value for key, value in self.memory.items() if key not in output["dropped"]}
        return PhaseResults(
            {**kept, **output["memory"]}, (*self.emitted, *((name, payload) for name, payload in output["emitted"])),
            (self.tokens[0] + output["tokens"][0], self.tokens[1] + output["tokens"][1]), output["deferrals"], sources,
        )  # fmt: skip


def phase_ends(waits: Sequence[Wait]) -> list[Wait]:
    """The recorded ends of phases, in their order."""
    found = [
        wait
        for wait in waits
        if wait.kind == "inline" and PHASE_END.fullmatch(wait.call_id) and wait.state == "resolved"
    ]
    return sorted(found, key=lambda wait: wait.resolved_position or 0)


def event_of(wait: Wait, memory: JsonObject) -> PhaseEnded | Raised:
    """The event of a recorded end. memory: the working memory after it."""
    content = wait.content if isinstance(wait.content, dict) else {}
    if wait.status == "success":
        return PhaseEnded(_unpacked(wait.call_id, content["output"], memory))
    error = content["error"]
    return Raised(error["outcome"], error["code"], error["message"], error["recoverable"], error["scope"],
                  error.get("details") or {})  # fmt: skip


def following_of(wait: Wait) -> str | None:
    """The id of the phase that followed a recorded end; None where the phase failed."""
    output = wait.content.get("output") if isinstance(wait.content, dict) else None
    return output.get("following") if isinstance(output, dict) else None


def ended_at(wait: Wait) -> datetime | None:
    """When a phase ended, by the clock of the worker that recorded it."""
    content = wait.content if isinstance(wait.content, dict) else {}
    at = (content.get("output") or content.get("error") or {}).get("ended_at")
    return None if at is None else datetime.fromisoformat(at)


def _packed(call_id: str, value: JsonObject | None) -> JsonObject:
    """The part of a phase's value that its working memory does not contain."""
    if _phase(call_id) in _KEY_OF_VALUE or value is None:
        return {}
    kept = {key: each for key, each in value.items() if key != "results"}
    last = _last_output(value.get("results"))
    if last is not None and _text(last[0]) == _text(value.get("output")):
        kept.pop("output", None)
    return {"value": kept}


def _unpacked(call_id: str, output: JsonObject, memory: JsonObject) -> JsonObject | None:
    value = output.get("value", memory.get(_KEY_OF_VALUE.get(_phase(call_id), "")))
    if not isinstance(value, dict):
        return None
    if _phase(call_id) != "act":
        return value
    results = memory.get(_RESULTS)
    last = _last_output(results)
    return {**({} if last is None else {"output": last[0]}), "results": results, **value}


def _last_output(results: Json) -> tuple[Json] | None:
    """The output of the last result; None if it has none."""
    last = results[-1] if isinstance(results, list) and results else None
    return (last["output"],) if isinstance(last, dict) and "output" in last else None


def _phase(call_id: str) -> str:
    return call_id.partition("-")[0]


def _changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> JsonObject:
    """Compared as JSON, because 0, 0.0 and False are equal in Python."""
    return {key: value for key, value in after.items() if key not in before or _text(before[key]) != _text(value)}


def _text(value: Json) -> bytes:
    return msgspec.json.encode(value, order="sorted")
