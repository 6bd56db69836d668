"""`pghot-fleet`: the same from the command line."""

from __future__ import annotations

import argparse
import json
import sys

from pghot_fleet.advise import advise
from pghot_fleet.cluster import Progress
from pghot_fleet.runner import Failed, Killed, Plan
from pghot_fleet.search import Trial, search
from pghot_fleet.sweep import sweep


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage; give one like 5 or 5%") from None


def _percents(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _varied(text: str) -> tuple[str, tuple[object, ...]]:
    name, values = text.split("=", 1)
    return name, tuple(values.split(","))


def _range(text: str) -> tuple[str, tuple[int, int] | list[str]]:
    name, values = text.split("=", 1)
    lowest, dots, highest = values.partition("..")
    return name, (int(lowest), int(highest)) if dots else values.split(",")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pghot-fleet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--slowdown", type=_percent, default=2.0, metavar="PERCENT", help="the slowdown that is accepted")
    both.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each")
    both.add_argument("--misses", type=float, metavar="N", help="misses in a second of CPU time, for profiles")
    both.add_argument("--retries", type=int, default=3, metavar="N", help="of a task whose worker dies")
    both.add_argument("--pghot", default="pghot", metavar="FILE", help="the binary, which workers get sent")
    many = commands.add_parser("sweep", parents=[both], help="sweeps of scenarios and profiles, in shards")
    many.add_argument("scenarios", nargs="+", metavar="FILE")
    many.add_argument("--systems", type=_names, default=Plan.systems, metavar="NAMES")
    many.add_argument("--vary", type=_varied, action="append", default=[], metavar="SYSTEM.NAME=V1,V2")
    many.add_argument("--top", type=_percents, default=Plan.top, metavar="PERCENTS")
    many.add_argument("--shards", type=int, metavar="N", help="of each scenario")
    many.add_argument("--out", default="out", metavar="DIR", help="a folder in it for each scenario")
    several = commands.add_parser("advise", parents=[both], help="how much top tier profiles need, and all together")
    several.add_argument("files", nargs="+", metavar="FILE")
    several.add_argument("--machine", metavar="FILE", help="a scenario whose machine is taken for profiles")
    several.add_argument("--out", default="out", metavar="DIR", help="where advise.html goes, and finished runs")
    several.add_argument("--json", action="store_true", help="print JSON")
    several.set_defaults(seeds=3)
    one = commands.add_parser("search", parents=[both], help="the settings that need the least DRAM")
    one.add_argument("scenario", metavar="FILE")
    one.add_argument("--space", type=_range, action="append", default=[], metavar="NAME=LOWEST..HIGHEST")
    one.add_argument("--trials", type=int, default=50, metavar="N")
    one.add_argument("--at-once", type=int, default=4, metavar="N", help="trials proposed at a time")
    one.add_argument("--seed", type=int, default=1, metavar="N", help="of the search")
    return parser


def _tell(progress: Progress) -> None:
    end = "\n" if progress.done == progress.tasks else ""
    sentence = f"\r{progress.done} of {progress.tasks} tasks, {progress.left_s:.0f} s left   {end}"
    print(sentence, end="", file=sys.stderr, flush=True)


def _tell_trial(trial: Trial) -> None:
    print(f"{trial.top_percent} %: {trial.slowdown_percent:.2f} % slower with {trial.settings}", file=sys.stderr)


def _sweep(told: argparse.Namespace) -> int:
    folders = sweep(
        told.scenarios,
        Plan(told.systems, dict(told.vary), told.top, told.seeds, told.misses),
        out=told.out,
        slowdown=told.slowdown,
        shards=told.shards,
        retries=told.retries,
        progress=_tell,
        pghot=told.pghot,
    )
    for scenario, folder in folders.items():
        print(f"{scenario}: {folder / 'sweep.html'}")
    return 0


def _advise(told: argparse.Namespace) -> int:
    advice = advise(
        told.files,
        slowdown=told.slowdown,
        seeds=told.seeds,
        misses=told.misses,
        machine=told.machine,
        json=told.json,
        out=told.out,
        retries=told.retries,
        progress=_tell,
        pghot=told.pghot,
    )
    print(advice.said, end="")
    for sentence in advice.refused.values():
        print(f"pghot-fleet: not in it: {sentence}", file=sys.stderr)
    return 1 if advice.refused else 0


def _search(told: argparse.Namespace) -> int:
    best = search(
        told.scenario,
        dict(told.space),
        slowdown=told.slowdown,
        trials=told.trials,
        at_once=told.at_once,
        seed=told.seed,
        seeds=told.seeds,
        misses=told.misses,
        retries=told.retries,
        progress=_tell_trial,
        pghot=told.pghot,
    )
    if best.trial is None:
        print(f"pghot-fleet: no trial stays within {told.slowdown} %", file=sys.stderr)
        return 1
    print(json.dumps(vars(best.trial)))
    return 0


def main() -> int:
    """Runs the command; what is wrong is told in a sentence."""
    told = _arguments().parse_args()
    commands = {"sweep": _sweep, "advise": _advise, "search": _search}
    try:
        return commands[told.command](told)
    except (Failed, Killed, OSError) as error:
        print(f"pghot-fleet: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
