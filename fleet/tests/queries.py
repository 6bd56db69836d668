"""The queries in `packaging/queries` say of a table what `pghot profile show` says, to the last bit.

`python tests/queries.py TABLE PROFILES.json` prints nothing if they do; what `show` printed is in the second file.
"""

import importlib.util
import json
import pathlib
import sys

import duckdb

QUERIES = pathlib.Path(__file__).resolve().parents[2] / "packaging/queries"


def by_polars(table: str) -> list[dict]:
    """The rows of the script for Polars."""
    spec = importlib.util.spec_from_file_location("working_set", QUERIES / "working_set.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.working_set(table).to_dicts()


def by_duckdb(table: str, query: str) -> list[dict]:
    """The rows of a query."""
    with duckdb.connect() as database:
        database.execute("SET VARIABLE profiles = $1", [table])
        answer = database.execute((QUERIES / query).read_text())
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row)) for row in answer.fetchall()]


def main() -> None:
    table, shown = sys.argv[1:]
    expected = json.loads(pathlib.Path(shown).read_text())["profiles"]
    for name, rows in {"duckdb": by_duckdb(table, "working-set.sql"), "polars": by_polars(table)}.items():
        if len(rows) != len(expected):
            print(f"{name}: {len(rows)} rows, and not {len(expected)}")
        for row, other in zip(rows, expected):
            if row != other:
                print(f"{name}: {row}, and pghot says {other}")
    hosts = {row["host"] for row in expected}
    shares = by_duckdb(table, "lower-tier.sql")
    if {row["host"] for row in shares} != hosts or not all(0 <= row["lower_share"] <= 1 for row in shares):
        print("lower-tier.sql: not a share of each host")


if __name__ == "__main__":
    main()
