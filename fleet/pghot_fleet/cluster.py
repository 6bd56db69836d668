"""Tasks of Ray: what they are sent, how they begin and how they end.

A worker needs nothing but this package: the binary and the scenario come to it through Ray, so that all workers
run the same one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import ray

from pghot_fleet import scratch
from pghot_fleet.runner import Failed, Killed

#: What a task is for.
Key = TypeVar("Key")

#: Tasks that are begun for each CPU of the cluster: one runs, and the others wait for it.
AT_ONCE_A_CPU = 4


@dataclasses.dataclass(frozen=True)
class Progress:
    """How many tasks of a call are done."""

    done: int
    tasks: int
    elapsed_s: float

    @property
    def left_s(self) -> float:
        """Seconds until all is done, if tasks go on as they did."""
        return self.elapsed_s / max(self.done, 1) * (self.tasks - self.done)


@dataclasses.dataclass(frozen=True)
class Input:
    """A file that tasks need: the binary, a scenario or a profile."""

    name: str
    digest: str
    content: ray.ObjectRef

    @classmethod
    def send(cls, path: pathlib.Path) -> Input:
        """Gives a file to Ray."""
        content = path.read_bytes()
        return cls(path.name, hashlib.sha256(content).hexdigest(), ray.put(content))

    def here(self) -> pathlib.Path:
        """Where this worker has it for all of its tasks; it is fetched once."""
        folder = scratch.folder() / self.digest
        folder.mkdir(exist_ok=True)
        path = folder / self.name
        return path if path.exists() else self.into(folder)

    def into(self, folder: pathlib.Path) -> pathlib.Path:
        """Fetches it into a folder, under its name: that of a profile is seen in the results."""
        path = folder / self.name
        part = path.with_name(f"{self.name}.part")
        part.write_bytes(ray.get(self.content))
        part.chmod(0o700)
        part.rename(path)
        return path


def remote(task: Callable[..., object], retries: int) -> ray.remote_function.RemoteFunction:
    """A function as a task with one CPU, that is tried again if its worker or its `pghot` is killed."""
    return ray.remote(num_cpus=1, max_retries=retries, retry_exceptions=[Killed])(task)


def collect(
    tasks: Iterator[tuple[ray.ObjectRef, Key]],
    number: int,
    take: Callable[[Key, bytes], None],
    progress: Callable[[Progress], None] | None,
    refused: Callable[[Key, Failed], None] | None = None,
) -> None:
    """Gives `take` what tasks come to, as they end.

    There are `number` of them, begun as they are taken from `tasks`: some for each CPU of the cluster, so that it
    holds the inputs of these and no more. The first that fails for good ends all, unless `refused` takes what
    `pghot` said.
    """
    started, done = time.monotonic(), 0
    waiting: dict[ray.ObjectRef, Key] = {}
    try:
        while True:
            at_once = AT_ONCE_A_CPU * max(int(ray.cluster_resources().get("CPU", 0)), 1)
            waiting.update(itertools.islice(tasks, max(at_once - len(waiting), 0)))
            if not waiting:
                return
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            key = waiting.pop(ready)
            try:
                take(key, ray.get(ready))
            except ray.exceptions.RayTaskError as error:
                cause = why(error)
                if refused is None or not isinstance(cause, Failed):
                    raise cause from None
                refused(key, cause)
            done += 1
            if progress is not None:
                progress(Progress(done, number, time.monotonic() - started))
    finally:
        _cancel(waiting)


def why(error: ray.exceptions.RayTaskError) -> Exception:
    """What `pghot` said or how it ended, if a task failed for that."""
    return error.cause if isinstance(error.cause, (Failed, Killed)) else error


def _cancel(waiting: Iterable[ray.ObjectRef]) -> None:
    """Cancels the tasks that still run, and none that has ended.

    Ray aborts this whole process if it is asked to cancel a task whose end it is about to write down
    (ray-project/ray#54738). Tasks that fail for one reason fail together: a second is left to those.
    """
    left = list(waiting)
    if left:
        _, left = ray.wait(left, num_returns=len(left), timeout=1)
    for task in left:
        ray.cancel(task, force=True)


def connect() -> None:
    """To the cluster that `RAY_ADDRESS` names, or to one on this machine, unless that was done."""
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
