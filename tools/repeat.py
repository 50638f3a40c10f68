"""A plugin of pytest that runs each test `REPEAT` times; `make stress` does so on more processes than there are cores.

What depends on the order in which things happen to happen, shows up sooner this way: docs/decisions/0021.
"""

from __future__ import annotations

import os

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("_repeat")
    metafunc.parametrize("_repeat", range(int(os.environ.get("REPEAT", "5"))))
