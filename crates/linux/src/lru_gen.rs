//! The kernel's MGLRU files: what `lru_gen` lists, how an aging and an eviction are asked for, what
//! is switched on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pghot_engine::demoter::Generation;
pub use pghot_engine::lruvec::{Key, Listed};

use crate::SysRoot;
use crate::keeper::{Keeper, KeeperError};

/// Bit of `enabled`: the kernel walks page tables to age.
const MM_WALK: u64 = 0x2;
/// Bit of `enabled`: MGLRU itself.
const CORE: u64 = 0x1;

/// What is switched on, by `/sys/kernel/mm/lru_gen/enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// MGLRU is off, or not in this kernel.
    Off,
    /// MGLRU is on, but does not walk page tables.
    WithoutWalks,
    /// All that is needed.
    Walks,
}

/// Where the list is and agings are asked for.
pub fn path(root: &SysRoot) -> PathBuf {
    root.sys.join("kernel/debug/lru_gen")
}

/// The file that tells the mode.
pub fn enabled_path(root: &SysRoot) -> PathBuf {
    root.sys.join("kernel/mm/lru_gen/enabled")
}

/// Parses the mask, such as `0x0007`.
pub fn mode(text: &str) -> Mode {
    let digits = text.trim().trim_start_matches("0x");
    match u64::from_str_radix(digits, 16) {
        Ok(mask) if mask & CORE == 0 => Mode::Off,
        Ok(mask) if mask & MM_WALK == 0 => Mode::WithoutWalks,
        Ok(_) => Mode::Walks,
        Err(_) => Mode::Off,
    }
}

/// Parses the list: the generations of the lruvecs of the wanted nodes that have pages, the oldest
/// first. What is not understood is left out.
///
/// ```text
/// memcg     1 /
///  node     2
///           0     167880      16384        120
/// ```
///
/// The numbers of a generation are its sequence number, its age in ms, and its anonymous and file
/// pages.
pub fn generations(list: &str, wanted: impl Fn(u32) -> bool) -> BTreeMap<Key, Vec<Generation>> {
    let mut lruvecs = BTreeMap::<Key, Vec<Generation>>::new();
    let (mut memcg_id, mut nid) = (None, None);
    // Without the memory controller there is one memcg, 0; with it, 0 stands for those that were
    // removed and still hold pages, which cannot be aged.
    let mut has_ids = false;
    for line in list.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        match first {
            "memcg" => {
                memcg_id = words.next().and_then(|id| id.parse::<u64>().ok());
                has_ids |= memcg_id.is_some_and(|id| id != 0);
                nid = None;
            }
            "node" => {
                let number = words.next().and_then(|nid| nid.parse::<u32>().ok());
                nid = number.filter(|nid| wanted(*nid));
            }
            seq => {
                let (Some(memcg_id), Some(nid), Ok(seq)) = (memcg_id, nid, seq.parse()) else {
                    continue;
                };
                let mut numbers = words.filter_map(|number| number.parse::<u64>().ok());
                lruvecs
                    .entry(Key { memcg_id, nid })
                    .or_default()
                    .push(Generation {
                        seq,
                        age_ms: numbers.next().unwrap_or(0),
                        pages: total(numbers),
                    });
            }
        }
    }
    lruvecs.retain(|key, generations| {
        generations.sort_by_key(|generation| generation.seq);
        generations.iter().any(|generation| generation.pages > 0) && (key.memcg_id != 0 || !has_ids)
    });
    lruvecs
}

/// A sum that damaged numbers cannot overflow.
fn total(pages: impl Iterator<Item = u64>) -> u64 {
    pages.fold(0, u64::saturating_add)
}

/// The same, without the generations apart.
pub fn parse(list: &str, wanted: impl Fn(u32) -> bool) -> BTreeMap<Key, Listed> {
    let listed = |generations: Vec<Generation>| Listed {
        max_seq: generations.last().map_or(0, |youngest| youngest.seq),
        pages: total(generations.iter().map(|generation| generation.pages)),
    };
    let lruvecs = generations(list, wanted).into_iter();
    lruvecs.map(|(key, of)| (key, listed(of))).collect()
}

