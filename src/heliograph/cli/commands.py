"""The grammar of the command line: `helio <noun> <verb>`, with all options.

This file and what it imports load no driver, no validation and no terminal
library: a command imports what it needs when it is called.
"""

from __future__ import annotations

import argparse
from typing import Any

from heliograph.cli.arguments import identifier, integer, run_id, seconds
from heliograph.cli.db_arguments import add_database
from heliograph.cli.log_arguments import add_logs
from heliograph.cli.output import line
from heliograph.cli.parser import Parser
from heliograph.codes import USER_INTERRUPT
from heliograph.definitions.ranges import GRACE_SECONDS_MAX
from heliograph.manifest.schemas import KINDS
from heliograph.manifest.starters import STARTERS

LEVELS = ("parsed", "valid", "runnable")  # of helio validate
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

    _add_run(
        command(
            nouns,
            "run",
            "run:run",
            "run an application or a manifest until its run ends, or resume a run; stop, fork or retry one",
        )
    )
    _add_runs(command(nouns, "runs", "runs:list_runs", "list runs, the newest first; stop, fork or retry one"), command)
    _add_worker(command(nouns, "worker", "worker:work", "serve applications until stopped"))
    _add_workers(command(nouns, "workers", "workers:list_workers", "list workers with their health; probe them"))
    _add_turns(noun("turn", "show turns, each one execution of an agent; or stop one"), command)
    _add_boxes(noun("box", "show the cards of a context box or an output box"), command)
    _add_calls(command(nouns, "calls", "calls:list_calls", "list the open calls of turns, or take some"))
    _add_report(command(nouns, "report", "calls:report", "report the result of a call"))
    _add_approvals(noun("approval", "list open approvals and questions; grant, deny or answer one"), command)
    _add_callbacks(noun("callback", "list completion webhooks, or send one again"), command)
    _add_upgrade(noun("upgrade", "check new code before workers run it"), command)
    _add_validate(command(nouns, "validate", "validate:validate", "check manifests: parsed, valid, runnable"))
    _add_init(command(nouns, "init", "init:init", "write a commented manifest to start from"))
    _add_exports(noun("export", "write an agent in another format"), command)
    _add_schema(command(nouns, "schema", "schema:show", "list the kinds of manifests, or print the JSON Schema of one"))
    _add_conformance(command(nouns, "conformance", "conformance:check", "run the black-box suite against a system"))
    add_logs(nouns, noun, command)
    add_database(noun("db", "install, inspect or maintain the database"), command)
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


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "app",
        metavar="FILE.py:app",
        help="the file, and the name of the application in it; or the manifest of an agent, FILE.yaml",
    )
    run.add_argument("--state", metavar="JSON|@FILE", help="the initial state, a JSON object")
    run.add_argument("--run-id", metavar="ID", type=run_id,
                     help="the id of the run; if it exists, resume it, or show it if it has ended")  # fmt: skip
    run.add_argument("--callback", metavar="URL", help="the URL that receives a signed POST when the run ends")
    run.add_argument("--record", metavar="FILE", help="record the run, and write the recording to this file at its end")
    run.add_argument("--record-name", metavar="NAME", help="record the run under this name in the database")
    run.add_argument(
        "--tag", metavar="TAG", action="append", default=[], help="record the run with this tag; may be repeated"
    )
    run.add_argument("--show", metavar="PATTERN", action="append", default=[],
                     help="show only signals with such a name, like 'agent:*' (all); may be repeated")  # fmt: skip
    run.add_argument("--no-worker", action="store_true", help="start and watch the run; other workers run its turns")
    _add_bindings(run)
    _add_manifests(run)
    _add_serving(run)


