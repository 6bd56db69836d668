//! The machines of `testbed/machines/`: nodes, memory tiers, CPU; and the QEMU options they mean.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// A machine as its file declares it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// QEMU's CPU model. `-cx16` is a must: QEMU 7.2 emulates `cmpxchg16b` with wrong flags, and
    /// guests whose slab allocator uses it die at random. `-erms,-fsrm` keeps the kernel from
    /// copying pages by `rep movsb`, which is emulated byte by byte: a migration would take
    /// several times longer, out of all proportion to the rest.
    pub cpu: String,
    /// Kernel options in addition to the testbed's own.
    #[serde(default)]
    pub append: String,
    /// Size of a disk, `/dev/nvme0n1` in the guest, empty at boot; 0 for none. NVMe, because stock
    /// kernels have its driver built in, as they have ext4.
    #[serde(default)]
    pub disk_mib: u64,
    /// Whether the kernel's modules lie in `/lib/modules` of the guest.
    #[serde(default)]
    pub modules: bool,
    /// `distances[from][to]`, as in the SLIT table.
    pub distances: Vec<Vec<u8>>,
    /// The nodes in order of their numbers.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
}

/// One NUMA node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Size of its memory.
    pub memory_mib: u64,
    /// Number of its CPUs; 0 for a node that is memory only.
    pub cpus: u32,
    /// Latency of its memory seen from its own CPUs, or from the nearest if it has none. Told to
    /// the kernel by the HMAT table, which is how it sorts nodes into tiers; it slows nothing.
    pub latency_ns: Option<u32>,
    /// The bandwidth that goes with `latency_ns`.
    pub bandwidth_mib_s: Option<u32>,
}

