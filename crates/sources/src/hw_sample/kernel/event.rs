//! Which event of which PMU is sampled, chosen from what sysfs says of the machine.

use std::path::Path;

use pghot_linux::SysRoot;

use super::perf::Attr;
use crate::hw_sample::period::Limits;

/// Chooses the event instead of the machine, for tests only; see README.md.
pub const EVENT_VARIABLE: &str = "PGHOT_HW_SAMPLE_EVENT";

/// Loads that took fewer core cycles than this were served by a cache: even DRAM takes about 200.
const LATENCY_MIN_CYCLES: u64 = 128;

const TYPE_SOFTWARE: u32 = 1;
const SOFTWARE_MINOR_FAULTS: u64 = 5;

/// An event that yields physical addresses of accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is, for the log, `status` and errors.
    pub name: &'static str,
    /// What `perf_event_open` gets, with the first period.
    pub attr: Attr,
    /// An event that must be opened first, as the leader of the group.
    pub leader: Option<Attr>,
    /// The periods that make sense.
    pub limits: Limits,
}

/// The event for this machine, or why there is none. `wanted` is the value of [`EVENT_VARIABLE`].
pub fn choose(root: &SysRoot, wanted: Option<&str>) -> Result<Event, String> {
    let devices = root.sys.join("bus/event_source/devices");
    if !devices.is_dir() {
        return Err("this kernel has no perf events (CONFIG_PERF_EVENTS)".into());
    }
    match wanted {
        Some("page-faults") => return Ok(page_faults()),
        Some(other) => {
            return Err(format!(
                "{EVENT_VARIABLE} is `{other}`; its only value is `page-faults`, for tests: unset \
                 it to sample accesses"
            ));
        }
        None => {}
    }
    if let Some(event) = amd(&devices.join("ibs_op")) {
        return Ok(event);
    }
    intel(&devices.join("cpu"))
}

/// Stands in for the hardware in tests: minor page faults, of which those that only lift a write
/// protection are accesses of pages that are there already.
fn page_faults() -> Event {
    Event {
        name: "page_faults",
        attr: Attr::sampling(TYPE_SOFTWARE, SOFTWARE_MINOR_FAULTS, 1),
        leader: None,
        // At 2 every page is still seen often.
        limits: Limits {
            start: 1,
            min: 1,
            max: 2,
            step: 1,
        },
    }
}

/// AMD, instruction-based sampling of dispatched ops. It knows the physical address itself.
fn amd(pmu: &Path) -> Option<Event> {
    let kind = number(pmu, "type")?;
    let mut words = [0; 3];
    // Without this bit the period counts cycles, which is no worse, only older.
    place(pmu, "cnt_ctl", 1, &mut words);
    // Zen 4 and later tag an op, and forget it unless it misses the L3 cache.
    let misses_only = place(pmu, "l3missonly", 1, &mut words).is_some();
    let limits = match misses_only {
        // A miss takes some 100 ns, in which a core dispatches some 100 ops at most.
        true => Limits {
            start: 1 << 18,
            min: 1 << 16,
            max: 1 << 30,
            step: 16,
        },
        // Every tagged op is a sample, an interrupt and a record: at 8 ops a ns, 8000 a second
        // and CPU at least.
        false => Limits {
            start: 1 << 22,
            min: 1 << 20,
            max: 1 << 30,
            step: 16,
        },
    };
    let mut attr = Attr::sampling(kind, words[0], limits.start);
    (attr.config1, attr.config2) = (words[1], words[2]);
    let name = match misses_only {
        true => "ibs_op_l3_misses",
        false => "ibs_op",
    };
    Some(Event {
        name,
        attr,
        leader: None,
        limits,
    })
}

