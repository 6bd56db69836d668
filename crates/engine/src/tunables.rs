//! Tunables: what an operator can change, each described once. Flags, the config file, `pghot set`,
//! `--help`, the man page and the reference are made from the descriptions.
//!
//! A tunable belongs to whoever goes by it. Here are the engine's; each source has its own. Names
//! and ranges are the kernel proposal's, but for `demote_rate_limit_MBps` and `quick_fault_ms`. Two
//! defaults differ on purpose, see `promote_rate_limit_MBps` and `kmigrated_batch_nr`.

use std::collections::BTreeMap;
use std::fmt;

use pghot_hotness::{Format, Nid, Rule};

use crate::Policies;
use crate::names::no_such;
use crate::quick_fault::QUICK_FAULT_MS;

/// The present values of all tunables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Record format; fixed while the daemon runs.
    pub mode: Format,
    /// Accesses within the window that make a page ready.
    pub freq_threshold: u32,
    /// The window, in ms.
    pub freq_window_ms: u32,
    /// Where hot pages go when the record does not know better; unset, to the nearest top-tier node
    /// with room.
    pub target_nid: Option<Nid>,
    /// From the start of one pass to the next, in ms.
    pub kmigrated_sleep_ms: u32,
    /// Base pages per batch.
    pub kmigrated_batch_nr: u32,
    /// Promotion per target node, in MB/s; 0 stops promotion.
    pub promote_rate_limit_mbps: u64,
    /// Demotion by pghot itself, in MB/s; 0 leaves it to the kernel.
    pub demote_rate_limit_mbps: u64,
    /// Within this time of its mark a hint fault makes its page ready, in ms.
    pub quick_fault_ms: u32,
    /// What is said of single programs.
    pub policies: Policies,
    /// What others than the engine go by, where it is not the default.
    by_name: BTreeMap<&'static str, u64>,
}

impl Settings {
    /// The defaults of a mode.
    pub fn new(mode: Format) -> Settings {
        let mut settings = Settings {
            mode,
            freq_threshold: 0,
            freq_window_ms: 0,
            target_nid: None,
            kmigrated_sleep_ms: 0,
            kmigrated_batch_nr: 0,
            promote_rate_limit_mbps: 0,
            demote_rate_limit_mbps: 0,
            quick_fault_ms: 0,
            policies: Policies::default(),
            by_name: BTreeMap::new(),
        };
        for tunable in TUNABLES {
            settings.store(tunable, (tunable.default)(mode));
        }
        settings
    }

    /// The update rule that these settings ask for.
    pub fn rule(&self) -> Result<Rule, pghot_hotness::Error> {
        Rule::new(self.mode, self.freq_threshold, self.freq_window_ms)
    }

    /// The value of a tunable.
    pub fn get(&self, tunable: &Tunable) -> u64 {
        match tunable.kept {
            Kept::InField(load, _) => load(self),
            Kept::ByName => {
                let changed = self.by_name.get(tunable.name);
                changed.map_or_else(|| (tunable.default)(self.mode), |value| *value)
            }
        }
    }

    /// The value of a tunable as text.
    pub fn show(&self, tunable: &Tunable) -> String {
        tunable.show(self.get(tunable))
    }

    /// Sets a tunable from text; the settings are unchanged on error.
    pub fn set(&mut self, tunable: &Tunable, text: &str) -> Result<(), TunableError> {
        let value = tunable.parse(text, self.mode)?;
        self.store(tunable, value);
        Ok(())
    }

    fn store(&mut self, tunable: &Tunable, value: u64) {
        match tunable.kept {
            Kept::InField(_, store) => store(self, value),
            Kept::ByName if value == (tunable.default)(self.mode) => {
                self.by_name.remove(tunable.name);
            }
            Kept::ByName => {
                self.by_name.insert(tunable.name, value);
            }
        }
    }
}

/// What values a tunable takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within a range that may depend on the mode.
    Number,
    /// Some of what these have a bit of: names with commas, `none`, `default` or a mask.
    Set {
        /// What the names are of.
        of: &'static str,
        /// Each with its bit.
        members: &'static [(&'static str, u64)],
    },
    /// A node's number, or `nearest`: then the machine decides.
    Node,
}

