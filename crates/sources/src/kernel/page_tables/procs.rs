//! What `/proc` says of processes: which are large enough to look at, where they have memory, where
//! they run, and whether an operator has opted them out.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pghot_linux::topology::Topology;
use pghot_linux::{SysRoot, cgroup};

/// Set to `off` in a process's environment, it keeps the source away from the process.
const OPT_OUT_VARIABLE: &[u8] = b"PGHOT_SCAN=off";
/// Set to `off` on a cgroup's directory, it keeps the source away from all processes below.
const OPT_OUT_ATTRIBUTE: &std::ffi::CStr = c"user.pghot";

/// Smaller processes have nothing to gain: 8 MiB.
pub(crate) const RESIDENT_MIN_PAGES: u64 = 2048;
/// Bytes of a process's environment that are searched.
const ENVIRONMENT_MAX_BYTES: u64 = 256 << 10;
/// Threads asked for their CPU.
const THREADS_MAX: usize = 64;

/// The processes of one machine.
pub(crate) struct Procs {
    proc: PathBuf,
    cgroup: PathBuf,
    /// The top-tier node of each CPU, where there is one.
    node_of_cpu: Vec<Option<u32>>,
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// CPU time used by all threads, in ticks of the kernel.
    pub cpu_ticks: u64,
    /// What tells a process from a later one with its id.
    pub start_time: u64,
    cpu: usize,
}

impl Procs {
    pub fn new(root: &SysRoot, topology: &Topology) -> Procs {
        let cpus = topology.nodes.iter().flat_map(|node| &node.cpus);
        let mut node_of_cpu = vec![None; cpus.max().map_or(0, |cpu| *cpu as usize + 1)];
        for node in topology.top_tier_nodes() {
            for cpu in &node.cpus {
                node_of_cpu[*cpu as usize] = Some(node.nid);
            }
        }
        Procs {
            proc: root.proc.clone(),
            cgroup: root.sys.join("fs/cgroup"),
            node_of_cpu,
        }
    }

    /// A file of a process.
    pub fn file(&self, pid: i32, name: &str) -> PathBuf {
        self.proc.join(format!("{pid}/{name}"))
    }

    /// Processes with `pages_min` resident pages or more, in no particular order.
    pub fn large(&self, pages_min: u64) -> impl Iterator<Item = i32> + '_ {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(move |pid| self.resident_pages(*pid) >= Some(pages_min))
    }

    /// Resident pages of a process.
    pub fn resident_pages(&self, pid: i32) -> Option<u64> {
        let text = fs::read_to_string(self.file(pid, "statm")).ok()?;
        resident_pages(&text)
    }

    /// What `stat` says of a process; None if it is gone.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        parse_stat(&fs::read_to_string(self.file(pid, "stat")).ok()?)
    }

    /// What tells a process from a later one with its id.
    pub fn start_time(&self, pid: i32) -> Option<u64> {
        Some(self.stat(pid)?.start_time)
    }

    /// The program's name, and the CPU time that the process has used, in ticks of the kernel.
    pub fn name_and_cpu_ticks(&self, pid: i32) -> Option<(String, u64)> {
        let text = fs::read_to_string(self.file(pid, "stat")).ok()?;
        let name = text.split_once('(')?.1.rsplit_once(") ")?.0;
        Some((name.to_owned(), parse_stat(&text)?.cpu_ticks))
    }

    /// The address ranges that a process may access.
    pub fn ranges(&self, pid: i32) -> Option<Vec<Range<u64>>> {
        let text = fs::read_to_string(self.file(pid, "maps")).ok()?;
        Some(text.lines().filter_map(parse_mapping).collect())
    }

    /// The top-tier node where the process has used the most CPU time, judged by where each of its
    /// threads ran last.
    pub fn node(&self, pid: i32) -> Option<u32> {
        let threads = fs::read_dir(self.file(pid, "task")).ok()?;
        let mut ticks_of_node: Vec<(u32, u64)> = Vec::new();
        for thread in threads.flatten().take(THREADS_MAX) {
            let Ok(text) = fs::read_to_string(thread.path().join("stat")) else {
                continue;
            };
            let Some(stat) = parse_stat(&text) else {
                continue;
            };
            let Some(nid) = self.node_of_cpu.get(stat.cpu).copied().flatten() else {
                continue;
            };
            // A thread that has used none yet still says where it is.
            let ticks = stat.cpu_ticks + 1;
            match ticks_of_node.iter_mut().find(|(known, _)| *known == nid) {
                Some((_, sum)) => *sum += ticks,
                None => ticks_of_node.push((nid, ticks)),
            }
        }
        let most = ticks_of_node.into_iter().max_by_key(|(_, ticks)| *ticks);
        most.map(|(nid, _)| nid)
    }

    /// Whether the process, or a cgroup around it, is opted out.
    pub fn is_opted_out(&self, pid: i32) -> bool {
        self.environment_opts_out(pid) || self.cgroup_opts_out(pid)
    }

    fn environment_opts_out(&self, pid: i32) -> bool {
        let mut bytes = Vec::new();
        let read = fs::File::open(self.file(pid, "environ"))
            .and_then(|file| file.take(ENVIRONMENT_MAX_BYTES).read_to_end(&mut bytes));
        read.is_ok()
            && bytes
                .split(|byte| *byte == 0)
                .any(|v| v == OPT_OUT_VARIABLE)
    }

    fn cgroup_opts_out(&self, pid: i32) -> bool {
        let Some(path) = cgroup::of(&self.proc, pid as u32) else {
            return false;
        };
        let dir = self.cgroup.join(path);
        let around = dir.ancestors();
        around
            .take_while(|dir| dir.starts_with(&self.cgroup))
            .any(is_off)
    }
}

