"""SIGTERM and SIGINT while `helio` starts: a process that owns no work yet ends at once.

The imports of a command take a few tenths of a second, and a supervisor may stop a process as soon as it has started it.
So `main` catches these signals before it imports anything large, and this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # type checkers take it for true; see heliograph/__init__.py

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

INTERRUPTED = 130
OPTIONS_WITH_VALUE = ("--database-url", "--project")  # those that may stand before the command
VERBS = {
    "run": ("start", "list", "show", "stop", "retry", "fork"),
    "worker": ("start", "list"),
}  # without a verb, the command is `start`


def catch_early_signals(arguments: Sequence[str]) -> None:
    """Until others replace these handlers, SIGINT ends the process with 130, and SIGTERM ends it with the code of `exit_code_at_sigterm`.

    Python handles signals in the main thread only: in any other thread this does nothing.
    """
    try:
        if (code := exit_code_at_sigterm(arguments)) is not None:
            signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(code))
        # an ignored SIGINT stays ignored: the command runs in the background
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, exit_at_sigint)
    except ValueError:  # not the main thread
        return


def exit_code_at_sigterm(arguments: Sequence[str]) -> int | None:
    """The exit code of a command that SIGTERM stops while it starts; None where SIGTERM keeps its default action."""
    words = _words(arguments)
    starts = len(words) > 1 and words[0] in VERBS and words[1] not in VERBS[words[0]][1:]
    if (
        (starts and words[0] == "worker")
        or words[:2] == ["signal", "send"]
        or (words[:2] == ["db", "url"] and "--hold" in arguments)
    ):
        return 0  # services, which SIGTERM stops
    return INTERRUPTED if starts else None


def exit_at_sigint(_number: int, _frame: FrameType | None) -> None:
    """End the process with 130, without a traceback."""
    os._exit(INTERRUPTED)


def end_at_sigint() -> None:
    """Let SIGINT end the process with 130, wherever it is."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_at_sigint)


def raise_at_sigint() -> None:
    """Restore Python's default: SIGINT raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is exit_at_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _words(arguments: Sequence[str]) -> list[str]:
    """The arguments that are neither options nor values of general options: first of them the command."""
    words: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value or argument.startswith("-"):
            is_value = not is_value and argument in OPTIONS_WITH_VALUE
        else:
            words.append(argument)
    return words
