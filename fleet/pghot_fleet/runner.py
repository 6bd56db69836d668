"""The command `pghot` in a process of its own, and what it is asked."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable

#: What folders begin with that a task makes.
FOLDER = "pghot-fleet-"

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Failed(Exception):
    """`pghot` said what is wrong; trying again would not help."""


class Killed(Exception):
    """`pghot` was killed, by the kernel for want of memory for example; it may be tried again."""


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
        # Where a worker has a file says nothing to who asked.
        raise Failed(re.sub(rf"\S*/{FOLDER}[^/]+/([0-9a-f]{{64}}/)?", "", lines[-1]))
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
    """Scenarios and profiles, all of which are there; results are kept by their names."""
    paths = [pathlib.Path(path) for path in files]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise Failed(f"there is no file {missing[0]}")
    again = [name for name, times in collections.Counter(path.name for path in paths).items() if times > 1]
    if again:
        raise Failed(f"{again[0]} is the name of two files, and results are kept by name")
    return paths
