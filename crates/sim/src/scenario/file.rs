//! Scenario files, in TOML: read, and every field checked.

use std::path::{Path, PathBuf};

use pghot_engine::names::no_such;
use pghot_workloads::plans::{self, BENCHMARKS};
use serde::de::DeserializeOwned;

use super::plan::part;
use super::spec::{ProcessSpec, Scenario};
use crate::Error;
use crate::machine::MachineSpec;
use crate::machine::memory::Backing;

/// Processes of a scenario, each by its `count`.
const PROCESSES_MAX: u64 = 10_000;

/// The longest wait, in seconds.
const SECONDS_MAX: f64 = 1e6;

/// See `PhaseSpec::repeat`.
const REPEAT_MAX: u32 = 100_000;

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Scenario, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let text = str::from_utf8(&bytes).map_err(|_| Error::Parse {
            path: path.to_owned(),
            message: "it is no text".to_owned(),
        })?;
        Scenario::parse(text, path)
    }

    /// The same of a text; `path` is for errors.
    pub fn parse(text: &str, path: &Path) -> Result<Scenario, Error> {
        let mut scenario: Scenario = read_toml(text, path)?;
        scenario.check()?;
        scenario.process = scenario
            .process
            .iter()
            .flat_map(ProcessSpec::each)
            .collect();
        Ok(scenario)
    }

    /// Names the first field that cannot be.
    pub fn check(&self) -> Result<(), Error> {
        self.machine.check()?;
        if !(self.seconds.is_finite() && self.seconds > 0.0 && self.seconds <= 1e7) {
            return Err(Error::field(
                "seconds",
                format!("{} is not from 0 to 10^7", self.seconds),
            ));
        }
        for (name, value) in [("slice_us", self.slice_us), ("sample_ms", self.sample_ms)] {
            if value == 0 || value > 10_000_000 {
                return Err(Error::field(name, format!("{value} is not from 1 to 10^7")));
            }
        }
        for (process, number) in self.process.iter().zip(0..) {
            process.check(number, &self.machine)?;
        }
        let count: u64 = self
            .process
            .iter()
            .map(|process| u64::from(process.count))
            .sum();
        if count == 0 || count > PROCESSES_MAX {
            return Err(Error::field(
                "process",
                format!("there must be 1 to {PROCESSES_MAX}, and there are {count}"),
            ));
        }
        let wanted: u64 = (self.process.iter())
            .map(|process| process.memory_mib * u64::from(process.count))
            .sum();
        let has: u64 = self.machine.node.iter().map(|node| node.memory_mib).sum();
        if wanted > has {
            return Err(Error::field(
                "process",
                format!("all together want {wanted} MiB, and the machine has {has} MiB"),
            ));
        }
        Ok(())
    }
}

