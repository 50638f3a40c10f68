"""`helio signal control`: the control signals of a run, in the envelopes of the specification."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from heliograph.cli.existing_database import open_client, open_existing
from heliograph.cli.output import clock, json_line, line, note
from heliograph.cli.signal import read_on
from heliograph.cli.signal_text import json_text
from heliograph.control.envelope import Envelope
from heliograph.control.run_log import RunLog
from heliograph.control.strict_codes import strict_envelope

_WIDTH = 120


def control(options: Namespace) -> int:
    try:
        asyncio.run(_follow(options) if options.follow else _list(options))
    except KeyboardInterrupt:
        if not options.follow:
            raise  # an interrupt is the normal end of --follow
    return 0


async def _list(options: Namespace) -> None:
    async with open_existing(f"run {options.run}") as reader:
        await reader.run(options.run)
        signals = await read_on(reader, options.run, 0)
    log = RunLog()
    envelopes = [envelope for signal in signals if (envelope := log.envelope_of(signal)) is not None]
    if options.strict:
        envelopes = [strict_envelope(envelope) for envelope in envelopes]
    for envelope in envelopes:
        _print(envelope, as_json=options.json)
    if not envelopes and not options.json:
        note("no control signals yet; --follow waits for them")


async def _follow(options: Namespace) -> None:
    async with open_client(f"run {options.run}") as client:
        async for envelope in client.control_signals(options.run, strict=options.strict):
            _print(envelope, as_json=options.json)


def _print(envelope: Envelope, *, as_json: bool) -> None:
    if as_json:
        json_line(envelope.to_wire())
        return
    signal = envelope.signal
    way = f"{envelope.source} -> {envelope.destination}"
    line(
        f"{clock(envelope.timestamp)}  {envelope.id}  {signal.type}  {way}  {json_text(signal.payload.to_wire(), _WIDTH)}"
    )
