"""A replay reaches no network and starts no program, also where the code of an agent attempts it outside of a step."""

from __future__ import annotations

import _thread
import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.recording.no_network import OutsideForbidden
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated


def app_of(attempt: Callable[[], Any], *, catches: bool = False) -> Heliograph:
    """An agent that attempts something before its step, and ends as it was recorded if it catches the error."""
    app = Heliograph("reaching")

    @app.agent(activate_on=["workflow:start"], updates="word")
    async def reacher(ctx: Context) -> str:
        try:
            found = attempt()
            await found if asyncio.iscoroutine(found) else None
        except OSError:
            if not catches:
                raise
        word: str = await ctx.step("word", lambda: "said")
        return word

    return app


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record_simulated(app_of(lambda: None), 1)


@pytest.fixture(scope="module")
def unrecorded() -> Recording:
    return record_simulated(app_of(lambda: None), 1, record=False)


async def datagram() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 9))


def send() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as made:
        made.sendto(b"x", ("127.0.0.1", 9))


def reach() -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


def in_thread(attempt: Callable[[], Any]) -> None:
    """Attempt it in a thread, and raise the error here."""
    errors = list[OSError]()

    def run() -> None:
        try:
            attempt()
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def in_pool(attempt: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(attempt).result()


def in_process(method: str) -> None:
    multiprocessing.get_context(method).Process(target=print).start()  # type: ignore[attr-defined]


ATTEMPTS: list[tuple[Callable[[], Any], str]] = [
    (reach, "connects to 127.0.0.1:9"),
    (send, "sends to 127.0.0.1:9"),
    (lambda: socket.create_connection(("example.test", 80)), "looks up example.test"),
    (lambda: asyncio.open_connection("127.0.0.1", 9), "connects to 127.0.0.1:9"),
    (lambda: asyncio.open_unix_connection("/none"), "connects to /none"),
    (lambda: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 9), "listens at 127.0.0.1:9"),
    (datagram, "connects to 127.0.0.1:9"),
    (lambda: asyncio.to_thread(socket.gethostbyname, "example.test"), "looks up example.test"),
    (lambda: subprocess.run(["true"], check=True), "starts the program true"),
    (lambda: asyncio.create_subprocess_exec("true"), "starts the program true"),
    (lambda: asyncio.create_subprocess_shell("true"), "starts the program true"),
    (lambda: os.system("true"), "starts the program true"),  # noqa: S605
    (lambda: sys.audit("os.forkpty"), "forks its process"),  # a fork of the tests would run them twice
    (lambda: in_thread(reach), "connects to 127.0.0.1:9"),
    (lambda: in_thread(lambda: in_thread(reach)), "connects to 127.0.0.1:9"),
    (lambda: in_pool(reach), "connects to 127.0.0.1:9"),
    (lambda: in_thread(lambda: asyncio.run(datagram())), "connects to 127.0.0.1:9"),
    (lambda: in_thread(lambda: subprocess.run(["true"], check=True)), "starts the program true"),
    (lambda: _thread.start_new_thread(reach, ()), "starts a thread without threading.Thread"),
    (lambda: in_process("spawn"), f"starts the program {sys.executable}"),
    (lambda: in_process("forkserver"), f"starts the program {sys.executable}"),
    (lambda: in_thread(lambda: in_process("spawn")), f"starts the program {sys.executable}"),
]


@pytest.mark.proves("P-28")
@pytest.mark.parametrize(("attempt", "action"), ATTEMPTS, ids=[str(n) for n in range(len(ATTEMPTS))])
def test_attempt_of_an_agent_is_named_and_has_no_effect(
    recording: Recording, attempt: Callable[[], Any], action: str
) -> None:
    first = replay_recording(recording, app_of(attempt).workflow).first
    assert first is not None
    assert first.message.startswith(f"the code {action} outside of a step, which a replay forbids"), first.message


@pytest.mark.proves("P-28")
def test_connection_whose_error_the_code_catches_is_not_made_and_changes_nothing(recording: Recording) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        result = replay_recording(recording, app_of(lambda: connect(server), catches=True).workflow)
        assert result.is_same, list(result.lines())
        with pytest.raises(BlockingIOError):
            server.accept()
        other = threading.Thread(target=lambda: connect(server).close())  # no thread of a replay
        other.start()
        other.join()
        server.accept()[0].close()


def connect(server: socket.socket) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.getsockname()[1]))


@pytest.mark.proves("P-28")
def test_thread_of_a_replay_reaches_nothing_after_it_and_a_pool_has_its_network_again(recording: Recording) -> None:
    pool, goes_on, errors = ThreadPoolExecutor(1), threading.Event(), list[BaseException]()

    def later() -> None:
        goes_on.wait()
        try:
            connect(server)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=later)

    def attempt() -> None:
        pool.submit(int).result()
        if not thread.is_alive():
            thread.start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        result = replay_recording(recording, app_of(attempt).workflow)
        assert result.is_same, list(result.lines())
        goes_on.set()
        thread.join()
        assert [type(error) for error in errors] == [OutsideForbidden]
        pool.submit(lambda: connect(server).close()).result()
        server.accept()[0].close()
        pool.shutdown()


class Sender:
    """A background thread of a module, which the first message starts."""

    def __init__(self, address: Any):
        self._address = address
        self._messages = SimpleQueue[Future[None] | None]()
        self.thread = threading.Thread(target=self._send, daemon=True)

    def send(self) -> None:
        """Connect in the background. Raises the error of the connection."""
        if not self.thread.is_alive():
            self.thread.start()
        sent = Future[None]()
        self._messages.put(sent)
        sent.result()

    def end(self) -> None:
        self._messages.put(None)
        self.thread.join()

    def _send(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                socket.create_connection(self._address).close()
                message.set_result(None)
            except OSError as error:
                message.set_exception(error)


@pytest.mark.proves("P-28")
def test_background_thread_that_a_replay_has_started_works_for_a_later_live_run(recording: Recording) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        sender = Sender(server.getsockname())
        app = app_of(sender.send)
        first = replay_recording(recording, app.workflow).first
        assert first is not None
        assert first.message.startswith("the code looks up 127.0.0.1")
        with pytest.raises(BlockingIOError):
            server.accept()
        record_simulated(app, 1)
        server.accept()[0].close()
        sender.end()


@pytest.mark.proves("P-28")
def test_pool_of_a_module_reaches_nothing_when_a_part_is_replayed_again(recording: Recording) -> None:
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        first = replay_recording(recording, app_of(lambda: pool.submit(connect, server).result()).workflow).first
        assert first is not None
        assert first.message.startswith("the code looks up 127.0.0.1 outside of a step")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.proves("P-28")
def test_attempt_in_a_run_that_nobody_recorded_is_a_gap(unrecorded: Recording) -> None:
    result = replay_recording(unrecorded, app_of(lambda: os.system("true")).workflow)  # noqa: S605
    assert result.is_same, "the code may have done so when the run was made"
    assert "the code starts the program true, outside of a step" in result.gaps[-1].reason
