"""The names of a package, each loaded when first used: a program that only defines agents loads no driver and no model library."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; importing `typing` would slow down each start of `helio`

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy_names(module: str, homes: Mapping[str, Sequence[str]], others: Sequence[str] = ()) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module. homes: the modules that define its names, each with these names.

    others: its submodules with further names. The error for one of these names contains its module. It is an ImportError, because an
    import statement hides the message of an AttributeError.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        from importlib import import_module

        if name in home_of:
            return getattr(import_module(home_of[name]), name)
        if (other := _exporting(module, name, others)) is not None:
            raise ImportError(f"{module} has no name {name}: write `from {other} import {name}`", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return load


def _exporting(module: str, name: str, others: Sequence[str]) -> str | None:
    """The submodule that exports a name; None for the name of a submodule, which an import statement looks up as well."""
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("_") or not others or find_spec(f"{module}.{name}") is not None:
        return None
    return next((each for other in others if name in import_module(each := f"{module}.{other}").__all__), None)
