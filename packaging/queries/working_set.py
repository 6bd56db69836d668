"""What `pghot profile show` prints, of every program of every host, by Polars:

python3 working_set.py fleet.parquet

In an interval each page counts once, and CPU time is in the interval's first row.
"""

import sys

import polars as pl


def working_set(path: str) -> pl.DataFrame:
    """One row of each program, from a table of `pghot profile export`."""
    seen = pl.col("interval").n_unique().cast(pl.Float64)
    interval_ms = pl.col("interval_ms").first().cast(pl.Float64)
    return (
        pl.scan_parquet(path)
        .group_by("host", "process")
        .agg(
            cgroup=pl.col("cgroup").first(),
            command=pl.col("command").first(),
            memory_mib=pl.col("memory_pages").first() // 256,
            touched_mib_per_s=pl.col("pages").sum().cast(pl.Float64) * 1000.0 / seen / interval_ms / 256.0,
            cpus=pl.col("cpu_us").sum().cast(pl.Float64) * 1e-3 / seen / interval_ms,
        )
        .sort("host", "process")
        .collect()
    )


if __name__ == "__main__":
    print(working_set(sys.argv[1]))
