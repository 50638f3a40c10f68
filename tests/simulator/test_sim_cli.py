from __future__ import annotations

import pytest

from heliograph.errors import InvalidInput
from heliograph.testing.mutants.catalog import MUTANTS, hunt
from heliograph.testing.simulator.cli import main
from heliograph.testing.simulator.simulate import Result

RULE = MUTANTS["no_lease_sweep"]


def test_seed_that_is_no_number_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="seed must be an integer, not abc") as caught:
        main(["replay", "abc"])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [["run", "--seeds", "0"], ["run", "--seeds", "x"], ["run", "--start", "x"], ["run", "--backend", "oracle"], ["sing"], [],
     ["replay"], ["replay", "1", "--case", "{}"], ["replay", "--case", "no json"], ["shrink", "1", "--mutant", "nobody"],
     ["replay", "1", "--mutant", "prune_needed"], ["replay", "--case", '{"seed": 1, "maintenance": true}'], ["shrink", "1", "--mutant", "prune_needed"]],
)  # fmt: skip
def test_meaningless_arguments_are_rejected(arguments: list[str]) -> None:
    with pytest.raises(InvalidInput):
        main(arguments)


@pytest.mark.more
def test_successful_seeds_exit_with_0_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "3", "--start", "40"]) == 0
    assert capsys.readouterr().out.startswith("3 seeds on memory: 0 failed")


def test_replay_shows_the_calls_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "5", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(" claim " in line and " -> " in line for line in lines)
    assert lines[-1].startswith("HELIOGRAPH_SEED=5 backend=memory ok")


@pytest.fixture(scope="module")
def failed() -> Result:
    """A seed that fails without a rule of the kernel, under the present workload."""
    found = hunt(RULE, RULE.in_memory(), range(100))
    assert found is not None
    return found


def test_failing_seed_is_printed_as_one_line_that_replays_it(
    failed: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(failed.case.seed), "--mutant", RULE.name]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == failed.line()


@pytest.mark.more
def test_printed_shrunk_case_fails_again(failed: Result, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shrink", str(failed.case.seed), "--mutant", RULE.name]) == 0
    case = capsys.readouterr().out.splitlines()[-1]
    assert main(["replay", "--case", case, "--mutant", RULE.name]) == 1
    assert f"class={failed.kind}" in capsys.readouterr().out
    assert main(["replay", "--case", case]) == 0
