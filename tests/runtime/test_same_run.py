"""The same command with a run id continues that run; an invalid command starts none."""

from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel, Field

from heliograph import Heliograph
from heliograph.errors import InvalidInput, Rejected
from tests.runtime.kit import START, Rig, names, one

_now = count(1)


class Note(BaseModel):
    tags: set[str] = set()


class Before(BaseModel):
    topic: str = "none"
    at: int = Field(default_factory=_now.__next__)
    notes: list[Note] = []


class After(Before):
    added: str = "in the next release"


def app_of(kind: Any) -> Heliograph:
    app = Heliograph("same", state=kind)
    app.agent(name="a", activate_on=START, updates="topic")(lambda _ctx: "done")
    return app


@pytest.mark.parametrize(
    "state", [None, {}, {"topic": "t"}, {"notes": [{"tags": {"a", "b"}}]}, {"notes": [Note(tags={"a", "b"})]}]
)
@pytest.mark.parametrize("later", [Before, After])
async def test_defaults_of_the_state_type_do_not_make_another_run(rig: Rig, state: Any, later: Any) -> None:
    first = await rig.run(app_of(Before), state, run_id="run_same")
    again = await rig.run(app_of(later), state, run_id="run_same")
    assert again.signals == first.signals
    assert again.state.at == first.state.at


@pytest.mark.parametrize("state", [{"topic": "u"}, {"topic": "t", "at": 5}, Before(topic="t", at=5)])
async def test_different_state_of_the_caller_makes_another_run(rig: Rig, state: Any) -> None:
    app = app_of(Before)
    await rig.run(app, {"topic": "t"}, run_id="run_same")
    with pytest.raises(Rejected) as caught:
        await rig.run(app, state, run_id="run_same")
    assert caught.value.code == "id_conflict"


async def test_equal_state_object_is_the_same_run(rig: Rig) -> None:
    app = app_of(Before)
    first = await rig.run(app, Before(at=5, notes=[Note(tags={"a", "b"})]), run_id="run_same")
    assert await rig.run(app, Before(at=5, notes=[Note(tags={"b", "a"})]), run_id="run_same") == first


async def test_unchanged_key_with_a_set_emits_no_change(rig: Rig) -> None:
    result = await rig.run(app_of(Before), {"notes": [{"tags": [f"word {n}" for n in range(50)]}]})
    changed = [name for name in names(result.signals) if name.startswith("state:")]
    assert changed == ["state:topic:changed"]
    tags = one(result.signals, "workflow:end")["state"]["notes"][0]["tags"]
    assert tags == sorted(tags)


async def _on_signal(_signal: Any) -> None:
    """An async callback, which nothing would await."""


@pytest.mark.parametrize(
    ("options", "code", "path", "text"),
    [
        ({"concurrency": 0}, "out_of_range", "/concurrency", "from 1 to 1000 turns at a time, not 0"),
        ({"concurrency": 1001}, "out_of_range", "/concurrency", "not 1001"),
        ({"concurrency": 2.5}, "wrong_type", "/concurrency", "a whole number, not 2.5"),
        ({"concurrency": True}, "wrong_type", "/concurrency", "not True"),
        ({"concurrency": "4"}, "wrong_type", "/concurrency", "not '4'"),
        ({"lease_seconds": 0}, "out_of_range", "/lease_seconds", "from 0.1 to 86400, not 0"),
        ({"lease_seconds": -1.0}, "out_of_range", "/lease_seconds", "not -1.0"),
        ({"lease_seconds": 86_401}, "out_of_range", "/lease_seconds", "not 86401"),
        ({"lease_seconds": float("nan")}, "out_of_range", "/lease_seconds", "not nan"),
        ({"lease_seconds": float("inf")}, "out_of_range", "/lease_seconds", "not inf"),
        ({"lease_seconds": "30"}, "wrong_type", "/lease_seconds", "a number, not '30'"),
        ({"lease_seconds": None}, "wrong_type", "/lease_seconds", "a number, not None"),
        ({"on_signal": 5}, "wrong_type", "/on_signal", "a function of the signal, not 5"),
        ({"on_signal": _on_signal}, "wrong_type", "/on_signal", "write def, not async def"),
        ({"run_id": 5}, "invalid_id", "/run_id", "not 5"),
    ],
)
async def test_invalid_command_starts_nothing(
    rig: Rig, options: dict[str, Any], code: str, path: str, text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await rig.run(app_of(Before), **options)
    assert (caught.value.code, caught.value.path) == (code, path)
    assert text in caught.value.message
    assert await rig.runtime.reader.runs(10) == []


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"lease_seconds": 0.01}])
async def test_worker_without_agents_is_rejected(rig: Rig, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be from"):
        rig.runtime.worker(app_of(Before).workflow, **options)
