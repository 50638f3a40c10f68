"""The commands and options that read or repeat the log of a run: `helio signal`, `play`, `diff`, `record`, `replay`."""

from __future__ import annotations

import argparse
from typing import Any

from heliograph.cli.arguments import identifier, integer, reference, run_or_file, since
from heliograph.cli.shared_arguments import add_filters, add_limit, add_watch

_APP = "the file, and the name of the application in it"


def add_logs(nouns: Any, noun: Any, command: Any) -> None:
    _add_signals(noun("signal", "read the log of signals"), command)
    _add_play(nouns, command)
    _add_diff(nouns, command)
    _add_recordings(noun("record", "list the recordings of runs, or write one to a file"), command)
    _add_replay(nouns, command)


def _add_signals(verbs: Any, command: Any) -> None:
    tail = command(verbs, "tail", "signal:tail", "print recorded signals, or follow new ones")
    tail.add_argument(
        "patterns",
        metavar="PATTERN",
        nargs="*",
        help="a pattern of names like 'agent:*' or 'state:**'; a signal matches one",
    )
    tail.add_argument("--run", metavar="RUN", type=reference("--run"), help="only those of this run, from its start")
    tail.add_argument(
        "--since", metavar="TIME", type=since, help="only those since this time: 30s, 10m, 2h, 1d, or an ISO time"
    )
    tail.add_argument("--after", metavar="POSITION", type=integer("--after", 0, 2**53),
                      help="with --run: only those after this position, for example the last seq of --json")  # fmt: skip
    tail.add_argument("-f", "--follow", action="store_true", help="keep printing new signals")
    control = command(
        verbs, "control", "control_signals:control", "print the control signals of a run; with --json, in envelopes"
    )
    control.add_argument("run", metavar="RUN", type=reference("RUN"), help="the id of the run")
    control.add_argument("-f", "--follow", action="store_true", help="keep printing new ones until the run ends")
    control.add_argument("--strict", action="store_true", help="replace our own codes of errors by those of OSSA")
    catalog = command(
        verbs, "catalog", "signal_catalog:catalog", "print the signals of an application: names, payloads, agents",
        example="helio signal catalog orders.py:app",
    )  # fmt: skip
    catalog.add_argument("app", metavar="FILE.py:app", help=_APP)
    add_watch(
        command(verbs, "subscriptions", "subscriptions:subscriptions", "list the durable subscriptions of the project")
    )
    unsubscribe = command(verbs, "unsubscribe", "subscriptions:unsubscribe", "delete a durable subscription",
                          example="helio signal unsubscribe billing")  # fmt: skip
    unsubscribe.add_argument("name", metavar="NAME", help="the name of the subscription")
    _add_send(verbs, command)
    _add_causes(verbs, command)


def _add_send(verbs: Any, command: Any) -> None:
    send = command(
        verbs, "send", "send_signals:send", "send signals to a webhook, a file or the log, under a durable name",
        example="helio signal send billing 'order:*' --webhook https://billing.example/hook",
    )  # fmt: skip
    send.add_argument("name", metavar="NAME", help="the name of the subscription, which keeps its position")
    send.add_argument("patterns", metavar="PATTERN", nargs="+", help="a pattern of names like 'order:*' or '**'")
    target = send.add_mutually_exclusive_group(required=True)
    target.add_argument("--webhook", metavar="URL", help="send each signal as a signed POST to this URL")
    target.add_argument("--json-lines", metavar="FILE", help="append each signal to this file, as a line of JSON")
    target.add_argument("--logs", action="store_true", help="log each signal to stderr, see HELIOGRAPH_LOG_FORMAT")
    send.add_argument("--level", metavar="PATTERN=LEVEL", action="append", default=[], dest="levels",
                      help="with --logs: the level of these signals; the first match counts; may be repeated")  # fmt: skip
    send.add_argument("--since", choices=("now", "start"), default="now",
                      help="where a new subscription begins: now, or at the start of each run (now)")  # fmt: skip
    send.add_argument("--once", action="store_true", help="send the signals that are recorded by now, and end")


