"""The commands and options of `helio db`."""

from __future__ import annotations

from typing import Any

from heliograph.cli.arguments import age, integer


def add_database(verbs: Any, command: Any) -> None:
    command(verbs, "install", "db:install", "install or upgrade the schema; a second call does nothing")
    url = command(verbs, "url", "db:url", "print the URL in use")
    url.add_argument("--show-password", action="store_true", help="with the password, for psql")
    url.add_argument("--hold", action="store_true", help="keep the embedded server running until interrupted")
    command(verbs, "sql", "db:sql", "print the schema as one SQL file")
    _add_roles(verbs, command)
    _add_maintenance(verbs, command)
    command(verbs, "doctor", "db:doctor", "check the server, the schema and every invariant of the data")


def _add_roles(verbs: Any, command: Any) -> None:
    grant = command(verbs, "grant", "roles:grant", "grant a login a role, or access to a project")
    grant.add_argument("login", metavar="LOGIN", help="a role of the database server")
    grant.add_argument("--role", metavar="ROLE", action="append", choices=("worker", "api", "reader"),
                       help="worker, api or reader; may be given several times")  # fmt: skip
    revoke = command(verbs, "revoke", "roles:revoke", "revoke a login's access to a project; without --project, to all")
    revoke.add_argument("login", metavar="LOGIN")
    command(verbs, "roles", "roles:roles", "list the logins with their roles and projects")


def _add_maintenance(verbs: Any, command: Any) -> None:
    prune = command(verbs, "prune", "maintenance:prune", "delete runs that ended long ago")
    prune.add_argument("--older-than", metavar="AGE", type=age("--older-than"), required=True,
                       help="the minimum time since the end: 30d, 12h, 90m")  # fmt: skip
    prune.add_argument("--batch", metavar="N", type=integer("--batch", 1, 10_000), default=1000,
                       help="rows of each kind in one transaction (1000)")  # fmt: skip
    prune.add_argument(
        "--dry-run", action="store_true", help="report what the first batch would delete, and delete nothing"
    )
    limits = command(verbs, "limits", "maintenance:limits", "show the limits of a project, or change some")
    limits.add_argument("changes", metavar="NAME=NUMBER", nargs="*", help="NAME=default restores the default")
    wires = command(verbs, "wires", "maintenance:wires", "list the wires that workers publish events to, or forget one")
    wires.add_argument("--forget", metavar="WIRE", help="remove this wire; no worker has it any more")
