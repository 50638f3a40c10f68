"""The lines of the benchmark's tables: each measured system with its works and loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench.agents_at_work import measure_agents, measure_in_memory, measure_peer_agents, measure_streams
from bench.beside import are_installed, measure_peer
from bench.floor import JOB, TURN, TURN_WITH_SIGNALS, Floor, measure_floor
from bench.full import WORKS, measure_heliograph
from bench.load import AGENTS, CHILDREN, CHILDREN_OF_AN_AGENT, ITEMS, RUN_OF_AGENTS, STEPS, STREAM, TOKENS_PER_SECOND
from bench.meter.sample import Sample
from bench.peers.catalog import CATALOG, Entry
from bench.place import Place
from bench.prototype import measure_prototype

ONE, SIXTEEN, MANY, SINGLE = "1 caller", "16 callers", "128 callers", "one at a time"
STREAMS = {"1 stream": 1, "16 streams": 16, "100 streams": 100}
LOADS = (ONE, SIXTEEN, MANY, SINGLE, *STREAMS)

TITLES = {
    "A": "one durable job", "B": "one durable turn with one suspended call",
    STEPS: "a step of a prompt agent: a model call and the tool call that it requests",
    CHILDREN: f"a child of {CHILDREN_OF_AN_AGENT} that one agent delegates to",
    RUN_OF_AGENTS: f"an agent of a run of {AGENTS:,}",
    STREAM: f"a token of an answer, {TOKENS_PER_SECOND} a second in each stream, to a follower in another process",
}  # fmt: skip
FLOOR, HELIOGRAPH, PEER, PROTOTYPE, IN_MEMORY = "floor", "heliograph", "peer", "prototype", "in memory"
AFTER = ", after "  # in the name of a line with a history
PACE = 50  # items a second of the floor "one at a time": about what Heliograph does under that load, with its pauses
BASES = {"A": "floor, three calls", "B": "floor, five calls"}

# (place, callers, seconds)
Measure = Callable[[Place, int, float], Awaitable[Sample]]


@dataclass(frozen=True)
class Contender:
    """One line of one work's table.

    kind: floor, heliograph, prototype or peer. loads: the functions that measure it, by the number of callers. setting: notes on its
    configuration. absent: the reason why it has no figures. is_whole: whether it does the whole work, so that a ratio to it
    is meaningful.
    """

    work: str
    name: str
    kind: str
    loads: Mapping[str, tuple[Measure, int]] = field(default_factory=dict)
    setting: str = ""
    absent: str = ""
    is_whole: bool = True


def contenders(histories: Mapping[int, str] | None = None) -> list[Contender]:
    """Return every line of both tables, in order. histories: URLs of databases by their number of finished turns."""
    lines = [
        _floor("A", BASES["A"], JOB),
        _floor("B", BASES["B"], TURN),
        _floor("B", "floor, five calls, signals", TURN_WITH_SIGNALS),
    ]
    for work in WORKS:
        lines += [_prototype(work), _heliograph(work, HELIOGRAPH), _with_worker(work)]
        lines += [_heliograph(work, f"{HELIOGRAPH}{AFTER}{n:,} turns", url) for n, url in (histories or {}).items()]
    lines += [_peer(work, entry) for entry in CATALOG for work in WORKS]
    return sorted(lines, key=lambda line: line.work) + _agents_at_work()


def _agents_at_work() -> list[Contender]:
    lines = [Contender(work, HELIOGRAPH, HELIOGRAPH, {SINGLE: (partial(measure_agents, work), 1)}) for work in ITEMS]
    lines += [Contender(STEPS, "pydantic-ai, in memory", IN_MEMORY, {SINGLE: (measure_in_memory, 1)}, "stores nothing")]
    lines += [
        Contender(
            work, entry.title, PEER, {SINGLE: (partial(measure_peer_agents, entry, work), 1)} if are_installed() else {}
        )
        for entry in CATALOG
        for work in entry.agents
    ]
    streams = {load: (measure_streams, n) for load, n in STREAMS.items()}
    return [
        *sorted(lines, key=lambda line: [*TITLES].index(line.work)),
        Contender(STREAM, HELIOGRAPH, HELIOGRAPH, streams),
    ]


def _floor(work: str, name: str, floor: Floor) -> Contender:
    measure = partial(measure_floor, floor)
    paced = partial(measure_floor, floor, per_second=PACE)
    return Contender(
        work, name, FLOOR, {ONE: (measure, 1), SIXTEEN: (measure, 16), SINGLE: (paced, 1)},
        f"one at a time: {PACE} a second",
    )  # fmt: skip


def _prototype(work: str) -> Contender:
    many, single = partial(measure_prototype, work), partial(measure_prototype, work, is_single=True)
    loads = {SIXTEEN: (many, 16), MANY: (many, 128), SINGLE: (single, 1)}
    return Contender(work, PROTOTYPE, PROTOTYPE, loads, "what a queue costs with neither a runtime nor guarantees")


def _heliograph(work: str, name: str, existing: str | None = None) -> Contender:
    many = partial(measure_heliograph, work, existing=existing)
    by_relation = partial(measure_heliograph, work, existing=existing, by_relation=True)
    single = partial(measure_heliograph, work, existing=existing, is_single=True)
    return Contender(
        work, name, HELIOGRAPH, {ONE: (many, 1), SIXTEEN: (by_relation, 16), MANY: (many, 128), SINGLE: (single, 1)}
    )


def _with_worker(work: str) -> Contender:
    single = partial(measure_heliograph, work, is_single=True, has_worker=True)
    return Contender(
        work,
        f"{HELIOGRAPH}, own worker",
        HELIOGRAPH,
        {SINGLE: (single, 1)},
        "the process that starts runs executes them, and waits for their results",
    )


def _peer(work: str, entry: Entry) -> Contender:
    absent = "no suspend" if work not in entry.works else "" if are_installed() else "not installed: make bench-peers"
    measure = partial(measure_peer, entry, work)
    loads = {} if absent else {SIXTEEN: (measure, 16), MANY: (measure, 128), SINGLE: (measure, 1)}
    return Contender(work, entry.title, PEER, loads, entry.setting, absent, entry.is_whole)
