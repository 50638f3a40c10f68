"""Parts of signals: their sources, patterns of their names, changes of the state, and a log drawn as a tree."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.signals.model import Source
    from heliograph.signals.pattern import compile_pattern
    from heliograph.signals.state_change import changed_value
    from heliograph.signals.trace import draw_tree

__all__ = ["Source", "changed_value", "compile_pattern", "draw_tree"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.signals.model": ("Source",),
            "heliograph.signals.pattern": ("compile_pattern",),
            "heliograph.signals.state_change": ("changed_value",),
            "heliograph.signals.trace": ("draw_tree",),
        },
    )