/// The path of each listed memcg; those that were removed have none.
pub fn paths(list: &str) -> BTreeMap<u64, String> {
    let named = list
        .lines()
        .filter_map(named)
        .filter(|(_, path)| !path.is_empty());
    named.map(|(id, path)| (id, path.to_owned())).collect()
}

/// A line that names a memcg: its number and its path, which may be empty.
fn named(line: &str) -> Option<(u64, &str)> {
    let (id, path) = line.strip_prefix("memcg")?.trim_start().split_once(' ')?;
    Some((id.parse().ok()?, path))
}

/// The memcg of the process whose `/proc/PID/cgroup` is `cgroups`: that of its control group, or of
/// the nearest one above that has the memory controller.
pub fn memcg_of(list: &str, cgroups: &str) -> Option<u64> {
    let fields = |line: &'_ str| {
        let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
        Some((fields.next()?, fields.next()?))
    };
    let has_memory = |names: &str| names.split(',').any(|name| name == "memory");
    let lines: Vec<_> = cgroups.lines().filter_map(fields).collect();
    let own = lines.iter().find(|(names, _)| has_memory(names));
    // With the second version of control groups there is one line without names.
    let (_, path) = own.or_else(|| lines.iter().find(|(names, _)| names.is_empty()))?;
    let mut above = Path::new(path).ancestors();
    above.find_map(|path| {
        list.lines().filter_map(named).find_map(|(id, listed)| {
            // Without the memory controller there is one memcg, which has no path.
            let listed = if listed.is_empty() { "/" } else { listed };
            (Path::new(listed) == path).then_some(id)
        })
    })
}

/// The command that ages a lruvec's youngest generation: with swappiness 200 anonymous pages are
/// looked at even without swap, and 1 looks into all page tables, not only promising ones.
pub fn command(key: Key, max_seq: u64) -> String {
    format!("+ {} {} {max_seq} 200 1\n", key.memcg_id, key.nid)
}

/// Why the kernel refused to age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The memcg is gone, or its node.
    Gone,
    /// Reclaim is aging the same, or has just done so.
    Overtaken,
    /// The file cannot be opened or written.
    Other,
}

/// The command that evicts up to so many pages of a lruvec's generations up to `seq`, the oldest
/// first. Where reclaim demotes they go to the lower tier. With swappiness 200, for with 0
/// anonymous pages stay.
pub fn eviction(key: Key, seq: u64, pages: u64) -> String {
    format!("- {} {} {seq} 200 {pages}\n", key.memcg_id, key.nid)
}

/// Asks the kernel for agings and evictions. Only root may, so the keeper opens the file, at the
/// first command: until then MGLRU may be off, or debugfs not mounted.
pub struct Commands {
    keeper: Arc<Keeper>,
    file: Option<File>,
}

impl Commands {
    /// Nothing is opened yet.
    pub fn new(keeper: &Arc<Keeper>) -> Commands {
        Commands {
            keeper: Arc::clone(keeper),
            file: None,
        }
    }

    /// Opens the file, unless it is open.
    pub fn open(&mut self) -> Result<&mut File, KeeperError> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(self.keeper.open_generations()?)),
        }
    }

    /// Asks for one aging; returns when it is done.
    pub fn age(&mut self, key: Key, max_seq: u64) -> Result<(), Refusal> {
        self.write(&command(key, max_seq))
    }

    /// Asks for one eviction; returns when it is done. The two youngest generations are refused.
    pub fn evict(&mut self, key: Key, seq: u64, pages: u64) -> Result<(), Refusal> {
        self.write(&eviction(key, seq, pages))
    }

    fn write(&mut self, command: &str) -> Result<(), Refusal> {
        let file = self.open().map_err(|_| Refusal::Other)?;
        let written = file.write_all(command.as_bytes());
        written.map_err(|error| refusal(&error))
    }
}

fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Refusal::Gone,
        Some(libc::EEXIST | libc::ERANGE) => Refusal::Overtaken,
        _ => Refusal::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
memcg     1 /
 node     0
          0     167880        731      10120\x20
          1     167880          0        220\x20
 node     2
          3     167880      16384          0\x20
          4       2000       1000          7\x20
