"""`helio sim ...`: the simulator parses all arguments after `sim`."""

from __future__ import annotations

import errno
import sys

from heliograph.cli.output import OutputFailed, abandon
from heliograph.cli.parser import Parser


def main(arguments: list[str]) -> int:
    from heliograph.testing.simulator.cli import main as simulate

    try:
        return simulate(arguments, Parser)
    except OSError as error:
        if error.errno == errno.ENOSPC:  # the simulator writes only its own lines
            abandon(sys.stdout)
            raise OutputFailed(error) from None
        raise
