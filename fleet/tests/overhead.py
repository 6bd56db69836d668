"""What Ray costs a shard, measured, not asserted: `PGHOT=target/release/pghot python3 fleet/tests/overhead.py`.

The same shards run by hand, as many at a time as there are CPUs, and as tasks of Ray, in turns. Workers are
started before, and each has got the binary: a cluster does that once.
"""

import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from test_fleet import PGHOT, SCENARIO, pghot_fleet, ray

PLAN = pghot_fleet.Plan(("none", "pghot"), {}, (90, 70, 50, 30), seeds=2)
#: So many that a shard takes seconds: the shorter shards are, the more Ray takes.
ACCESSES = "20_000_000_000"
SHARDS = 4
PAIRS = 5


def by_hand(scenario: str, out: str, at_once: int) -> None:
    def shard(number: int) -> None:
        part = ["--shard", f"{number}/{SHARDS}", "--jobs", "1", "--out", out]
        subprocess.run([PGHOT, "sim", "sweep", scenario, *PLAN.flags(), *part], check=True, capture_output=True)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(shard, range(1, SHARDS + 1)))
    parts = [str(part) for part in sorted(pathlib.Path(out).glob("*.parquet"))]
    subprocess.run([PGHOT, "sim", "merge", *parts, "--out", out], check=True, capture_output=True)


def seconds(run) -> float:
    started = time.monotonic()
    run()
    return time.monotonic() - started


def main() -> None:
    cpus = len(os.sched_getaffinity(0))
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    times = []
    for pair in range(PAIRS + 1):
        with tempfile.TemporaryDirectory() as out:
            scenario = str(pathlib.Path(out, "cache.toml"))
            pathlib.Path(scenario).write_text(SCENARIO.replace("200_000_000", ACCESSES))
            hand = seconds(lambda: by_hand(scenario, out, cpus))
            fleet = seconds(lambda: pghot_fleet.sweep([scenario], PLAN, shards=SHARDS, out=f"{out}/fleet", pghot=PGHOT))
        if pair > 0:
            times.append((hand, fleet))
            print(f"{SHARDS} shards, {cpus} at a time: by hand {hand:.2f} s, with Ray {fleet:.2f} s", flush=True)
    ray.shutdown()
    over = sorted((fleet / hand - 1) * 100 for hand, fleet in times)
    print(f"Ray takes {statistics.median(over):.1f} % more ({over[0]:.1f} to {over[-1]:.1f} %)")


if __name__ == "__main__":
    main()
