//! What is printed: one JSON object a line, and the times computed from the samples.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::numa_maps::NodePages;
use crate::probe::Felt;

/// One line of output, told apart by its field `event`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// All pages are in place; the access phase comes next.
    Ready(Ready),
    /// Where the pages are at one moment.
    Sample(Sample),
    /// The end, with the results.
    Done(Done),
}

/// The memory before the access phase.
#[derive(Debug, Serialize)]
pub struct Ready {
    /// Process id.
    pub pid: u32,
    /// First address of the region, as `0x...`.
    pub base: String,
    /// Bytes of a base page; all page counts are in base pages.
    pub page_bytes: usize,
    /// Pages in the region.
    pub pages: u64,
    /// Pages that will be accessed all the time.
    pub hot_pages: u64,
    /// Pages per node.
    pub nodes: NodePages,
}

/// Where the pages are at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the access phase began.
    pub t_s: f64,
    /// Pages per node; a page being moved right now is in none.
    pub nodes: NodePages,
    /// Hot pages on fast nodes.
    pub hot_fast: u64,
    /// Cold pages on fast nodes.
    pub cold_fast: u64,
    /// Accesses so far, hot and cold.
    pub accesses: u64,
}

/// The results.
#[derive(Debug, Serialize)]
pub struct Done {
    /// Seconds until half of the hot pages were on fast nodes; null for never.
    pub t50_s: Option<f64>,
    /// The same for 90 %.
    pub t90_s: Option<f64>,
    /// The same for 95 %.
    pub t95_s: Option<f64>,
    /// The same for all of them.
    pub t100_s: Option<f64>,
    /// Hot pages on fast nodes at the end.
    pub hot_promoted: u64,
    /// Cold pages on fast nodes at the end.
    pub cold_promoted: u64,
    /// Hot pages not on fast nodes at the end.
    pub hot_left: u64,
    /// Share of the hot pages that is on fast nodes.
    pub recall: f64,
    /// Share of the pages on fast nodes that is hot, if the cold pages that have not been touched
    /// yet do as the others did; null if none is there.
    pub precision: Option<f64>,
    /// Share of the cold pages that was touched, if they are to be.
    pub swept: f64,
    /// Pages per node at the end.
    pub nodes: NodePages,
    /// Accesses, hot and cold.
    pub accesses: u64,
    /// CPU time of the workers in user mode, over the access phase.
    pub worker_user_s: f64,
    /// CPU time of the workers in the kernel, over the access phase.
    pub worker_kernel_s: f64,
    /// Page faults of the workers without I/O, over the access phase.
    pub worker_minor_faults: u64,
    /// How long single touches and mappings took; null unless asked for.
    pub felt: Option<Felt>,
    /// Length of the access phase.
    pub elapsed_s: f64,
    /// Pages whose contents were not what they had to be.
    pub errors: u64,
}

impl Event {
    /// Prints the event as one line.
    pub fn print(&self) -> Result<()> {
        print(self)
    }
}

/// Prints an event as one line.
pub fn print(event: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(event).context("cannot encode the event")?;
    line.push('\n');
    std::io::stdout()
        .lock()
        .write_all(line.as_bytes())
        .context("cannot write to stdout")
}

/// The exit code of a program that ended so; an error is printed.
pub fn exit_code(program: &str, ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// When `percent` % of `hot_pages` first were on fast nodes, linearly between two samples. A sample
/// is a time in seconds and the number of pages there.
pub fn time_to_percent_s(samples: &[(f64, u64)], hot_pages: u64, percent: u64) -> Option<f64> {
    let wanted = (hot_pages * percent).div_ceil(100);
    let reached = samples.iter().position(|&(_, pages)| pages >= wanted)?;
    let (after_s, after) = samples[reached];
    let Some((before_s, before)) = reached.checked_sub(1).map(|index| samples[index]) else {
        return Some(after_s);
    };
    let share = (wanted - before) as f64 / (after - before) as f64;
    Some(before_s + share * (after_s - before_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_between_two_samples() {
        let run = [(0.0, 0), (1.0, 400), (2.0, 800), (2.5, 1000)];
        assert_eq!(time_to_percent_s(&run, 1000, 50), Some(1.25));
        assert_eq!(time_to_percent_s(&run, 1000, 90), Some(2.25));
        assert_eq!(time_to_percent_s(&run, 1000, 100), Some(2.5));
    }

    #[test]
    fn never_reached_is_none() {
        let run = [(0.0, 0), (1.0, 999)];
        assert_eq!(time_to_percent_s(&run, 1000, 100), None);
        assert_eq!(time_to_percent_s(&[], 1000, 50), None);
    }

    #[test]
    fn reached_at_once_and_lost_again() {
        let run = [(0.1, 1000), (0.2, 0), (0.3, 1000)];
        assert_eq!(time_to_percent_s(&run, 1000, 100), Some(0.1));
    }

    #[test]
    fn an_event_is_one_line_with_its_name() {
        let nodes = NodePages::from([(2, 7)]);
        let event = Event::Sample(Sample {
            t_s: 0.5,
            nodes,
            hot_fast: 1,
            cold_fast: 0,
            accesses: 9,
        });
        let text = serde_json::to_string(&event).unwrap();
        let expected = concat!(
            r#"{"event":"sample","t_s":0.5,"nodes":{"2":7},"#,
            r#""hot_fast":1,"cold_fast":0,"accesses":9}"#
        );
        assert_eq!(text, expected);
    }
}
