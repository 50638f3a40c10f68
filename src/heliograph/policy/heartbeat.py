"""When a worker sends heartbeats, what they contain, and which of them the log of a run records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Self

from heliograph.types import Json, JsonObject

if TYPE_CHECKING:
    from heliograph.control.settings import HeartbeatSettings  # slow to import, and only callers with settings need it

IDLE = "idle"
_FIELDS = {  # of a policy, by the settings
    "enabled": "is_enabled", "interval_seconds": "interval_seconds", "timeout_seconds": "timeout_seconds",
    "missed_threshold": "missed_threshold",
}  # fmt: skip
_NEARLY_PERCENT = 90.0  # of a resource: the worker is degraded
_LATE_SECONDS = 1.0  # an event loop that was blocked for longer delays the other turns


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """The settings of a worker's heartbeats.

    is_enabled: False for a worker that registers, and then sends none. timeout_seconds: a heartbeat that takes longer is missed.
    missed_threshold: after so many missed ones in a row, the worker is unhealthy.
    """

    is_enabled: bool = True
    interval_seconds: float = 30.0
    timeout_seconds: float = 5.0
    missed_threshold: int = 3

    @classmethod
    def of(cls, own: HeartbeatSettings | None, applications: Sequence[HeartbeatSettings | None] = ()) -> Self:
        """Take each value from the worker's own settings, or else from those of its applications, or else the default.

        Of several applications, those with heartbeats count, and the smallest value of each setting. None stands for an
        application without settings: it counts with the defaults, so a larger interval of another one has no effect.
        """
        policies = [cls()._with(each) for each in applications] or [cls()]
        sending = [each for each in policies if each.is_enabled] or policies
        return cls(
            sending[0].is_enabled,
            min(each.interval_seconds for each in sending),
            min(each.timeout_seconds for each in sending),
            min(each.missed_threshold for each in sending),
        )._with(own)

    def _with(self, settings: HeartbeatSettings | None) -> Self:
        """Return this policy with the values that the settings have."""
        if settings is None:
            return self
        given = {_FIELDS[name]: getattr(settings, name) for name in _FIELDS if name in settings.model_fields_set}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a worker at a heartbeat. status: healthy, degraded or unhealthy."""

    status: str
    metrics: Mapping[str, float]
    warnings: Sequence[str]

    def payload(self, at: datetime, phase: str) -> JsonObject:
        """The payload of the control signal `heartbeat`. at: aware. phase: the phase of a turn, or `idle`."""
        metrics: dict[str, Json] = {**self.metrics}
        warnings: JsonObject = {"warnings": [*self.warnings]} if self.warnings else {}
        timestamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"timestamp": timestamp, "phase": phase, "status": self.status, "metrics": metrics, **warnings}


def assess(metrics: Mapping[str, float], late_seconds: float, lease_seconds: float) -> Health:
    """Return the health of a worker. late_seconds: the time for which the event loop did not run when the heartbeat was due."""
    warnings = []
    if (memory := metrics.get("memory_percent", 0.0)) >= _NEARLY_PERCENT:
        warnings.append(f"High memory usage: {memory:.0f} % of the limit")
    if (cpu := metrics.get("cpu_percent", 0.0)) >= _NEARLY_PERCENT:
        warnings.append(f"High CPU usage: {cpu:.0f} % of one processor")
    if (files := metrics.get("open_files_percent", 0.0)) >= _NEARLY_PERCENT:
        warnings.append(f"Approaching resource limits: {files:.0f} % of the open files")
    is_frozen = late_seconds >= lease_seconds  # then it has renewed no lease in time
    if late_seconds >= _LATE_SECONDS or is_frozen:
        warnings.append(f"The event loop did not run for {late_seconds:.1f} s: an agent or a tool blocks it")
    status = "unhealthy" if is_frozen else "degraded" if warnings else "healthy"
    return Health(status, metrics, warnings)


def is_logged(was_running_before: bool, logged: str | None, status: str) -> bool:
    """Whether the log of a run records a heartbeat of one of its turns: the first, and each change of the status.

    was_running_before: the turn was running at the previous heartbeat, too; a shorter turn has no heartbeat. logged: the status
    that the log has last recorded for this turn, None for none.
    """
    return was_running_before and status != logged
