//! The tunables: one table from which flags, the config file, `pghot set`, `--help`, the man page
//! and the reference are made.
//!
//! Names and ranges are the kernel proposal's, but for `demote_rate_limit_MBps`,
//! `scan_stall_max_ms` and `quick_fault_ms`, which are ours. Two defaults differ on purpose, see
//! `promote_rate_limit_MBps` and `kmigrated_batch_nr`.

use std::fmt;

use pghot_hotness::{Format, Nid, Rule};
use serde::Serialize;

/// All tunables with their present values, checked against each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Record format; fixed while the daemon runs.
    #[serde(skip)]
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
    /// Bit mask of the sources that report.
    pub enabled_sources: u32,
    /// The longest that a scan may keep a process from changing its mappings, in ms.
    pub scan_stall_max_ms: u32,
    /// Within this time of its mark a hint fault makes its page ready, in ms.
    pub quick_fault_ms: u32,
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
            enabled_sources: 0,
            scan_stall_max_ms: 0,
            quick_fault_ms: 0,
        };
        for tunable in TUNABLES {
            (tunable.store)(&mut settings, (tunable.default)(mode));
        }
        settings
    }

    /// The update rule that these settings ask for.
    pub fn rule(&self) -> Result<Rule, pghot_hotness::Error> {
        Rule::new(self.mode, self.freq_threshold, self.freq_window_ms)
    }

    /// Sets one tunable from text; the settings are unchanged on error.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), TunableError> {
        let tunable = Tunable::find(name)?;
        let value = tunable.parse(text, self.mode)?;
        (tunable.store)(self, value);
        Ok(())
    }
}

/// What values a tunable takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within a range that may depend on the mode.
    Number,
    /// A set of bits.
    Mask,
    /// A node's number, or `nearest`: then the machine decides.
    Node,
}

impl Kind {
    /// What values it takes, for errors.
    pub fn takes(self) -> &'static str {
        match self {
            Kind::Number | Kind::Mask => "a whole number",
            Kind::Node => "a node's number or nearest",
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
    /// Reads it from the settings.
    pub load: fn(&Settings) -> u64,
    /// Writes it to the settings; the value was checked.
    pub store: fn(&mut Settings, u64),
}

/// Of [`Kind::Node`]: the machine decides.
const NEAREST: u64 = 1024;
const NEAREST_TEXT: &str = "nearest";

/// Every tunable. Adding one is one entry here and one field in [`Settings`].
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
        load: |s| s.freq_threshold as u64,
        store: |s, v| s.freq_threshold = v as u32,
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
        load: |s| s.freq_window_ms as u64,
        store: |s, v| s.freq_window_ms = v as u32,
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
        load: |s| s.target_nid.map_or(NEAREST, u64::from),
        store: |s, v| s.target_nid = (v < NEAREST).then_some(v as u32),
    },
    Tunable {
        name: "kmigrated_sleep_ms",
        unit: "ms",
        kind: Kind::Number,
        doc: "From the start of one pass over a lower-tier node to the next: the longest that a \
              ready page waits to be seen. While pages go up, passes come up to ten times as \
              often.",
        default: |_| 100,
        range: |_| (50, 1000),
        load: |s| s.kmigrated_sleep_ms as u64,
        store: |s, v| s.kmigrated_sleep_ms = v as u32,
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
        load: |s| s.kmigrated_batch_nr as u64,
        store: |s, v| s.kmigrated_batch_nr = v as u32,
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
        load: |s| s.promote_rate_limit_mbps,
        store: |s, v| s.promote_rate_limit_mbps = v,
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
        load: |s| s.demote_rate_limit_mbps,
        store: |s, v| s.demote_rate_limit_mbps = v,
    },
    Tunable {
        name: "enabled_sources",
        unit: "",
        kind: Kind::Mask,
        doc: "The hotness sources that report, as a mask: 0x1 hint_fault, 0x2 hw_sample, \
              0x4 pgtscan, 0x8 page_cache, 0x10 mglru, 0x20 app_hint.",
        // pgtscan sees the shared and forked memory that hint faults do not, and stands in for them
        // while the kernel would promote in the fault.
        default: |_| 0x5,
        range: |_| (0, 0x3f),
        load: |s| s.enabled_sources as u64,
        store: |s, v| s.enabled_sources = v as u32,
    },
    Tunable {
        name: "scan_stall_max_ms",
        unit: "ms",
        kind: Kind::Number,
        doc: "The longest that pgtscan may hold a process's mmap lock for writing, while which the \
              process can map nothing new. Where clearing all of its accessed bits at once would \
              take longer, they are cleared by another way, which does not see pages that several \
              processes map.",
        // 200,000 resident pages at 50 ns each. A page fault that reads from a disk takes as long.
        default: |_| 10,
        range: |_| (1, 1000),
        load: |s| s.scan_stall_max_ms as u64,
        store: |s, v| s.scan_stall_max_ms = v as u32,
    },
    Tunable {
        name: "quick_fault_ms",
        unit: "ms",
        kind: Kind::Number,
        doc: "A hint fault makes its page ready if it comes within this time of the kernel's mark: \
              a page that is touched so soon is touched often. So a page of a large process, \
              which the kernel's scan comes to less than once per window, is found hot at one \
              look. While the top tier is full and pages change places, it is the limit of a \
              shorter time that follows from what goes; while it has room, faults that many \
              neighbours come with are as good. 0 counts every fault once.",
        // A page that is swept once in 20 s is touched so soon after a mark in 0.6 % of cases.
        default: |_| 125,
        range: |_| (0, 60_000),
        load: |s| s.quick_fault_ms as u64,
        store: |s, v| s.quick_fault_ms = v as u32,
    },
];

