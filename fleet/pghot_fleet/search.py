"""Which settings need the least DRAM: Optuna proposes, and Ray runs the proposals."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence

import optuna
import ray

from pghot_fleet import cluster, runner, scratch
from pghot_fleet.cluster import Input
from pghot_fleet.runner import Plan

#: Of a setting: `(lowest, highest)` of whole numbers, or a list of what it may be.
Range = tuple[int, int] | list[str]

#: What decides a trial: its settings and the size of the top tier.
Key = tuple[tuple[tuple[str, object], ...], int]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A proposal, and what came of it."""

    settings: dict[str, object]
    top_percent: int
    slowdown_percent: float


@dataclasses.dataclass(frozen=True)
class Best:
    """What a search found."""

    #: The smallest top tier that stays within the slowdown, and of those the fastest; None if none does.
    trial: Trial | None
    #: All, in the order of the proposals.
    trials: list[Trial]


def search(
    scenario: str | os.PathLike[str],
    space: Mapping[str, Range],
    *,
    slowdown: float = 2.0,
    top: tuple[int, int] = (1, 100),
    trials: int = 50,
    at_once: int = 4,
    seed: int = 1,
    seeds: int = 1,
    system: str = "pghot",
    misses: float | None = None,
    retries: int = 3,
    progress: Callable[[Trial], None] | None = None,
    pghot: str = "pghot",
) -> Best:
    """Minimises the size of the top tier, in percent, subject to the slowdown, over the settings of `space`.

    Each trial is `seeds` runs and the run that they are compared with. Trials are proposed `at_once` at a time, and
    told in order, so the same arguments give the same trials, however many workers there are.
    """
    binary = runner.find(pghot)
    cluster.connect()
    task = cluster.remote(_run_trial, retries)
    sent, file = Input.send(binary), Input.send(pathlib.Path(scenario))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    known: dict[Key, ray.ObjectRef] = {}
    found: list[Trial] = []
    for first in range(0, trials, at_once):
        proposals = []
        for _ in range(first, min(first + at_once, trials)):
            trial = study.ask()
            settings = {name: _suggest(trial, name, values) for name, values in space.items()}
            top_percent = trial.suggest_int("top", *top)
            key = (tuple(settings.items()), top_percent)
            if key not in known:
                vary = {f"{system}.{name}": (value,) for name, value in settings.items()}
                plan = Plan((system,), vary, (top_percent,), seeds, misses)
                known[key] = task.remote(sent, file, plan.flags())
            proposals.append((trial, settings, top_percent, known[key]))
        for trial, settings, top_percent, result in proposals:
            try:
                percent = ray.get(result)
            except ray.exceptions.RayTaskError as error:
                raise cluster.why(error) from None
            trial.set_constraint("slowdown", percent - slowdown)
            study.tell(trial, top_percent)
            found.append(Trial(settings, top_percent, percent))
            if progress is not None:
                progress(found[-1])
    good = [trial for trial in found if trial.slowdown_percent <= slowdown]
    return Best(min(good, key=lambda it: (it.top_percent, it.slowdown_percent), default=None), found)


def _suggest(trial: optuna.Trial, name: str, values: Range) -> object:
    if isinstance(values, tuple):
        return trial.suggest_int(name, *values)
    return trial.suggest_categorical(name, values)


def _run_trial(binary: Input, scenario: Input, flags: Sequence[str]) -> float:
    """What a worker does: the median slowdown of all seeds, in percent."""
    path = str(scenario.here())
    with scratch.of_task() as out:
        runner.run(binary.here(), ["sim", "sweep", path, *flags, "--jobs", "1", "--out", out])
        with pathlib.Path(out, "sweep.csv").open(newline="") as rows:
            return statistics.median(float(row["slowdown_percent"]) for row in csv.DictReader(rows))