impl Kind {
    /// What values it takes, for errors.
    pub fn takes(self) -> &'static str {
        match self {
            Kind::Number => "a whole number",
            Kind::Set { .. } => "names with commas between, default, none or a mask",
            Kind::Node => "a node's number or nearest",
        }
    }

    /// Of a set: what its members are, and they.
    pub fn members(self) -> (&'static str, &'static [(&'static str, u64)]) {
        match self {
            Kind::Set { of, members } => (of, members),
            Kind::Number | Kind::Node => ("", &[]),
        }
    }
}

/// One tunable, described once.
pub struct Tunable {
    /// Its name.
    pub name: &'static str,
    /// Unit of the value, empty for counts.
    pub unit: &'static str,
    /// How values are written.
    pub kind: Kind,
    /// What it does, for `--help` and the reference.
    pub doc: &'static str,
    /// Default by mode.
    pub default: fn(Format) -> u64,
    /// Smallest and largest value by mode.
    pub range: fn(Format) -> (u64, u64),
    /// Where the settings keep its value.
    pub kept: Kept,
}

/// Where [`Settings`] keep the value of a tunable.
pub enum Kept {
    /// In a field, which the engine reads: how it is read, and written after a check.
    InField(fn(&Settings) -> u64, fn(&mut Settings, u64)),
    /// By its name, for [`Settings::get`].
    ByName,
}

/// Of [`Kind::Node`]: the machine decides.
const NEAREST: u64 = 1024;
const NEAREST_TEXT: &str = "nearest";

/// Of [`Kind::Set`]: what is the default, and the empty one.
const DEFAULT_TEXT: &str = "default";
const NONE_TEXT: &str = "none";

/// The engine's tunables. Adding one is one entry here and one field in [`Settings`].
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "freq_threshold",
        unit: "",
        kind: Kind::Number,
        doc: "Accesses within the window that make a page ready for promotion. With hint faults \
              alone an access is seen once per scan of the kernel: 2 asks for two scans within \
              the window, or one quick fault, and leaves rarely touched pages where they are; 1 \
              promotes at the first fault, sooner and with less choice.",
        default: |_| 2,
        range: |mode| (1, mode.freq_max() as u64),
        kept: Kept::InField(
            |s| s.freq_threshold as u64,
            |s, v| s.freq_threshold = v as u32,
        ),
    },
    Tunable {
        name: "freq_window_ms",
        unit: "ms",
        kind: Kind::Number,
        doc: "The window in which accesses are counted, and the age beyond which a ready page \
              counts as cold. Accesses further apart never add up.",
        default: |mode| match mode {
            Format::Default => 3000,
            Format::Precision => 5000,
        },
        range: |mode| {
            let (min, max) = mode.window_range_ms();
            (min as u64, max as u64)
        },
        kept: Kept::InField(
            |s| s.freq_window_ms as u64,
            |s, v| s.freq_window_ms = v as u32,
        ),
    },
    Tunable {
        name: "target_nid",
        unit: "",
        kind: Kind::Node,
        doc: "The top-tier node that hot pages go to, or nearest: from each lower-tier node to \
              the top-tier node that is nearest to it and has room for what waits; if none has, \
              to the one with most room. In precision mode only for pages whose accessing node \
              is not in the top tier.",
        default: |_| NEAREST,
        range: |_| (0, NEAREST - 1),
        kept: Kept::InField(
            |s| s.target_nid.map_or(NEAREST, u64::from),
            |s, v| s.target_nid = (v < NEAREST).then_some(v as u32),
        ),
    },
    Tunable {
        name: "kmigrated_sleep_ms",
        unit: "ms",
        kind: Kind::Number,
        doc: "From the start of one pass over a lower-tier node to the next. While many pages go \
              up, passes come up to ten times as often; after ten without a page that could go, \
              a fourth as often. A ready page waits no longer than that to be seen.",
        default: |_| 100,
        range: |_| (50, 1000),
        kept: Kept::InField(
            |s| s.kmigrated_sleep_ms as u64,
            |s, v| s.kmigrated_sleep_ms = v as u32,
        ),
    },
    Tunable {
        name: "kmigrated_batch_nr",
        unit: "pages",
        kind: Kind::Number,
        doc: "Base pages per move_pages call. Each call drains the LRU caches of all CPUs, so \
              small batches are expensive; how long a page is inaccessible does not grow beyond \
              512, since the kernel unmaps 512 pages at a time.",
        // The kernel proposal's 512 is a bound on folios inside the kernel, where a flush costs
        // little. A move_pages call costs the more the smaller it is: 26 us a page at 512 and
        // 22 us at 4096 in emulation, 5.7 ms at 1.
        default: |_| 2048,
        range: |_| (64, 4096),
        kept: Kept::InField(
            |s| s.kmigrated_batch_nr as u64,
            |s, v| s.kmigrated_batch_nr = v as u32,
        ),
    },
    Tunable {
        name: "promote_rate_limit_MBps",
        unit: "MB/s",
        kind: Kind::Number,
        doc: "Promotion per target node. 0 stops promotion.",
        // The kernel's 65536 is more than any memory bus carries. Its documentation asks for less
        // than a tenth of the lower tier's write bandwidth: 1 GB/s is that for a CXL device on
        // eight PCIe 5.0 lanes, and keeps one mover thread (1 to 3 us a page) below one CPU. It
        // is four times what the stock scan of a process can find (256 MB/s).
        default: |_| 1024,
        range: |_| (0, 65536),
        kept: Kept::InField(
            |s| s.promote_rate_limit_mbps,
            |s, v| s.promote_rate_limit_mbps = v,
        ),
    },
    Tunable {
        name: "demote_rate_limit_MBps",
        unit: "MB/s",
        kind: Kind::Number,
        doc: "How much pghot itself may demote, to make room in a full top tier for pages that are \
              clearly hotter. 0 leaves demotion to the kernel's reclaim; then promotion wakes it.",
        // As much as promotion may take.
        default: |_| 1024,
        range: |_| (0, 65536),
        kept: Kept::InField(
            |s| s.demote_rate_limit_mbps,
            |s, v| s.demote_rate_limit_mbps = v,
        ),
    },
    QUICK_FAULT_MS,
];

