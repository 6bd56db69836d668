//! What the plugin is told when QEMU loads it.

use std::path::PathBuf;

/// What the command line says: `-plugin FILE,nodes=B:B,cpus=0:0:1:1,llc=B,delay=0:500,out=FILE`,
/// and `everywhere=2`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Bytes of each node.
    pub node_bytes: Vec<u64>,
    /// The node of each vCPU.
    pub cpu_nodes: Vec<u64>,
    /// Bytes of the modelled cache of each node with CPUs.
    pub cache_bytes: u64,
    /// How much longer a miss takes, by node.
    pub delay_ns: Vec<u64>,
    /// So many vCPUs, from the first on, belong to the measured program alone: all that it and the
    /// kernel access there counts, and nothing on the others. With 0, the measured memory alone.
    pub program_cpus: usize,
    /// Where the report goes.
    pub out: PathBuf,
}

impl Options {
    /// Reads `name=value` pairs.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let mut options = Options::default();
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let numbers = || -> Result<Vec<u64>, String> {
                let parsed: Result<_, _> = value.split(':').map(str::parse).collect();
                parsed.map_err(|_| format!("{name} takes numbers with colons, not `{value}`"))
            };
            match name {
                "nodes" => options.node_bytes = numbers()?,
                "cpus" => options.cpu_nodes = numbers()?,
                "llc" => options.cache_bytes = numbers()?[0],
                "delay" => options.delay_ns = numbers()?,
                "everywhere" => options.program_cpus = numbers()?[0] as usize,
                "out" => options.out = value.into(),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        let nodes = options.node_bytes.len();
        if nodes == 0 || options.cpu_nodes.is_empty() || options.out.as_os_str().is_empty() {
            return Err("nodes, cpus and out must be given".into());
        }
        if options.cpu_nodes.iter().any(|nid| *nid >= nodes as u64) {
            return Err("a CPU is on a node that is not there".into());
        }
        options.delay_ns.resize(nodes, 0);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read() {
        let all = [
            "nodes=4096:8192",
            "cpus=0:0",
            "llc=65536",
            "delay=0:500",
            "everywhere=2",
            "out=/x",
        ];
        let options = Options::parse(all).unwrap();
        assert_eq!(options.node_bytes, [4096, 8192]);
        assert_eq!(options.cpu_nodes, [0, 0]);
        assert_eq!(
            (options.cache_bytes, &options.delay_ns[..]),
            (65536, &[0, 500][..])
        );
        assert_eq!(options.program_cpus, 2);
        assert_eq!(options.out.to_str(), Some("/x"));
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, words) in [
            (&["nodes=1"][..], "must be given"),
            (&["nodes=a"], "not `a`"),
            (&["node=1"], "no option node"),
            (&["nodes=4096", "cpus=1", "out=x"], "not there"),
        ] {
            let problem = Options::parse(arguments.iter().copied()).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