memcg 18446744073709551615 /a b/node     7
 node     2
          1     167880          0          0\x20
memcg    40 /g
 node     0
          8          1          1          1\x20
 node     2
          9         20         20          1\x20
";

    #[test]
    fn damaged_numbers_do_not_overflow() {
        let list = format!(
            "memcg 1 /g\n node 2\n 3 10 {} {}\n 4 1 {0} 0\n",
            u64::MAX,
            u64::MAX
        );
        let listed = parse(&list, |_| true);
        assert_eq!(listed.values().next().unwrap().pages, u64::MAX);
    }

    #[test]
    fn lruvecs_of_wanted_nodes_with_pages_are_listed() {
        let listed = parse(LIST, |nid| nid == 2);
        let key = |memcg_id| Key { memcg_id, nid: 2 };
        let expected = [
            (
                key(1),
                Listed {
                    max_seq: 4,
                    pages: 17391,
                },
            ),
            (
                key(40),
                Listed {
                    max_seq: 9,
                    pages: 21,
                },
            ),
        ];
        assert_eq!(listed, BTreeMap::from(expected));
        let of_root = &generations(LIST, |nid| nid == 2)[&key(1)];
        let ages: Vec<_> = of_root.iter().map(|g| (g.seq, g.age_ms, g.pages)).collect();
        assert_eq!(ages, [(3, 167_880, 16_384), (4, 2000, 1007)]);
    }

    #[test]
    fn a_process_has_the_memcg_of_its_group_or_of_one_above() {
        let of = |cgroups| memcg_of(LIST, cgroups);
        assert_eq!(of("0::/g\n"), Some(40));
        assert_eq!(of("0::/g/without/memory\n"), Some(40));
        assert_eq!(of("0::/elsewhere\n"), Some(1));
        assert_eq!(of("5:cpu,memory:/g\n1:name=systemd:/x\n0::/x\n"), Some(40));
        assert_eq!(memcg_of("memcg     0 \n node 2\n", "0::/x\n"), Some(0));
        assert_eq!(of(""), None);
        assert_eq!(memcg_of("", "0::/g\n"), None);
    }

    #[test]
    fn paths_may_have_spaces() {
        let path = |id| paths(LIST).remove(&id);
        assert_eq!(path(1).as_deref(), Some("/"));
        assert_eq!(path(u64::MAX).as_deref(), Some("/a b/node     7"));
        assert_eq!(path(2), None);
        assert!(paths("memcg     0 \n node 2\nmemcg x /y\nmemcg").is_empty());
    }

    #[test]
    fn removed_memcgs_are_left_out_and_the_only_one_is_not() {
        let only = "memcg     0 \n node 2\n 1 1 300 0\n";
        assert_eq!(parse(only, |_| true).len(), 1);
        let removed = format!("memcg 1 /\n{only}");
        assert!(parse(&removed, |_| true).is_empty());
    }

    #[test]
    fn a_list_that_is_none_lists_nothing() {
        for text in [
            "",
            "memcg",
            "memcg x y\n node 2\n 1 2 3 4",
            "node 2\n1 2 3 4",
            "\0\n-",
        ] {
            assert!(parse(text, |_| true).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn the_command_names_the_lruvec_and_its_youngest_generation() {
        let key = Key {
            memcg_id: 40,
            nid: 2,
        };
        assert_eq!(command(key, 9), "+ 40 2 9 200 1\n");
        assert_eq!(eviction(key, 7, 512), "- 40 2 7 200 512\n");
    }

    #[test]
    fn the_mode_is_a_mask() {
        let modes = ["0x0007\n", "0x0003", "0x0005", "0x0000", "0x0002", "yes"].map(mode);
        let expected = [
            Mode::Walks,
            Mode::Walks,
            Mode::WithoutWalks,
            Mode::Off,
            Mode::Off,
            Mode::Off,
        ];
        assert_eq!(modes, expected);
    }

    #[test]
    fn refusals_are_told_apart() {
        let of = |errno| refusal(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EINVAL), Refusal::Gone);
        assert_eq!(of(libc::EEXIST), Refusal::Overtaken);
        assert_eq!(of(libc::ENOENT), Refusal::Other);
    }
}
