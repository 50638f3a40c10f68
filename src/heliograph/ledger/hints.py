"""Who has work because of a kernel call, as far as its item says so: for those who watch the wire (L0-105, G-72)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def woken_by(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The ids of the agents that these items wake, or give back to others. What only the kernel knows is left out."""
    for item in items:
        run_id = item.get("run_id") or str(item.get("agent_id", "")).partition("/")[0]
        if "delay_seconds" in item or ("epoch" in item and len(item) == 3):  # deferred, or released as it is
            yield item["agent_id"]
        if "agent" in item:  # a message
            yield _agent_id(run_id, item)
        for activation in (item.get("reaction") or {}).get("activations", ()):
            yield _agent_id(run_id, activation)
        for call in item.get("calls", ()):
            if call.get("child") is not None:
                yield _agent_id(run_id, call["child"])


def _agent_id(run_id: str, woken: Mapping[str, Any]) -> str:
    return "/".join(part for part in (run_id, woken["agent"], woken.get("instance")) if part)
