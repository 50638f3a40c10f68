"""Read and write recordings as files: lines of JSON in a stable order, so that they compare well in git.

The first line is the header. Then come the signals of the log, then each part with its entries, one line each, then the gaps. The last
line counts the lines and has their hash: a file that was cut off, or changed, is not a recording of anything.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ids import signal_id
from heliograph.key_patterns import without_secrets
from heliograph.recording.entries import DEPTH_MAX, check_part, is_too_deep, problem_of_entry
from heliograph.recording.recording import FORMAT, READ_MAJORS, Gap, Header, Part, Recording
from heliograph.signals.model import Signal, Source
from heliograph.signals.state_change import KEYS_MAX, changed_key, has_long_pointer
from heliograph.types import JsonObject

MAGIC = "heliograph_recording"
LINE_BYTES_MAX = 256 * 1024 * 1024
_KINDS = ("signal", "part", "gap", "end")


class RecordingRejected(InvalidInput):
    """A file that is no recording, or not one that this version reads. `details` has {file, line}."""

    default_code = "invalid_recording"


def read_recording(path: str | os.PathLike[str], *, edited: bool = False) -> Recording:
    """Read a recording. edited: accept a file that was changed by hand.

    Raises RecordingRejected: `invalid_recording`, `recording_truncated`, `recording_edited`, `recording_version`;
    NotFound (`file_not_found`), InvalidInput (`unreadable_file`).
    """
    with _reader(path, edited=edited) as reader:
        return reader.read()


def signals_in(path: str | os.PathLike[str], *, edited: bool = False) -> Generator[Signal]:
    """Yield the signals of a recording. Only one line of the file is in memory at a time. edited: accept a file that was changed by hand.

    The whole file is checked like by `read_recording`: what is wrong after its signals is raised in place of the end.
    """
    with _reader(path, edited=edited) as reader:
        yield from reader.signals()


@contextmanager
def _reader(path: str | os.PathLike[str], *, edited: bool) -> Iterator[_Reader]:
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is a device")
            yield _Reader(name, file, edited=edited)
    except RecordingRejected:
        raise
    except FileNotFoundError:
        raise NotFound(f"there is no file {safe_repr(name)}; check the path, or write one with helio record export",
                       code="file_not_found", path=name) from None  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise InvalidInput(f"recording {safe_repr(name)} cannot be read: {getattr(error, 'strerror', error)}; give the path of a file "
                           "that helio record export has written", code="unreadable_file", path=name) from error  # fmt: skip


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a recording can be written, before the run that it records. Raises InvalidInput (`unwritable_file`)."""
    target = Path(path)
    try:
        problem = None if target.parent.is_dir() else f"{target.parent} is no folder"
        if "\0" in str(target):
            problem = "its name has a NUL character"
        if problem is None and target.exists() and not target.is_file():
            problem = "it is no file"
        if problem is None and not os.access(target.parent, os.W_OK):
            problem = f"the folder {target.parent} does not allow it"
    except (OSError, ValueError) as error:
        problem = str(getattr(error, "strerror", error))
    if problem is not None:
        raise InvalidInput(f"recording {safe_repr(str(target), 200)} cannot be written: {problem}; give the path of a new file",
                           code="unwritable_file", path=str(target))  # fmt: skip


