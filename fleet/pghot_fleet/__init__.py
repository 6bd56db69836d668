"""Sweeps of the pghot simulator on a Ray cluster, advice for many profiles, and a search for settings.

>>> import pghot_fleet
>>> pghot_fleet.sweep(["cache.toml"], pghot_fleet.Plan(top=(100, 50)), shards=4)  # doctest: +SKIP
"""

from pghot_fleet.advise import Advice, advise
from pghot_fleet.cluster import Progress
from pghot_fleet.runner import Failed, Killed, Plan
from pghot_fleet.search import Best, Trial, search
from pghot_fleet.sweep import sweep

__all__ = ["Advice", "Best", "Failed", "Killed", "Plan", "Progress", "Trial", "advise", "search", "sweep"]
