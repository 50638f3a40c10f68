"""The commands and options of `helio run` and `helio worker`."""

from __future__ import annotations

import argparse
from typing import Any

from heliograph.cli.arguments import identifier, integer, reference, run_id, seconds
from heliograph.cli.shared_arguments import add_choice, add_filters, add_limit, add_watch
from heliograph.codes import USER_INTERRUPT
from heliograph.definitions.ranges import GRACE_SECONDS_MAX

HEALTHS = ("healthy", "degraded", "unhealthy", "unknown")
RUN_STATUSES = ("running", "terminating", "ended")


def add_run(run: argparse.ArgumentParser) -> None:
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
                     help="show only signals with such a name, like 'agent:*' (those about its work); may be repeated")  # fmt: skip
    run.add_argument("--all", action="store_true", help="show every signal, also those of the lifecycle")
    run.add_argument("--no-ask", action="store_true", help="on a terminal, do not ask the questions of the run here")
    run.add_argument("--no-worker", action="store_true", help="start and watch the run; other workers run its turns")
    add_bindings(run)
    add_manifests(run)
    add_serving(run)


def add_bindings(to: argparse.ArgumentParser) -> None:
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


def add_manifests(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--runtime", metavar="FILE", help="a RuntimeSpec: limits of phases, settings of control signals, telemetry"
    )
    to.add_argument(
        "--routing", metavar="FILE", help="a MessageRouting: the pools and gateways of delegations and external tools"
    )


def add_runs(verbs: Any, command: Any) -> None:
    """The commands of `helio run`. `helio run FILE.py:app` is the short form of `helio run start FILE.py:app`."""
    add_run(
        command(
            verbs,
            "start",
            "run:run",
            "run an application or a manifest until its run ends, or resume a run",
            example='helio run hello.py:app --state \'{"text": "hello"}\'',
        )
    )
    listed = command(
        verbs,
        "list",
        "runs:list_runs",
        "list runs, the newest first",
        example="helio run list --outcome failed --since 1d",
    )
    add_choice(listed, "--status", RUN_STATUSES, "with this status")
    add_filters(listed)
    add_limit(listed, 20)
    add_watch(listed)
    show = command(verbs, "show", "run_show:show_run", "explain a run: its state, agents, open waits, errors and the next step",
                   example="helio run show @last")  # fmt: skip
    show.add_argument(
        "run", metavar="RUN", type=reference("RUN"), help="the id of the run, a unique beginning of it, or @last"
    )
    add_watch(show)
    stop = command(verbs, "stop", "stop:stop_run", "end a run as canceled")
    stop.add_argument("run", metavar="RUN", type=reference("RUN"), help="the id of the run")
    add_stopping(stop)
    fork = command(verbs, "fork", "fork:fork", "start a run that continues the log of another one after a signal", example="helio run fork first --at sig_first_12 --app hello.py:app")  # fmt: skip
    add_forking(fork)
    fork.add_argument(
        "--at",
        metavar="SIGNAL",
        type=identifier("--at"),
        required=True,
        help="the signal: its id, or its position in the log",
    )
    fork.add_argument("--state", metavar="JSON|@FILE", help="a state that replaces the one at the signal")
    retry = command(verbs, "retry", "fork:retry", "fork a run directly before its first failed turn ended", example="helio run retry first --app hello.py:app")  # fmt: skip
    add_forking(retry)


def add_forking(to: argparse.ArgumentParser) -> None:
    to.add_argument("run", metavar="RUN", type=reference("RUN"), help="the id of the run")
    to.add_argument("--app", metavar="FILE.py:app", required=True,
                    help="the application whose agents continue the run, or the manifest of an agent or a workflow")  # fmt: skip
    to.add_argument("--run-id", metavar="ID", type=run_id, help="the id of the new run (a new id)")
    add_bindings(to)
    add_manifests(to)


def add_stopping(to: argparse.ArgumentParser) -> None:
    how = to.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="stop at once, without a grace period")
    how.add_argument("--grace", type=seconds("--grace", 0, GRACE_SECONDS_MAX), default=10.0, metavar="SECONDS",
                     help="the time that running turns have to finish (10)")  # fmt: skip
    to.add_argument("--reason", metavar="TEXT", default=USER_INTERRUPT,
                    help=f"the reason that the log records ({USER_INTERRUPT})")  # fmt: skip
    to.add_argument("--by", metavar="NAME", help="your name in the log (your login name)")


def add_workers(verbs: Any, command: Any) -> None:
    """The commands of `helio worker`. `helio worker FILE.py:app` is the short form of `helio worker start FILE.py:app`."""
    add_worker(command(verbs, "start", "worker:work", "serve applications until stopped"))
    add_worker_list(command(verbs, "list", "workers:list_workers", "list workers with their health; probe them"))


def add_worker(worker: argparse.ArgumentParser) -> None:
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
    add_bindings(worker)
    add_manifests(worker)
    add_serving(worker)


def add_worker_list(workers: argparse.ArgumentParser) -> None:
    workers.add_argument(
        "--name", metavar="NAME", help="only those with this name: helio worker --name, or else the host name"
    )
    workers.add_argument("--app", metavar="NAME", help="only those that serve the application with this name")
    add_choice(workers, "--health", HEALTHS, "with this health")
    workers.add_argument("--check", action="store_true",
                         help="exit with 1 unless a listed worker is healthy or degraded, and with 3 if there is none")  # fmt: skip
    add_watch(workers)


def add_serving(to: argparse.ArgumentParser) -> None:
    to.add_argument("--concurrency", type=integer("--concurrency", 1, 1000), default=16, metavar="N",
                    help="the number of turns to run at once (16)")  # fmt: skip
    to.add_argument("--lease", type=seconds("--lease", 0.1, 86400), default=30.0, metavar="SECONDS",
                    help="the time after which others take over from a dead worker (30)")  # fmt: skip
    to.add_argument("--grace", type=seconds("--grace", 0, 86400), default=30.0, metavar="SECONDS",
                    help="the time that running turns have to finish after SIGTERM or SIGINT (30)")  # fmt: skip
