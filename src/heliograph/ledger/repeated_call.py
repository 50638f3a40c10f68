"""Call a function of the kernel again while the database cannot be reached."""

from __future__ import annotations

from typing import Any

from heliograph.errors import StoreUnavailable
from heliograph.policy.retry import RetryPolicy
from heliograph.world.seam import World

RETRIES = 4
PATIENT_RETRIES = 18  # half a minute, so that finished work is not lost as long as its lease may last
_BETWEEN = RetryPolicy(initial_delay_seconds=0.05, max_delay_seconds=2.0, jitter=False)


async def call_repeated(world: World, function: str, *args: object, retries: int = RETRIES) -> Any:
    """Call a function whose second call has no effect. Raises StoreUnavailable after the last of `retries` repetitions."""
    for attempt in range(1, retries + 1):
        try:
            return await world.call(function, *args)
        except StoreUnavailable:
            await world.sleep(_BETWEEN.delay_seconds(attempt, function))
    return await world.call(function, *args)
