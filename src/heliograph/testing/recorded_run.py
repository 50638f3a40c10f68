"""A run that a test records once with the real models and tools, and replays from then on: the value of `heliograph_recording`."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from heliograph.app import Heliograph
from heliograph.client.session import Session
from heliograph.config import Settings, read_settings
from heliograph.errors import HeliographError, InvalidInput, NotFound
from heliograph.harness.resolve import Harnesses
from heliograph.recording.file import check_writable, write_recording
from heliograph.recording.modes import replay_run
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.run_result import RunResult
from heliograph.testing.served_application import ServedApplication, serve_with
from heliograph.testing.stubs import Models, Servers, StubbedModels, Tools, with_stubs
from heliograph.type_variables import AppState
from heliograph.world.cancellation import cancel

Outside = Callable[[ServedApplication, str], Awaitable[None]]  # it receives the id of the run
Talk = Callable[[Session], Awaitable[None]]
Recorder = Callable[[ServedApplication], Awaitable[RunResult]]


class RecordedRun:
    """The recording of a test.

    path: its file. test: the node id of the test, for the command that records it. database_url: an empty database to record on; None
    to replay the file.
    """

    def __init__(self, path: Path, test: str, database_url: str | None):
        self.path = path
        self.is_written = False
        self._command = f"python -m pytest --heliograph-record {quote(test)}"
        self._database_url = database_url
        self._is_used = False

    async def run(
        self, app: Heliograph[AppState, Any], state: AppState | Mapping[str, Any] | None = None, *, outside: Outside | None = None, models: Models = None,
        tools: Tools | None = None, servers: Servers | None = None, accept: Collection[str] = (),
        renamed_tools: Mapping[str, str] | None = None,
    ) -> RunResult[AppState]:  # fmt: skip
        """Replay the recording of a run and return the result. With `pytest --heliograph-record`, run the application and record it.

        outside, models, tools, servers: used only while the run is recorded. outside: an async function that acts as the people and
            systems outside. The others: stubs as of `heliograph.testing.serve`; without them, the real ones are called.
        accept, renamed_tools: changes of the code that are no divergence, as of `heliograph.recording.replay`.

        Raises NotFound without a file, ReplayDiverged if the code does something else than its recording, InvalidInput for another
        state, another application, and a second run in one test. Nothing is written unless the recording can be replayed.
        """
        __tracebackhide__ = True

        async def recorded(serving: ServedApplication) -> RunResult:
            __tracebackhide__ = True
            return await _result(serving, await serving.start(state, record=True), outside)

        policy = ReplayPolicy(accept, renamed_tools or {})
        return await self._run(app, lambda: with_stubs(app, tools, servers), state, models, policy, recorded)

    async def session(
        self, app: Heliograph[AppState, Any], talk: Talk, *, agent: str | None = None,
        state: AppState | Mapping[str, Any] | None = None, models: Models = None,
        tools: Tools | None = None, servers: Servers | None = None, accept: Collection[str] = (),
        renamed_tools: Mapping[str, str] | None = None,
    ) -> RunResult[AppState]:  # fmt: skip
        """Replay the recording of a conversation, as `run` does. talk: sends the messages of a new recording; then the session is closed.

        agent, state: as of `Heliograph.session`. The other arguments and the errors are those of `run`.
        """
        __tracebackhide__ = True

        async def recorded(serving: ServedApplication) -> RunResult:
            __tracebackhide__ = True
            async with serving.session(agent=agent, state=state, record=True) as session:
                await talk(session)
                await session.close()
                return await serving.result(session.id)

        policy = ReplayPolicy(accept, renamed_tools or {})
        return await self._run(app, lambda: with_stubs(app, tools, servers), state, models, policy, recorded)

    async def _run(
        self, app: Heliograph, stubbed: Callable[[], Heliograph], state: Any, models: Models, policy: ReplayPolicy, recorder: Recorder
    ) -> RunResult:  # fmt: skip
        """Replay the file, or write it. stubbed: returns the application with its stubs. recorder: records a run, and returns its result."""
        __tracebackhide__ = True
        if self._is_used:
            raise InvalidInput(f"this test has used its recording {self._display_path()} already, and a recording is of one run; write a test for "
                               "each run", code="duplicate_entry")  # fmt: skip
        self._is_used = True
        if self._database_url is not None:
            return await self._record(app, stubbed(), state, models, recorder, self._database_url)
        if not self.path.exists():
            raise NotFound(f"there is no recording {self._display_path()}; record the run with {self._command}, and commit the file",
                           code="unknown_recording")  # fmt: skip
        try:
            return replay_run(self.path, app.workflow, state, policy)
        except HeliographError as error:
            error.add_note(
                f"the recording is {self._display_path()}; if the change is intended, record the run again with {self._command}"
            )
            raise error.with_traceback(None) from error.__cause__  # the test's own lines are what its author looks for

    async def _record(
        self,
        app: Heliograph,
        served: Heliograph,
        state: Any,
        models: Models,
        recorder: Recorder,
        database_url: str,
    ) -> RunResult:
        __tracebackhide__ = True
        with suppress(OSError):  # check_writable reports what is wrong, before a model costs money
            self.path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(self.path)
        # those of the process, without its database and NATS: a recording must not reach the runs and workers of others
        settings: Settings = replace(read_settings(os.environ), database_url=database_url, nats_url=None)
        harnesses = Harnesses(settings.model) if models is None else StubbedModels(models)
        async with serve_with(served, settings, harnesses) as serving:
            result = await recorder(serving)
            recording = await serving.recording(result.run_id)
        self._write(recording, app, state)
        return result

    def _write(self, recording: Recording, app: Heliograph, state: Any) -> None:
        """Replace the file, once what it would contain has been replayed."""
        __tracebackhide__ = True
        remove_leftovers(self.path)
        made = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        write_recording(recording, made)
        try:
            replay_run(made, app.workflow, state)
            made.replace(self.path)
        except HeliographError as error:
            error.add_note(f"{self._display_path()} was not written: its replay would fail. Put what is not deterministic into a step or a tool, "
                           "and no secrets into the state")  # fmt: skip
            raise
        finally:
            with suppress(FileNotFoundError):
                made.unlink()
        self.is_written = True

    def _display_path(self) -> str:
        """The path for messages: relative to the working folder if it is below it."""
        with suppress(ValueError):
            return str(self.path.relative_to(Path.cwd()))
        return str(self.path)


def remove_leftovers(path: Path) -> None:
    """Remove the unfinished files of a recording whose processes were killed."""
    unfinished = re.compile(rf"\.+{re.escape(path.name)}\.([0-9]+)\.new(\.[0-9]+\.[0-9]+\.tmp)?")
    for each in path.parent.iterdir():
        if (found := unfinished.fullmatch(each.name)) is not None and not _is_alive(int(found[1])):
            with suppress(OSError):
                each.unlink()


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # where `os.kill` ends the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


async def _result(served: ServedApplication, run_id: str, outside: Outside | None) -> RunResult:
    """Wait for the end of the run and of `outside`. Fails if the run waits for a human answer that no one gives."""
    __tracebackhide__ = True
    ending = asyncio.create_task(served.result(run_id))
    acting = asyncio.create_task(_nobody(served, run_id) if outside is None else _acted(outside, served, run_id))
    try:
        await asyncio.wait({ending, acting}, return_when=asyncio.FIRST_EXCEPTION)
        if acting.done():
            acting.result()
        return await ending
    finally:
        await cancel((ending, acting))


async def _acted(outside: Outside, served: ServedApplication, run_id: str) -> None:
    await outside(served, run_id)


async def _nobody(served: ServedApplication, run_id: str) -> None:
    __tracebackhide__ = True
    try:
        task = await served.question(run_id)
    except AssertionError:  # the run has ended, and asked nobody
        return
    raise AssertionError(f"run {run_id} asks a person about call {task.call_id}; pass outside=, an async function of the application and the "
                         "run id that answers, or that does nothing if its deadline should pass")  # fmt: skip