def write_recording(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write a recording, or nothing: the file appears under its name when it is complete. Secrets are replaced by stars.

    Raises InvalidInput (`unwritable_file`).
    """
    check_writable(path)
    target = Path(path)
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(lines_of(recording))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise InvalidInput(f"recording {target} cannot be written: {error.strerror}; nothing was written",
                           code="unwritable_file", path=str(target)) from error  # fmt: skip


def lines_of(recording: Recording) -> Iterator[bytes]:
    """The lines of the file of a recording."""
    digest, count = hashlib.sha256(), 0
    for value in _values(recording):
        line = msgspec.json.encode(without_secrets(value), order="sorted") + b"\n"
        digest.update(line)
        count += 1
        yield line
    yield msgspec.json.encode({"kind": "end", "lines": count, "sha256": digest.hexdigest()}) + b"\n"


def _values(recording: Recording) -> Iterator[Any]:
    header = recording.header
    yield {MAGIC: f"{header.format[0]}.{header.format[1]}", "application": header.application, "run_id": header.run_id,
           "outcome": header.outcome, "heliograph": header.heliograph, "name": header.name,
           "tags": list(header.tags), "loaded_from": header.loaded_from}  # fmt: skip
    for signal in recording.signals:
        line: JsonObject = {"kind": "signal", "seq": signal.seq, "name": signal.name, "payload": signal.payload,
                            "at": signal.timestamp.isoformat(), "agent": signal.agent, "parent": signal.parent,
                            "turn": signal.turn_id}  # fmt: skip
        if signal.run_id != header.run_id:  # a fork shares it with this run
            line["run"] = signal.run_id
        yield {**line, "trust": "untrusted"} if signal.seq in recording.untrusted else line
    for part in recording.parts:
        yield {"kind": "part", "part": part.name, "data": part.data}
        yield from part.entries
    for gap in recording.gaps:
        yield {"kind": "gap", "part": gap.part, "reason": gap.reason}


class _Reader:
    """Reads the lines of one file. `line` counts from 1, for messages."""

    def __init__(self, name: str, file: BinaryIO, *, edited: bool):
        self._name = name
        self._file = file
        self._edited = edited
        self._line = 0
        self._digest = hashlib.sha256()  # of the lines before the current one
        self._digest_before_end = ""
        self._last_seq = 0
        self._has_parts = self._has_start = False

    def read(self) -> Recording:
        signals, parts, gaps, untrusted = list[Signal](), list[Part](), list[Gap](), set[int]()
        entries: list[Sequence[Any]] = []
        values = self._values()
        header = self._header(next(values, None))
        for item, value in self._items(header, values):
            match item:
                case Signal():
                    signals.append(item)
                    if value.get("trust") == "untrusted":
                        untrusted.add(item.seq)
                case Part():
                    entries = []
                    parts.append(Part(item.name, item.data, entries))
                case Gap():
                    gaps.append(item)
                case _:
                    entries.append(value)
        return Recording(header, signals, parts, gaps, frozenset(untrusted))

    def signals(self) -> Iterator[Signal]:
        """Yield the signals, and check the rest."""
        values = self._values()
        header = self._header(next(values, None))
        return (item for item, _ in self._items(header, values) if isinstance(item, Signal))

    def _items(self, header: Header, values: Iterator[Any]) -> Iterator[tuple[Signal | Part | Gap | None, Any]]:
        """What each line after the header is, with its value; None for an entry of the part before it."""
        end: JsonObject | None = None
        for value in values:
            if end is not None:
                raise self._bad("lines follow its end", "two recordings are not one file: read each of its own")
            if isinstance(value, list):
                self._check_entry(value)
                yield None, value
                continue
            kind = value.get("kind") if isinstance(value, dict) else None
            if kind not in _KINDS:
                raise self._bad(f"a line of kind {safe_repr(kind)}", "restore the file from its history")
            if kind == "end":
                end, self._digest_before_end = value, self._digest.hexdigest()
                continue
            try:
                item = self._item(kind, value, header)
            except (KeyError, TypeError, ValueError) as error:
                raise self._bad(f"the {kind} is incomplete or has a wrong type ({safe_repr(str(error))})",
                                "restore the file from its history") from error  # fmt: skip
            yield item, value
        self._check_end(end)
        if not self._last_seq:
            raise self._bad("it has no signals", "export the run again")

    def _item(self, kind: str, value: JsonObject, header: Header) -> Signal | Part | Gap:
        if kind == "gap":
            return Gap(str(value["part"]), str(value["reason"]))
        if kind == "part":
            name: Any = value["part"]
            data: Any = value["data"]
            check_part(name, data, ("start",) if self._has_start else ())
            self._has_parts, self._has_start = True, self._has_start or name == "start"
            return Part(name, data, ())
        signal = _signal(value, header.run_id)
        if self._has_parts or (self._last_seq and signal.seq != self._last_seq + 1):
            raise self._bad(f"signal {signal.seq} is not at its place: signals are in the order of the log, before the parts",
                            "restore the order of the lines")  # fmt: skip
        if changed_key(signal.name) is not None and has_long_pointer(signal.payload):
            raise self._bad(f"signal {signal.seq} changes a part of the state by a JSON pointer of more than {KEYS_MAX} keys",
                            "restore the file from its history")  # fmt: skip
        self._last_seq = signal.seq
        return signal

    def _check_entry(self, entry: list[Any]) -> None:
        if not self._has_parts:
            raise self._bad("an entry is not within a part", "restore the order of the lines")
        problem = problem_of_entry(entry)
        if problem is None and entry[0] == "call" and not self._is_in_log(entry[4]):
            problem = f"the place of the call {safe_repr(entry[4])} is not in the log, which ends with signal {self._last_seq}"
        if problem is not None:
            raise self._bad(problem, "restore the file from its history")

    def _is_in_log(self, place: Mapping[str, Any]) -> bool:
        """Whether the log has the signals of a call. A call that was not committed has no place."""
        return "first" not in place or (
            place["count"] >= 0 and 0 < place["first"] <= self._last_seq + 1 - place["count"]
        )

    def _header(self, value: Any) -> Header:
        if not isinstance(value, dict) or not isinstance(value.get(MAGIC), str):
            raise self._bad("it is no recording of Heliograph", "give a file that helio record export has written")
        major, _, minor = value[MAGIC].partition(".")
        if not (major.isdecimal() and minor.isdecimal() and len(value[MAGIC]) < 20):
            raise self._bad(f"its format {safe_repr(value[MAGIC])} is no version", "restore the file from its history")
        if int(major) not in READ_MAJORS:
            word = "newer" if int(major) > FORMAT[0] else "older"
            raise self._bad(f"its format {major}.{minor} is {word} than {FORMAT[0]}.{FORMAT[1]}, which this version reads",
                            f"read it with Heliograph {safe_repr(value.get('heliograph'))}, or record the run again",
                            "recording_version")  # fmt: skip
        try:
            given = msgspec.convert({"name": None, "tags": [], **value, "format": (int(major), int(minor))}, Header)
        except msgspec.ValidationError as error:
            raise self._bad(f"its header is incomplete or has a wrong type ({safe_repr(str(error))})",
                            "restore the file from its history") from error  # fmt: skip
        return given

    def _values(self) -> Iterator[Any]:
        """The values of the lines. A line may end as on Windows: git changes the ends of lines there."""
        line = self._file.readline(LINE_BYTES_MAX)
        while line:
            following = self._file.readline(LINE_BYTES_MAX)
            self._line += 1
            if len(line) == LINE_BYTES_MAX:
                raise self._bad(f"the line has {LINE_BYTES_MAX} bytes or more", "restore the file from its history")
            content = line.rstrip(b"\r\n")
            try:
                value = msgspec.json.decode(content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                is_last = not following and not isinstance(error, RecursionError)
                raise self._bad(
                    "the line is cut off" if is_last else "the line is no JSON",
                    "copy the whole file" if is_last else "restore the file from its history",
                    "recording_truncated" if is_last else None,
                ) from error
            if is_too_deep(content, value):
                raise self._bad(f"it has more than {DEPTH_MAX} containers inside each other",
                                "restore the file from its history")  # fmt: skip
            yield value
            self._digest.update(content + b"\n")
            line = following

    def _check_end(self, end: JsonObject | None) -> None:
        if end is None:
            raise self._bad("its end is missing: the file was cut off", "copy the whole file, or export the run again",
                            "recording_truncated")  # fmt: skip
        if self._digest_before_end != end.get("sha256") and not self._edited:
            raise self._bad("its lines are not those that were written: some were changed, added or removed",
                            "restore the file from its history, or accept the changes with --edited",
                            "recording_edited")  # fmt: skip

    def _bad(self, problem: str, remedy: str, code: str | None = None) -> RecordingRejected:
        error = RecordingRejected(f"recording {self._name}, line {max(self._line, 1)}: {problem}; {remedy}", code=code,
                                  path=self._name)  # fmt: skip
        error.details = {"file": self._name, "line": max(self._line, 1)}
        return error


def _signal(value: JsonObject, own_run: str) -> Signal:
    seq, agent, parent, run_id = value["seq"], value["agent"], value["parent"], value.get("run", own_run)
    if type(seq) is not int or not 0 < seq < 2**63 or not isinstance(value["name"], str):
        raise TypeError("seq and name")
    if not all(each is None or isinstance(each, str) for each in (agent, parent, value["turn"])):
        raise TypeError("agent, parent and turn")
    if not isinstance(run_id, str):
        raise TypeError("run")
    at = datetime.fromisoformat(str(value["at"]))
    if at.tzinfo is None:
        raise ValueError("at has no time zone")
    source = Source(agent, parent) if agent or parent else None  # type: ignore[arg-type]
    return Signal(signal_id(run_id, seq), value["name"], value["payload"], at, source, run_id, seq, value["turn"])  # type: ignore[arg-type]


def header_of(application: str, run_id: str, outcome: str | None, name: str | None, tags: Iterable[str]) -> Header:
    """The header of a new recording."""
    return Header(application, run_id, outcome, version("heliograph"), FORMAT, name, tuple(tags))