/// Why a tunable cannot be set so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunableError {
    /// No tunable of this name.
    Unknown(String),
    /// The text is not a number.
    NotANumber {
        /// The tunable.
        name: &'static str,
        /// How its values are written.
        kind: Kind,
        /// What was given.
        text: String,
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
            TunableError::Unknown(name) => {
                let names: Vec<_> = TUNABLES.iter().map(|t| t.name).collect();
                write!(
                    f,
                    "there is no tunable `{name}`; there are {}",
                    names.join(", ")
                )
            }
            TunableError::NotANumber { name, kind, text } => {
                write!(f, "{name} takes {}, not `{text}`", kind.takes())
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
    /// Looks a tunable up by its name.
    pub fn find(name: &str) -> Result<&'static Tunable, TunableError> {
        let found = TUNABLES.iter().find(|t| t.name == name);
        found.ok_or_else(|| TunableError::Unknown(name.to_owned()))
    }

    /// Reads a value and checks its range. Numbers may be written in hex with `0x`.
    pub fn parse(&self, text: &str, mode: Format) -> Result<u64, TunableError> {
        if self.kind == Kind::Node && text.trim() == NEAREST_TEXT {
            return Ok(NEAREST);
        }
        let number = match text.trim().strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.trim().parse(),
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

    /// The value as text.
    pub fn show(&self, value: u64) -> String {
        match self.kind {
            Kind::Node if value == NEAREST => NEAREST_TEXT.to_owned(),
            Kind::Number | Kind::Node => value.to_string(),
            Kind::Mask => format!("{value:#x}"),
        }
    }

    /// The value as a number; none if the machine decides.
    pub fn number(&self, settings: &Settings) -> Option<u64> {
        let value = (self.load)(settings);
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
                let value = (t.load)(&settings);
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
                    settings.set(t.name, &value.to_string()).unwrap();
                    assert_eq!((t.load)(&settings), value);
                }
                let before = settings.clone();
                for text in [(max + 1).to_string(), "-1".into(), "".into(), "1e3".into()] {
                    let error = settings.set(t.name, &text).unwrap_err().to_string();
                    assert!(error.contains(t.name), "{error}");
                }
                assert_eq!(settings, before);
            }
        }
        assert!(Settings::new(Format::Default).set("freq", "1").is_err());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TUNABLES.iter().map(|t| t.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TUNABLES.len());
    }
}
