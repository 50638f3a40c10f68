"""The commands and options of `helio db`."""

from __future__ import annotations

from typing import Any

from heliograph.cli.arguments import age, integer
from heliograph.cli.shared_arguments import add_watch


def add_database(verbs: Any, command: Any) -> None:
    command(verbs, "install", "db:install", "install or upgrade the schema; a second call does nothing")
    url = command(verbs, "url", "db:url", "print the URL in use")
    url.add_argument("--show-password", action="store_true", help="show the password, for example for psql")
    url.add_argument(
        "--hold", action="store_true", help="install the schema, and keep the embedded server running until interrupted"
    )
    command(verbs, "sql", "db:sql", "print the schema as one SQL file")
    _add_roles(verbs, command)
    _add_maintenance(verbs, command)
    command(verbs, "doctor", "db:doctor", "check the server, the schema and every invariant of the data")


def _add_roles(verbs: Any, command: Any) -> None:
    grant = command(verbs, "grant", "roles:grant", "grant roles, projects and signals to a login",
                    example="helio db grant billing --role subscriber --project shop --signals 'order:*'")  # fmt: skip
    grant.add_argument("login", metavar="LOGIN", help="a login of the database server")
    grant.add_argument("--role", metavar="ROLE", action="append", choices=("worker", "api", "reader", "subscriber"),
                       help="worker, api, reader or subscriber; repeat the option for several")  # fmt: skip
    _add_patterns(
        grant, "let it subscribe to the signals of the projects that match this pattern; repeat it for several"
    )
    revoke = command(
        verbs, "revoke", "roles:revoke", "revoke a project from a login; without --project, revoke everything"
    )
    revoke.add_argument("login", metavar="LOGIN", help="a login of the database server")
    _add_patterns(revoke, "revoke only this pattern of signals of the projects; repeat it for several")
    command(verbs, "roles", "roles:roles", "list the logins with their roles, projects and signals")


def _add_patterns(command: Any, text: str) -> None:
    command.add_argument("--signals", metavar="PATTERN", action="append", default=[], help=text)


def _add_maintenance(verbs: Any, command: Any) -> None:
    prune = command(verbs, "prune", "maintenance:prune", "delete runs and turns that ended long ago")
    prune.add_argument("--older-than", metavar="AGE", type=age("--older-than"), required=True,
                       help="the minimum time since the end: 30d, 12h, 90m")  # fmt: skip
    prune.add_argument("--batch", metavar="N", type=integer("--batch", 1, 10_000), default=1000,
                       help="the number of rows of each kind in one transaction (1000)")  # fmt: skip
    prune.add_argument(
        "--dry-run", action="store_true", help="count the rows that the first batch would delete, and delete nothing"
    )
    limits = command(verbs, "limits", "maintenance:limits", "show the limits of a project, or change some")
    limits.add_argument(
        "changes", metavar="NAME=NUMBER", nargs="*", help="a new value of a limit; NAME=default restores the default"
    )
    wires = command(
        verbs, "wires", "maintenance:wires", "list the wires that events must reach, declare one or remove one"
    )
    wires.add_argument("--declare", choices=["postgres"], help="publish the events of turns on this wire from now on")
    wires.add_argument("--forget", metavar="WIRE", help="remove this wire, if no worker uses it any more")
    add_watch(command(verbs, "breakers", "maintenance:breakers", "list the circuit breakers of a project"))
    rates = command(verbs, "rates", "maintenance:rates", "list the rate limits of a project, or reset one")
    rates.add_argument("--reset", metavar=("KIND", "NAME"), nargs=2,
                       help="let this limit forget the calls that were stopped before their start")  # fmt: skip
