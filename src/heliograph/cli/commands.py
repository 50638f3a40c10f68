"""The grammar of the command line: `helio <noun> <verb>`, with all options.

This file and what it imports load no driver, no validation and no terminal
library: a command imports what it needs when it is called.
"""

from __future__ import annotations

import argparse
from typing import Any

from heliograph.cli.arguments import identifier, integer, reference, seconds
from heliograph.cli.db_arguments import add_database
from heliograph.cli.log_arguments import add_logs
from heliograph.cli.output import line
from heliograph.cli.parser import Parser
from heliograph.cli.run_arguments import add_bindings, add_manifests, add_runs, add_stopping, add_workers
from heliograph.cli.session_arguments import add_sessions
from heliograph.cli.shared_arguments import add_choice, add_filters, add_limit, add_scope, add_watch
from heliograph.cli.templates import TEMPLATES
from heliograph.manifest.schemas import KINDS
from heliograph.manifest.starters import STARTERS

SHELLS = ("bash", "zsh", "fish")  # of helio completion
LEVELS = ("parsed", "valid", "runnable")  # of helio validate
TOP_SORTS = ("age", "open", "waits", "tokens", "cost")
CALLBACK_STATES = ("due", "delivered", "dead")
TURN_STATUSES = (
    "queued", "dispatched", "running", "suspended", "done", "success", "partial", "failed", "timeout", "canceled",
)  # fmt: skip
_ENDINGS = "exit codes: 0 done, 1 failed, 2 misused, 3 not found, 4 rejected, 130 interrupted"


def command_parser() -> Parser:
    """Return the parser of all commands. `call` is `module:function` of this folder, imported when the command is chosen."""
    everywhere = _everywhere()
    parser = Parser(prog="helio", parents=[everywhere], epilog=_ENDINGS, allow_abbrev=False,
                    description="Durable, signal-driven agents on PostgreSQL.")  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    nouns = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(to: Any, name: str, call: str, text: str, example: str = "", **options: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = to.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[everywhere], allow_abbrev=False,
            epilog=f"example: {example}" if example else None, **options,
        )  # fmt: skip
        made.set_defaults(call=call)
        return made

    def noun(name: str, text: str) -> Any:
        made = nouns.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[everywhere],
                                allow_abbrev=False)  # fmt: skip
        return made.add_subparsers(metavar="COMMAND", required=True)

    add_runs(noun("run", "run an application: helio run FILE.py:app; list, show, stop, retry or fork runs"), command)
    add_workers(noun("worker", "serve applications: helio worker FILE.py:app; list workers"), command)
    _add_turns(noun("turn", "show turns, each one execution of an agent; or stop one"), command)
    _add_boxes(noun("box", "show the cards of a context box or an output box"), command)
    _add_calls(noun("call", "list or take open calls of turns, or report the result of one"), command)
    _add_approvals(noun("approval", "list open approvals and questions; grant, deny or answer one"), command)
    _add_callbacks(noun("callback", "list completion webhooks, or send one again"), command)
    _add_top(
        command(
            nouns, "top", "top:top", "show runs, agents, waits, tokens and money, live", example="helio top --app hello"
        )
    )
    _add_upgrade(noun("upgrade", "check new code before workers run it"), command)
    _add_applications(nouns, command)
    _add_validate(command(nouns, "validate", "validate:validate", "check manifests: parsed, valid, runnable"))
    _add_init(command(nouns, "init", "init:init", "write an application or a commented manifest to start from"))
    _add_exports(noun("export", "write an agent in another format"), command)
    _add_schema(command(nouns, "schema", "schema:show", "list the kinds of manifests, or print the JSON Schema of one"))
    _add_conformance(command(nouns, "conformance", "conformance:check", "run the black-box suite against a system"))
    add_sessions(nouns, command)
    add_logs(nouns, noun, command)
    add_database(noun("db", "install, inspect or maintain the database"), command)
    dev = command(nouns, "dev", "dev:dev", "serve an application, and start its worker again when a file is saved",
                  example="helio dev hello.py:app")  # fmt: skip
    dev.add_argument("app", metavar="FILE.py:app", help="the file, and the name of the application in it")
    completion = command(
        nouns, "completion", "completion:completion", "print a script that completes commands in a shell"
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"the shell: {', '.join(SHELLS)}")
    sim = nouns.add_parser("sim", help="run the runtime under seeded faults: see helio sim --help", add_help=False)
    sim.set_defaults(call="sim:main")
    return parser


def _everywhere() -> Parser:
    """Options that may stand before or after the command. An absent option sets no default, so both places work."""
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument("--database-url", metavar="URL", help="the database's URL; overrides HELIOGRAPH_DATABASE_URL")
    options.add_argument("--project", metavar="NAME", type=identifier("--project"), action="append",
                         help="the project's name; overrides HELIOGRAPH_PROJECT; worker, db grant and db revoke accept several")  # fmt: skip
    options.add_argument("--json", action="store_true", help="print one JSON object per line, also for errors")
    return options


