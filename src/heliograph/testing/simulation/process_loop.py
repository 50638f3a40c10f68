"""The simulator's event loop for the code of users: the tasks that a task makes belong to its process, and each await can be observed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeAlias, TypeVar, TypeVarTuple

from heliograph.telemetry.logs import current_turn
from heliograph.testing.simulation.callers import caller, place_of, stub_to_write
from heliograph.testing.simulator.event_loop import Process, SimLoop
from heliograph.testing.stub_server import NotStubbed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
AfterStep: TypeAlias = Callable[[Process, "asyncio.Task[Any]"], None]

_ACTION_MAX = 200


class EndlessSimulation(RuntimeError):
    """The simulation has taken too many steps."""


class ProcessLoop(SimLoop):
    """The loop. after_step: called when a task of a process waits, with the task; it may kill the process.

    Agents make tasks of their own, for example with `asyncio.gather`, and a crash ends those as well. rejected: what turns attempted
    without a stub.
    """

    def __init__(self, choose: Callable[[int], int], steps_max: int):
        super().__init__(choose)
        self.after_step: AfterStep | None = None
        self.rejected: list[NotStubbed] = []
        self._steps_max = steps_max
        self.set_task_factory(self._make_task)

    def spawn(self, process: Process, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = super().spawn(process, name, work)
        task.add_done_callback(self._forget)
        return task

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        maker = asyncio.current_task(loop)
        if maker is not None and maker in self._owners:
            self._owners[task] = self._owners[maker]
            task.add_done_callback(self._forget)
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call the function in a task of the same process, as one step, in place of a thread: real threads run in another order each time."""
        return self.create_task(_called(func, args))

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        self.reject(f"looks up {_given(args, options, 0, 'host')}", "network")

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self.reject(f"connects to {_given(args, options, 1, 'host')}:{_given(args, options, 2, 'port')}", "network")

    async def create_unix_connection(self, *args: Any, **options: Any) -> Any:
        self.reject(f"connects to {_given(args, options, 1, 'path')}", "network")

    async def create_datagram_endpoint(self, *_: Any, **__: Any) -> Any:
        self.reject("opens a socket", "network")

    async def sock_connect(self, *args: Any, **options: Any) -> Any:
        self.reject(f"connects to {place_of(_given(args, options, 1, 'address'))}", "network")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        self.reject(f"starts the program {_given(args, options, 1, 'program')}", "subprocesses")

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        self.reject(f"starts the program {_given(args, options, 1, 'cmd')}", "subprocesses")

    def reject(self, action: str, lacking: str) -> NoReturn:
        """Raise NotStubbed for what only a stub can do in a simulation. The attempt of a turn also fails the test, in case its code handles it."""
        problem = NotStubbed(f"{caller()} {action[:_ACTION_MAX]}, and a simulation has no {lacking}: {stub_to_write()}")
        if current_turn() is not None:
            self.rejected.append(problem)
        raise problem

    def _forget(self, task: asyncio.Task[Any]) -> None:
        """Keep no finished task. Those of dead processes are kept, because Python would run their `finally` blocks."""
        self._owners.pop(task, None)

    def _ran(self, handle: asyncio.Handle, process: Process | None) -> None:
        if self.steps > self._steps_max:
            raise EndlessSimulation
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        if self.after_step is None or process is None or not isinstance(task, asyncio.Task):
            return
        if not task.done() and not process.is_dead:
            self.after_step(process, task)


async def _called(function: Callable[[*Ts], T], args: tuple[*Ts]) -> T:
    return function(*args)


def _given(args: tuple[Any, ...], options: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else options.get(name)
