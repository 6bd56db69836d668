"""The shape of the daemon's answers: dicts, as JSON has them.

A test compares each with the schema. Parts that few look at are plain dicts.
"""

from typing import Any, TypedDict


class Setting(TypedDict):
    """A tunable."""

    value: int | None
    unit: str
    has_flag: bool


class LowerNode(TypedDict):
    """A node that pages are promoted from."""

    nid: int
    pages: int
    live_sections: int
    hot_sections: int
    totals: dict[str, Any]
    last_pass: dict[str, Any]
    why: list[str]
    pass_durations: dict[str, Any]
    batch_durations: dict[str, Any]


class TopNode(TypedDict):
    """A node that pages are promoted to."""

    nid: int
    room_pages: int
    free_space_shortcut: bool


class Source(TypedDict):
    """A hotness source."""

    name: str
    state: str
    why: str | None
    stats: dict[str, int] | None
    cost: dict[str, int] | None
    past: dict[str, Any]
    details: dict[str, int]


class Change(TypedDict):
    """One option, before and after."""

    name: str
    old: str
    new: str


class Reload(TypedDict):
    """What came of reading the config file again."""

    count: int
    refused: int
    at_ms: int
    error: str | None
    changed: list[Change]
    overridden: list[str]
    needs_restart: list[Change]


class Moves(TypedDict):
    """Pages of a cgroup or of a process."""

    name: str
    pid: int | None
    cgroup: str | None
    ready_pages: int
    promoted_pages: int
    demoted_pages: int | None
    not_moved: dict[str, int]


class Owner(Moves):
    """The same, with its memory."""

    bytes: dict[str, int] | None
    lower_bytes: int | None
    top_bytes: int | None
    top_share: float | None
    share_bytes: int | None
    limit_bytes: int | None
    excluded: bool
    protected: bool


class Owners(TypedDict):
    """Whose memory is where."""

    by: str
    rows: list[Owner]
    notes: list[str]


class Status(TypedDict):
    """What the daemon does."""

    schema: int
    version: str
    kernel: str
    uptime_s: float
    started_unix_s: float
    config_generation: int
    now_ms: int
    mode: str
    dry_run: bool
    settings: dict[str, Setting]
    lower_tier: list[LowerNode]
    top_tier: list[TopNode]
    demoter: dict[str, Any]
    cgroups: list[Moves]
    processes: list[Moves]
    sources: list[Source]
    marking: dict[str, Any] | None
    recording: dict[str, Any] | None
    latency: dict[str, Any]
    cpu_s: float
    moving_cpu_s: float
    records_bytes: int
    section_marks_bytes: int
    vmstat_growth: dict[str, int | None]
    config_file: str
    reload: Reload | None
    lost: dict[str, int]
    warnings: list[str]


class Record(TypedDict):
    """A hotness record."""

    freq: int
    age_ms: int
    ready: bool


class Decision(TypedDict):
    """What was decided of a page, and why."""

    ago_ms: int
    pfn: int | None
    nid: int
    target: int
    pid: int | None
    file: str | None
    address: int | None
    pages: int
    freq: int
    age_ms: int
    outcome: str
    why: str


class Explanation(TypedDict):
    """Why a page is where it is."""

    pid: int
    address: int
    pfn: int | None
    nid: int | None
    record: Record | None
    decision: Decision | None
    sentences: list[str]