def _add_bindings(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--tools", metavar="FILE.py:app", help="for the manifest of an agent: the application whose tools it may use"
    )
    to.add_argument(
        "--model",
        metavar="MODEL",
        help="for the manifest of an agent: its model, like openai-chat:gpt-5, or FILE.py:name",
    )
    to.add_argument(
        "--start-servers",
        action="store_true",
        help="for the manifest of an agent: start its MCP servers, or send to their URLs",
    )
    to.add_argument(
        "--external-tools",
        action="store_true",
        help="for the manifest of an agent: other programs run the tools without a binding",
    )
    to.add_argument(
        "--allow-secret-literals",
        action="store_true",
        help="for manifests: warn of a text that looks like a secret, instead of rejecting it",
    )


def _add_upgrade(verbs: Any, command: Any) -> None:
    check = command(verbs, "check", "upgrade:check", "check that the open turns continue with new code, without any effect",
                    example="helio upgrade check hello.py:app")  # fmt: skip
    check.add_argument("app", metavar="FILE.py:app", help="the new code of the application, or its manifest, FILE.yaml")
    check.add_argument("--run", metavar="RUN", type=identifier("--run"), help="only the turns of this run")
    check.add_argument("--agent", metavar="NAME", type=identifier("--agent"), help="only the turns of this agent")
    check.add_argument("--timeout", type=seconds("--timeout", 0.1, 3600), default=10.0, metavar="SECONDS",
                       help="the time that the code has for one turn (10)")  # fmt: skip
    check.add_argument("--processes", type=integer("--processes", 1, 64), metavar="N",
                       help="check in N processes (one for each processor, at most 8)")  # fmt: skip
    _add_bindings(check)
    _add_manifests(check)


def _add_validate(validate: argparse.ArgumentParser) -> None:
    validate.add_argument("files", metavar="FILE", nargs="+", help="the manifests")
    validate.add_argument("--level", choices=LEVELS, default="valid",
                          help=f"the level that every file must reach: {', '.join(LEVELS)} (valid)")  # fmt: skip
    _add_bindings(validate)


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        choices=STARTERS,
        default="Agent",
        help=f"the kind: {', '.join(STARTERS)} (Agent)",
    )
    init.add_argument("--output", metavar="FILE", help=f"the file to write ({', '.join(STARTERS.values())})")


def _add_exports(verbs: Any, command: Any) -> None:
    ossa = command(verbs, "ossa", "export:ossa", "print an agent as a manifest of the Open Standard Agents")
    ossa.add_argument("app", metavar="FILE.py:app", help="the file, and the name of the application in it")
    ossa.add_argument("--agent", metavar="NAME", help="the agent, if the application has several with a prompt")


def _add_manifests(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--runtime", metavar="FILE", help="a RuntimeSpec: limits of phases, settings of control signals, telemetry"
    )
    to.add_argument(
        "--routing", metavar="FILE", help="a MessageRouting: the pools and gateways of delegations and external tools"
    )


def _add_conformance(conformance: argparse.ArgumentParser) -> None:
    conformance.add_argument("ids", metavar="ID", nargs="*", help="requirements, or families of them like SIG (all)")
    conformance.add_argument("--surface", metavar="FILE.toml", help="the commands of the system (Heliograph itself)")
    conformance.add_argument("--keep", metavar="FOLDER", help="a new folder in which the logs of the runs remain")
    conformance.add_argument("--list", action="store_true", help="run nothing; list the checks")


def _add_schema(schema: argparse.ArgumentParser) -> None:
    schema.add_argument("kind", metavar="KIND", nargs="?", choices=KINDS, help=f"the kind: {', '.join(KINDS)}")


