"""What `helio db` takes: its commands and their options."""

from __future__ import annotations

from typing import Any

from heliograph.cli.arguments import age, integer


def add_database(verbs: Any, command: Any) -> None:
    command(verbs, "install", "db:install", "install or upgrade the schema; a second call does nothing")
    url = command(verbs, "url", "db:url", "print the URL in use")
    url.add_argument("--show-password", action="store_true", help="with the password, for psql")
    url.add_argument("--hold", action="store_true", help="keep the embedded server running until interrupted")
    command(verbs, "sql", "db:sql", "print the whole schema as one file")
    _add_roles(verbs, command)
    _add_maintenance(verbs, command)
    command(verbs, "doctor", "db:doctor", "examine the server, the schema and every invariant of the data")


def _add_roles(verbs: Any, command: Any) -> None:
    grant = command(verbs, "grant", "roles:grant", "let a login do a service, or bind it to a project")
    grant.add_argument("login", metavar="LOGIN", help="a role of the database server")
    grant.add_argument("--role", metavar="ROLE", action="append", choices=("worker", "api", "reader"),
                       help="worker, api or reader; may be given several times")  # fmt: skip
    revoke = command(verbs, "revoke", "roles:revoke", "take a project from a login; without --project all that it has")
    revoke.add_argument("login", metavar="LOGIN")
    command(verbs, "roles", "roles:roles", "list the logins, what they may do and where")


def _add_maintenance(verbs: Any, command: Any) -> None:
    prune = command(verbs, "prune", "maintenance:prune", "forget what ended long ago")
    prune.add_argument("--older-than", metavar="AGE", type=age("--older-than"), required=True,
                       help="how long ago it ended, at least: 30d, 12h, 90m")  # fmt: skip
    prune.add_argument("--batch", metavar="N", type=integer("--batch", 1, 10_000), default=1000,
                       help="rows of each kind in one transaction (1000)")  # fmt: skip
    prune.add_argument("--dry-run", action="store_true", help="say what the first batch would take, and keep it")
    limits = command(verbs, "limits", "maintenance:limits", "show the limits of a project, or change some")
    limits.add_argument("changes", metavar="NAME=NUMBER", nargs="*", help="NAME=default takes a change back")
    wires = command(verbs, "wires", "maintenance:wires", "list the wires that events have to reach, or forget one")
    wires.add_argument("--forget", metavar="WIRE", help="no worker has this wire any more")
