"""Measure the checkout on PYTHONPATH, which may be of an earlier commit: a child process of `bench.compare`.

Reads a JSON line from stdin (url, bin, work, callers, seconds, is_single) and prints the figures of `bench.meter`, which is the one of
this checkout on both sides. It imports only names of that checkout that earlier commits have too.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def use_this_meter() -> None:
    """Make `bench.meter` the package beside this file, in every checkout."""
    folder = Path(__file__).with_name("meter")
    spec = spec_from_file_location("bench.meter", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    sys.modules["bench.meter"] = module_from_spec(spec)


use_this_meter()

from bench.full import measure_heliograph  # noqa: E402  they import the meter
from bench.meter.meter import Meter  # noqa: E402
from bench.meter.sample import Sample  # noqa: E402
from bench.place import Place  # noqa: E402


class MeasuredPlace(Place):
    """A place that measures with the meter beside this file."""

    async def measure(self, work: Callable[[], Awaitable[Any]], **_: Any) -> Sample:
        return await Meter(self.url, self.bin).measure(work)


async def measure(cell: dict[str, Any]) -> dict[str, float]:
    place = MeasuredPlace(cell["url"], Path(cell["bin"]))
    sample = await measure_heliograph(
        cell["work"], place, cell["callers"], cell["seconds"], is_single=cell["is_single"]
    )
    return sample.figures()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(json.loads(sys.stdin.readline())))))
