"""The registration of a worker before its first claim: its name for operators, its applications and pools, and its metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.ready_metadata import ready_metadata
from heliograph.policy.heartbeat import HeartbeatPolicy
from heliograph.process_metrics import ProcessMetrics
from heliograph.reactive.workflow import Workflow
from heliograph.types import JsonObject

_NAMES_MAX = 500  # of one registration, which each heartbeat repeats


@dataclass(frozen=True, slots=True)
class Registration:
    """The description of a worker, and how often it reports its health.

    label: several workers may share it. capabilities: its applications, and their agents as `application/agent`.
    pools: those that it serves. read_metrics: measures its process.
    """

    label: str
    version: str
    capabilities: Sequence[str]
    metadata: JsonObject
    policy: HeartbeatPolicy
    read_metrics: Callable[[], Mapping[str, float]]
    pools: Sequence[str] = (DEFAULT_POOL,)


def describe_worker(
    label: str,
    workflows: Sequence[Workflow],
    policy: HeartbeatPolicy,
    default_model: str | None = None,
    pools: Sequence[str] = (DEFAULT_POOL,),
) -> Registration:
    """Describe a worker of this process that serves these applications. default_model: see `ready_metadata`."""
    served = sorted({workflow.name: workflow for workflow in workflows}.items())
    names = (
        name for app, workflow in served for name in (app, *(f"{app}/{agent}" for agent in sorted(workflow.agents)))
    )
    metrics = ProcessMetrics()
    metadata = ready_metadata((agent for _, workflow in served for agent in workflow.agents.values()), default_model)
    if metrics.memory_limit_mb is not None:
        metadata["memory_mb"] = metrics.memory_limit_mb
    return Registration(
        label, _version(), tuple(islice(names, _NAMES_MAX)), metadata, policy, metrics.read, tuple(pools)
    )


@cache
def _version() -> str:
    """The version of Heliograph. It is read from a file that a copy of the source alone does not have."""
    try:
        return version("heliograph")
    except PackageNotFoundError:
        return "unknown"
