"""The peers that the benchmark compares with Heliograph: their settings and the works that they support.

It imports none of them, because it is also used where they are not installed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A peer. key: names its class in `bench.peers`. is_whole: whether it keeps each result, as the works require. A peer
    that does not is listed, but not compared with. agents: its works of agents (`bench.load`)."""

    key: str
    title: str
    package: str
    setting: str
    works: str = "AB"
    is_whole: bool = True
    agents: str = ""


CATALOG = (
    Entry(
        "dbos-direct", "DBOS, direct", "dbos",
        "start_workflow in the callers' process, no queue; 20 connections; a suspended workflow is a task in memory",
        agents="PFR",
    ),
    Entry(
        "dbos-queue", "DBOS, queue, 20 ms poll", "dbos",
        "polled every 20 ms (default 1 s); a worker process, 20 connections each side; "
        "a suspended workflow is a task in memory",
    ),
    Entry(
        "absurd", "Absurd, 20 ms poll", "absurd-sdk",
        "polled every 20 ms (default 250 ms); 4 workers in a process, 8 tasks at once each; 16 connections of callers",
    ),
    Entry(
        "langgraph", "LangGraph, sync", "langgraph-checkpoint-postgres",
        "durability sync, in the callers' process: no queue, no fence; 8 savers, as one runs its statements in turn",
        agents="PFR",
    ),
    Entry(
        "procrastinate", "procrastinate, keeps no result", "procrastinate",
        "a worker process, 16 jobs at once, NOTIFY; 16 connections each side",
        "A", is_whole=False,
    ),
    Entry(
        "pgqueuer", "pgqueuer, keeps no result", "pgqueuer",
        "durable tables, autovacuum as it advises; a worker process, batches of 10, NOTIFY; 16 connections of callers",
        "A", is_whole=False,
    ),
)  # fmt: skip