/// Why a tunable cannot be set so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunableError {
    /// No tunable of this name.
    Unknown {
        /// What was given.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The text is not a number.
    NotANumber {
        /// The tunable.
        name: &'static str,
        /// How its values are written.
        kind: Kind,
        /// What was given.
        text: String,
    },
    /// A set has no such member.
    NoMember {
        /// The tunable.
        name: &'static str,
        /// What there is, and of what.
        kind: Kind,
        /// What was given.
        given: String,
    },
    /// The number is out of range.
    OutOfRange {
        /// The tunable.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Smallest and largest value.
        range: (u64, u64),
        /// Unit of the range.
        unit: &'static str,
    },
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunableError::Unknown { name, known } => {
                f.write_str(&no_such("tunable", name, known.iter().copied()))
            }
            TunableError::NotANumber { name, kind, text } => {
                write!(f, "{name} takes {}, not `{text}`", kind.takes())
            }
            TunableError::NoMember { name, kind, given } => {
                let (of, members) = kind.members();
                let names = members.iter().map(|(name, _)| *name);
                write!(f, "{name}: {}", no_such(of, given, names))
            }
            TunableError::OutOfRange {
                name,
                value,
                range: (min, max),
                unit,
            } => {
                let space = if unit.is_empty() { "" } else { " " };
                write!(
                    f,
                    "{name} is {min} to {max}{space}{unit} in this mode, not {value}"
                )
            }
        }
    }
}

impl std::error::Error for TunableError {}

impl Tunable {
    /// Looks one of `all` up by its name.
    pub fn find<All>(all: All, name: &str) -> Result<&'static Tunable, TunableError>
    where
        All: Iterator<Item = &'static Tunable> + Clone,
    {
        let found = all.clone().find(|tunable| tunable.name == name);
        found.ok_or_else(|| TunableError::Unknown {
            name: name.to_owned(),
            known: all.map(|tunable| tunable.name).collect(),
        })
    }

