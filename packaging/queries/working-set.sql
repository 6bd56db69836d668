-- What `pghot profile show` prints, of every program of every host, from a table of
-- `pghot profile export`:
--
--   duckdb -c "SET VARIABLE profiles = 'fleet.parquet'" -f working-set.sql
--
-- In an interval each page counts once, and CPU time is in the interval's first row.
SELECT
    host,
    process,
    any_value(cgroup) AS cgroup,
    any_value(command) AS command,
    any_value(memory_pages) // 256 AS memory_mib,
    sum(pages)::DOUBLE * 1000::DOUBLE / count(DISTINCT interval)
        / any_value(interval_ms) / 256::DOUBLE AS touched_mib_per_s,
    sum(cpu_us)::DOUBLE * 1e-3 / count(DISTINCT interval) / any_value(interval_ms) AS cpus
FROM read_parquet(getvariable('profiles'))
GROUP BY host, process
ORDER BY host, process;
