//! The values compared: one table for the medians of `demo.json`, the terminal and the page.

use crate::numbers;
use crate::results::{Run, SystemResult};

/// One row of the comparison.
pub struct Metric {
    /// Its name in `demo.json`.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// One sentence more, for the page.
    pub note: &'static str,
    /// Its value in a run; `None` for never or not applicable.
    pub value: fn(&Run) -> Option<f64>,
    /// What the number is.
    pub kind: Kind,
}

/// What a number is, which decides how it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A moment in the run; none means it was never reached.
    Moment,
    /// CPU time; none means there is nobody to use any.
    CpuTime,
    /// CPU time per page, in µs; none means that no page was promoted.
    PageCost,
    /// A count.
    Count,
}

/// All rows, in the order shown.
pub const METRICS: [Metric; 10] = [
    Metric {
        name: "t50_s",
        label: "time to 50 % promoted",
        note: "from the workload's first access",
        value: |run| run.t50_s,
        kind: Kind::Moment,
    },
    Metric {
        name: "t90_s",
        label: "time to 90 % promoted",
        note: "",
        value: |run| run.t90_s,
        kind: Kind::Moment,
    },
    Metric {
        name: "t100_s",
        label: "time to 100 % promoted",
        note: "",
        value: |run| run.t100_s,
        kind: Kind::Moment,
    },
    Metric {
        name: "promoted_pages",
        label: "pages promoted",
        note: "in the top tier when the run ended",
        value: |run| Some(run.promoted_pages as f64),
        kind: Kind::Count,
    },
    Metric {
        name: "left_pages",
        label: "pages left in the lower tier",
        note: "",
        value: |run| Some(run.left_pages as f64),
        kind: Kind::Count,
    },
    Metric {
        name: "hint_faults",
        label: "hint faults",
        note: "interruptions of the workload to learn what it touches",
        value: |run| Some(run.hint_faults as f64),
        kind: Kind::Count,
    },
    Metric {
        name: "app_kernel_s",
        label: "kernel time in the workload's thread",
        note: "beyond what it spends without balancing in the same time; \
               for no balancing itself, what it spends",
        value: |run| Some(run.app_kernel_s),
        kind: Kind::CpuTime,
    },
    Metric {
        name: "app_kernel_us_per_page",
        label: "the same per promoted page",
        note: "what the workload pays for one page, whether or not all got there",
        value: |run| {
            (run.promoted_pages > 0).then(|| 1e6 * run.app_kernel_s / run.promoted_pages as f64)
        },
        kind: Kind::PageCost,
    },
    Metric {
        name: "daemon_cpu_s",
        label: "CPU time of the daemon",
        note: "while the workload ran",
        value: |run| run.daemon_cpu_s,
        kind: Kind::CpuTime,
    },
    Metric {
        name: "errors",
        label: "damaged pages",
        note: "every page carries a stamp that must survive the move",
        value: |run| Some(run.errors as f64),
        kind: Kind::Count,
    },
];

impl Metric {
    /// The median, in words: "3.75 s", "65,536", "> 4 s" for never within 4 s.
    pub fn median_text(&self, result: &SystemResult) -> String {
        match (result.median(self.name), self.kind) {
            (Some(value), _) => self.number(value),
            (None, Kind::Moment) => format!("> {:.0} s", longest_run_s(result)),
            (None, _) => "—".to_owned(),
        }
    }

    /// Smallest to largest value; empty if there is nothing to say beyond the median.
    pub fn spread_text(&self, result: &SystemResult) -> String {
        match result.spread.get(self.name) {
            Some(&(Some(low), high)) if high != Some(low) => {
                let high = high.map_or("never".to_owned(), |high| self.bare_number(high));
                format!("{} – {high}", self.bare_number(low))
            }
            _ => String::new(),
        }
    }

    /// How one median relates to another: "0.65 ×", or "< 0.65 ×" if the other never got there;
    /// empty where that means nothing.
    pub fn ratio_text(&self, result: &SystemResult, to: &SystemResult) -> String {
        match (result.median(self.name), to.median(self.name)) {
            (Some(value), Some(base)) if base > 0.0 => format!("{:.2} ×", value / base),
            (Some(value), None) if self.kind == Kind::Moment => {
                format!("< {:.2} ×", value / longest_run_s(to))
            }
            _ => String::new(),
        }
    }

    fn number(&self, value: f64) -> String {
        let unit = match self.kind {
            Kind::Count => "",
            Kind::Moment | Kind::CpuTime => " s",
            Kind::PageCost => " µs",
        };
        self.bare_number(value) + unit
    }

    fn bare_number(&self, value: f64) -> String {
        match self.kind {
            Kind::Count => numbers::with_commas(value),
            Kind::Moment | Kind::CpuTime => format!("{value:.2}"),
            Kind::PageCost => format!("{value:.1}"),
        }
    }
}

fn longest_run_s(result: &SystemResult) -> f64 {
    result
        .runs
        .iter()
        .map(|run| run.elapsed_s)
        .fold(0.0, f64::max)
}

/// The row of this name. The names are constants of this program.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
