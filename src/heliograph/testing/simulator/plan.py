"""The source of every decision of a simulated run: the seed.

The address of a decision is its site and the number of earlier decisions there. A masked fault therefore does not
shift the others, which makes shrinking possible. Scheduling is the exception: its decisions form one stream, and a
deviation from first come, first served is addressed by its position.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping

# a lost ring only delays work, so these faults need no horizon
LASTING = frozenset({"bell_lost", "bell_lost_often"})


class Plan:
    """The decisions of one seed.

    rates: by fault kind, the probability at each place where it may happen.
    horizon_seconds: virtual time after which no fault happens, so that all work can end.
    faults: if given, only these fault ids fire. deviations: if given, only these scheduling positions deviate.
    """

    def __init__(
        self, seed: int, rates: Mapping[str, float], horizon_seconds: float, *,
        faults: Iterable[str] | None = None, deviations: Iterable[int] | None = None,
    ):  # fmt: skip
        self.seed = seed
        self.fired: list[str] = []
        self.deviated: list[int] = []
        self._rates = rates
        self.horizon_seconds = horizon_seconds
        self._faults = None if faults is None else frozenset(faults)
        self._deviations = None if deviations is None else frozenset(deviations)
        self._draws: dict[str, int] = {}
        self._scheduling = random.Random(f"{seed}/scheduling")  # noqa: S311  the point is that it can be repeated
        self._position = 0

    def draw(self, site: str) -> float:
        """A number from 0 up to 1, for the next decision at `site`."""
        return self._draw(site)[1]

    def fixed(self, site: str) -> float:
        """A number from 0 up to 1, always the same at this `site`: for functions that run again and must decide the same."""
        return self._number(site, "fixed")

    def between(self, site: str, low: float, high: float) -> float:
        return low + (high - low) * self.draw(site)

    def index(self, site: str, count: int) -> int:
        """Draw one of 0 .. count - 1."""
        return int(self.draw(site) * count)

    def name(self, kind: str) -> str:
        """An id that does not sort by the time of its creation."""
        return f"{kind}_{int(self.draw(f'id/{kind}') * 36**8):08x}{self._draws[f'id/{kind}']}"

    def fault(self, site: str, kinds: Iterable[str], now: float) -> str | None:
        """Return the kind of fault that happens at `site` this time, or None."""
        ordinal, number = self._draw(site)
        for kind in kinds:
            if now > self.horizon_seconds and kind not in LASTING:
                continue
            number -= self._rates.get(kind, 0.0)
            if number < 0:
                fault_id = f"{kind}@{site}#{ordinal}"
                if self._faults is not None and fault_id not in self._faults:
                    return None
                self.fired.append(fault_id)
                return kind
        return None

    def choose(self, count: int) -> int:
        """Choose which of `count` ready callbacks runs next; 0 is the one that waited longest."""
        self._position += 1
        chosen = int(self._scheduling.random() * count)
        if chosen == 0 or (self._deviations is not None and self._position not in self._deviations):
            return 0
        self.deviated.append(self._position)
        return chosen

    def _draw(self, site: str) -> tuple[int, float]:
        ordinal = self._draws.get(site, 0)
        self._draws[site] = ordinal + 1
        return ordinal, self._number(site, ordinal)

    def _number(self, site: str, ordinal: int | str) -> float:
        digest = hashlib.blake2b(f"{self.seed}/{site}/{ordinal}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64
