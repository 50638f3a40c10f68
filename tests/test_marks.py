"""Tests are only left out before their collection if `-m` excludes all of them."""

from __future__ import annotations

import pytest

from tests.marks import excludes_more


@pytest.mark.parametrize(("expression", "expected"), [
    ("not more and not long", True), ("not more", True), ("not long and not more", True),
    ("", False), ("more and not long", False), ("not long", False), ("more or not more", False), ("not more or long", False),
    ("not moreover", False),
])  # fmt: skip
def test_expression_excludes_the_slow_half(expression: str, expected: bool) -> None:
    assert excludes_more(expression) is expected