/// Intel, precise sampling (PEBS) of loads by their latency; the kernel translates the address.
fn intel(pmu: &Path) -> Result<Event, String> {
    let none = || {
        "this machine offers no sampling with physical addresses: neither AMD IBS (ibs_op) nor \
         Intel PEBS load latency (cpu/mem-loads) is in /sys/bus/event_source/devices, as in most \
         virtual machines"
            .to_owned()
    };
    let kind = number(pmu, "type").ok_or_else(none)?;
    let precise = number(pmu, "caps/max_precise").unwrap_or(0);
    let loads = read(pmu, "events/mem-loads").ok_or_else(none)?;
    if precise < 2 {
        return Err(
            "this CPU offers no precise sampling of loads (caps/max_precise is below \
                    2)"
            .into(),
        );
    }
    let odd = || format!("cannot understand the event mem-loads in {}", pmu.display());
    let mut words = configured(pmu, &loads).ok_or_else(odd)?;
    place(pmu, "ldlat", LATENCY_MIN_CYCLES, &mut words).ok_or_else(odd)?;
    let limits = Limits {
        start: 4096,
        // A core waits for some 10 million slow loads a second at the very most.
        min: 1024,
        max: 1 << 30,
        step: 1,
    };
    let mut attr = Attr::sampling(kind, words[0], limits.start);
    (attr.config1, attr.config2) = (words[1], words[2]);
    attr.set_precise(2);
    attr.exclude_guest();
    // Sapphire Rapids and its kin report where data came from only beside this counter.
    let leader = match read(pmu, "events/mem-loads-aux") {
        None => None,
        Some(aux) => {
            let words = configured(pmu, &aux).ok_or_else(odd)?;
            let mut leader = Attr::counting(kind, words[0]);
            leader.exclude_guest();
            Some(leader)
        }
    };
    Ok(Event {
        name: "pebs_loads",
        attr,
        leader,
        limits,
    })
}

/// The config words of an event as sysfs writes it, `event=0xcd,umask=0x1,ldlat=3`.
fn configured(pmu: &Path, text: &str) -> Option<[u64; 3]> {
    let mut words = [0; 3];
    for term in text.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        place(pmu, name, parse(value)?, &mut words)?;
    }
    Some(words)
}

/// Puts a value where the PMU's `format/NAME` says, `config1:0-15` or `config:0-7,32-35`, and
/// replaces what is there. `None` if the PMU has no such field or it is too narrow.
fn place(pmu: &Path, name: &str, value: u64, words: &mut [u64; 3]) -> Option<()> {
    let format = read(pmu, &format!("format/{name}"))?;
    let (word, bits) = format.split_once(':')?;
    let word = match word {
        "config" => &mut words[0],
        "config1" => &mut words[1],
        "config2" => &mut words[2],
        _ => return None,
    };
    let mut left = value;
    for range in bits.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 63 {
            return None;
        }
        let width = last - first + 1;
        let mask = u64::MAX >> (64 - width);
        *word = *word & !(mask << first) | (left & mask) << first;
        left = left.checked_shr(width).unwrap_or(0);
    }
    (left == 0).then_some(())
}

