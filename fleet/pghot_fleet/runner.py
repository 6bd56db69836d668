"""The command `pghot` in a process of its own, as a task of Ray runs it.

A worker needs nothing but this package: the binary and the scenario come to it through Ray, so that all
workers run the same one.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import ray

#: What a task is for.
Key = TypeVar("Key")

#: Tasks that are begun for each CPU of the cluster: one runs, and the others are where it finds them.
AT_ONCE_A_CPU = 4

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Failed(Exception):
    """`pghot` said what is wrong; trying again would not help."""


class Killed(Exception):
    """`pghot` was killed, by the kernel for want of memory for example; it may be tried again."""


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
class Plan:
    """What a sweep varies: the flags of `pghot sim sweep`."""

    systems: tuple[str, ...] = ("none", "pghot", "numab2")
    #: Values by setting, as `{"pghot.freq_threshold": (1, 2)}`.
    vary: dict[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    #: Sizes of the top tier, in percent of the scenario's.
    top: tuple[int, ...] = (100, 90, 80, 70, 60, 50, 40, 30, 20)
    #: Runs of each.
    seeds: int = 1
    #: Accesses that miss all caches in a second of CPU time, for profiles.
    misses: float | None = None

    def flags(self) -> list[str]:
        """As the command line has them."""
        flags = ["--systems", ",".join(self.systems), "--top", ",".join(map(str, self.top)), "--seeds", str(self.seeds)]
        for name, values in self.vary.items():
            flags += ["--vary", f"{name}={','.join(map(str, values))}"]
        if self.misses is not None:
            flags += ["--misses", str(self.misses)]
        return flags

    def points(self) -> int:
        """How many runs there are, with the one that all others are compared with."""
        runs = 0
        for system in self.systems:
            combinations = 1
            for name, values in self.vary.items():
                if name.split(".", 1)[0] == system:
                    combinations *= len(values)
            runs += combinations * len(self.top) * self.seeds
        return runs + 1


@dataclasses.dataclass(frozen=True)
class Input:
    """A file that tasks need: the binary, a scenario or a profile. A worker fetches it once."""

    name: str
    digest: str
    content: ray.ObjectRef

    @classmethod
    def send(cls, path: pathlib.Path) -> Input:
        """Gives a file to Ray."""
        content = path.read_bytes()
        return cls(path.name, hashlib.sha256(content).hexdigest(), ray.put(content))

    def here(self) -> pathlib.Path:
        """Where this worker has it, below its name: that of a profile is seen in the results."""
        path = _kept() / self.digest / self.name
        if not path.exists():
            path.parent.mkdir()
            part = path.with_name(f"{self.name}.part")
            part.write_bytes(ray.get(self.content))
            part.chmod(0o700)
            part.rename(path)
        return path


@functools.cache
def _kept() -> pathlib.Path:
    """A folder of this worker, which goes when it ends."""
    folder = tempfile.mkdtemp(prefix="pghot-fleet-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


def run(binary: pathlib.Path, arguments: list[str]) -> str:
    """Runs `pghot`, which dies with this process, and gives what it prints."""
    process = subprocess.Popen(
        [str(binary), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_die_with_parent,
    )
    said, wrong = process.communicate()
    if process.returncode < 0:
        raise Killed(f"pghot {arguments[0]} ended by {signal.Signals(-process.returncode).name}")
    if process.returncode > 0:
        lines = wrong.strip().splitlines() or [f"exit status {process.returncode}"]
        # Where a worker has the file says nothing to who asked.
        raise Failed(re.sub(r"\S*/[0-9a-f]{64}/", "", lines[-1]))
    return said


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def find(pghot: str) -> pathlib.Path:
    """The binary."""
    found = shutil.which(pghot)
    if found is None:
        raise Failed(f"there is no program {pghot}; name the binary of pghot")
    return pathlib.Path(found)


def named(files: Iterable[str | os.PathLike[str]]) -> list[pathlib.Path]:
    """Scenarios and profiles; results are kept by the names of these."""
    paths = [pathlib.Path(path) for path in files]
    again = [name for name, times in collections.Counter(path.name for path in paths).items() if times > 1]
    if again:
        raise Failed(f"{again[0]} is the name of two files, and results are kept by name")
    return paths


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
