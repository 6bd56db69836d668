"""Sweeps of the pghot simulator on a Ray cluster, and a search for settings.

>>> import pghot_fleet
>>> pghot_fleet.sweep(["cache.toml"], pghot_fleet.Plan(top=(100, 50)), shards=4)  # doctest: +SKIP
"""

from pghot_fleet.runner import Failed, Killed, Plan
from pghot_fleet.search import Best, Trial, search
from pghot_fleet.sweep import Progress, sweep

__all__ = ["Best", "Failed", "Killed", "Plan", "Progress", "Trial", "search", "sweep"]
