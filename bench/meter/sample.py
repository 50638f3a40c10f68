"""One measurement: what it counted, and the figures per item that the tables print."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

RATE = "items/s"
SERVER, BACKGROUND, WORKER, CALLER, CPU = (f"{role} µs" for role in ("server", "background", "worker", "caller", "CPU"))
P50, P99, RESUME_P50, RESUME_P99 = "p50 ms", "p99 ms", "resume p50 ms", "resume p99 ms"
COMMITS, FSYNCS, WAL, FULL_PAGES, OTHERS = "commits", "fsyncs", "WAL B", "full pages B", "others"


@dataclass(frozen=True)
class Done:
    """The result of a load. latencies: seconds from the request of an item to its stored result. resumes: the part of each
    after the report."""

    items: int
    latencies: Sequence[float] = ()
    resumes: Sequence[float] = ()


@dataclass(frozen=True)
class Sample:
    """The result of one repetition.

    commits: of transactions that wrote. fsyncs: of the log. wal_bytes: of the whole server's log without full pages.
    cpu: seconds by role (`bench.meter.processes`). others: processors that the rest of the machine used, on average.
    relations: wal_bytes by relation, where they were asked for.
    """

    done: Done
    seconds: float
    commits: int = 0
    fsyncs: int = 0
    wal_bytes: int = 0
    full_page_bytes: int = 0
    cpu: Mapping[str, float] = field(default_factory=dict)
    others: float = 0.0
    relations: Mapping[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Return the figures by name: per item, except rates, latencies and `others`."""
        items = self.done.items
        found = {
            RATE: items / self.seconds, COMMITS: self.commits / items, FSYNCS: self.fsyncs / items,
            WAL: self.wal_bytes / items, FULL_PAGES: self.full_page_bytes / items, OTHERS: self.others,
        }  # fmt: skip
        for role, seconds in self.cpu.items():
            found[f"{role} µs"] = 1e6 * seconds / items
        if self.cpu:
            found[CPU] = 1e6 * sum(self.cpu.values()) / items
        for (half, most), values in {
            (P50, P99): self.done.latencies,
            (RESUME_P50, RESUME_P99): self.done.resumes,
        }.items():
            if values:
                found[half], found[most] = (1000 * quantile(values, at) for at in (0.5, 0.99))
        return found


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repetitions, and the quartiles between which half of them lie."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))

    def text(self, form: str | Callable[[float], str]) -> str:
        """Format it as "median (low to high)", or as the median alone if they are equal."""
        low, median, high = (
            form(each) if callable(form) else format(each, form) for each in (self.low, self.median, self.high)
        )
        return median if low == high else f"{median} ({low} to {high})"


def quantile(values: Sequence[float], at: float) -> float:
    return statistics.median(values) if at == 0.5 else sorted(values)[int(at * (len(values) - 1))]
