"""Grids of cases: `make test` runs some of them, `make test-more` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def mostly_more(cases: Iterable[Any], quick: Collection[int]) -> list[ParameterSet]:
    """Return the cases; all but those at the positions of `quick` are marked `more`. A tuple has several parameters."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if n in quick else pytest.mark.more)
        for n, case in enumerate(cases)
    ]