def _add_runs(runs: argparse.ArgumentParser, command: Any) -> None:
    runs.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=20, metavar="N", help="list at most N runs (20)"
    )
    verbs = runs.add_subparsers(metavar="COMMAND")
    stop = command(verbs, "stop", "stop:stop_run", "end a run as canceled", aliases=["halt"])
    stop.add_argument("run", metavar="RUN", type=identifier("RUN"), help="the id of the run")
    _add_stopping(stop)
    fork = command(verbs, "fork", "fork:fork", "start a run that continues the log of another one after a signal",
                   prog="helio run fork", example="helio run fork first --at sig_first_12 --app hello.py:app")  # fmt: skip
    _add_forking(fork)
    fork.add_argument(
        "--at",
        metavar="SIGNAL",
        type=identifier("--at"),
        required=True,
        help="the signal: its id, or its position in the log",
    )
    fork.add_argument("--state", metavar="JSON|@FILE", help="a state that replaces the one at the signal")
    retry = command(verbs, "retry", "fork:retry", "fork a run directly before its first failed turn ended",
                    prog="helio run retry", example="helio run retry first --app hello.py:app")  # fmt: skip
    _add_forking(retry)


def _add_forking(to: argparse.ArgumentParser) -> None:
    to.add_argument("run", metavar="RUN", type=identifier("RUN"), help="the id of the run")
    to.add_argument("--app", metavar="FILE.py:app", required=True,
                    help="the application whose agents continue the run, or the manifest of an agent or a workflow")  # fmt: skip
    to.add_argument("--run-id", metavar="ID", type=run_id, help="the id of the new run (a new id)")
    _add_bindings(to)
    _add_manifests(to)


def _add_stopping(to: argparse.ArgumentParser) -> None:
    how = to.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="stop at once, without a grace period")
    how.add_argument("--grace", type=seconds("--grace", 0, GRACE_SECONDS_MAX), default=10.0, metavar="SECONDS",
                     help="the time that running turns have to finish (10)")  # fmt: skip
    to.add_argument("--reason", metavar="TEXT", default=USER_INTERRUPT,
                    help=f"the reason that the log records ({USER_INTERRUPT})")  # fmt: skip
    to.add_argument("--by", metavar="NAME", help="your name in the log (your login name)")


def _add_worker(worker: argparse.ArgumentParser) -> None:
    worker.add_argument("apps", metavar="FILE.py:app", nargs="+", help="the applications to serve")
    worker.add_argument(
        "--name", metavar="NAME", type=identifier("--name"), help="the prefix of the worker's name (the host name)"
    )
    worker.add_argument("--pool", metavar="POOL", action="append", default=[], dest="pools",
                        help="run only the turns of this pool of workers (default); may be repeated")  # fmt: skip
    worker.add_argument("--heartbeat", type=seconds("--heartbeat", 0, 86400), metavar="SECONDS",
                        help="the time between heartbeats, which report the worker's health (that of the applications, or 30); 0 sends none")  # fmt: skip
    worker.add_argument("--missed-beats", type=integer("--missed-beats", 1, 999), metavar="N",
                        help="the number of missing heartbeats after which the worker is unhealthy (that of the applications, or 3)")  # fmt: skip
    worker.add_argument("--listen", metavar="ADDRESS",
                        help="serve /metrics, /live and /ready over HTTP, for example on 127.0.0.1:9464 (HELIOGRAPH_LISTEN)")  # fmt: skip
    _add_bindings(worker)
    _add_manifests(worker)
    _add_serving(worker)


def _add_workers(workers: argparse.ArgumentParser) -> None:
    workers.add_argument(
        "--name", metavar="NAME", help="only those with this name: helio worker --name, or else the host name"
    )
    workers.add_argument("--check", action="store_true",
                         help="exit with 1 unless a listed worker is healthy or degraded, and with 3 if there is none")  # fmt: skip


def _add_serving(to: argparse.ArgumentParser) -> None:
    to.add_argument("--concurrency", type=integer("--concurrency", 1, 1000), default=16, metavar="N",
                    help="the number of turns to run at once (16)")  # fmt: skip
    to.add_argument("--lease", type=seconds("--lease", 0.1, 86400), default=30.0, metavar="SECONDS",
                    help="the time after which others take over from a dead worker (30)")  # fmt: skip
    to.add_argument("--grace", type=seconds("--grace", 0, 86400), default=30.0, metavar="SECONDS",
                    help="the time that running turns have to finish after SIGTERM or SIGINT (30)")  # fmt: skip


