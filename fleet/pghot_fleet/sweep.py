"""A sweep in shards, each a task of Ray; what comes of it is what one `pghot sim sweep` writes, to the byte."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable

import ray

from pghot_fleet import runner
from pghot_fleet.runner import Failed, Input, Killed, Plan

#: Runs of a shard: so long that what a task costs, some tens of milliseconds, does not matter, and so few that
#: little is lost with a worker.
RUNS_OF_A_SHARD = 8


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a call of `sweep` is."""

    done: int
    shards: int
    elapsed_s: float

    @property
    def left_s(self) -> float:
        """Seconds until all is done, if shards go on as they did."""
        return self.elapsed_s / max(self.done, 1) * (self.shards - self.done)


def sweep(
    scenarios: Iterable[str | os.PathLike[str]],
    plan: Plan = Plan(),
    *,
    out: str | os.PathLike[str] = "out",
    slowdown: float = 2.0,
    shards: int | None = None,
    retries: int = 3,
    progress: Callable[[Progress], None] | None = None,
    pghot: str = "pghot",
) -> dict[str, pathlib.Path]:
    """Runs the sweep of each scenario or profile, and gives the folders of the results by scenario.

    A shard whose worker or node dies is run again, up to `retries` times. `pghot` is the binary, here; it is
    sent to all workers.
    """
    paths = [pathlib.Path(path) for path in scenarios]
    again = [name for name, times in collections.Counter(path.name for path in paths).items() if times > 1]
    if again:
        raise Failed(f"{again[0]} is the name of two scenarios, and results are kept by name")
    binary = _find(pghot)
    runner.connect()
    task = ray.remote(num_cpus=1, max_retries=retries, retry_exceptions=[Killed])(_run_shard)
    sent = Input.send(binary)
    of = shards or -(-plan.points() // RUNS_OF_A_SHARD)
    waiting: dict[ray.ObjectRef, tuple[str, int]] = {}
    for path in paths:
        scenario = Input.send(path)
        for number in range(1, of + 1):
            waiting[task.remote(sent, scenario, plan.flags(), f"{number}/{of}")] = (path.name, number)
    with tempfile.TemporaryDirectory(prefix="pghot-fleet-") as folder:
        parts = pathlib.Path(folder)
        _collect(waiting, parts, progress)
        return {path.name: _merge(binary, parts / path.name, pathlib.Path(out, path.name), slowdown) for path in paths}


def _find(pghot: str) -> pathlib.Path:
    found = shutil.which(pghot)
    if found is None:
        raise Failed(f"there is no program {pghot}; name the binary of pghot")
    return pathlib.Path(found)


def _run_shard(binary: Input, scenario: Input, flags: list[str], shard: str) -> bytes:
    """What a worker does."""
    path = str(scenario.here())
    with tempfile.TemporaryDirectory(prefix="pghot-fleet-") as out:
        said = runner.run(binary.here(), ["sim", "sweep", path, *flags, "--shard", shard, "--jobs", "1", "--out", out])
        return pathlib.Path(said.strip()).read_bytes()


def _collect(
    waiting: dict[ray.ObjectRef, tuple[str, int]],
    parts: pathlib.Path,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Writes shards down as they come; the first that fails for good ends all."""
    shards, started = len(waiting), time.monotonic()
    try:
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            scenario, number = waiting.pop(ready)
            try:
                content = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, (Failed, Killed)) else error
            (parts / scenario).mkdir(exist_ok=True)
            (parts / scenario / f"{number}.parquet").write_bytes(content)
            if progress is not None:
                progress(Progress(shards - len(waiting), shards, time.monotonic() - started))
    finally:
        _cancel(waiting)


def _cancel(waiting: Iterable[ray.ObjectRef]) -> None:
    """Cancels the shards that still run, and none that has ended.

    Ray aborts this whole process if it is asked to cancel a task whose end it is about to write down
    (ray-project/ray#54738). Shards that fail for one reason fail together: a second is left to those.
    """
    left = list(waiting)
    if left:
        _, left = ray.wait(left, num_returns=len(left), timeout=1)
    for task in left:
        ray.cancel(task, force=True)


def _merge(binary: pathlib.Path, parts: pathlib.Path, out: pathlib.Path, slowdown: float) -> pathlib.Path:
    files = [str(file) for file in sorted(parts.iterdir())]
    runner.run(binary, ["sim", "merge", *files, "--slowdown", str(slowdown), "--out", str(out)])
    return out