def _add_top(top: argparse.ArgumentParser) -> None:
    top.add_argument(
        "--once", action="store_true", help="print the runs as they are now, and exit; --json does it, too"
    )
    top.add_argument("--app", metavar="NAME", help="only the runs of the application with this name")
    top.add_argument("--sort", choices=TOP_SORTS, default="age", help=f"the order: {', '.join(TOP_SORTS)} (age)")
    top.add_argument("--interval", type=seconds("--interval", 0.5, 3600), default=2.0, metavar="SECONDS",
                     help="the time between two reads (2)")  # fmt: skip
    add_limit(top, 100)


def _add_upgrade(verbs: Any, command: Any) -> None:
    check = command(verbs, "check", "upgrade:check", "check that the open turns continue with new code, without any effect",
                    example="helio upgrade check hello.py:app")  # fmt: skip
    check.add_argument("app", metavar="FILE.py:app", help="the new code of the application, or its manifest, FILE.yaml")
    check.add_argument("--run", metavar="RUN", type=reference("--run"), help="only the turns of this run")
    check.add_argument("--agent", metavar="NAME", type=identifier("--agent"), help="only the turns of this agent")
    check.add_argument("--timeout", type=seconds("--timeout", 0.1, 3600), default=10.0, metavar="SECONDS",
                       help="the time that the code has for one turn (10)")  # fmt: skip
    check.add_argument("--processes", type=integer("--processes", 1, 64), metavar="N",
                       help="check in N processes (one for each processor, at most 8)")  # fmt: skip
    add_bindings(check)
    add_manifests(check)


def _add_applications(nouns: Any, command: Any) -> None:
    check = command(nouns, "check", "application_graph:check", "check an application without running it, and print its warnings",
                    example="helio check hello.py:app")  # fmt: skip
    check.add_argument("--strict", action="store_true", help="exit with 1 if there are warnings")
    graph = command(nouns, "graph", "application_graph:graph", "print which agent wakes which",
                    example="helio graph hello.py:app --format mermaid")  # fmt: skip
    graph.add_argument("--format", choices=("text", "mermaid", "dot"), default="text",
                       help="text, mermaid, or dot for Graphviz (text)")  # fmt: skip
    for each in (check, graph):
        each.add_argument("app", metavar="FILE.py:app", help="the application, or the manifest of an agent, FILE.yaml")
        add_bindings(each)
        add_manifests(each)


def _add_validate(validate: argparse.ArgumentParser) -> None:
    validate.add_argument("files", metavar="FILE", nargs="+", help="the manifests")
    validate.add_argument("--level", choices=LEVELS, default="valid",
                          help=f"the level that every file must reach: {', '.join(LEVELS)} (valid)")  # fmt: skip
    add_bindings(validate)


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        choices=(*TEMPLATES, *STARTERS),
        default="tools",
        help=f"an application: {', '.join(TEMPLATES)}; or a manifest: {', '.join(STARTERS)} (tools)",
    )
    init.add_argument("--output", metavar="FILE", help=f"the file to write (app.py, {', '.join(STARTERS.values())})")


def _add_exports(verbs: Any, command: Any) -> None:
    ossa = command(verbs, "ossa", "export:ossa", "print an agent as a manifest of the Open Standard Agents")
    ossa.add_argument("app", metavar="FILE.py:app", help="the file, and the name of the application in it")
    ossa.add_argument("--agent", metavar="NAME", help="the agent, if the application has several with a prompt")


def _add_conformance(conformance: argparse.ArgumentParser) -> None:
    conformance.add_argument("ids", metavar="ID", nargs="*", help="requirements, or families of them like SIG (all)")
    conformance.add_argument("--surface", metavar="FILE.toml", help="the commands of the system (Heliograph itself)")
    conformance.add_argument("--keep", metavar="FOLDER", help="a new folder in which the logs of the runs remain")
    conformance.add_argument("--list", action="store_true", help="run nothing; list the checks")


def _add_schema(schema: argparse.ArgumentParser) -> None:
    schema.add_argument("kind", metavar="KIND", nargs="?", choices=KINDS, help=f"the kind: {', '.join(KINDS)}")


