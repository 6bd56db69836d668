-- Which hosts touch most memory of their lower tier, as `working-set.sql` is run: MiB touched in a
-- second by tier, and the share of what was touched that was in the lower tier.
SELECT
    host,
    sum(pages) FILTER (tier = 'top')::DOUBLE * 1000::DOUBLE
        / any_value(intervals) / any_value(interval_ms) / 256::DOUBLE AS top_mib_per_s,
    sum(pages) FILTER (tier = 'lower')::DOUBLE * 1000::DOUBLE
        / any_value(intervals) / any_value(interval_ms) / 256::DOUBLE AS lower_mib_per_s,
    coalesce(sum(pages) FILTER (tier = 'lower'), 0)::DOUBLE / greatest(sum(pages), 1) AS lower_share
FROM read_parquet(getvariable('profiles'))
GROUP BY host
ORDER BY lower_share DESC, host;
