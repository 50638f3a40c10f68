"""The grammar of the command line: `helio <noun> <verb>`, with all options.

This file and what it imports load no driver, no validation and no terminal
library: a command imports what it needs when it is called.
"""

from __future__ import annotations

import argparse
from typing import Any

from heliograph.cli.arguments import identifier, integer, run_id, seconds, since
from heliograph.cli.db_arguments import add_database
from heliograph.cli.output import line
from heliograph.cli.parser import Parser
from heliograph.codes import USER_INTERRUPT

CALLBACK_STATES = ("due", "delivered", "dead")
TURN_STATUSES = (
    "queued", "dispatched", "running", "suspended", "done", "success", "partial", "failed", "timeout", "canceled",
)  # fmt: skip
_ENDINGS = "exit codes: 0 done, 1 failed, 2 misused, 3 not found, 4 refused, 130 interrupted"


def command_parser() -> Parser:
    """All commands. `call` is `module:function` of this folder, imported when the command is chosen."""
    everywhere = _everywhere()
    parser = Parser(prog="helio", parents=[everywhere], epilog=_ENDINGS, allow_abbrev=False,
                    description="Durable, signal-driven agents on PostgreSQL.")  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    nouns = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(to: Any, name: str, call: str, text: str, **options: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = to.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[everywhere], allow_abbrev=False,
            **options,
        )  # fmt: skip
        made.set_defaults(call=call)
        return made

    def noun(name: str, text: str) -> Any:
        made = nouns.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[everywhere],
                                allow_abbrev=False)  # fmt: skip
        return made.add_subparsers(metavar="COMMAND", required=True)

    _add_run(command(nouns, "run", "run:run", "run an application to its end, or resume a run"))
    _add_runs(command(nouns, "runs", "runs:list_runs", "list runs, the newest first; or stop one"), command)
    _add_worker(command(nouns, "worker", "worker:work", "serve applications until stopped"))
    _add_turns(noun("turn", "show turns, each one run of one agent; or stop one"), command)
    _add_boxes(noun("box", "show boxes, which turns read and write"), command)
    _add_calls(command(nouns, "calls", "calls:list_calls", "list the calls that turns wait for, or take some"))
    _add_report(command(nouns, "report", "calls:report", "report the result of a call"))
    _add_approvals(noun("approval", "list open approvals and questions; grant, deny or answer one"), command)
    _add_callbacks(noun("callback", "list completion webhooks, or send one again"), command)
    _add_signals(noun("signal", "read the log of signals"), command)
    add_database(noun("db", "install, inspect or maintain the database"), command)
    sim = nouns.add_parser("sim", help="run the runtime under seeded faults; helio sim --help", add_help=False)
    sim.set_defaults(call="sim:main")
    return parser


def _everywhere() -> Parser:
    """Options that may stand before or after the command. An absent option sets no default, so both places work."""
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument("--database-url", metavar="URL", help="the database; overrides HELIOGRAPH_DATABASE_URL")
    options.add_argument("--project", metavar="NAME", type=identifier("--project"), action="append",
                         help="the project; overrides HELIOGRAPH_PROJECT; helio worker takes several")  # fmt: skip
    options.add_argument("--json", action="store_true", help="one JSON object per line, errors too")
    return options


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("app", metavar="FILE.py:app", help="the file, and the application's name in it")
    run.add_argument("--state", metavar="JSON|@FILE", help="the initial state, an object")
    run.add_argument("--run-id", metavar="ID", type=run_id,
                     help="the id of the run; an existing run is resumed, an ended one is shown")  # fmt: skip
    run.add_argument("--callback", metavar="URL", help="receives a signed POST when the run ends")
    run.add_argument("--no-worker", action="store_true", help="start and watch the run; other workers run its turns")
    _add_serving(run)


def _add_runs(runs: argparse.ArgumentParser, command: Any) -> None:
    runs.add_argument("--limit", type=integer("--limit", 1, 1000), default=20, metavar="N", help="at most N (20)")
    stop = command(
        runs.add_subparsers(metavar="COMMAND"), "stop", "stop:stop_run", "end a run as canceled", aliases=["halt"]
    )
    stop.add_argument("run", metavar="RUN", type=identifier("RUN"))
    _add_stopping(stop)


def _add_stopping(to: argparse.ArgumentParser) -> None:
    how = to.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="stop at once, without time to wind up")
    how.add_argument("--grace", type=seconds("--grace", 0, 86400), default=10.0, metavar="SECONDS",
                     help="how long running turns may take to wind up (10)")  # fmt: skip
    to.add_argument("--reason", metavar="TEXT", default=USER_INTERRUPT,
                    help=f"the reason that the log records ({USER_INTERRUPT})")  # fmt: skip
    to.add_argument("--by", metavar="NAME", help="your name, for the log (the login name)")


def _add_worker(worker: argparse.ArgumentParser) -> None:
    worker.add_argument("apps", metavar="FILE.py:app", nargs="+", help="the applications to serve")
    worker.add_argument(
        "--name", metavar="NAME", type=identifier("--name"), help="the prefix of the worker's name (the host name)"
    )
    _add_serving(worker)


def _add_serving(to: argparse.ArgumentParser) -> None:
    to.add_argument("--concurrency", type=integer("--concurrency", 1, 1000), default=16, metavar="N",
                    help="turns at a time (16)")  # fmt: skip
    to.add_argument("--lease", type=seconds("--lease", 0.1, 86400), default=30.0, metavar="SECONDS",
                    help="how long after this worker dies others take over (30)")  # fmt: skip
    to.add_argument("--grace", type=seconds("--grace", 0, 86400), default=30.0, metavar="SECONDS",
                    help="how long running turns may take after a stop signal (30)")  # fmt: skip