impl ProcessSpec {
    fn check(&self, number: usize, machine: &MachineSpec) -> Result<(), Error> {
        let wrong =
            |name: &str, what: String| Err(Error::field(format!("process[{number}].{name}"), what));
        let top_tier = machine
            .node
            .get(self.node as usize)
            .is_some_and(|node| node.is_top_tier());
        if !top_tier {
            return wrong("node", format!("node {} has no CPUs", self.node));
        }
        let has = machine.node.iter().map(|node| node.memory_mib).sum::<u64>();
        if self.memory_mib == 0 || self.memory_mib > has {
            return wrong(
                "memory_mib",
                format!(
                    "{} is not from 1 to the {has} that there are",
                    self.memory_mib
                ),
            );
        }
        if self.backing == Backing::Thp && !self.memory_mib.is_multiple_of(2) {
            return wrong(
                "memory_mib",
                format!("{} is not whole huge pages", self.memory_mib),
            );
        }
        if self.threads == 0 || self.threads > 4096 {
            return wrong("threads", format!("{} is not from 1 to 4096", self.threads));
        }
        if self
            .home
            .is_some_and(|home| !machine.lower_tier().any(|nid| nid == home))
        {
            return wrong("home", "it is not a node of the lower tier".into());
        }
        if self
            .near_share
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            return wrong("near_share", "it is not from 0 to 1".into());
        }
        if self.count == 0 {
            return wrong("count", "there is none of it".into());
        }
        if !(0.0..=SECONDS_MAX).contains(&self.stagger_s) {
            return wrong(
                "stagger_s",
                format!("{} is not from 0 to 10^6", self.stagger_s),
            );
        }
        match &self.workload {
            Some(name) if plans::find(name).is_none() => {
                let names = BENCHMARKS.iter().map(|benchmark| benchmark.name);
                wrong("workload", no_such("benchmark", name, names))
            }
            Some(_) if self.accesses == 0 => wrong("accesses", "a benchmark needs some".into()),
            Some(_) if !self.phase.is_empty() => wrong("phase", "a benchmark has its own".into()),
            None if self.phase.is_empty() && self.recorded.is_none() => {
                wrong("phase", "it has none, and no `workload` either".into())
            }
            _ => self.check_phases(number),
        }
    }

    fn check_phases(&self, number: usize) -> Result<(), Error> {
        for (phase, at) in self.phase.iter().zip(0..) {
            let wrong = |name: &str, what: &str| {
                Err(Error::field(
                    format!("process[{number}].phase[{at}].{name}"),
                    what,
                ))
            };
            if !(0.0..=SECONDS_MAX).contains(&phase.at_least_s) {
                return wrong("at_least_s", "it is not from 0 to 10^6");
            }
            if phase.accesses == 0 && phase.at_least_s == 0.0 {
                return wrong("accesses", "it has none");
            }
            if phase.repeat == 0 || phase.repeat > REPEAT_MAX {
                return wrong("repeat", "it is not from 1 to 100000");
            }
            if !(0.0..=1.0).contains(&phase.drift) {
                return wrong("drift", "it is not a share from 0 to 1");
            }
            if !(phase.theta > 0.0 && phase.theta <= 5.0) {
                return wrong("theta", "it is not above 0 and at most 5");
            }
            for (name, range) in [("range", phase.range), ("hot", phase.hot)] {
                let pages = part(range, self.pages());
                if !(0.0..=1.0).contains(&range[0])
                    || !(0.0..=1.0).contains(&range[1])
                    || pages.is_empty()
                {
                    return wrong(
                        name,
                        "it is no part of the memory: two shares from 0 to 1, rising, at least a \
                         page apart",
                    );
                }
            }
            if phase.hot_percent > 100 {
                return wrong("hot_percent", "it is more than 100");
            }
        }
        Ok(())
    }
}

/// Reads TOML; what is wrong becomes one line, with its place.
pub(crate) fn read_toml<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text
            .bytes()
            .take(start)
            .filter(|byte| *byte == b'\n')
            .count()
            + 1;
        let message = meant(error.message()).replace('\n', " ");
        Error::Parse {
            path: PathBuf::from(path),
            message: format!("line {line}: {message}"),
        }
    })
}

