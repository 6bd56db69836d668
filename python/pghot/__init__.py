"""Ask and steer the pghot daemon, which promotes hot pages of tiered memory on Linux.

What it answers is described by docs/reference/pghot.schema.json of pghot, version SCHEMA.
"""

from .client import SCHEMA, Client, Denied, Invalid, NotRunning, PghotError
from .types import (
    Change,
    Decision,
    Explanation,
    LowerNode,
    Moves,
    Owner,
    Owners,
    Record,
    Reload,
    Setting,
    Source,
    Status,
    TopNode,
)

__all__ = [
    "SCHEMA",
    "Change",
    "Client",
    "Decision",
    "Denied",
    "Explanation",
    "Invalid",
    "LowerNode",
    "Moves",
    "NotRunning",
    "Owner",
    "Owners",
    "PghotError",
    "Record",
    "Reload",
    "Setting",
    "Source",
    "Status",
    "TopNode",
]
