"""Logs for tests of the player: generated ones, and the plainest possible fold, which copies and joins everything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from heliograph.signals.model import Signal, Source
from heliograph.types import Json

AT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
RUN = "r"
PHASE_AFTER = {"ready": "plan", "plan_ready": "act", "action_complete": "reflect", "terminated": "terminate"}


def signal(
    seq: int, name: str, agent: str | None = None, parent: int | str | None = None, payload: Json = None, at: float | None = None
) -> Signal:  # fmt: skip
    """The signal at `seq`. parent: a position, or an id. at: seconds after the start; a tenth per position if not given."""
    parent_id = f"sig_{RUN}_{parent}" if isinstance(parent, int) else parent
    source = Source(agent, parent_id) if agent is not None or parent is not None else None
    seconds = 0.1 * (seq - 1) if at is None else at
    return Signal(f"sig_{RUN}_{seq}", name, payload, AT + timedelta(seconds=seconds), source, RUN, seq)


HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [None, 7, "text", [1], {}, {"content": 3}, {"content": "\x1b]0;x\x07"}, {"id": 1}, {"id": ["x"], "usage": 1}, {"agent": 5},
     {"usage": {"inputTokens": True, "outputTokens": -4, "costUsd": "free"}}, {"usage": {"inputTokens": 10**30}},
     {"fraction": "half"}, {"value": {"/a": 1}, "parts": True}, {"outcome": ["x"]}, {"outcome": "odd"}, {"state": 4}, {"decision": 0}, {"content": "x", "offset": "y"}]
)  # fmt: skip
NAMES = ("workflow:start", "workflow:forked", "workflow:terminating", "workflow:end", "agent:activated", "agent:skipped", "agent:completed", "agent:failed",
         "agent:progress", "harness:start", "harness:end", "harness:error", "text:delta", "text:complete", "thinking:delta",
         "thinking:complete", "tool:call", "tool:result", "delegation", "delegation_response", "ready", "plan_ready", "action_complete",
         "reflection_complete", "terminated", "state:a:changed", "state::changed", "halt", "heartbeat", "own:name")  # fmt: skip


@st.composite
def wild_logs(draw: st.DrawFn) -> list[Signal]:
    """Logs with any name at any place: orphans, strangers, parents in the future, hostile payloads, and a front that was pruned."""
    first = draw(st.sampled_from([1, 1, 40]))
    signals = []
    for seq in range(first, first + draw(st.integers(0, 40))):
        parent = draw(
            st.one_of(st.none(), st.integers(max(1, first - 3), seq + 1), st.just("sig_other_3"), st.just("odd"))
        )
        agent = draw(st.sampled_from(["a", "b", None]))
        payload: Any = draw(
            st.one_of(
                HOSTILE, st.just({"id": "c", "content": "ab", "agent": "a", "status": "success", "state": {"k": 1}})
            )
        )
        signals.append(signal(seq, draw(st.sampled_from(NAMES)), agent, parent, payload, at=draw(st.floats(0, 9))))
    return signals


@st.composite
def sound_logs(draw: st.DrawFn) -> list[Signal]:
    """Logs of agents that stream, call tools and end, interleaved as in a run, and perhaps cut off at the end."""
    log = [signal(1, "workflow:start", payload={"state": {"topic": "x", "a": 0}})]
    scripts = {name: _script(draw, name) for name in ("a", "b", "c")}
    own: dict[str, dict[str, int]] = {name: {"start": 1} for name in scripts}
    while any(scripts.values()) and len(log) < 120:
        agent = draw(st.sampled_from(sorted(name for name, script in scripts.items() if script)))
        name, parent, payload = scripts[agent].pop(0)
        log.append(signal(len(log) + 1, name, agent, own[agent].get(parent, 1), payload))
        own[agent][name] = len(log)
    if draw(st.booleans()):
        log.append(signal(len(log) + 1, "workflow:end", None, 1, {"outcome": "success", "state": {}}))
    return log[: draw(st.integers(1, len(log)))]


def _script(draw: st.DrawFn, agent: str) -> list[tuple[str, str, Json]]:
    script: list[tuple[str, str, Any]] = []
    for turn in range(draw(st.integers(0, 2))):
        script.append(("agent:activated", "start", {"agent": agent}))
        script.append(("ready", "agent:activated", {}))
        for _ in range(draw(st.integers(0, 2))):
            script.append(("harness:start", "agent:activated", {"model": "m"}))
            for kind in ("thinking", "text"):
                parts = draw(st.lists(st.sampled_from(["one ", "two ", "ü", "\x1b[31m"]), max_size=4))
                offsets = [len("".join(parts[:n])) for n in range(len(parts))]
                script += [(f"{kind}:delta", "harness:start", {"content": part, "offset": at})
                           for part, at in zip(parts, offsets, strict=True)]  # fmt: skip
                if draw(st.booleans()):
                    script.append((f"{kind}:complete", "harness:start", {"content": "".join(parts)}))
            script.append(draw(st.sampled_from([
                ("harness:end", "harness:start", {"usage": {"inputTokens": 3, "outputTokens": 4, "costUsd": 0.25}}),
                ("harness:error", "harness:start", {"code": "X"}),
            ])))  # fmt: skip
            call = {"id": f"c{turn}", "name": "search", "input": {"q": 1}}
            script.append(("tool:call", "agent:activated", call))
            if draw(st.booleans()):
                script.append(
                    (
                        "tool:result",
                        "agent:activated",
                        {"id": f"c{turn}", "name": "search", "status": "success", "output": 5},
                    )
                )
        if draw(st.booleans()):
            script.append(("agent:completed", "agent:activated", {"agent": agent, "output": 1}))
            script.append((f"state:{agent}:changed", "agent:completed", {"value": turn}))
    return script


def plain_fold(log: Sequence[Signal], upto: int) -> dict[str, Any]:  # noqa: PLR0912  one branch per signal
    """What a snapshot of a sound log says, computed by copying: the texts, calls, usage, phases and state after position `upto`."""
    state: dict[str, Any] = {}
    agents: dict[str, dict[str, Any]] = {}
    status = "new"
    for each in log[:upto]:
        payload: Any = each.payload
        if each.name == "workflow:start":
            state, status = dict(payload["state"]), "running"
        if each.name == "workflow:end":
            status = "ended"
        if each.agent is None:
            continue
        one = agents.setdefault(each.agent, {"text": ("", None), "thinking": ("", None), "open": {}, "done": [], "tokens": (0, 0),
                                             "cost": 0.0, "phase": None, "ended": 0, "pending": []})  # fmt: skip
        kind, _, rest = each.name.partition(":")
        match each.name:
            case "text:delta" | "thinking:delta":
                text, stream = one[kind]
                one[kind] = ((text if stream == each.parent else "") + payload["content"], each.parent)
            case "text:complete" | "thinking:complete":
                one[kind] = (payload["content"], each.parent)
            case "agent:activated":
                one["pending"].append(each.id)
            case "ready":
                one["pending"].remove(each.parent)
                one["phase"] = "plan"
            case "harness:end":
                one["tokens"] = (one["tokens"][0] + 3, one["tokens"][1] + 4)
                one["cost"] += 0.25
            case "tool:call":
                one["open"][payload["id"]] = each.id
            case "tool:result":
                one["done"].append((one["open"].pop(payload["id"], None), payload["output"]))
            case "agent:completed":
                one["ended"], one["phase"], one["open"] = one["ended"] + 1, None, {}
        if kind == "state":
            state[rest.removesuffix(":changed")] = payload["value"]
    return {"state": state, "status": status, "agents": agents}
