"""Names that simulated runs must reach: one that no kernel call can produce would fail each long simulation."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from heliograph.records import BeginResult, Reported, WriteResult
from heliograph.testing.simulator.coverage import SOMETIMES, SOMETIMES_MAINTAINED

_RECORDS: dict[str, Any] = {
    **dict.fromkeys(("release", "append", "finish", "record_call", "suspend", "defer", "replace_boxes"), WriteResult),
    "begin_call": BeginResult,
    "report": Reported,
}
_NO_OUTCOMES = ("together", "resumed", "applied by suspend")


@pytest.mark.parametrize("function", _RECORDS)
def test_required_outcomes_are_outcomes_of_the_function(function: str) -> None:
    outcomes = get_args(get_type_hints(_RECORDS[function])["outcome"])
    required = [
        name.removeprefix(f"{function} ")
        for name in SOMETIMES | SOMETIMES_MAINTAINED
        if name.startswith(f"{function} ")
    ]
    assert required
    assert [name for name in required if name not in _NO_OUTCOMES and name.split()[0] not in outcomes] == []


def test_rejected_calls_are_required_by_the_outcome_that_the_kernel_returns() -> None:
    assert [name for name in SOMETIMES | SOMETIMES_MAINTAINED if " refused " in name] == []
