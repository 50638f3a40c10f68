"""What the option `-m` of pytest excludes, for those who need to know it before the tests are collected."""

from __future__ import annotations

import re


def excludes_more(expression: str) -> bool:
    """Whether `-m` excludes all tests with the mark `more`. With an `or`, it may select some of them."""
    return re.search(r"\bnot more\b", expression) is not None and re.search(r"\bor\b", expression) is None
