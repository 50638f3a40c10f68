"""The ratios of the benchmarks: to peers, and to other versions of a checkout."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench import compare, sides
from bench.meter.processes import ROLES
from bench.meter.sample import RATE, Done, Sample, Spread
from bench.plot import draw
from bench.report import Row, ratios, row_of
from bench.works import (
    BASES,
    FLOOR,
    HELIOGRAPH,
    MANY,
    PEER,
    PROTOTYPE,
    SIXTEEN,
    Contender,
)
from tests.reach.test_bench import HEADER


def test_ratio_to_the_best_peer_excludes_peers_that_store_no_result() -> None:
    def line(name: str, kind: str, rate: int, *, is_whole: bool = True) -> tuple[Contender, Row]:
        contender = Contender("A", name, kind, is_whole=is_whole)
        cpu = dict.fromkeys(ROLES, rate / 4e6)
        return contender, row_of(contender, SIXTEEN, [Sample(Done(rate), 1.0, cpu=cpu)])

    made = [
        line(BASES["A"], FLOOR, 1000),
        line("ours", HELIOGRAPH, 3000),
        line(PROTOTYPE, PROTOTYPE, 500),
        line("slow", PEER, 100),
        line("fast", PEER, 300),
        line("forgetful", PEER, 2000, is_whole=False),
    ]
    found = ratios([row for _, row in made], [contender for contender, _ in made], "A")
    ours, forgetful = found["ours", SIXTEEN], found["forgetful", SIXTEEN]
    assert (ours.floor, ours.peer, ours.prototype) == (3.0, 10.0, 6.0)
    assert ours.floor_cpu == pytest.approx(4.0)  # four processes beside the server of the floor
    assert (forgetful.floor, forgetful.peer) == (2.0, 2000 / 300)


def test_plot_has_a_bar_for_each_rate_with_the_length_of_its_logarithm() -> None:
    rows = [
        Row("A", "<ours>", HELIOGRAPH, SIXTEEN, figures={RATE: Spread.of([10_000.0])}),
        Row("A", "<ours>", HELIOGRAPH, MANY, figures={RATE: Spread.of([100_000.0])}),
        Row("A", "theirs", PEER, SIXTEEN, figures={RATE: Spread.of([100.0])}),
        Row("A", "theirs", PEER, MANY, problem="failed"),
    ]
    picture = ElementTree.fromstring(draw(HEADER, rows))  # noqa: S314  our own
    space = "{http://www.w3.org/2000/svg}"
    words = ["".join(each.itertext()) for each in picture.iter(f"{space}text")]
    assert {"<ours>", "theirs", "10,000", "Work A: one durable job"} <= set(words)
    assert any("abc1234" in each for each in words)
    lengths = [float(each.attrib["width"]) for each in picture.iter(f"{space}rect")][-3:]
    decade = lengths[1] - lengths[0]
    assert lengths[2] == pytest.approx(lengths[0] - 2 * decade, abs=0.2)


def test_ratio_of_a_comparison_is_the_median_of_its_rounds() -> None:
    before, now = ([{"items/s": each} for each in side] for side in ((100.0, 10.0, 1.0), (110.0, 12.0, 0.5)))
    assert compare.ratios(before, now, "items/s") == "1.100 (0.800 to 1.150)"


def test_sides_of_a_comparison_are_measured_in_each_order() -> None:
    order: list[str] = []

    def measure(side: str) -> dict[str, float]:
        order.append(side)
        return {"items/s": float(len(order))}

    found = sides.measure_in_rounds(["a", "b", "c"], 3, measure)
    assert "".join(order) == "cbabcabac"
    assert {name: len(each) for name, each in found.items()} == {"a": 3, "b": 3, "c": 3}
