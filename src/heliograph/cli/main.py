"""Entry of the command line `helio`: catch early signals, then import and run the command."""

from __future__ import annotations

import sys

from heliograph.cli.early_signals import catch_early_signals

TYPE_CHECKING = False  # type checkers take it for true; see heliograph/__init__.py

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without `arguments`, use those of the process and catch its signals."""
    if arguments is None:
        arguments = sys.argv[1:]
        catch_early_signals(arguments)
    from heliograph.cli.dispatch import run_command

    return run_command(list(arguments))


if __name__ == "__main__":
    sys.exit(main())
