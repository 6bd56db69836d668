//! What `pghot doctor` finds: the kernel, the nodes, each source, and what would fight with pghot.
//!
//! Looks and changes nothing, and needs no daemon; BPF programs are loaded and let go, attached to
//! nothing. Without root it sees less and says so.

use std::fmt::Display;

use pghot_linux::SysRoot;
use pghot_linux::bpf;
use pghot_linux::conflicts::conflicts;
use pghot_linux::load_check::{self, Loads};
use pghot_linux::probe::{Finding, Level, features};
use pghot_linux::rights;
use pghot_linux::topology::Topology;
use pghot_linux::{fates, resolver};
use pghot_sources::{Availability, Descriptor, SOURCES};
use schemars::JsonSchema;
use serde::Serialize;

use crate::compose::kernel_release;

/// Everything that doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// `uname -r`.
    pub kernel: String,
    /// The nodes of this machine; empty if they could not be read.
    pub nodes: Vec<NodeReport>,
    /// What pghot needs of the kernel.
    pub features: Vec<Check>,
    /// Each hotness source.
    pub sources: Vec<Check>,
    /// Each BPF program, as this kernel takes it; empty for who may not load any.
    pub programs: Vec<Check>,
    /// What would work against pghot.
    pub fights: Vec<Check>,
    /// The worst of all findings: `ok`, `warn` or `fail`.
    pub verdict: Grade,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeReport {
    /// The node.
    pub nid: u32,
    /// `memory_tierN`, if the kernel has memory tiers and the node memory.
    pub tier: Option<u32>,
    /// Pages are promoted from here.
    pub is_lower_tier: bool,
    /// Its memory.
    pub memory_mib: u64,
    /// Its CPUs.
    pub cpus: usize,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Its stable name.
    pub id: String,
    /// How much it matters.
    pub level: Grade,
    /// What was found.
    pub meaning: String,
    /// What to do; may be empty.
    pub advice: String,
}

/// A [`Level`], as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Ok,
    /// pghot works, but less well.
    Warn,
    /// pghot cannot promote here.
    Fail,
}

impl From<Level> for Grade {
    fn from(level: Level) -> Grade {
        match level {
            Level::Ok => Grade::Ok,
            Level::Warn => Grade::Warn,
            Level::Fail => Grade::Fail,
        }
    }
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Check {
        Check {
            id: finding.id.to_owned(),
            level: finding.level.into(),
            meaning: finding.meaning,
            advice: finding.advice.to_owned(),
        }
    }
}

/// Looks at everything.
pub fn examine(root: &SysRoot) -> Diagnosis {
    let mut features: Vec<Check> = features(root).into_iter().map(Check::from).collect();
    features.push(check_user());
    let fights: Vec<Check> = conflicts(root).into_iter().map(Check::from).collect();
    let sources = check_sources(root);
    let programs = check_programs(root);
    let all = features.iter().chain(&sources).chain(&programs);
    let all = all.chain(&fights);
    Diagnosis {
        kernel: kernel_release(root),
        nodes: nodes(root),
        verdict: all.map(|check| check.level).max().unwrap_or(Grade::Ok),
        features,
        sources,
        programs,
        fights,
    }
}

fn nodes(root: &SysRoot) -> Vec<NodeReport> {
    // An unreadable topology is a finding of the feature `lower_tier`.
    let Ok(topology) = Topology::read(root) else {
        return Vec::new();
    };
    let report = |node: &pghot_linux::topology::Node| NodeReport {
        nid: node.nid,
        tier: node.tier_id,
        is_lower_tier: topology.is_lower(node.nid),
        memory_mib: node.memory_mib,
        cpus: node.cpus.len(),
    };
    topology.nodes.iter().map(report).collect()
}

/// Whom the daemon becomes.
fn check_user() -> Check {
    let (level, meaning, advice) = match rights::has_user() {
        true => (Grade::Ok, "the daemon runs as the user `pghot`", ""),
        false => (Grade::Warn, "the daemon runs as root", rights::LACKS_USER),
    };
    Check {
        id: "user".to_owned(),
        level,
        meaning: meaning.to_owned(),
        advice: advice.to_owned(),
    }
}

/// One missing source is a loss; without any, pghot sees nothing.
fn check_sources(root: &SysRoot) -> Vec<Check> {
    let answers: Vec<_> = SOURCES
        .iter()
        .map(|source| (source, (source.on_kernel.check)(root)))
        .collect();
    let is_any = answers
        .iter()
        .any(|(_, answer)| !matches!(answer, Availability::Unavailable(_)));
    let missing = if is_any { Grade::Warn } else { Grade::Fail };
    let check = |(source, answer): (&Descriptor, Availability)| {
        let (level, meaning) = match answer {
            Availability::Available => (Grade::Ok, "available".to_owned()),
            Availability::Untried(caveat) => (Grade::Ok, format!("available, but {caveat}")),
            Availability::Unavailable(why) => (missing, why),
        };
        Check {
            id: source.name.to_owned(),
            level,
            meaning,
            advice: String::new(),
        }
    };
    answers.into_iter().map(check).collect()
}

/// Loads each once. A source has several for different kernels, so one whose function is absent is
/// no loss by itself: what the source can do is its own finding.
fn check_programs(root: &SysRoot) -> Vec<Check> {
    if !load_check::can_ask(root) {
        return Vec::new();
    }
    bpf::log_messages();
    let resolver = load_check::programs(root, resolver::OBJECT, |_| Ok(()));
    let mut checks = of_object("resolver", Grade::Fail, resolver);
    let fates = load_check::programs(root, fates::OBJECT, |_| Ok(()));
    checks.extend(of_object("fates", Grade::Warn, fates));
    for source in SOURCES {
        let programs = source.on_kernel.load_check(root);
        checks.extend(of_object(source.name, Grade::Warn, programs));
    }
    checks
}

fn of_object<E: Display>(
    owner: &str,
    without: Grade,
    programs: Result<Vec<load_check::Program>, E>,
) -> Vec<Check> {
    let check = |id: String, level, meaning| Check {
        id,
        level,
        meaning,
        advice: String::new(),
    };
    let programs = match programs {
        Ok(programs) => programs,
        Err(error) => return vec![check(owner.to_owned(), without, error.to_string())],
    };
    let one = |program: load_check::Program| {
        let (level, meaning) = match program.loads {
            Loads::Yes => (Grade::Ok, "loads".to_owned()),
            Loads::WithoutFunction(name) => {
                (Grade::Ok, format!("off, the kernel has no function {name}"))
            }
            Loads::No(why) => (without, format!("does not load: {why}")),
        };
        check(format!("{owner}/{}", program.name), level, meaning)
    };
    programs.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_machine_fails_without_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let diagnosis = examine(&SysRoot::under(dir.path()));
        assert_eq!(diagnosis.verdict, Grade::Fail);
        assert_eq!(diagnosis.kernel, "unknown");
        assert_eq!(diagnosis.sources.len(), SOURCES.len());
        assert!(
            diagnosis
                .sources
                .iter()
                .all(|check| check.level == Grade::Fail)
        );
        for check in diagnosis.features.iter().chain(&diagnosis.fights) {
            assert!(!check.meaning.is_empty(), "{}", check.id);
        }
    }
}
