"""Many environments of one task, in this process or in several."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import gymnasium as gym
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from tsac.tasks.make import make_task


class WorkerDiedError(RuntimeError):
    """A process of a vector environment is gone."""


def make_vec(name: str, n: int, seed: int | None = None, *, processes: bool = False, **options: Any) -> VecEnv:
    """``n`` monitored environments of a task as an SB3 vector environment.

    :param seed: environment i gets ``seed + i``
    :param processes: one process per environment, or all in this one
    :param options: as in ``make_task``
    """

    def maker(number: int) -> Callable[[], gym.Env[Any, Any]]:
        own_seed = None if seed is None else seed + number

        def make() -> gym.Env[Any, Any]:
            if processes:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that collects
            return Monitor(make_task(name, own_seed, **options))

        return make

    makers = [maker(number) for number in range(n)]
    make_task(name, **options).close()  # a wrong name or a missing package is an error here, not in a worker
    return WatchedVecEnv(name, makers) if processes else DummyVecEnv(makers)


class WatchedVecEnv(SubprocVecEnv):
    """SB3's processes, but a worker that dies is an error that names it, not a wait without end."""

    def __init__(self, task: str, makers: list[Callable[[], gym.Env[Any, Any]]]) -> None:
        self.task = task
        super().__init__(makers)
        # Everything SB3 receives comes through these.
        self.remotes = tuple(
            _WatchedConnection(remote, process, f"worker {number} of {len(makers)} of task {task}")
            for number, (remote, process) in enumerate(zip(self.remotes, self.processes, strict=True))
        )

    def close(self) -> None:
        if any(not process.is_alive() for process in self.processes):
            for process in self.processes:
                process.terminate()
            self.closed = True
            return
        super().close()


class _WatchedConnection:
    def __init__(self, connection: Any, process: Any, who: str) -> None:
        self._connection, self._process, self._who = connection, process, who

    def send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._death() from error

    def recv(self) -> Any:
        wait([self._connection, self._process.sentinel])
        try:
            if self._connection.poll(0):
                return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise self._death() from error
        raise self._death()

    def close(self) -> None:
        self._connection.close()

    def _death(self) -> WorkerDiedError:
        deadline = time.monotonic() + 1.0
        while self._process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return WorkerDiedError(f"The {self._who} died (exit code {self._process.exitcode}).")
