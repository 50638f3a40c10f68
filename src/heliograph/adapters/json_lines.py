"""Append signals to a file, one JSON object per line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from heliograph.adapters.base import PAGE, AdapterServices, Receive, TargetUnavailable
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, TurnTimedOut
from heliograph.key_patterns import json_without_secrets
from heliograph.signals.model import Signal, to_wire

WRITE_SECONDS = 30.0


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class JsonLines:
    """Appends each signal to a file, as one line of JSON in the shape of `helio run --json`, with secrets redacted.

    Several processes may append to one file. A line is on the disk before its signal counts as delivered. The file is opened again when
    another one has its name, so it can be rotated. While it cannot be written, its signals wait in the log.
    Raises InvalidInput (`wrong_type`, `invalid_path`).
    """

    kind = "json-lines"
    page = PAGE

    def __init__(self, path: str | os.PathLike[str]):
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise InvalidInput(
                f"the path of JsonLines must be text, not {safe_repr(repr_of(path))}", code="wrong_type", path="/path"
            )
        self._path = os.fspath(path)
        if not self._path or "\0" in self._path or not _is_encodable(self._path):
            raise InvalidInput(f"{safe_repr(self._path) or 'an empty text'} is no path of a file; write for example "
                               "JsonLines('signals.jsonl')", code="invalid_path", path="/path")  # fmt: skip
        self.target = safe_repr(self._path, 200)

    def __repr__(self) -> str:
        return f"JsonLines({self._path!r})"

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        from heliograph.adapters.line_file import LineFile  # late: it needs locks of files, which Windows does not have

        file = LineFile(self._path)

        async def receive(signals: Sequence[Signal]) -> None:
            lines = b"".join(json_without_secrets(to_wire(signal)) + b"\n" for signal in signals)
            try:
                await services.world.within(WRITE_SECONDS, services.run_sync(file.append, lines))
            except OSError as error:
                raise TargetUnavailable(
                    f"{self.target} cannot be written: {error.strerror or type(error).__name__}"
                ) from None
            except TurnTimedOut:
                raise TargetUnavailable(f"{self.target} was not written within {WRITE_SECONDS:g} s") from None

        try:
            yield receive
        finally:
            file.close()
