"""Fixtures of the journeys: a slow model provider, and a folder with an application that uses it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.cli_support import Shell
from tests.marks import excludes_more
from tests.reach.model_server import Answer, Provider, env_of, serve

WORDS = [f"{n} " for n in range(60)]
THOUGHT = "let me see what there is to say "


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Import no journey where `-m` excludes all of them: each process of a test run would spend seconds on it."""
    return True if excludes_more(config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all journeys as slow, because they start and kill real processes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.more)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A model provider that thinks and then streams slowly, for about six seconds."""
    with serve(Provider([Answer(WORDS, THOUGHT, between_seconds=0.06)])) as serving:
        yield serving


@pytest.fixture
def shell(tmp_path: Path, database_url: str, provider: Provider) -> Shell:
    """A folder with an application that calls this provider."""
    shutil.copy(Path(__file__).with_name("stream_app.py"), tmp_path)
    return Shell(tmp_path, database_url, env_of(provider))
