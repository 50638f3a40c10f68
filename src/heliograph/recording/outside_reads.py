"""Find out which values from outside a function reads: the clock, chance, files. The ledger has none of them."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_TIME = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime")
_READS = {
    *(("time", name) for name in _TIME),
    ("posix", "urandom"),
    ("nt", "urandom"),
    ("_io", "open"),
    ("io", "open"),
}
_METHODS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("Random", "random"),
            ("Random", "getrandbits"), ("SystemRandom", "random")}  # fmt: skip
_OWN = str(Path(__file__).resolve().parents[1])
_LIBRARY = sysconfig.get_paths()["stdlib"]


@contextmanager
def outside_reads() -> Iterator[dict[str, str]]:
    """Collect the functions that the code of the application calls and whose values come from outside, in their order.

    The values are the places of their first calls, `FILE:LINE`.
    """
    found: dict[str, str] = {}
    is_collecting = False  # garbage: the hooks of other libraries run then, at any place, and some read the clock

    def on_event(frame: FrameType, event: str, arg: Any) -> None:
        if (
            event == "c_call"
            and not is_collecting
            and (name := _name_of(arg)) is not None
            and (place := _place_in_application(frame)) is not None
        ):
            found.setdefault(name, place)

    def on_start(phase: str, info: Any) -> None:
        nonlocal is_collecting
        is_collecting = is_collecting or phase == "start"

    def on_stop(phase: str, info: Any) -> None:
        nonlocal is_collecting
        is_collecting = is_collecting and phase != "stop"

    before = sys.getprofile()
    gc.callbacks.insert(0, on_start)
    gc.callbacks.append(on_stop)
    sys.setprofile(on_event)
    try:
        yield found
    finally:
        sys.setprofile(before)
        gc.callbacks.remove(on_start)
        gc.callbacks.remove(on_stop)


def _name_of(function: Any) -> str | None:
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, type):
        return next((f"{known}.{name}" for base in owner.__mro__ if (known := base.__name__, name) in _METHODS), None)
    module = getattr(function, "__module__", None)
    if (module, name) in _READS:
        return f"{str(module).lstrip('_')}.{name}"
    return next((f"random.{name}" for base in type(owner).__mro__ if (base.__name__, name) in _METHODS), None)


def _place_in_application(frame: FrameType | None) -> str | None:
    """The place of the caller; None if it is this package, or the standard library on its own behalf."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith((_OWN, "<frozen")):
            return None
        if not path.startswith(_LIBRARY) or "site-packages" in path:
            return f"{path.removeprefix(f'{Path.cwd()}{os.sep}')}:{frame.f_lineno}"
        frame = frame.f_back
    return None
