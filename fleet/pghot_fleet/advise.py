"""Advice for many profiles, each a task of Ray; what is said is what one `pghot advise` says, to the byte.

`pghot advise` keeps the runs that it finishes beside its answer, and asks for no run twice. So a worker asks about one
file and sends the runs; then the question is asked here, about all files, and needs no run.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

import ray

from pghot_fleet import cluster, runner, scratch
from pghot_fleet.cluster import Input, Progress
from pghot_fleet.runner import Failed


@dataclasses.dataclass(frozen=True)
class Advice:
    """What was said of all files that have an answer."""

    #: As `pghot advise` prints it: JSON, or text for people.
    said: str
    #: Its page.
    page: pathlib.Path
    #: Why files have no answer, by name: a recording was too short, for example.
    refused: dict[str, str]


def advise(
    files: Iterable[str | os.PathLike[str]],
    *,
    slowdown: float = 2.0,
    seeds: int = 3,
    misses: float | None = None,
    machine: str | os.PathLike[str] | None = None,
    json: bool = True,
    out: str | os.PathLike[str] = "out",
    retries: int = 3,
    progress: Callable[[Progress], None] | None = None,
    pghot: str = "pghot",
) -> Advice:
    """Asks how much top tier each profile or scenario needs, and all together.

    A task whose worker or node dies is run again, up to `retries` times. `pghot` is the binary, here; it is sent to
    all workers. Finished runs are kept in `out`: the next call with the same files begins where this one ended.
    """
    paths = runner.named(files)
    binary = runner.find(pghot)
    kept = pathlib.Path(out)
    kept.mkdir(parents=True, exist_ok=True)
    flags = ["--slowdown", str(slowdown), "--seeds", str(seeds)]
    if misses is not None:
        flags += ["--misses", str(misses)]
    cluster.connect()
    task = cluster.remote(_run, retries)
    sent = Input.send(binary)
    model = None if machine is None else Input.send(pathlib.Path(machine))

    def tasks() -> Iterator[tuple[ray.ObjectRef, str]]:
        for path in paths:
            runs = _runs(kept, path.name)
            before = runs.read_bytes() if runs.exists() else None
            yield task.remote(sent, Input.send(path), model, flags, before), path.name

    refused: dict[str, str] = {}
    cluster.collect(
        tasks(),
        len(paths),
        lambda name, runs: _keep(kept, name, runs),
        progress,
        lambda name, failed: refused.update({name: str(failed)}),
    )
    good = [str(path) for path in paths if path.name not in refused]
    if not good:
        raise Failed(next(iter(refused.values()), "no file was named"))
    of_machine = [] if machine is None else ["--machine", str(machine)]
    as_json = ["--json"] if json else []
    said = runner.run(binary, ["advise", *good, *flags, *of_machine, *as_json, "--out", str(kept)])
    # In the order of the files, not in that in which workers said so.
    ordered = {path.name: refused[path.name] for path in paths if path.name in refused}
    return Advice(said, kept / "advise.html", ordered)


def _run(binary: Input, file: Input, machine: Input | None, flags: list[str], before: bytes | None) -> bytes:
    """What a worker does: all runs about one file, with those `before` that need not run again."""
    if machine is not None:
        flags = [*flags, "--machine", str(machine.here())]
    with scratch.of_task() as out:
        # No other task asks about it: a worker does not keep the profiles of a fleet.
        path = file.into(pathlib.Path(out))
        runs = _runs(path.parent, file.name)
        if before is not None:
            runs.write_bytes(before)
        runner.run(binary.here(), ["advise", str(path), *flags, "--jobs", "1", "--json", "--out", out])
        return runs.read_bytes()


def _runs(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where `pghot advise` keeps the runs about a file."""
    return folder / f"{name}.runs"


def _keep(folder: pathlib.Path, name: str, runs: bytes) -> None:
    path = _runs(folder, name)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(runs)
    part.replace(path)