impl Machine {
    /// Reads and checks `testbed/machines/NAME.toml`.
    pub fn load(name: &str) -> Result<Self, Error> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("machines")
            .join(name);
        let path = path.with_extension("toml");
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let mut machine = toml::from_str::<Self>(&text)
            .map_err(|error| error.to_string())
            .and_then(Self::checked)
            .map_err(|problem| Error::Config { path, problem })?;
        machine.name = name.to_owned();
        Ok(machine)
    }

    /// Finds what TOML cannot: fields that disagree with each other.
    fn checked(self) -> Result<Self, String> {
        let count = self.nodes.len();
        if !self.nodes.iter().any(|node| node.cpus > 0) {
            return Err("`cpus`: no node has any".to_owned());
        }
        if self.distances.len() != count || self.distances.iter().any(|row| row.len() != count) {
            return Err(format!(
                "`distances`: {count} nodes need {count} rows of {count} numbers"
            ));
        }
        let whole = |node: &Node| node.latency_ns.is_some() == node.bandwidth_mib_s.is_some();
        if let Some(id) = self.nodes.iter().position(|node| !whole(node)) {
            return Err(format!(
                "node {id}: `latency_ns` and `bandwidth_mib_s` go together"
            ));
        }
        let told = self
            .nodes
            .iter()
            .filter(|node| node.latency_ns.is_some())
            .count();
        if told != 0 && told != count {
            return Err("`latency_ns`: give it for every node or for none".to_owned());
        }
        Ok(self)
    }

    /// Numbers of the nodes grouped by memory tier, fastest tier first.
    pub fn tiers(&self) -> Vec<Vec<usize>> {
        let speed = |&id: &usize| {
            let node = &self.nodes[id];
            (node.latency_ns, node.bandwidth_mib_s.map(std::cmp::Reverse))
        };
        let mut ids: Vec<usize> = (0..self.nodes.len()).collect();
        ids.sort_by_key(speed);
        ids.chunk_by(|a, b| speed(a) == speed(b))
            .map(<[usize]>::to_vec)
            .collect()
    }

    /// QEMU's options for this machine, whose disk is the file `disk`.
    pub(crate) fn qemu_options(&self, disk: &Path) -> Vec<String> {
        let cpus: u32 = self.nodes.iter().map(|node| node.cpus).sum();
        let memory: u64 = self.nodes.iter().map(|node| node.memory_mib).sum();
        let hmat = self.nodes.iter().all(|node| node.latency_ns.is_some());
        let mut options = Vec::new();
        let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);

        option(
            "-machine",
            format!("q35,hmat={}", if hmat { "on" } else { "off" }),
        );
        option("-cpu", self.cpu.clone());
        option("-smp", cpus.to_string());
        option("-m", format!("{memory}M"));

        if self.disk_mib > 0 {
            // Nothing outlives the guest, so nothing needs to reach the host's disk.
            let drive = "if=none,id=disk,format=raw,cache=unsafe,file=";
            option("-drive", format!("{drive}{}", disk.display()));
            option("-device", "nvme,serial=pghot,drive=disk".to_owned());
        }
        let mut next_cpu = 0;
        for (id, node) in self.nodes.iter().enumerate() {
            option(
                "-object",
                format!("memory-backend-ram,id=m{id},size={}M", node.memory_mib),
            );
            let mut numa = format!("node,nodeid={id},memdev=m{id}");
            if node.cpus > 0 {
                numa += &format!(",cpus={next_cpu}-{}", next_cpu + node.cpus - 1);
            }
            if hmat {
                numa += &format!(",initiator={}", self.nearest_with_cpus(id));
            }
            next_cpu += node.cpus;
            option("-numa", numa);
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
                option("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
        for locality in self.localities() {
            option("-numa", locality);
        }
        options
    }

    /// HMAT entries: how each node with CPUs sees each node's memory. A remote node with CPUs of
    /// its own is seen as slower than from these, in proportion to the distance.
    fn localities(&self) -> Vec<String> {
        let mut entries = Vec::new();
        let initiators = (0..self.nodes.len()).filter(|&id| self.nodes[id].cpus > 0);
        for from in initiators {
            for (to, node) in self.nodes.iter().enumerate() {
                let (Some(latency), Some(bandwidth)) = (node.latency_ns, node.bandwidth_mib_s)
                else {
                    continue;
                };
                let distance = if node.cpus > 0 {
                    u32::from(self.distances[from][to])
                } else {
                    10
                };
                let entry = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
                let latency = latency * distance / 10;
                let bandwidth = bandwidth * 10 / distance;
                entries.push(format!(
                    "{entry},data-type=access-latency,latency={latency}"
                ));
                entries.push(format!(
                    "{entry},data-type=access-bandwidth,bandwidth={bandwidth}M"
                ));
            }
        }
        entries
    }

    fn nearest_with_cpus(&self, id: usize) -> usize {
        let with_cpus = (0..self.nodes.len()).filter(|&other| self.nodes[other].cpus > 0);
        with_cpus
            .min_by_key(|&other| self.distances[id][other])
            .unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_machine_files_load() {
        for name in [
            "tiered3",
            "tiered3-roomy",
            "tiered3-la48",
            "tiered3-disk",
            "tiered3-debian",
            "flat",
        ] {
            let machine = Machine::load(name).unwrap();
            assert!(machine.cpu.contains("-cx16"), "{name}");
            let tiers = if name == "flat" {
                vec![vec![0, 1]]
            } else {
                vec![vec![0, 1], vec![2]]
            };
            assert_eq!(machine.tiers(), tiers, "{name}");
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let file = "cpu = 'max'\ndistances = [[10]]\n[[node]]\nmemory_mib = 1\ncpus = 1\n";
        let problem = |text: &str| match toml::from_str::<Machine>(text) {
            Ok(machine) => machine.checked().unwrap_err(),
            Err(error) => error.to_string(),
        };
        assert!(problem(&file.replace("cpus = 1", "cpus = 0")).contains("`cpus`"));
        assert!(problem(&file.replace("[[10]]", "[]")).contains("`distances`"));
        assert!(problem(&file.replace("memory_mib", "memory")).contains("`memory`"));
        assert!(problem(&format!("{file}latency_ns = 1\n")).contains("node 0: `latency_ns`"));
    }
}
