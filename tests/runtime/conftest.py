"""Fixtures of the runtime tests: a worker on PostgreSQL. After each test, the doctor, catalog and trace are checked.

All tests share a database, and each has its own project in it. Tests that break connections use `lone_rig`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from heliograph.config import Settings
from heliograph.models import ModelRequest, ScriptedModel
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import Chunk
from heliograph.runtime import open_runtime
from heliograph.testing.database import TestServer
from tests.reach.model_server import Provider, env_of, serve
from tests.runtime.kit import Rig
from tests.runtime.loop_kit import problem_of
from tests.runtime.warm_pool import WarmPool

_projects = itertools.count(1)


@pytest.fixture(scope="session")
def shared_url(postgres: TestServer) -> Iterator[str]:
    """A database with the schema, for all tests of this folder."""
    url = asyncio.run(postgres.create())
    yield url
    asyncio.run(postgres.drop(url))


@pytest_asyncio.fixture(scope="session")
async def warm_pool(shared_url: str) -> AsyncIterator[WarmPool]:
    """Connections to the shared database, which the runtimes reuse."""
    pool = await WarmPool.open(shared_url)
    yield pool
    await pool.close()


@pytest_asyncio.fixture
async def rig(shared_url: str, warm_pool: WarmPool) -> AsyncIterator[Rig]:
    """An open runtime on an empty project."""
    settings = Settings(database_url=shared_url, project=f"project-{os.getpid()}-{next(_projects)}")
    async with warm_pool.open_runtime(settings) as runtime:
        made = Rig(runtime, shared_url)
        yield made
        await made.check()


@pytest_asyncio.fixture
async def lone_rig(database_url: str) -> AsyncIterator[Rig]:
    """An open runtime on a database of its own."""
    async with open_runtime(Settings(database_url=database_url)) as runtime:
        made = Rig(runtime, database_url)
        yield made
        await made.check()


@pytest.fixture(autouse=True)
def _valid_conversations() -> Iterator[None]:
    """Fail the test if a scripted model receives a conversation that a provider would reject.

    It does not use the fixture `monkeypatch`, which has to restore what a test replaces before `rig` checks the database.
    """
    problems: list[str] = []
    stream = ScriptedModel.stream

    def checked(model: ScriptedModel, request: ModelRequest) -> AsyncIterator[Chunk]:
        problems.extend(filter(None, [problem_of(request)]))
        return stream(model, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedModel, "stream", checked)
        yield
    assert problems == []


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the back-off a hundred times as quick."""
    real = RetryPolicy.delay_seconds
    monkeypatch.setattr(RetryPolicy, "delay_seconds", lambda policy, *args: real(policy, *args) / 100)


@pytest.fixture
def provider(clients_of_providers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """A model provider on its own port, which the models openai-chat:... and anthropic:... call."""
    with serve(Provider()) as serving:
        for variable, value in env_of(serving).items():
            monkeypatch.setenv(variable, value)
        yield serving
