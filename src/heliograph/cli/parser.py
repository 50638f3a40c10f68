"""An argument parser that raises InvalidInput, suggests the nearest name, and prints through `output`."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import Any

from heliograph.cli.output import block
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput


class Parser(argparse.ArgumentParser):
    """Parses command lines: raises InvalidInput for a wrong one, and prints through `output`.

    `parser` of its options is the parser of the command that was named.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.set_defaults(parser=self)

    def error(self, message: str) -> Any:
        raise InvalidInput(message, code="usage", hint=f"{self.prog} --help shows its arguments")

    def reject(self, unknown: str) -> None:
        """Raise InvalidInput for an argument that this command does not take."""
        nearest = get_close_matches(unknown.partition("=")[0], self._option_string_actions, n=1, cutoff=0.75)
        meant = f"; did you mean {nearest[0]}?" if nearest and unknown.startswith("-") else ""
        what = "option" if unknown.startswith("-") else "further argument"
        self.error(f"{self.prog} takes no {what} '{safe_repr(unknown)}'{meant}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse rejects a choice here; the error adds the nearest one
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        nearest = get_close_matches(str(value), choices, n=1)
        meant = f"; did you mean {nearest[0]}?" if nearest else ""
        if isinstance(action, argparse._SubParsersAction):
            raise InvalidInput(f"{self.prog} has no command '{safe_repr(value)}'{meant}", code="unknown_command",
                               hint=f"its commands: {', '.join(choices)}")  # fmt: skip
        option = "/".join(action.option_strings) or str(action.metavar)
        raise InvalidInput(f"{option} must be one of {', '.join(choices)}, not '{safe_repr(value)}'{meant}",
                           code="invalid_enum", path=option)  # fmt: skip

    def _print_message(self, message: str, _file: Any = None) -> None:
        block(message)
