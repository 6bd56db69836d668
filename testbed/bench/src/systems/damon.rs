//! DAMON, promoting and demoting by physical address, with the settings of its authors' sample
//! (`samples/damon/mtier.c`): kernels are built without the sample, so its numbers are written to
//! sysfs. `damo`, their tool, is Python, which the guests do not have.
//!
//! [`Pace`] is what a sweep changes: how soon and how finely. The sample leaves regions to DAMON's
//! defaults, ten to a thousand in a node, and acts once a second.

use anyhow::Result;
use pghot_testbed::Vm;
use pghot_testbed::damon::{Damon, Scheme, Setting};

use super::Running;

const fn always<'a>(file: &'a str, value: &'a str) -> Setting<'a> {
    Setting {
        file,
        value,
        if_exists: "operations",
    }
}

/// Aim at four observed accesses in a hundred, and sample as often as that takes (since 6.15).
const fn tuned<'a>(file: &'a str, value: &'a str) -> Setting<'a> {
    Setting {
        file,
        value,
        if_exists: "monitoring_attrs/intervals/intervals_goal/access_bp",
    }
}

/// Goals about a node's memory (since 6.16); without, the quota alone bounds what is moved. Their
/// own files appear only once there is a goal, so another file tells that the kernel is new enough
/// (6.17).
const fn goal<'a>(file: &'a str, value: &'a str) -> Setting<'a> {
    Setting {
        file,
        value,
        if_exists: "schemes/0/dests",
    }
}

/// A point of the sweep.
pub struct Pace {
    /// Between two rounds of moves, in µs.
    apply_us: &'static str,
    /// Regions of a node, at least and at most.
    regions: Option<[&'static str; 2]>,
}

/// As the sample has it.
pub const SAMPLE: Pace = Pace {
    apply_us: "1000000",
    regions: None,
};

/// Acts at each aggregation, which is every 100 ms.
pub const QUICK: Pace = Pace {
    apply_us: "100000",
    regions: None,
};

/// Regions of some hundred KiB, for hot sets that are scattered.
pub const FINE: Pace = Pace {
    apply_us: "1000000",
    regions: Some(["2000", "10000"]),
};

/// Both.
pub const QUICK_FINE: Pace = Pace {
    apply_us: QUICK.apply_us,
    regions: FINE.regions,
};

/// At most 200 MiB a second, those with the most recent accesses first. `metric` of the top tier
/// should be `value`; pages are passed over if whether they are young is as `passes_over` says.
fn settings<'a>(
    pace: &'a Pace,
    metric: &'a str,
    value: &'a str,
    passes_over: &'a str,
) -> Vec<Setting<'a>> {
    let mut settings = Vec::new();
    if let Some([least, most]) = pace.regions {
        // The maximum first: a minimum above it is refused.
        settings.push(always("monitoring_attrs/nr_regions/max", most));
        settings.push(always("monitoring_attrs/nr_regions/min", least));
    }
    settings.extend([
        tuned("monitoring_attrs/intervals/intervals_goal/access_bp", "400"),
        tuned("monitoring_attrs/intervals/intervals_goal/aggrs", "3"),
        tuned(
            "monitoring_attrs/intervals/intervals_goal/min_sample_us",
            "5000",
        ),
        tuned(
            "monitoring_attrs/intervals/intervals_goal/max_sample_us",
            "10000000",
        ),
        always("schemes/0/apply_interval_us", pace.apply_us),
        always("schemes/0/quotas/bytes", "209715200"),
        always("schemes/0/quotas/reset_interval_ms", "1000"),
        always("schemes/0/quotas/weights/sz_permil", "0"),
        always("schemes/0/quotas/weights/nr_accesses_permil", "100"),
        always("schemes/0/quotas/weights/age_permil", "100"),
        goal("schemes/0/quotas/goals/nr_goals", "1"),
        goal("schemes/0/quotas/goals/0/target_metric", metric),
        goal("schemes/0/quotas/goals/0/target_value", value),
        goal("schemes/0/quotas/goals/0/nid", "0"),
        always("schemes/0/filters/nr_filters", "1"),
        always("schemes/0/filters/0/type", "young"),
        always("schemes/0/filters/0/matching", passes_over),
    ]);
    settings
}

/// Starts one kdamond for each tier.
pub fn start(vm: &Vm, pace: &Pace) -> Result<Box<dyn Running>> {
    let promote = settings(pace, "node_mem_used_bp", "9970", "N");
    let demote = settings(pace, "node_mem_free_bp", "50", "Y");
    let schemes = [
        Scheme {
            node: 1,
            action: "migrate_hot",
            target: 0,
            accesses: (1, u32::MAX),
            age_min: 0,
            settings: &promote,
        },
        Scheme {
            node: 0,
            action: "migrate_cold",
            target: 1,
            accesses: (0, 0),
            age_min: 0,
            settings: &demote,
        },
    ];
    Ok(Box::new(Damon::start(vm, &schemes)?))
}

impl Running for Damon {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok((*self).stop()?)
    }
}
