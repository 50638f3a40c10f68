"""Options that several lists share: filters, a limit, and `--watch`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from heliograph.cli.arguments import age, integer

OUTCOMES = ("success", "partial", "failed", "timeout", "canceled")


def add_filters(to: argparse.ArgumentParser) -> None:
    """Filters by outcome, application and age."""
    add_choice(to, "--outcome", OUTCOMES, "that ended so")
    add_scope(to)


def add_choice(to: argparse.ArgumentParser, option: str, choices: Sequence[str], which: str) -> None:
    """A filter by one of a few words. which: the objects that it selects, after `only those`."""
    to.add_argument(
        option, metavar=option.strip("-").upper(), choices=choices, help=f"only those {which}: {', '.join(choices)}"
    )


def add_scope(to: argparse.ArgumentParser, began: str = "started") -> None:
    """Filters by application and age. began: what happened within the age."""
    to.add_argument("--app", metavar="NAME", help="only those of the application with this name")
    to.add_argument(
        "--since", metavar="AGE", type=age("--since"), help=f"only those that {began} within this time: 30d, 12h, 90m"
    )


def add_limit(to: argparse.ArgumentParser, default: int) -> None:
    to.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=default, metavar="N", help=f"list at most N ({default})"
    )


def add_watch(to: argparse.ArgumentParser) -> None:
    to.add_argument("--watch", action="store_true", help="print it again whenever it has changed, until interrupted")
