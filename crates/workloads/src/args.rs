//! The flags of `hotset`.

use std::path::PathBuf;

use clap::Parser;

use crate::hot_set::Layout;
use crate::list::IdList;
use crate::region::Backing;

/// Touch a known hot set of pages and report where they are.
///
/// Maps memory on one node, accesses its hot pages at random, and prints JSON lines: `ready`,
/// a `sample` now and then, `done` with the results. All page counts are in base pages.
#[derive(Clone, Debug, Parser)]
#[command(name = "hotset", version)]
pub struct Args {
    /// Size of the memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=8 << 20))]
    pub size_mib: u32,

    /// Share of the pages that is hot
    #[arg(long, value_name = "P", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hot_percent: u32,

    /// How the hot pages lie among the cold ones
    #[arg(long, value_enum, default_value_t = Layout::Scattered)]
    pub layout: Layout,

    /// Kind of memory
    #[arg(long, value_enum, default_value_t = Backing::Anon)]
    pub backing: Backing,

    /// Where the file of `--backing file` lies
    #[arg(long, value_name = "FOLDER", default_value = "/tmp")]
    pub dir: PathBuf,

    /// Worker threads
    #[arg(long, value_name = "T", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// CPUs to pin the workers to, one each, in turn; the sampler keeps off them if it can
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<IdList>,

    /// Node where all pages start
    #[arg(long, value_name = "NODE")]
    pub home: u32,

    /// Nodes of the top tier
    #[arg(long, value_name = "NODES")]
    pub fast: IdList,

    /// Share of the accesses that is stores; with 100 the cold pages are stored to, too
    #[arg(long, value_name = "P", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub store_percent: u32,

    /// Share of the time in which the workers are busy, in pieces of some milliseconds; they sleep
    /// in between
    #[arg(long, value_name = "P", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub busy_percent: u32,

    /// Touch every cold page (a huge page is one) once in this time, evenly paced; 0 for never
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    #[arg(value_parser = seconds, allow_negative_numbers = true)]
    pub cold_sweep_seconds: f64,

    /// Length of the access phase at most
    #[arg(long, value_name = "MAX", default_value_t = 60.0)]
    #[arg(value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,

    /// End early, once all hot pages are on fast nodes
    #[arg(long)]
    pub until_promoted: bool,

    /// End early, once 95 % of the hot pages are on fast nodes and so are so few of the cold ones
    /// that have been touched that P % of all pages there will be hot; 95 without a number
    #[arg(long, value_name = "P", num_args = 0..=1, default_missing_value = "95")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub until_good: Option<u32>,

    /// How much longer to go on then
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub linger_ms: u64,

    /// Time between two samples; 500 or more with cold pages, as each is looked up then
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub report_ms: u64,

    /// Seed of the hot set and of the accesses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Idle child processes that share the memory copy-on-write
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub forks: u32,

    /// Have a search through all mappings of the memory meet this process's last
    #[arg(long)]
    pub mapped_last: bool,

    /// Give back the first page of each huge page, and keep the rest
    #[arg(long)]
    pub holes: bool,

    /// Hint at the hot pages on this socket of pghot, once, before they are accessed
    #[arg(long, value_name = "SOCKET")]
    pub hint: Option<String>,

    /// Hint through shared memory instead of messages
    #[arg(long, requires = "hint")]
    pub hint_ring: bool,

    /// Time single touches and mappings in one more thread, and report what they took
    #[arg(long)]
    pub probe: bool,

    /// Tell the witness, a plugin of the emulator, when the access phase begins and ends
    #[arg(long)]
    pub witness: bool,

    /// After `ready`, begin only once this file is there, and remove it
    #[arg(long, value_name = "FILE")]
    pub hold: Option<PathBuf>,
}

/// A time that can be waited for: not negative, and at most a year.
pub fn seconds(text: &str) -> Result<f64, String> {
    const YEAR_S: f64 = 365.0 * 24.0 * 3600.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=YEAR_S).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds, 0 or more".into()),
    }
}
