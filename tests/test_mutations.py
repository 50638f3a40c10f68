"""The check of the proof marks: which mutations it accepts, and the verdict on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.kills import key_of, read_kills, write_kills
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


@pytest.mark.parametrize("changes", [{"new": "'return run_id'"}, {"test": f"'{CLAIMS['SIG-10'][0]}'", "new": "'x'"}])
def test_key_of_a_changed_mutation_is_another_one(tmp_path: Path, changes: dict[str, str]) -> None:
    assert read(tmp_path).key == read(tmp_path).key != read(tmp_path, **changes).key


@pytest.mark.parametrize("node", ["t.py::test_a", "t.py::TestB::test_a", "t.py::TestB", "t.py", "t.py::test_a[1]"])
def test_key_changes_with_the_source_of_a_claiming_test_and_of_no_other(tmp_path: Path, node: str) -> None:
    def written(name: str, a: int, b: int, c: int) -> tuple[Path, str]:
        root = tmp_path / name
        root.mkdir()
        text = f"@mark({a})\ndef test_a():\n    pass\n\n\nclass TestB:\n    def test_a(self):\n        assert {b}\n\n\ndef test_c():\n    assert {c}\n"
        (root / "t.py").write_text(text, encoding="utf-8")
        return root, key_of({"ids": ["X"]}, {"X": [node]}, root)

    (_, first), (_, a), (_, b), (_, c) = (written(name, *numbers) for name, numbers in
                                          {"1": (1, 1, 1), "2": (2, 1, 1), "3": (1, 2, 1), "4": (1, 1, 2)}.items())  # fmt: skip
    changed = {
        "t.py::test_a": (1, 0, 0),
        "t.py::test_a[1]": (1, 0, 0),
        "t.py::TestB::test_a": (0, 1, 0),
        "t.py::TestB": (0, 1, 0),
        "t.py": (1, 1, 1),
    }
    assert tuple(int(each != first) for each in (a, b, c)) == changed[node]


def test_record_keeps_kills_and_forgets_survivors_and_mutations_that_are_gone(tmp_path: Path) -> None:
    assert read_kills(tmp_path) == {}
    write_kills(tmp_path, {"k1": "SIG-10", "k2": "L0-01, K1"}, [], ["k1", "k2", "k3"])
    assert (tmp_path / "killed.txt").read_text(encoding="utf-8") == "k2 L0-01, K1\nk1 SIG-10\n"
    write_kills(tmp_path, {"k3": "K2"}, ["k1"], ["k1", "k3"])
    assert read_kills(tmp_path) == {"k3": "K2"}


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
