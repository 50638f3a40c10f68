"""The tape of one part: each commit keeps what no earlier one has, also if nobody knows whether it was committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import redaction
from heliograph.execution.packed_commit import packed_claim, packed_text, unpacked_text
from heliograph.execution.recorded_ledger import RecordedLedger
from heliograph.execution.tape import Tape
from heliograph.ledger.client import Ledger
from heliograph.ledger.rows import RecordedCommitRow
from heliograph.recording.export import RecordedParts
from heliograph.recording.file import header_of
from heliograph.recording.recording import Recording
from heliograph.records import Cause, WriteResult
from tests.recording.claims import claim

CLAIM = packed_claim(claim(Cause("sig_run_b_1", "note", None)), "p", is_observed=False)
SIGNALS: dict[str, Any] = {"signals": [{"name": "note", "at": None}]}


def commit(tape: Tape, seq: int, value: str) -> tuple[int, RecordedCommitRow]:
    """Read a value and make a call; return its number, and the row of its commit."""
    tape.read(("id", "turn", value))
    number, kept = tape.commit("append", SIGNALS)
    return number, RecordedCommitRow("run_a", seq, 1, "turn_a", str(kept))


def exported(*rows: RecordedCommitRow) -> Recording:
    parts = RecordedParts("run_a")
    for row in rows:
        parts.add(row)
    return parts.recording(header_of("app", "run_a", None, None, ()), [], [], {"turn_a:1": len(rows)})


@pytest.mark.proves("SIG-04")
def test_call_whose_reply_was_lost_is_recorded_again_after_its_repetition() -> None:
    tape = Tape(1, CLAIM)
    first, first_row = commit(tape, 5, "a")
    tape.lost(0)
    again, _ = commit(tape, 6, "b")  # the kernel has the first one, so this one writes nothing
    tape.kept(again, 0)
    third, third_row = commit(tape, 6, "c")
    tape.kept(third, 1)
    _, fourth_row = commit(tape, 7, "d")
    [part] = exported(first_row, third_row, fourth_row).parts
    assert [entry[2] for entry in part.entries if entry[0] == "id"] == ["a", "b", "c", "d"]
    assert {entry[1]: entry[4] for entry in part.calls()} == {
        first: {"first": 5, "count": 1}, again: {"names": ["note"], "at": None}, third: {"first": 6, "count": 1},
        fourth_row.seq - 3: {"first": 7, "count": 1},
    }  # fmt: skip
    assert unpacked_text(fourth_row.body, "turn_a")["from"] == 6, "what was kept for certain is not written again"


async def test_call_that_was_cancelled_is_recorded_again_after_its_repetition() -> None:
    tape, rows = Tape(1, CLAIM), list[RecordedCommitRow]()

    class Kernel(Ledger):
        world: Any = None
        project = "p"
        hangs = True

        def __init__(self) -> None:
            """It has no connection."""

        async def append(self, item: dict[str, Any]) -> WriteResult:
            if self.hangs or rows[-1].seq != 5 + item["signals_emitted"]:
                rows.append(
                    RecordedCommitRow("run_a", 5 + item["signals_emitted"], 1, "turn_a", item["recording"]["body"])
                )
            if self.hangs:
                await asyncio.get_running_loop().create_future()
            return WriteResult("turn_a", "ok", first_seq=rows[-1].seq)

    kernel = Kernel()
    ledger = RecordedLedger(kernel, claim(Cause("sig_run_b_1", "note", None)), tape)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ledger.append({**SIGNALS, "signals_emitted": 0})
    kernel.hangs = False
    for count in (0, 1):  # the kernel has the first one, so the second one writes nothing
        tape.read(("id", "turn", str(count)))
        await ledger.append({**SIGNALS, "signals_emitted": count})
    found = exported(*rows)
    assert found.gaps == []
    assert [entry[2] for entry in found.parts[0].entries if entry[0] == "id"] == ["0", "1"]


@pytest.mark.proves("SIG-04")
def test_missing_commit_ends_its_part_with_a_gap() -> None:
    tape = Tape(1, CLAIM)
    rows = []
    for seq in (5, 6, 7):
        number, row = commit(tape, seq, str(seq))
        tape.kept(number, seq)
        rows.append(row)
    found = exported(rows[0], rows[2])
    [part], [gap] = found.parts, [gap for gap in found.gaps if gap.part == "turn_a:1"]
    assert [entry[2] for entry in part.entries if entry[0] == "id"] == ["5"]
    assert "some of its commits are missing" in gap.reason
    assert exported(rows[1]).parts == [], "without its first commit, the part has no beginning"


def test_value_that_cannot_be_recorded_is_a_gap_with_its_reason() -> None:
    tape = Tape(1, CLAIM)
    tape.read(("view", object()))
    number, kept = tape.commit("append", SIGNALS)
    row = RecordedCommitRow("run_a", 5, 1, "turn_a", str(kept))
    tape.kept(number, 0)
    _, later = commit(tape, 6, "b")
    found = exported(row, later)
    assert found.parts == []
    assert "a value cannot be recorded" in next(gap.reason for gap in found.gaps if gap.part == "turn_a:1")


def test_part_whose_cause_is_pruned_is_a_gap() -> None:
    logged = packed_claim(claim(Cause("sig_run_a_1", "note", None)), "p", is_observed=False)
    _, row = commit(Tape(1, logged), 5, "a")
    found = exported(row)
    assert found.parts == []
    assert [gap.reason for gap in found.gaps if gap.part == "turn_a:1"] == [
        "what it started from is pruned or was damaged"
    ]


def test_body_with_a_secret_in_any_place_is_still_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_kept", redaction._Kept())
    redaction.keep_out("8190021734", "passphrase\\")
    data: dict[str, Any] = {
        "number": 8190021734,
        "text": 'is 8190021734 or passphrase\\"',
        "more": [5, None, {"passphrase\\": 81.5}],
    }
    text = packed_text(("start", 0, [], 1, "start_runs", {}, data))
    assert redaction.is_clean(text)
    assert unpacked_text(text, None)["data"] == {
        "number": "***", "text": 'is *** or ***"', "more": [5, None, {"***": 81.5}],
    }  # fmt: skip


def test_tape_forgets_what_a_commit_has_kept() -> None:
    tape = Tape(1, CLAIM)
    number, _ = commit(tape, 5, "a")
    tape.kept(number, 0)
    tape.read(("id", "turn", "b"))
    assert (tape.entries, tape.data) == ([("id", "turn", "b")], None)


def test_call_that_was_cancelled_is_recorded_by_the_next_commit_without_its_owner() -> None:
    tape, item = Tape(1, CLAIM), {**SIGNALS, "turn_id": "turn_a", "epoch": 1, "phase": "act"}
    number, _ = tape.commit("append", item)
    _, row = commit(tape, 5, "a")
    [part] = exported(row).parts
    assert part.entries[0] == ["call", number, "append", {"phase": "act"}, {"names": ["note"], "at": None}]
