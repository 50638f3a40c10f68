"""A pytest plugin that runs each test `REPEAT` times. `make stress` uses it with more processes than cores.

This finds tests that depend on timing: docs/decisions/0021.
"""

from __future__ import annotations

import os

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("_repeat")
    metafunc.parametrize("_repeat", range(int(os.environ.get("REPEAT", "5"))))
