"""Options of a chaos run: its load, the frequency of each fault, and named sets of options (gates).

The gates are those of the fault gates table. A gate also sets minimum counts, because a run with few faults proves little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """The options of a run. Fields ending in `_every` are the mean seconds between two faults of a kind; 0 disables the kind.

    runs: the maximum number of runs. At most `open_max` are open at a time, so a busy machine has a smaller load and not
        a longer queue.
    chaos_seconds: the faults stop after this time, or earlier when the last run has started.
    limit_seconds: the chaos run fails after this time.
    running_max: the limit of turns that run at once, below the workers' capacity.
    """

    runs: int = 200
    seed: int = 1
    workers: int = 4
    clients: int = 2
    concurrency: int = 8
    lease_seconds: float = 1.5
    start_every: float = 0.4
    open_max: int = 40
    slow_percent: int = 6
    chaos_seconds: float = 240.0
    limit_seconds: float = 600.0
    skew_minutes: float = 10.0
    disk_megabytes: int = 400
    running_max: int = 20

    kill_worker_every: float = 1.3
    kill_tool_every: float = 8.0
    kill_client_every: float = 6.0
    freeze_every: float = 3.0
    cut_every: float = 6.0
    hole_every: float = 10.0
    vanish_every: float = 25.0
    delay_every: float = 15.0
    pg_stop_every: float = 20.0
    disk_full_every: float = 40.0
    slow_fsync_every: float = 25.0
    nats_down_every: float = 14.0


@dataclass(frozen=True)
class Gate:
    """A named set of options. least: the minimum count of each fault or figure."""

    options: Options
    least: Mapping[str, int] = field(default_factory=dict)


GATES: Mapping[str, Gate] = {
    "mutant": Gate(  # short and dense; zombies: slow steps, frozen workers; a mutant shows where two owners overlap
        Options(runs=200, workers=3, clients=1, lease_seconds=0.7, slow_percent=25, start_every=0.25, open_max=14, running_max=14, chaos_seconds=10, limit_seconds=30,
                kill_worker_every=1.5, kill_tool_every=3.0, freeze_every=1.0, cut_every=0.8, hole_every=3.0, nats_down_every=8.0,
                pg_stop_every=0, disk_full_every=0, slow_fsync_every=0),
    ),
    "commit": Gate(
        Options(),
        {"turns": 2_000, "kill_worker": 60, "kill_tool": 10, "freeze": 15, "pg_stop": 1, "cut": 3, "nats_down": 2},
    ),
    "nightly": Gate(
        Options(runs=1_800, workers=5, kill_worker_every=0.8, freeze_every=3.0, pg_stop_every=30.0,
                cut_every=12.0, chaos_seconds=2_400, limit_seconds=3_000, disk_megabytes=1_500, disk_full_every=200.0),
        {"turns": 20_000, "kill_worker": 1_000, "kill_tool": 100, "freeze": 200, "pg_stop": 20, "cut": 40, "nats_down": 40,
         "disk_full": 2, "slow_fsync": 1, "stale_refused": 50},
    ),
    "release": Gate(
        Options(runs=17_500, workers=5, kill_worker_every=0.7, chaos_seconds=14_400, limit_seconds=16_000,
                disk_megabytes=8_000, disk_full_every=300.0),
        {"turns": 200_000, "kill_worker": 9_000, "freeze": 2_000, "pg_stop": 200, "cut": 500, "nats_down": 400,
         "disk_full": 10, "slow_fsync": 10, "stale_refused": 500},
    ),
}  # fmt: skip