/// What is wrong, with the name that was meant instead of all that there are: serde lists these.
fn meant(message: &str) -> String {
    let sentence = |what: &str, kind: &str| {
        let names = message.strip_prefix(what)?.strip_prefix(" `")?;
        let (given, known) = names.rsplit_once("`, expected ")?;
        // Each name is between two backticks.
        let known = known.split('`').skip(1).step_by(2);
        Some(no_such(kind, given, known))
    };
    let said = sentence("unknown field", "key").or_else(|| sentence("unknown variant", "value"));
    said.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOUND: &str = "name = 'x'\nseed = 3\nseconds = 2.5\n[[machine.node]]\nmemory_mib = 512\n\
        cpus = 4\nlatency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 1536\n\
        [machine.kernel]\nscan_size_mib = 64\n[[process]]\nmemory_mib = 64\nbacking = 'thp'\n\
        [[process.phase]]\npattern = 'skewed'\nhot = [0.25, 0.5]\nhot_percent = 90\naccesses = \
        10\n";

    fn parse(text: &str) -> Result<Scenario, Error> {
        Scenario::parse(text, Path::new("x.toml"))
    }

    fn refused(from: &str, to: &str, field: &str) {
        let text = SOUND.replacen(from, to, 1);
        assert_ne!(text, SOUND, "{from}");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(field) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn what_cannot_be_is_named() {
        parse(SOUND).unwrap();
        refused("seconds = 2.5", "seconds = -1.0", "seconds");
        refused("memory_mib = 64", "memory_mib = 0", "process[0].memory_mib");
        refused(
            "memory_mib = 64",
            "memory_mib = 65",
            "process[0].memory_mib",
        );
        refused(
            "memory_mib = 64",
            "memory_mib = 4294967296",
            "process[0].memory_mib",
        );
        refused(
            "memory_mib = 1536",
            "memory_mib = 4503599627370496",
            "machine.node[1].memory_mib",
        );
        refused(
            "accesses = 10",
            "accesses = 0",
            "process[0].phase[0].accesses",
        );
        refused("[0.25, 0.5]", "[0.5, 0.5]", "process[0].phase[0].hot");
        refused("hot_percent = 90", "hot_percent = 101", "hot_percent");
        refused("'skewed'", "'fancy'", "line 16");
        refused("seed = 3", "sede = 3", "sede");
        refused("backing = 'thp'", "workload = 'nonsense'", "workload");
        refused("backing = 'thp'", "node = 1", "process[0].node");
        refused("name = 'x'", "", "name");
        refused("backing = 'thp'", "count = 0", "process[0].count");
        refused(
            "backing = 'thp'",
            "count = 33",
            "all together want 2112 MiB",
        );
        refused("backing = 'thp'", "stagger_s = -1", "process[0].stagger_s");
        let phase = "process[0].phase[0]";
        refused("'skewed'", "'zipf'\ntheta = 0", &format!("{phase}.theta"));
        refused("'skewed'", "'zipf'\ndrift = 1.5", &format!("{phase}.drift"));
        refused("'skewed'", "'zipf'\nrepeat = 0", &format!("{phase}.repeat"));
        refused(
            "'skewed'",
            "'zipf'\nat_least_s = nan",
            &format!("{phase}.at_least_s"),
        );
    }

    #[test]
    fn what_was_meant_is_offered() {
        for (from, to, line, said) in [
            (
                "seed",
                "sede",
                2,
                "there is no key `sede`: did you mean `seed`?",
            ),
            (
                "[[process]]\nmemory_mib",
                "[[process]]\nmemory_mb",
                13,
                "there is no key `memory_mb`: did you mean `memory_mib`?",
            ),
            (
                "scan_size_mib",
                "scan_size_mb",
                11,
                "there is no key `scan_size_mb`: did you mean `scan_size_mib`?",
            ),
            (
                "'skewed'",
                "'skewd'",
                16,
                "there is no value `skewd`: did you mean `skewed`?",
            ),
            (
                "seed",
                "colour",
                2,
                "there is no key `colour`; there are name, ",
            ),
            (
                "seed",
                "'se`ed'",
                2,
                "there is no key `se`ed`: did you mean `seed`?",
            ),
        ] {
            refused(from, to, &format!("line {line}: {said}"));
        }
        // The only field that there is, and what is no such error.
        let one = "unknown field `a`, expected `alone`";
        assert_eq!(meant(one), "there is no key `a`; there are alone");
        assert_eq!(meant("unknown field"), "unknown field");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(at in 0..SOUND.len(), length in 0..20_usize, new in ".{0,8}") {
            let end = (at + length).min(SOUND.len());
            let text = format!("{}{new}{}", &SOUND[..at], &SOUND[end..]);
            if let Ok(scenario) = parse(&text) {
                let plan = scenario.process[0].plan(&scenario.machine);
                prop_assert!(plan.0.accesses() > 0);
            }
        }

        #[test]
        fn no_number_makes_it_panic(
            which in 0..9_usize,
            number in any::<i64>(),
            real in any::<f64>(),
        ) {
            let numbers = ["3", "2.5", "512", "4", "100", "1536", "64", "0.25", "10"];
            for new in [number.to_string(), format!("{real:e}")] {
                let old = format!(" {}", numbers[which]);
                let _ = parse(&SOUND.replacen(&old, &format!(" {new}"), 1));
            }
        }
    }
}
