"""Parse the command line, call the command, and turn its error into text and an exit code.

This file and what it imports load no driver, no validation and no terminal
library: a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from typing import Any

from heliograph.cli.commands import command_parser
from heliograph.cli.early_signals import INTERRUPTED, exit_code_at_sigterm, raise_at_sigint
from heliograph.cli.errors import NothingYet, report
from heliograph.cli.interrupts import exit_on_signals, exit_past_agents, restored_handlers
from heliograph.cli.output import OutputClosed, abandon, flush, note, open_closed_streams, use_utf8
from heliograph.errors import HeliographError, InvalidInput
from heliograph.redaction import keep_keys_out

_URL_VARIABLE = "HELIOGRAPH_DATABASE_URL"
_VERBS_OF_RUNS = ("stop", "halt", "fork", "retry")
_HELP = frozenset(("-h", "--help"))
_OF_SEVERAL_PROJECTS = ("worker:work", "roles:grant", "roles:revoke")


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code. A program that calls it gets its signal handlers back."""
    with restored_handlers():
        return _run_command(arguments)


def _run_command(arguments: list[str]) -> int:
    try:
        if (code_at_sigterm := exit_code_at_sigterm(arguments)) is not None:
            exit_on_signals(code_at_sigterm)
        open_closed_streams()
        use_utf8()
        code = _dispatch(arguments)
        flush()
    except (OutputClosed, BrokenPipeError):
        abandon(sys.stdout)
        code = 0
    except NothingYet as nothing:
        note(nothing.message)
        code = nothing.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = report(error, as_json="--json" in arguments)
    exit_past_agents(code)
    return code


def _dispatch(arguments: list[str]) -> int:
    parser = command_parser()
    arguments = arguments or ["--help"]
    if not _HELP.isdisjoint(arguments):  # argparse prints the help of `run` as soon as it reads --help
        arguments = with_plural(arguments)
    try:
        options, rest = parser.parse_known_args(arguments)
    except SystemExit as end:  # after --help and --version
        return int(end.code or 0)
    if options.call == "run:run" and options.app in _VERBS_OF_RUNS:
        return _dispatch(_of_runs(arguments, options.app))
    if options.call == "worker:work" and options.apps[0] == "list":
        return _dispatch(_of_workers(arguments))
    # settings are read from the environment only, so options are written into it
    if hasattr(options, "database_url"):
        if not options.database_url:
            raise InvalidInput("--database-url is empty; give a URL like postgresql://user@host/database", code="invalid_url",
                               path="--database-url")  # fmt: skip
        os.environ[_URL_VARIABLE] = options.database_url
    if hasattr(options, "project"):
        if len(options.project) > 1 and options.call not in _OF_SEVERAL_PROJECTS:
            raise InvalidInput(
                "--project may be given only once; only helio worker, helio db grant and helio db revoke accept several",
                code="usage",
                path="--project",
            )
        os.environ["HELIOGRAPH_PROJECT"] = options.project[0]
    keep_keys_out(os.environ)
    if options.call == "sim:main":  # it parses its own options, including --help
        return _call(options.call, rest)
    if rest:
        options.parser.reject(rest[0])
    options.json = getattr(options, "json", False)
    try:
        return _call(options.call, options)
    except HeliographError as error:
        if hasattr(options, "database_url") and _URL_VARIABLE in error.message:
            error.message = error.message.replace(_URL_VARIABLE, "--database-url")
            error.path = error.path or "--database-url"
        raise


def with_plural(arguments: list[str]) -> list[str]:
    """Rewrite `helio run fork --help` to `helio runs fork --help`, and `helio worker list --help` to `helio workers --help`."""
    pairs = list(pairwise(arguments))
    if verb := next((verb for noun, verb in pairs if noun == "run" and verb in _VERBS_OF_RUNS), None):
        return _of_runs(arguments, verb)
    return _of_workers(arguments) if ("worker", "list") in pairs else arguments


def _of_runs(arguments: list[str], verb: str) -> list[str]:
    """Rewrite `helio run stop RUN` to `helio runs stop RUN`. No application is named by a verb: they are FILE.py:app."""
    at = max(n for n, each in enumerate(arguments[: arguments.index(verb)]) if each == "run")
    return [*arguments[:at], "runs", *arguments[at + 1 :]]


def _of_workers(arguments: list[str]) -> list[str]:
    """Rewrite `helio worker list` to `helio workers`. No application is named `list`: they are FILE.py:app."""
    last = max(n for n, each in enumerate(arguments) if each == "list")
    at = max(n for n, each in enumerate(arguments[:last]) if each == "worker")
    rest = arguments[at + 1 :]
    rest.remove("list")
    return [*arguments[:at], "workers", *rest]


def _call(command: str, argument: Any) -> int:
    module, _, function = command.partition(":")
    called = getattr(import_module(f"heliograph.cli.{module}"), function)
    raise_at_sigint()  # not before: Python drops a KeyboardInterrupt in a weak reference's callback, and imports run such callbacks
    return int(called(argument))