    /// Reads a value and checks its range. Numbers may be written in hex with `0x`.
    pub fn parse(&self, text: &str, mode: Format) -> Result<u64, TunableError> {
        let trimmed = text.trim();
        if self.kind == Kind::Node && trimmed == NEAREST_TEXT {
            return Ok(NEAREST);
        }
        if let Kind::Set { .. } = self.kind
            && trimmed.starts_with(|first: char| first.is_alphabetic())
        {
            return self.parse_set(trimmed, mode);
        }
        let number = match trimmed.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => trimmed.parse(),
        };
        let value = number.map_err(|_| TunableError::NotANumber {
            name: self.name,
            kind: self.kind,
            text: text.to_owned(),
        })?;
        let (min, max) = (self.range)(mode);
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            let (name, unit) = (self.name, self.unit);
            Err(TunableError::OutOfRange {
                name,
                value,
                range: (min, max),
                unit,
            })
        }
    }

    fn parse_set(&self, text: &str, mode: Format) -> Result<u64, TunableError> {
        match text {
            DEFAULT_TEXT => return Ok((self.default)(mode)),
            NONE_TEXT => return Ok(0),
            _ => {}
        }
        let (_, members) = self.kind.members();
        text.split(',').map(str::trim).try_fold(0, |bits, given| {
            let member = members.iter().find(|(name, _)| *name == given);
            member
                .map(|(_, bit)| bits | bit)
                .ok_or_else(|| TunableError::NoMember {
                    name: self.name,
                    kind: self.kind,
                    given: given.to_owned(),
                })
        })
    }

    /// The value as text.
    pub fn show(&self, value: u64) -> String {
        match self.kind {
            Kind::Node if value == NEAREST => NEAREST_TEXT.to_owned(),
            Kind::Number | Kind::Node => value.to_string(),
            Kind::Set { .. } if value == 0 => NONE_TEXT.to_owned(),
            Kind::Set { members, .. } => {
                let those = members.iter().filter(|(_, bit)| value & bit != 0);
                let names: Vec<&str> = those.map(|(name, _)| *name).collect();
                names.join(",")
            }
        }
    }

    /// The value as a number; none if the machine decides.
    pub fn number(&self, settings: &Settings) -> Option<u64> {
        let value = settings.get(self);
        (self.kind != Kind::Node || value != NEAREST).then_some(value)
    }

    /// The same of [`Tunable::number`].
    pub fn show_number(&self, number: Option<u64>) -> String {
        number.map_or(NEAREST_TEXT.to_owned(), |number| self.show(number))
    }

    /// The default as text, for help and reference.
    pub fn show_default(&self, mode: Format) -> String {
        self.show((self.default)(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_range_and_round_trips() {
        for mode in [Format::Default, Format::Precision] {
            let settings = Settings::new(mode);
            settings.rule().unwrap();
            for t in TUNABLES {
                let value = settings.get(t);
                assert_eq!(value, (t.default)(mode), "{}", t.name);
                assert_eq!(t.parse(&t.show(value), mode), Ok(value), "{}", t.name);
                assert!(t.doc.ends_with('.') && !t.doc.contains("  "), "{}", t.name);
            }
        }
    }

    #[test]
    fn every_bound_is_kept() {
        for mode in [Format::Default, Format::Precision] {
            for t in TUNABLES {
                let mut settings = Settings::new(mode);
                let (min, max) = (t.range)(mode);
                for value in [min, max] {
                    settings.set(t, &value.to_string()).unwrap();
                    assert_eq!(settings.get(t), value);
                }
                let before = settings.clone();
                for text in [(max + 1).to_string(), "-1".into(), "".into(), "1e3".into()] {
                    let error = settings.set(t, &text).unwrap_err().to_string();
                    assert!(error.contains(t.name), "{error}");
                }
                assert_eq!(settings, before);
            }
        }
        assert!(Tunable::find(TUNABLES.iter(), "freq").is_err());
    }
}
