"""`python -m bench.state_growth`: how the log of a run grows with a value in its state, by the shape of the value.

Adds 1,000 times to the value of each shape. Prints the mean bytes of `state:book:changed` in the first and in the last tenth of the
additions, and their ratio. Prints the same for signals with the whole value, which versions before decision 0180 recorded (for a
list: before 0145). The database is a new embedded one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from heliograph import Context, Heliograph

TEXT = "a message of a conversation that goes on, number {:05}"
Reducer = Callable[[Any, str], Any]
SHAPES: dict[str, tuple[Any, Reducer]] = {
    "a list": ([], lambda old, new: [*old, new]),
    "an object": ({}, lambda old, new: {**old, new[-5:]: {"text": new}}),
    "a list in an object": (
        {"title": "tides", "texts": [], "count": 0},
        lambda old, new: {**old, "texts": [*old["texts"], new], "count": old["count"] + 1},
    ),
    "lists in an object": ({"ann": [], "ben": [], "eve": []}, lambda old, new: {**old, shortest(old): [*old[shortest(old)], new]}),
    "a text": ("", lambda old, new: old + new),
}  # fmt: skip


def shortest(lists: dict[str, list[str]]) -> str:
    return min(lists, key=lambda name: len(lists[name]))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state_growth", description=__doc__)
    parser.add_argument(
        "additions", type=int, nargs="?", default=1000, metavar="N", help="additions to each value (1000)"
    )
    options = parser.parse_args(arguments)
    print(f"{'value':<20} {'recorded: first tenth, last, ratio':>36} {'whole values':>36}")
    with tempfile.TemporaryDirectory(prefix="heliograph-growth-") as home:
        os.environ["HELIOGRAPH_HOME"] = home
        os.environ.pop("HELIOGRAPH_DATABASE_URL", None)
        for name, (start, reducer) in SHAPES.items():
            print(f"{name:<20} {asyncio.run(measure(start, reducer, options.additions))}", flush=True)
    return 0


async def measure(start: Any, reducer: Reducer, additions: int) -> str:
    """Add to a value this many times in one run. Return the two columns of its line."""
    app = Heliograph(
        "growth", reducers={"book": reducer, "count": lambda old, new: old + new}, max_activations=additions + 1
    )

    @app.agent(
        activate_on=["workflow:start", "state:book:changed"],
        when=lambda state: state["count"] < additions,
        updates=["book", "count"],
    )
    def writer(ctx: Context) -> dict[str, Any]:
        return {"book": TEXT.format(ctx.state["count"]), "count": 1}

    result = await app.run({"book": start, "count": 0})
    payloads = [each.payload for each in result.signals if each.name == "state:book:changed"]
    values = [start]
    for number in range(additions):
        values.append(reducer(values[-1], TEXT.format(number)))
    if result.state["book"] != values[-1] or len(payloads) != additions:
        raise SystemExit(f"the run has {len(payloads)} changes, and ended {result.outcome}")
    return "".join(_column([len(msgspec.json.encode(each)) for each in found])
                   for found in (payloads, [{"value": each} for each in values[1:]]))  # fmt: skip


def _column(sizes: Sequence[int]) -> str:
    tenth = len(sizes) // 10
    first, last = (statistics.fmean(part) for part in (sizes[:tenth], sizes[-tenth:]))
    return f"{first:14.1f} {last:12.1f} {last / first:8.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