def _add_turns(verbs: Any, command: Any) -> None:
    turns = command(verbs, "list", "turn:list_turns", "list turns, the newest first")
    turns.add_argument("--run", metavar="RUN", type=reference("--run"), help="only those of this run")
    add_choice(turns, "--status", TURN_STATUSES, "with this status")
    add_filters(turns)
    add_limit(turns, 50)
    add_watch(turns)
    show = command(verbs, "show", "turn:show_turn", "show one turn: its cause, its owners, its calls and its cards")
    show.add_argument("turn", metavar="TURN", type=reference("TURN"), help="the id of the turn")
    add_watch(show)
    children = command(
        verbs, "children", "turn:list_children", "list the turns that a turn has delegated, with their status"
    )
    children.add_argument("turn", metavar="TURN", type=reference("TURN"), help="the id of the turn")
    add_watch(children)
    stop = command(verbs, "stop", "stop:stop_turn", "end a turn as canceled")
    stop.add_argument("turn", metavar="TURN", type=reference("TURN"), help="the id of the turn")
    add_stopping(stop)


def _add_boxes(verbs: Any, command: Any) -> None:
    show = command(verbs, "show", "box:show_box", "show a box: its cards in order, inherited ones first")
    show.add_argument("box", metavar="BOX", type=identifier("BOX"), help="the id of the box")
    add_watch(show)


def _add_calls(verbs: Any, command: Any) -> None:
    calls = command(verbs, "list", "calls:list_calls", "list the open calls of turns, the oldest first")
    calls.add_argument("--tool", metavar="TOOL", type=identifier("--tool"), help="only those of this tool")
    calls.add_argument("--run", metavar="RUN", type=reference("--run"), help="only those of this run")
    add_scope(calls, "were opened")
    add_limit(calls, 50)
    add_watch(calls)
    take = command(verbs, "take", "calls:take_calls", "take open calls of a tool, as the tool itself does, with their tokens",
                   example="helio call take stock_count --limit 5")  # fmt: skip
    take.add_argument("tool", metavar="TOOL", type=identifier("TOOL"), help="the name of the tool")
    take.add_argument("--pool", metavar="POOL", default="default",
                      help="the calls that a route sent to this pool (default)")  # fmt: skip
    take.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=1, metavar="N", help="take at most N calls (1)"
    )
    report = command(verbs, "report", "calls:report", "report the result of a call")
    report.add_argument("turn", metavar="TURN", type=reference("TURN"), help="the id of the turn")
    report.add_argument("call_id", metavar="CALL", type=identifier("CALL"), help="the id of the call")
    report.add_argument("--token", metavar="TOKEN", help="the token that came with the call")
    what = report.add_mutually_exclusive_group(required=True)
    what.add_argument("--result", metavar="JSON", help="the result as JSON")
    what.add_argument("--result-file", metavar="FILE", help="the file with the result as JSON")
    what.add_argument("--error", metavar="TEXT", help="the reason why the call failed")


def _add_approvals(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "approval:list_tasks", "list open approvals and questions, the oldest first")
    listed.add_argument("--run", metavar="RUN", type=reference("--run"), help="only those of this run")
    add_scope(listed, "were asked")
    add_limit(listed, 50)
    add_watch(listed)
    grant = _decision(verbs, command, "grant", "grant an approval")
    grant.add_argument("--arguments", metavar="JSON|@FILE", help="other arguments, if the tool allows changes")
    deny = _decision(verbs, command, "deny", "deny an approval, or decline to answer")
    deny.add_argument("--reason", metavar="TEXT", help="the reason, which the agent receives")
    answer = _decision(verbs, command, "answer", "answer a question, or enter the result of a call in doubt")
    what = answer.add_mutually_exclusive_group(required=True)
    what.add_argument("text", metavar="TEXT", nargs="?", help="the answer as text")
    what.add_argument("--value", metavar="JSON|@FILE", help="the answer as JSON, for a form")


def _add_callbacks(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "callback:list_callbacks", "list callbacks, the newest first")
    add_choice(listed, "--state", CALLBACK_STATES, "in this state")
    listed.add_argument("--run", metavar="RUN", type=reference("--run"), help="only those of this run")
    add_scope(listed, "became due for the first time")
    add_limit(listed, 50)
    add_watch(listed)
    again = command(verbs, "redeliver", "callback:redeliver", "send callbacks again, under the same ids")
    what = again.add_mutually_exclusive_group(required=True)
    what.add_argument("callback", metavar="CALLBACK", type=identifier("CALLBACK"), nargs="?",
                      help="the id of a callback")  # fmt: skip
    what.add_argument("--dead", action="store_true", help="send all dead callbacks, up to a thousand")


def _decision(verbs: Any, command: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = command(verbs, name, f"approval:{name}", text)
    made.add_argument("turn", metavar="TURN", type=reference("TURN"), help="the id of the turn")
    made.add_argument("call_id", metavar="CALL", type=identifier("CALL"), help="the id of the call")
    made.add_argument("--by", metavar="NAME", help="your name in the log (your login name)")
    return made


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow to import

        line(f"heliograph {version('heliograph')}")
        parser.exit()
