"""Divide costly tests: `make test` runs some cases of a grid, `make test-more` the others; properties run a share of their examples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


def mostly_more(cases: Iterable[Any], quick: Collection[int]) -> list[ParameterSet]:
    """Return the cases; all but those at the positions of `quick` are marked `more`. A tuple has several parameters."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if n in quick else pytest.mark.more)
        for n, case in enumerate(cases)
    ]


def every(step: int, cases: Mapping[str, Any]) -> list[ParameterSet]:
    """Return the named cases; all but each `step`-th are marked `more`."""
    return [
        pytest.param(case, id=name, marks=() if n % step == 0 else pytest.mark.more)
        for n, (name, case) in enumerate(cases.items())
    ]


def share_of_examples(percent: int) -> settings:
    """Settings with `percent` of the examples of the profile: of 100 in `gate`, of 2,000 in `explore`."""
    return settings(max_examples=settings().max_examples * percent // 100)
