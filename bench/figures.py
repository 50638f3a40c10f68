"""Figures of one measurement: a number with its target, and its ratio to a floor that was measured in the same run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bench.meter.sample import quantile
from bench.server_time import Times


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. floor: what the plainest form of the work takes, in the same unit; floor_name: its name. target: at most this."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    floor_name: str = ""
    target: float | None = None

    @property
    def is_met(self) -> bool:
        return self.target is None or self.value <= self.target

    def line(self) -> str:
        ratio = (
            ""
            if not self.floor
            else f"{self.value / self.floor:9.1f} x {self.floor_name} ({self.floor:.4g} {self.unit})"
        )
        verdict = "" if self.target is None else f"  target {self.target:g}: {'met' if self.is_met else 'MISSED'}"
        return f"{self.name:<58} {self.value:10.4g} {self.unit:<5} {ratio}{verdict}"


@dataclass(slots=True)
class Figures:
    """The figures of a run of the command, printed as they come."""

    found: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        self.found.append(figure)
        print(figure.line(), flush=True)

    def add_times(
        self,
        name: str,
        times: Times,
        floor: Times,
        floor_name: str,
        *,
        p50: float | None = None,
        p99: float | None = None,
    ) -> None:
        """Add the median and the p99, in milliseconds, each with the same quantile of the floor. p50, p99: the targets of the time that
        callers wait. The CPU time has no target: it is what the wait would be on an idle machine, without the disk and the wire."""
        for label, at, target in (("p50", 0.5, p50), ("p99", 0.99, p99)):
            self.add(
                Figure(
                    f"{name}, {label}",
                    1000 * quantile(times.waited, at),
                    "ms",
                    1000 * quantile(floor.waited, at),
                    floor_name,
                    target,
                )
            )
        for label, at in (("p50", 0.5), ("p99", 0.99)):
            self.add(
                Figure(
                    f"{name}, CPU, {label}",
                    1000 * quantile(times.cpu, at),
                    "ms",
                    1000 * quantile(floor.cpu, at),
                    floor_name,
                )
            )

    @property
    def missed(self) -> list[str]:
        return [each.name for each in self.found if not each.is_met]

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {**asdict(each), "ratio": each.value / each.floor if each.floor else None, "is_met": each.is_met}
            for each in self.found
        ]