def _add_turns(verbs: Any, command: Any) -> None:
    turns = command(verbs, "list", "turn:list_turns", "list turns, the newest first")
    turns.add_argument("--run", metavar="RUN", type=identifier("--run"), help="only those of this run")
    turns.add_argument(
        "--status",
        metavar="STATUS",
        choices=TURN_STATUSES,
        help=f"only those with this status: {', '.join(TURN_STATUSES)}",
    )
    turns.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="list at most N turns (50)"
    )
    show = command(verbs, "show", "turn:show_turn", "show one turn: its cause, its owners, its calls and its cards")
    show.add_argument("turn", metavar="TURN", type=identifier("TURN"), help="the id of the turn")
    children = command(
        verbs, "children", "turn:list_children", "list the turns that a turn has delegated, with their status"
    )
    children.add_argument("turn", metavar="TURN", type=identifier("TURN"), help="the id of the turn")
    stop = command(verbs, "stop", "stop:stop_turn", "end a turn as canceled", aliases=["halt"])
    stop.add_argument("turn", metavar="TURN", type=identifier("TURN"), help="the id of the turn")
    _add_stopping(stop)


def _add_boxes(verbs: Any, command: Any) -> None:
    show = command(verbs, "show", "box:show_box", "show a box: its cards in order, inherited ones first")
    show.add_argument("box", metavar="BOX", type=identifier("BOX"), help="the id of the box")


def _add_calls(calls: argparse.ArgumentParser) -> None:
    calls.add_argument("--tool", metavar="TOOL", type=identifier("--tool"), help="only those of this tool")
    calls.add_argument("--take", type=integer("--take", 1, 1000), metavar="N",
                       help="take up to N calls, as the tool itself does, and show their tokens")  # fmt: skip
    calls.add_argument("--pool", metavar="POOL", default="default",
                       help="with --take: the calls that a route sent to this pool (default)")  # fmt: skip
    calls.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="list at most N calls (50)"
    )


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("turn", metavar="TURN", type=identifier("TURN"), help="the id of the turn")
    report.add_argument("call_id", metavar="CALL", type=identifier("CALL"), help="the id of the call")
    report.add_argument("--token", metavar="TOKEN", help="the token that came with the call")
    what = report.add_mutually_exclusive_group(required=True)
    what.add_argument("--result", metavar="JSON", help="the result as JSON")
    what.add_argument("--result-file", metavar="FILE", help="the file with the result as JSON")
    what.add_argument("--error", metavar="TEXT", help="the reason why the call failed")


def _add_approvals(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "approval:list_tasks", "list open approvals and questions, the oldest first")
    listed.add_argument("--run", metavar="RUN", type=identifier("--run"), help="only those of this run")
    listed.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="list at most N (50)"
    )
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
    listed.add_argument(
        "--state",
        metavar="STATE",
        choices=CALLBACK_STATES,
        help=f"only those in this state: {', '.join(CALLBACK_STATES)}",
    )
    listed.add_argument(
        "--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="list at most N (50)"
    )
    again = command(verbs, "redeliver", "callback:redeliver", "send callbacks again, under the same ids")
    what = again.add_mutually_exclusive_group(required=True)
    what.add_argument("callback", metavar="CALLBACK", type=identifier("CALLBACK"), nargs="?",
                      help="the id of a callback")  # fmt: skip
    what.add_argument("--dead", action="store_true", help="send all dead callbacks, up to a thousand")


def _decision(verbs: Any, command: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = command(verbs, name, f"approval:{name}", text)
    made.add_argument("turn", metavar="TURN", type=identifier("TURN"), help="the id of the turn")
    made.add_argument("call_id", metavar="CALL", type=identifier("CALL"), help="the id of the call")
    made.add_argument("--by", metavar="NAME", help="your name in the log (your login name)")
    return made


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow to import

        line(f"heliograph {version('heliograph')}")
        parser.exit()
