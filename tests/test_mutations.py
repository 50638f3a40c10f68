"""The check of the proof marks: which mutations it accepts, and the verdict on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutations import BadMutation, Mutation, Runner, read_mutations

CLAIMS = {"SIG-10": ["tests/rules/test_ids.py::test_signal_id_splits_into_its_run_and_position"]}
ENTRY = {
    "ids": "['SIG-10']", "file": "'src/heliograph/ids.py'", "old": """'return f"sig_{run_id}_{seq}"'""",
    "new": """'return f"{run_id}_{seq}"'""",
}  # fmt: skip


def read(folder: Path, **changes: str) -> Mutation:
    lines = [f"{key} = {value}" for key, value in {**ENTRY, **changes}.items()]
    (folder / "SIG.toml").write_text("\n".join(["[[mutation]]", *lines]), encoding="utf-8")
    return read_mutations(folder, CLAIMS)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"old": "'no such text'"}, "occurs 0 times"),
        ({"old": "'run_id'"}, "times in src/heliograph/ids.py; quote a text that occurs once"),
        ({"ids": "['SIG-11']"}, "no test claims"),
        ({"test": "'tests/rules/test_ids.py::test_another'"}, "does not claim"),
        ({"why": "'x'"}, "unknown keys"),
    ],
)
def test_mutation_that_does_not_apply_is_rejected(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(BadMutation, match=message):
        read(tmp_path, **changes)


@pytest.mark.more
@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("""'return f"{run_id}_{seq}"'""", "killed"),
        ("""'return f"sig_{run_id}_{seq:d}"'""", "survived"),
        ("'return ('", "broken"),
    ],
)
def test_verdict_reports_whether_the_claiming_tests_killed_the_mutation(
    tmp_path: Path, new: str, expected: str
) -> None:
    runner = Runner(tmp_path, "postgresql://unused")
    assert runner.verdict(read(tmp_path, new=new))[0] == expected
