"""`helio signal control`: the control signals of a run, in the envelopes of the specification."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from heliograph.cli.errors import report
from heliograph.cli.existing_database import open_client, open_existing
from heliograph.cli.output import json_line, line, note, width
from heliograph.cli.signal import read_on
from heliograph.control.envelope import Envelope
from heliograph.control.run_log import RunLog
from heliograph.control.strict_codes import strict_envelope
from heliograph.errors import KernelRejected
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import clock, json_text

_WIDTH = 120


def control(options: Namespace) -> int:
    printer = _Printer(options)
    try:
        asyncio.run(_follow(options, printer) if options.follow else _list(options, printer))
    except KeyboardInterrupt:
        if not options.follow:
            raise  # an interrupt is the normal end of --follow
    return printer.exit_code


async def _list(options: Namespace, printer: _Printer) -> None:
    async with open_existing(f"run {options.run}") as reader:
        await reader.run(options.run)
        signals = await read_on(reader, options.run, 0)
    for signal in signals:
        printer.print(signal)
    if printer.is_unused and not options.json:
        note("no control signals yet; --follow waits for them")


async def _follow(options: Namespace, printer: _Printer) -> None:
    async with open_client(f"run {options.run}") as client:
        async for signal in client.follow(options.run):
            printer.print(signal)


class _Printer:
    """Prints the control signals among the signals of a run, in order. A malformed one is reported; the others follow."""

    def __init__(self, options: Namespace):
        self._log = RunLog()
        self._is_strict, self._is_json = options.strict, options.json
        self.is_unused, self.exit_code = True, 0

    def print(self, signal: Signal) -> None:
        try:
            envelope = self._log.envelope_of(signal)
        except KernelRejected as error:
            self.is_unused, self.exit_code = False, report(error, as_json=self._is_json)
            return
        if envelope is not None:
            self.is_unused = False
            _print(strict_envelope(envelope) if self._is_strict else envelope, as_json=self._is_json)


def _print(envelope: Envelope, *, as_json: bool) -> None:
    if as_json:
        json_line(None, envelope.to_wire())
        return
    signal = envelope.signal
    way = f"{envelope.source} -> {envelope.destination}"
    line(
        f"{clock(envelope.timestamp)}  {envelope.id}  {signal.type}  {way}  {json_text(signal.payload.to_wire(), width(_WIDTH))}"
    )