def _add_turns(verbs: Any, command: Any) -> None:
    turns = command(verbs, "list", "turn:list_turns", "list turns, the newest first")
    turns.add_argument("--run", metavar="RUN", type=identifier("--run"), help="of this run only")
    turns.add_argument("--status", metavar="STATUS", choices=TURN_STATUSES, help=", ".join(TURN_STATUSES))
    turns.add_argument("--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="at most N (50)")
    show = command(verbs, "show", "turn:show_turn", "show one turn: its owners, its calls, its cards, its cause")
    show.add_argument("turn", metavar="TURN", type=identifier("TURN"))
    children = command(
        verbs, "children", "turn:list_children", "list the turns that a turn has delegated, with their status"
    )
    children.add_argument("turn", metavar="TURN", type=identifier("TURN"))
    stop = command(verbs, "stop", "stop:stop_turn", "end a turn as canceled", aliases=["halt"])
    stop.add_argument("turn", metavar="TURN", type=identifier("TURN"))
    _add_stopping(stop)


def _add_boxes(verbs: Any, command: Any) -> None:
    show = command(verbs, "show", "box:show_box", "show a box: its cards in order, inherited ones first")
    show.add_argument("box", metavar="BOX", type=identifier("BOX"))


def _add_calls(calls: argparse.ArgumentParser) -> None:
    calls.add_argument("--tool", metavar="TOOL", type=identifier("--tool"), help="of this tool only")
    calls.add_argument("--take", type=integer("--take", 1, 1000), metavar="N",
                       help="take up to N calls as the tool would, with the tokens to report them")  # fmt: skip
    calls.add_argument("--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="at most N (50)")


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("turn", metavar="TURN", type=identifier("TURN"))
    report.add_argument("call_id", metavar="CALL", type=identifier("CALL"))
    report.add_argument("--token", metavar="TOKEN", help="the token that came with the call")
    what = report.add_mutually_exclusive_group(required=True)
    what.add_argument("--result", metavar="JSON", help="the result")
    what.add_argument("--result-file", metavar="FILE", help="a file that holds the result as JSON")
    what.add_argument("--error", metavar="TEXT", help="why the call failed")


def _add_approvals(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "approval:list_tasks", "list open approvals and questions, the oldest first")
    listed.add_argument("--run", metavar="RUN", type=identifier("--run"), help="of this run only")
    listed.add_argument("--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="at most N (50)")
    grant = _decision(verbs, command, "grant", "grant an approval")
    grant.add_argument("--arguments", metavar="JSON|@FILE", help="other arguments, where editing is allowed")
    deny = _decision(verbs, command, "deny", "deny an approval, or decline to answer")
    deny.add_argument("--reason", metavar="TEXT", help="why; the agent receives it")
    answer = _decision(verbs, command, "answer", "answer a question")
    what = answer.add_mutually_exclusive_group(required=True)
    what.add_argument("text", metavar="TEXT", nargs="?", help="the answer, a text")
    what.add_argument("--value", metavar="JSON|@FILE", help="the answer as JSON, for a form")


def _add_callbacks(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "callback:list_callbacks", "list callbacks, the newest first")
    listed.add_argument("--state", metavar="STATE", choices=CALLBACK_STATES, help=", ".join(CALLBACK_STATES))
    listed.add_argument("--limit", type=integer("--limit", 1, 1000), default=50, metavar="N", help="at most N (50)")
    again = command(verbs, "redeliver", "callback:redeliver", "send callbacks again, under the same ids")
    what = again.add_mutually_exclusive_group(required=True)
    what.add_argument("callback", metavar="CALLBACK", type=identifier("CALLBACK"), nargs="?")
    what.add_argument("--dead", action="store_true", help="all dead callbacks, up to a thousand")


def _decision(verbs: Any, command: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = command(verbs, name, f"approval:{name}", text)
    made.add_argument("turn", metavar="TURN", type=identifier("TURN"))
    made.add_argument("call_id", metavar="CALL", type=identifier("CALL"))
    made.add_argument("--by", metavar="NAME", help="your name, for the log (the login name)")
    return made


def _add_signals(verbs: Any, command: Any) -> None:
    tail = command(verbs, "tail", "signal:tail", "print recorded signals, or follow new ones")
    tail.add_argument("patterns", metavar="PATTERN", nargs="*", help="like 'agent:*' or 'state:**'; one must match")
    tail.add_argument("--run", metavar="RUN", type=identifier("--run"), help="of this run only, from its beginning")
    tail.add_argument("--since", metavar="TIME", type=since, help="30s, 10m, 2h, 1d, or an ISO time")
    tail.add_argument("--after", metavar="SEQ", type=integer("--after", 0, 2**53),
                      help="with --run: only signals after this position, the last seq of --json")  # fmt: skip
    tail.add_argument("-f", "--follow", action="store_true", help="keep printing new signals")
    trace = command(verbs, "trace", "signal:trace", "draw the tree of causes and effects")
    trace.add_argument("subject", metavar="RUN|SIGNAL", type=identifier("RUN|SIGNAL"))
    why = command(verbs, "why", "signal:why", "trace a signal back to its root cause")
    why.add_argument("signal", metavar="SIGNAL", type=identifier("SIGNAL"))


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow to import

        line(f"heliograph {version('heliograph')}")
        parser.exit()