fn read(pmu: &Path, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(pmu.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn number(pmu: &Path, file: &str) -> Option<u32> {
    read(pmu, file)?.parse().ok()
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A machine with these files below `/sys/bus/event_source/devices`.
    fn machine(files: &[(&str, &str)]) -> (TempDir, SysRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let devices = root.sys.join("bus/event_source/devices");
        std::fs::create_dir_all(&devices).unwrap();
        for (name, text) in files {
            let path = devices.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        (dir, root)
    }

    fn chosen(files: &[(&str, &str)]) -> Result<Event, String> {
        let (_dir, root) = machine(files);
        choose(&root, None)
    }

    const ZEN3: &[(&str, &str)] = &[
        ("ibs_fetch/type", "9"),
        ("ibs_op/type", "10"),
        ("ibs_op/format/cnt_ctl", "config:19"),
        // Every x86 has this one; IBS is better at it.
        ("cpu/type", "4"),
        ("cpu/format/event", "config:0-7,32-35"),
        ("cpu/caps/max_precise", "0"),
    ];

    #[test]
    fn zen3_samples_all_ops_seldom() {
        let event = chosen(ZEN3).unwrap();
        assert_eq!(event.name, "ibs_op");
        assert_eq!((event.attr.kind, event.attr.config), (10, 1 << 19));
        assert_eq!(event.attr.period, 1 << 22);
        assert_eq!(event.leader, None);
    }

    #[test]
    fn zen4_and_zen5_sample_cache_misses_only() {
        let zen4 = [
            ("ibs_op/format/l3missonly", "config:16"),
            ("ibs_op/caps/zen4_ibs_extensions", "1"),
        ];
        let zen5 = [
            ("ibs_op/format/ldlat", "config1:0-11"),
            ("ibs_op/format/swfilt", "config2:0"),
        ];
        let zen4: Vec<_> = ZEN3.iter().chain(&zen4).copied().collect();
        let zen5: Vec<_> = zen4.iter().chain(&zen5).copied().collect();
        for files in [zen4, zen5] {
            let event = chosen(&files).unwrap();
            assert_eq!(event.name, "ibs_op_l3_misses");
            assert_eq!(event.attr.config, 1 << 19 | 1 << 16);
            assert_eq!((event.attr.config1, event.attr.config2), (0, 0));
            assert_eq!(event.attr.period % 16, 0, "the unit needs it");
        }
    }

    const ICELAKE: &[(&str, &str)] = &[
        ("cpu/type", "4"),
        ("cpu/format/event", "config:0-7"),
        ("cpu/format/umask", "config:8-15"),
        ("cpu/format/ldlat", "config1:0-15"),
        ("cpu/caps/max_precise", "3"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
    ];

    #[test]
    fn icelake_samples_slow_loads() {
        let event = chosen(ICELAKE).unwrap();
        assert_eq!(event.name, "pebs_loads");
        assert_eq!((event.attr.kind, event.attr.config), (4, 0x1cd));
        assert_eq!(event.attr.config1, LATENCY_MIN_CYCLES, "not the 3 of sysfs");
        assert_eq!(event.attr.precise(), 2);
        assert_eq!(event.leader, None);
    }

    #[test]
    fn sapphire_rapids_has_a_leader() {
        let aux = [("cpu/events/mem-loads-aux", "event=0x03,umask=0x82")];
        let files: Vec<_> = ICELAKE.iter().chain(&aux).copied().collect();
        let event = chosen(&files).unwrap();
        let leader = event.leader.unwrap();
        assert_eq!((leader.kind, leader.config, leader.period), (4, 0x8203, 0));
        assert_eq!(leader.sample_type, 0, "it counts, it does not sample");
        assert_eq!(event.attr.config, 0x1cd);
    }

    #[test]
    fn a_machine_without_is_told_so() {
        let virtual_machine = [("cpu/type", "4"), ("cpu/caps/max_precise", "0")];
        for files in [&virtual_machine[..], &[]] {
            let why = chosen(files).unwrap_err();
            assert!(
                why.contains("neither AMD IBS") && !why.contains('\n'),
                "{why}"
            );
        }
        let no_precision = [("cpu/caps/max_precise", "0")];
        let files: Vec<_> = ICELAKE.iter().chain(&no_precision).copied().collect();
        assert!(chosen(&files).unwrap_err().contains("precise"));
        let odd = [("cpu/events/mem-loads", "event=0x1cdcd")];
        let files: Vec<_> = ICELAKE.iter().chain(&odd).copied().collect();
        assert!(chosen(&files).unwrap_err().contains("mem-loads"));

        let dir = tempfile::tempdir().unwrap();
        let why = choose(&SysRoot::under(dir.path()), Some("page-faults")).unwrap_err();
        assert!(why.contains("no perf events"));
    }

    #[test]
    fn the_test_event_is_never_chosen_by_itself() {
        let (_dir, root) = machine(ICELAKE);
        let event = choose(&root, Some("page-faults")).unwrap();
        assert_eq!(
            (event.attr.kind, event.attr.config, event.attr.period),
            (1, 5, 1)
        );
        for wrong in ["", "faults"] {
            let why = choose(&root, Some(wrong)).unwrap_err();
            assert!(why.contains(EVENT_VARIABLE), "{why}");
        }
    }

    #[test]
    fn values_go_where_the_format_says() {
        let (_dir, root) = machine(&[("p/format/event", "config:0-7,32-35")]);
        let pmu = root.sys.join("bus/event_source/devices/p");
        let mut words = [u64::MAX, 0, 0];
        place(&pmu, "event", 0xabc, &mut words).unwrap();
        assert_eq!(words[0], 0xffff_fffa_ffff_ffbc);
        assert_eq!(place(&pmu, "event", 0x1abc, &mut words), None, "too wide");
        assert_eq!(place(&pmu, "umask", 1, &mut words), None);
    }
}
