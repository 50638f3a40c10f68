"""`helio conformance`: Heliograph passes the black-box suite, and systems with one defect do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.errors import InvalidInput
from heliograph.testing.blackbox.check import is_satisfied
from heliograph.testing.blackbox.checks import CHECKS
from heliograph.testing.blackbox.evidence import Evidence
from heliograph.testing.blackbox.scenarios import SCENARIOS
from heliograph.testing.blackbox.suite import OWN_SURFACE, chosen, run
from heliograph.testing.blackbox.surface import read_surface
from tests.faces.cli_support import HELIO, Shell, warm

BROKEN = Path(__file__).parent / "broken_system.py"
REPLAY = (
    '["{{python}}", "-I", "-S", "{script}", "{command}", "{defect}", "{recordings}", "{{application}}", "{{folder}}"]'
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "postgresql://nobody@127.0.0.1:1/none")


def write_surface(folder: Path, recordings: Path, defect: str) -> Path:
    """Write the surface of a system that replays recordings with a defect."""
    commands = [
        f"{command} = {REPLAY.format(script=BROKEN, command=command, defect=defect, recordings=recordings)}"
        for command in ("worker", "pool_worker", "start", "signals", "envelopes", "stop")
    ]
    path = folder / f"{defect}.toml"
    path.write_text("\n".join(["seconds = 20", "[commands]", *commands]), encoding="utf-8")
    return path


def write_own_surface(folder: Path) -> Path:
    """Write Heliograph's own surface, with forks of a warm `helio` as its processes."""
    text, start = OWN_SURFACE.read_text(encoding="utf-8"), '"{python}", "-m", "heliograph"'
    assert text.count(start) == 6
    path = folder / "forked.toml"
    client = ", ".join(map(json.dumps, warm().client(str(HELIO))))
    path.write_text(text.replace(start, client).replace("{here}", str(OWN_SURFACE.parent)), encoding="utf-8")
    return path


def outcomes(shell: Shell, *arguments: str) -> tuple[int, dict[str, str]]:
    done = shell.helio("conformance", "--json", *arguments)
    return done.returncode, {row["id"]: row["outcome"] for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.more
@pytest.mark.timeout(600)  # ten systems are checked
def test_heliograph_passes_every_check_and_broken_systems_do_not(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(surface: Path, *ids: str) -> list[str]:
        results = run(read_surface(surface), chosen(ids), tmp_path / surface.stem, lambda scenario: None)
        return [each.check.id for each in results if each.outcome != "passed"]

    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    surface = write_own_surface(tmp_path)
    assert failed(surface) == []
    assert failed(OWN_SURFACE, "L0-80") == []
    recordings = tmp_path / surface.stem
    assert failed(write_surface(tmp_path, recordings, "none")) == []
    for identifier in ("SIG-16", "L0-07", "LC-01", "CTL-10", "ENV-06", "ERR-03", "RTE-05", "RET-03", "CB-06"):
        defect = identifier.partition("-")[0]
        assert failed(write_surface(tmp_path, recordings, defect), identifier) == [identifier]
    surface = write_surface(tmp_path, recordings, "ENV")
    assert outcomes(Shell(tmp_path, database_url), "--surface", str(surface), "ENV-06") == (1, {"ENV-06": "failed"})


def test_checks_cover_nine_families_and_each_id_once() -> None:
    ids = [each.id for each in CHECKS]
    assert len(ids) == len(set(ids)) >= 100
    assert {each.partition("-")[0] for each in ids} == {"SIG", "L0", "LC", "CTL", "ENV", "ERR", "RTE", "RET", "CB"}


@pytest.mark.parametrize("log", [[], [{}], [{"name": 7, "payload": "x", "source": []}], [{"name": "workflow:end"}]])
def test_log_without_a_run_fails_every_check(log: list[dict[str, object]]) -> None:
    for each in CHECKS:
        evidence = Evidence(SCENARIOS[each.scenario], log, [], False, 0, [])
        if not (each.id in ("SIG-11", "SIG-12", "SIG-14", "SIG-62") and log):
            assert not is_satisfied(each, evidence), each.id


def test_system_without_optional_commands_leaves_their_checks_open(tmp_path: Path, shell: Shell) -> None:
    path = write_surface(tmp_path, tmp_path, "none")
    required = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith(("envelopes", "pool_worker"))
    ]
    path.write_text("\n".join(required), encoding="utf-8")
    code, found = outcomes(shell, "--surface", str(path), "ENV", "RTE")
    assert (code, len(found), set(found.values())) == (0, 14, {"not observable"})


def test_list_names_the_chosen_checks_and_runs_nothing(shell: Shell) -> None:
    done = shell.helio("conformance", "--list", "ENV", "SIG-10")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["SIG-10", *(f"ENV-0{n}" for n in range(1, 9))]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(("SIG-99",), 3, "there is no check SIG-99"), (("--surface", "none.toml"), 2, "none.toml is no surface"), (("--keep", "."), 2, "exists")],
)  # fmt: skip
def test_wrong_arguments_have_their_exit_code(
    shell: Shell, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = shell.helio("conformance", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_command_that_does_not_exist_is_named(tmp_path: Path, shell: Shell) -> None:
    path = write_surface(tmp_path, tmp_path, "none")
    path.write_text(path.read_text(encoding="utf-8").replace("{python}", "no-such-program"), encoding="utf-8")
    done = shell.helio("conformance", "--surface", str(path), "SIG-10")
    assert (done.returncode, "cannot run the command worker of none" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [("[commands", "is no surface"), ("speed = 1", "there are no keys speed"), ("commands = 1", "are tables"), ("", "the command worker is missing"),
     ("[commands]\nworker=['a']\nstart=['a']\nsignals=['a']\nstop=['a']\nfly=['a']", "no command fly"),
     ("[commands]\nworker='a'\nstart=['a']\nsignals=['a']\nstop=['a']", "worker is a list"),
     ("[commands]\nworker=['{app}']\nstart=['a']\nsignals=['a']\nstop=['a']", r"no placeholder \{app\}"),
     ("seconds=0\n[commands]\nworker=['a']\nstart=['a']\nsignals=['a']\nstop=['a']", "above 0"),
     ("[environment]\nA=1\n[commands]\nworker=['a']\nstart=['a']\nsignals=['a']\nstop=['a']", "variable A")],
)  # fmt: skip
def test_malformed_surface_is_rejected_with_its_problem(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "surface.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message) as caught:
        read_surface(path)
    assert caught.value.code == "invalid_surface"
