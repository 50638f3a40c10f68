"""Parse the command line, call the command, and turn its error into text and an exit code.

This file and what it imports load no driver, no validation and no terminal
library: a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from heliograph.cli.commands import command_parser
from heliograph.cli.early_signals import INTERRUPTED, OPTIONS_WITH_VALUE, VERBS, exit_code_at_sigterm, raise_at_sigint
from heliograph.cli.errors import NothingYet, report
from heliograph.cli.interrupts import exit_on_signals, exit_past_agents, restored_handlers
from heliograph.cli.output import OutputClosed, abandon, flush, note, open_closed_streams, use_utf8
from heliograph.errors import HeliographError, InvalidInput
from heliograph.redaction import keep_keys_out

_URL_VARIABLE = "HELIOGRAPH_DATABASE_URL"
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
    arguments = with_verb(arguments or ["--help"])
    try:
        options, rest = parser.parse_known_args(arguments)
    except SystemExit as end:  # after --help and --version
        return int(end.code or 0)
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
    from heliograph.cli.references import call_with_references  # late: --help and --version need none

    try:
        return call_with_references(options, lambda: _call_watched(options))
    except HeliographError as error:
        if hasattr(options, "database_url") and _URL_VARIABLE in error.message:
            error.message = error.message.replace(_URL_VARIABLE, "--database-url")
            error.path = error.path or "--database-url"
        raise


def with_verb(arguments: list[str]) -> list[str]:
    """Rewrite the short forms `helio run FILE.py:app` and `helio worker FILE.py:app` to `run start` and `worker start`.

    No application is named like a verb: they are FILE.py:app.
    """
    if (at := _command_at(arguments, 0)) is None or arguments[at] not in VERBS:
        return arguments
    next_at = _command_at(arguments, at + 1)
    if next_at is None or arguments[next_at] in (*VERBS[arguments[at]], *_HELP):
        return arguments
    return [*arguments[: at + 1], "start", *arguments[at + 1 :]]


def _command_at(arguments: list[str], start: int) -> int | None:
    """The place of the first argument that is neither a general option nor its value."""
    at = start
    while at < len(arguments):
        if arguments[at] in OPTIONS_WITH_VALUE:
            at += 2
        elif arguments[at] == "--json" or arguments[at].startswith(tuple(f"{each}=" for each in OPTIONS_WITH_VALUE)):
            at += 1
        else:
            return at
    return None


def _call_watched(options: Any) -> int:
    """Call a command, again and again with `--watch`."""
    if not getattr(options, "watch", False):
        return _call(options.call, options)
    from heliograph.cli.watch import watch  # late: few commands need it

    return watch(lambda: _call(options.call, options), as_json=options.json)


def _call(command: str, argument: Any) -> int:
    module, _, function = command.partition(":")
    called = getattr(import_module(f"heliograph.cli.{module}"), function)
    raise_at_sigint()  # not before: Python drops a KeyboardInterrupt in a weak reference's callback, and imports run such callbacks
    return int(called(argument))