def _add_causes(verbs: Any, command: Any) -> None:
    why = command(verbs, "why", "causes:why", "trace a signal back to its root cause",
                  example="helio signal why sig_first_12")  # fmt: skip
    why.add_argument("signal", metavar="SIGNAL", type=identifier("SIGNAL"), help="the id of the signal")
    _add_page(why, "causes")
    tree = command(verbs, "tree", "causes:tree", "draw the causes and effects of a run, or the effects of a signal",
                   example="helio signal tree first")  # fmt: skip
    graph = command(verbs, "graph", "causes:graph", "print the causes and effects of a signal, or a run, for a diagram",
                    example="helio signal graph sig_first_12 --format dot")  # fmt: skip
    for paged in (tree, graph):
        paged.add_argument(
            "subject", metavar="RUN|SIGNAL", type=reference("RUN|SIGNAL"), help="the id of a run or a signal"
        )
        _add_page(paged, "signals")
        paged.add_argument("--after", metavar="POSITION", type=integer("--after", 0, 10**18 - 1), default=0,
                           help="begin after this position of the log")  # fmt: skip
    graph.add_argument("--format", choices=("mermaid", "dot"), default="mermaid",
                       help="the language of the diagram: mermaid, or dot for Graphviz (mermaid)")  # fmt: skip
    why_not = command(verbs, "why-not", "causes:why_not", "explain why an agent of a run did not wake",
                      example="helio signal why-not first editor --app hello.py:app")  # fmt: skip
    why_not.add_argument("run", metavar="RUN", type=reference("RUN"), help="the id of the run")
    why_not.add_argument("agent", metavar="AGENT", type=identifier("AGENT"), help="the name of the agent")
    why_not.add_argument("--app", metavar="FILE.py:app",
                         help="the application, to compare the agent's patterns with the signals of the run")  # fmt: skip


def _add_page(to: argparse.ArgumentParser, what: str) -> None:
    to.add_argument("--limit", metavar="N", type=integer("--limit", 1, 1000), default=200,
                    help=f"print at most N {what} (200)")  # fmt: skip


def _add_play(nouns: Any, command: Any) -> None:
    text = "play a run or a recording in the terminal, or print the situation at one of its signals"
    play = command(nouns, "play", "play:play", text, example="helio play first --at end --json")
    play.add_argument(
        "run", metavar="RUN|FILE", type=run_or_file("RUN|FILE"), help="the id of a run, or the file of a recording"
    )
    play.add_argument("--at", metavar="POSITION",
                      help="print the situation there and exit: a position, the id of a signal, a time, start or end")  # fmt: skip
    _add_edited(play)


def _add_diff(nouns: Any, command: Any) -> None:
    text = "compare two runs or recordings: first difference, summary by agent"
    diff = command(nouns, "diff", "diff:diff", text, example="helio diff first nightly.jsonl")
    for side in ("left", "right"):
        diff.add_argument(
            side, metavar="RUN|FILE", type=run_or_file("RUN|FILE"), help="the id of a run, or the file of a recording"
        )
    diff.add_argument("--exact", action="store_true", help="compare ids, times and deltas, too, as for a replay")
    _add_edited(diff)


def _add_recordings(verbs: Any, command: Any) -> None:
    listed = command(verbs, "list", "record:list_recordings", "list the recordings in the database, the newest first")
    listed.add_argument("--name", metavar="NAME", help="only those with this name")
    listed.add_argument("--tag", metavar="TAG", help="only those with this tag")
    add_filters(listed)
    add_limit(listed, 50)
    add_watch(listed)
    export = command(
        verbs, "export", "record:export", "write the recording of a run, or the log of any other run, to a file",
        example="helio record export first first.jsonl",
    )  # fmt: skip
    export.add_argument("run", metavar="RUN", type=reference("RUN"), help="the id of the run")
    export.add_argument("file", metavar="FILE", help="the file to write")


def _add_replay(nouns: Any, command: Any) -> None:
    text = "replay a recording, and compare what the code does with it"
    replay = command(nouns, "replay", "record:replay", text, example="helio replay first.jsonl --app hello.py:app --ci")
    replay.add_argument("file", metavar="FILE", help="the recording")
    replay.add_argument("--app", metavar="FILE.py:app", help="the application whose code is compared; required")
    replay.add_argument("--accept", metavar="CHANGE", action="append", choices=("prompts", "agents"), default=[],
                        help="a change of the code that is no divergence: prompts, or agents that were added; may be repeated")  # fmt: skip
    replay.add_argument("--renamed-tool", metavar="OLD=NEW", action="append", default=[], dest="renamed_tools",
                        help="a tool that has another name now; may be repeated")  # fmt: skip
    _add_edited(replay)
    replay.add_argument("--ci", action="store_true", help="print one line alone")


def _add_edited(to: argparse.ArgumentParser) -> None:
    to.add_argument("--edited", action="store_true", help="accept a file that was changed by hand")
