"""The names of a package, each loaded when first used: a program that only defines agents loads no driver and no model library."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; importing `typing` would slow down each start of `helio`

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy_names(module: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module. homes: the modules that define its names, each with these names."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(home_of[name]), name)

    return load
