"""A sweep in shards, each a task of Ray; what comes of it is what one `pghot sim sweep` writes, to the byte."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator

import ray

from pghot_fleet import cluster, runner, scratch
from pghot_fleet.cluster import Input, Progress
from pghot_fleet.runner import FOLDER, Plan

#: Runs of a shard: so long that what a task costs, some tens of milliseconds, does not matter, and so few that
#: little is lost with a worker.
RUNS_OF_A_SHARD = 8


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
    paths = runner.named(scenarios)
    binary = runner.find(pghot)
    cluster.connect()
    task = cluster.remote(_run_shard, retries)
    sent = Input.send(binary)
    of = shards or -(-plan.points() // RUNS_OF_A_SHARD)

    def tasks() -> Iterator[tuple[ray.ObjectRef, tuple[str, int]]]:
        for path in paths:
            scenario = Input.send(path)
            for number in range(1, of + 1):
                yield task.remote(sent, scenario, plan.flags(), f"{number}/{of}"), (path.name, number)

    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        parts = pathlib.Path(folder)

        def take(shard: tuple[str, int], content: bytes) -> None:
            scenario, number = shard
            (parts / scenario).mkdir(exist_ok=True)
            (parts / scenario / f"{number}.parquet").write_bytes(content)

        cluster.collect(tasks(), len(paths) * of, take, progress)
        return {path.name: _merge(binary, parts / path.name, pathlib.Path(out, path.name), slowdown) for path in paths}


def _run_shard(binary: Input, scenario: Input, flags: list[str], shard: str) -> bytes:
    """What a worker does."""
    path = str(scenario.here())
    with scratch.of_task() as out:
        said = runner.run(binary.here(), ["sim", "sweep", path, *flags, "--shard", shard, "--jobs", "1", "--out", out])
        return pathlib.Path(said.strip()).read_bytes()


def _merge(binary: pathlib.Path, parts: pathlib.Path, out: pathlib.Path, slowdown: float) -> pathlib.Path:
    files = [str(file) for file in sorted(parts.iterdir())]
    runner.run(binary, ["sim", "merge", *files, "--slowdown", str(slowdown), "--out", str(out)])
    return out
