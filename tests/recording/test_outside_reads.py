"""Which values from outside a function reads."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

import pytest

from heliograph.recording.outside_reads import outside_reads


@pytest.mark.parametrize(
    ("read", "name"),
    [(time.time, "time.time"), (random.random, "random.random"), (lambda: random.randint(1, 9), "random.getrandbits"),
     (lambda: len("clock"), None)],
    ids=["clock", "chance", "chance in a library", "nothing"],
)  # fmt: skip
def test_reads_of_the_application_are_found(read: Callable[[], object], name: str | None) -> None:
    with outside_reads() as found:
        read()
    assert list(found) == ([] if name is None else [name])


def test_hook_that_collects_garbage_is_no_read_of_the_application() -> None:
    times = list[float]()

    def note(phase: str, info: object) -> None:
        times.append(time.time())

    gc.callbacks.append(note)
    before = len(gc.callbacks)
    try:
        with outside_reads() as found:
            gc.collect()
        assert (list(found), len(times), len(gc.callbacks)) == ([], 2, before)
        with outside_reads() as found:
            gc.collect()
            note("start", None)
        assert list(found) == ["time.time"]
    finally:
        gc.callbacks.remove(note)