/// Whether a directory has the attribute that opts out.
fn is_off(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    let mut value = [0u8; 4];
    // SAFETY: both strings end in 0, and the kernel writes at most `value.len()` bytes.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            OPT_OUT_ATTRIBUTE.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    usize::try_from(length).is_ok_and(|length| &value[..length] == b"off")
}

/// The second number of `statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The command name may hold anything, a closing parenthesis too; the rest is numbers.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    // Field 3 of proc(5), the state, comes first.
    let field = |number: usize| -> Option<u64> {
        rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
    };
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        start_time: field(22)?,
        cpu: field(39)? as usize,
    })
}

/// The addresses of one line of `maps`; none for what cannot be accessed, or is the kernel's own.
fn parse_mapping(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let is_kernels = line.ends_with("[vvar]")
        || line.ends_with("[vvar_vclock]")
        || line.ends_with("[vdso]")
        || line.ends_with("[vsyscall]");
    if rights.starts_with("---") || is_kernels {
        return None;
    }
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_an_awkward_name_is_read() {
        let mut text = "42 (a) b) R".to_owned();
        for field in 4..=52 {
            text += &format!(" {field}");
        }
        let stat = Stat {
            cpu_ticks: 14 + 15,
            start_time: 22,
            cpu: 39,
        };
        assert_eq!(parse_stat(&text), Some(stat));
        assert_eq!(parse_stat("42 (short) R 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn only_accessible_mappings_count() {
        let maps = "\
            1000-3000 r-xp 00000000 08:01 42 /bin/true\n\
            3000-4000 ---p 00000000 00:00 0 \n\
            7ffc0000-7ffd0000 rw-p 00000000 00:00 0 [stack]\n\
            7ffe0000-7ffe4000 r--p 00000000 00:00 0 [vvar]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
            rubbish\n";
        let ranges: Vec<_> = maps.lines().filter_map(parse_mapping).collect();
        assert_eq!(ranges, [0x1000..0x3000, 0x7ffc_0000..0x7ffd_0000]);
    }

    #[test]
    fn resident_is_the_second_number() {
        assert_eq!(resident_pages("100 25 3 1 0 9 0\n"), Some(25));
        assert_eq!(resident_pages(""), None);
    }
}
