//! A guest: booted from a machine, a kernel and binaries, then asked to run and read things.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::debian::{self, Debian};
use crate::initramfs;
use crate::process::{Output, Process};
use crate::protocol::{Answer, Bytes, CHUNK_MAX, Call};
use crate::qemu::{self, Dilation, Qemu};
use crate::{Error, Kernel, Machine};

/// The kernel's options. Any oops ends the guest at once, warnings reach the console, and the timer
/// check is left out because an emulator on a busy host fails it now and then.
const APPEND: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic no_timer_check";

/// How long a guest may take until its agent answers: six seconds on a host of its own. As all
/// limits, times the dilation.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// The same with systemd.
const DEBIAN_BOOT_LIMIT: Duration = Duration::from_secs(300);

/// How often a guest that does not come up is booted again.
const BOOT_RETRIES: u32 = 2;

/// Names of the binaries under test.
const UNDER_TEST: [&str; 10] = [
    "pghot",
    "hotset",
    "churn",
    "load",
    "pagecache",
    "migrate",
    "autonuma",
    "bfs",
    "stalled",
    "flushtlb",
];

/// What to boot.
pub struct Spec<'a> {
    /// Nodes, tiers, CPU.
    pub machine: &'a Machine,
    /// The image.
    pub kernel: &'a Kernel,
    /// Host binaries to put into the guest's `/bin`.
    pub binaries: &'a [PathBuf],
    /// How long the guest may live, boot included; see [`Vm::set_limit`].
    pub limit: Duration,
    /// How many times slower than the host's the guest's clock runs; 1 for as fast. What the
    /// emulator does takes so many times less guest time. Limits are guest time.
    pub dilation: u32,
    /// Whether the guest's clock counts instructions, one in a nanosecond: times are then the same
    /// in each run, whatever the host does. One CPU works at a time, and limits are the host's.
    pub counts_instructions: bool,
    /// The real Debian whose systemd runs the guest, from its disk, which the machine must have.
    /// The binaries, files of any kind, are in [`DEBIAN_FILES`](crate::DEBIAN_FILES) then.
    pub debian: Option<Debian>,
    /// Who watches the accesses of a workload that asks for it; nobody by default.
    pub watch: Option<Watch>,
}

/// How the witness watches; see `testbed/witness`.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Bytes of the modelled last-level cache of each node with CPUs; 0 for none.
    pub cache_bytes: u64,
    /// How much longer a miss takes in guest time, by node; none for the nodes left out.
    pub delay_ns: Vec<u64>,
    /// On so many CPUs, from the first on, all accesses of programs and of the kernel count, and
    /// nothing on the others; with 0, the measured memory's from all CPUs.
    pub program_cpus: usize,
    /// Where the report goes, on the host, at the end of a measured phase.
    pub out: PathBuf,
}

impl<'a> Spec<'a> {
    /// A guest that may live for two minutes.
    pub fn new(machine: &'a Machine, kernel: &'a Kernel, binaries: &'a [PathBuf]) -> Self {
        Self {
            machine,
            kernel,
            binaries,
            limit: Duration::from_secs(120),
            dilation: 1,
            counts_instructions: false,
            debian: None,
            watch: None,
        }
    }
}

impl Watch {
    /// What QEMU's `-plugin` takes.
    fn option(&self, plugin: &Path, machine: &Machine) -> String {
        let list = |numbers: &[u64]| {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            numbers.join(":")
        };
        let node_bytes: Vec<u64> = machine.nodes.iter().map(|n| n.memory_mib << 20).collect();
        let cpus = machine.nodes.iter().zip(0..);
        let cpus = cpus.flat_map(|(node, id)| std::iter::repeat_n(id, node.cpus as usize));
        let mut option = format!(
            "{},nodes={},cpus={},llc={},out={}",
            plugin.display(),
            list(&node_bytes),
            list(&cpus.collect::<Vec<u64>>()),
            self.cache_bytes,
            self.out.display()
        );
        if !self.delay_ns.is_empty() {
            option += &format!(",delay={}", list(&self.delay_ns));
        }
        if self.program_cpus > 0 {
            option += &format!(",everywhere={}", self.program_cpus);
        }
        option
    }
}

/// A running guest. Clones are the same guest; dropping the last one kills it.
#[derive(Clone)]
pub struct Vm {
    qemu: Arc<Qemu>,
}

impl Vm {
    /// Boots a guest and returns when its agent answers.
    pub fn boot(spec: &Spec) -> Result<Self, Error> {
        let agent = built_file("pghot-agent", "pghot-testbed")?;
        let dir = qemu::guest_dir()?;
        let disk = dir.path().join("disk");
        let mut options = spec.machine.qemu_options(&disk);
        let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
        if spec.counts_instructions {
            option("-accel", "tcg,thread=single".to_owned());
            option("-icount", "shift=0,sleep=off".to_owned());
        } else {
            option("-accel", "tcg,thread=multi".to_owned());
        }
        if let Some(watch) = &spec.watch {
            let plugin = built_file("libpghot_plugin.so", "pghot-plugin")?;
            option("-plugin", watch.option(&plugin, spec.machine));
        }
        option("-kernel", spec.kernel.image.display().to_string());
        let mut append = format!("{APPEND} {}", spec.machine.append);
        if let Some(image) = spec.debian {
            debian::make_disk(image, &disk, &agent, spec.binaries)?;
            append += &format!(" {}", debian::APPEND);
        } else {
            let initrd = dir.path().join("initramfs.cpio");
            Self::make_files(spec, &agent, &initrd, &disk)?;
            option("-initrd", initrd.display().to_string());
        }
        option("-append", append);
        let dilation = match spec.dilation {
            0 | 1 => None,
            by => Some(Dilation {
                by,
                library: built_file("libpghot_dilate.so", "pghot-dilate")?,
            }),
        };
        let boot_limit = if spec.debian.is_some() {
            DEBIAN_BOOT_LIMIT
        } else {
            BOOT_LIMIT
        };
        let limits = (boot_limit, spec.limit);
        Self::start(&options, dilation.as_ref(), &Arc::new(dir), limits)
    }

    /// Writes the initramfs and an empty disk.
    fn make_files(spec: &Spec, agent: &Path, initrd: &Path, disk: &Path) -> Result<(), Error> {
        let modules = match spec.machine.modules {
            true => spec.kernel.modules.as_slice(),
            false => &[],
        };
        let archive = initramfs::build(agent, spec.binaries, modules)?;
        fs::write(initrd, archive).map_err(Error::io(initrd))?;
        let sized = fs::File::create(disk).and_then(|f| f.set_len(spec.machine.disk_mib << 20));
        sized.map_err(Error::io(disk))
    }

    /// Starts QEMU, and again if the guest dies or hangs before its agent answers: emulated CPUs
    /// race when the kernel patches its own code, on a busy host clocks cannot be calibrated, and
    /// about one boot in a hundred falls over it. Nothing of ours has run by then.
    fn start(
        options: &[String],
        dilation: Option<&Dilation>,
        dir: &Arc<TempDir>,
        limits: (Duration, Duration),
    ) -> Result<Self, Error> {
        let mut failed = 0;
        loop {
            match Qemu::start(options, dilation, Arc::clone(dir), limits) {
                Err(error @ (Error::Gone { .. } | Error::Hang { .. })) if failed < BOOT_RETRIES => {
                    failed += 1;
                    eprintln!("testbed: the guest did not come up and is booted again: {error}");
                }
                started => {
                    return Ok(Self {
                        qemu: Arc::new(started?),
                    });
                }
            }
        }
    }

    /// Gives the guest `limit` of its own time from now. When it is over, every call fails with the
    /// console's end.
    pub fn set_limit(&self, limit: Duration) {
        self.qemu.set_limit(limit);
    }

    /// The process id of the emulator on the host.
    pub fn host_pid(&self) -> u32 {
        self.qemu.host_pid()
    }

    /// Runs a program to its end.
    pub fn exec(&self, argv: &[&str]) -> Result<Output, Error> {
        self.exec_with(argv, &[], b"")
    }

    /// Runs a program to its end, with variables and standard input.
    pub fn exec_with(
        &self,
        argv: &[&str],
        env: &[(&str, &str)],
        stdin: &[u8],
    ) -> Result<Output, Error> {
        self.spawn_with(argv, env, stdin)?
            .wait_on_host(self.qemu.remaining())
    }

    /// Starts a program. Names without a slash are looked up in `/bin`.
    pub fn spawn(&self, argv: &[&str]) -> Result<Process, Error> {
        self.spawn_with(argv, &[], b"")
    }

    /// Starts a program, with variables and standard input.
    pub fn spawn_with(
        &self,
        argv: &[&str],
        env: &[(&str, &str)],
        stdin: &[u8],
    ) -> Result<Process, Error> {
        let call = Call::Spawn {
            argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
            env: env
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            stdin: Bytes(stdin.to_vec()),
        };
        match self.qemu.call(call)? {
            Answer::Spawned { process, pid } => {
                Ok(Process::new(Arc::clone(&self.qemu), process, pid))
            }
            other => Err(Error::unexpected("answer to spawn", &other)),
        }
    }

    /// Sends a signal to a guest's process, or with a negative number to a group.
    pub fn kill(&self, pid: i32, signal: i32) -> Result<(), Error> {
        self.qemu.call(Call::Kill { pid, signal }).map(drop)
    }

    /// A file's content as bytes.
    pub fn read_bytes(&self, path: &str) -> Result<Vec<u8>, Error> {
        match self.qemu.call(Call::Read {
            path: path.to_owned(),
        })? {
            Answer::Data(data) => Ok(data.0),
            other => Err(Error::unexpected(path, &other)),
        }
    }

    /// A file's content as text.
    pub fn read(&self, path: &str) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.read_bytes(path)?).into_owned())
    }

    /// Writes a file; up to 16 KiB in one write(2), which files of proc and sysfs depend on.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut rest = content.as_ref();
        let mut append = false;
        loop {
            let (chunk, tail) = rest.split_at(rest.len().min(CHUNK_MAX));
            let data = Bytes(chunk.to_vec());
            self.qemu.call(Call::Write {
                path: path.to_owned(),
                data,
                append,
            })?;
            if tail.is_empty() {
                return Ok(());
            }
            (rest, append) = (tail, true);
        }
    }

    /// Whether a path exists in the guest.
    pub fn exists(&self, path: &str) -> Result<bool, Error> {
        match self.qemu.call(Call::Exists {
            path: path.to_owned(),
        })? {
            Answer::Exists(exists) => Ok(exists),
            other => Err(Error::unexpected(path, &other)),
        }
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        match self.qemu.call(Call::List {
            path: path.to_owned(),
        })? {
            Answer::Names(names) => Ok(names),
            other => Err(Error::unexpected(path, &other)),
        }
    }

    /// Creates a directory and its parents.
    pub fn mkdir(&self, path: &str) -> Result<(), Error> {
        self.qemu
            .call(Call::Mkdir {
                path: path.to_owned(),
            })
            .map(drop)
    }

    /// A counter of `/proc/vmstat`.
    pub fn vmstat(&self, counter: &str) -> Result<u64, Error> {
        counter_of("/proc/vmstat", &self.read("/proc/vmstat")?, counter)
    }

    /// A counter of a node's `vmstat`.
    pub fn node_vmstat(&self, node: usize, counter: &str) -> Result<u64, Error> {
        let path = format!("/sys/devices/system/node/node{node}/vmstat");
        counter_of(&path, &self.read(&path)?, counter)
    }

    /// Asks `condition` until it holds, at most for `limit` of guest time; `what` names it in the
    /// error.
    pub fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let dilation = self.qemu.dilation();
        let limit = (limit * dilation).min(self.qemu.remaining());
        let end = Instant::now() + limit;
        while !condition()? {
            if Instant::now() >= end {
                return Err(Error::Never {
                    what: what.to_owned(),
                    limit,
                });
            }
            // Asking costs the guest time it could use to get there.
            std::thread::sleep(Duration::from_millis(50) * dilation);
        }
        Ok(())
    }

    /// Kills every process that was started in the guest, and tells which there were.
    pub fn sweep(&self) -> Result<Vec<String>, Error> {
        match self.qemu.call(Call::Sweep)? {
            Answer::Names(names) => Ok(names),
            other => Err(Error::unexpected("answer to sweep", &other)),
        }
    }

    /// Powers the guest off and waits for QEMU's end.
    pub fn power_off(&self) -> Result<(), Error> {
        self.qemu.call(Call::PowerOff)?;
        self.qemu.wait_end()
    }
}

/// The binaries under test, from the build this program is part of.
pub fn guest_binaries() -> Result<Vec<PathBuf>, Error> {
    UNDER_TEST.iter().map(|name| guest_binary(name)).collect()
}

/// One binary of that build, for guests that need one more: each takes memory of the guest.
pub fn guest_binary(name: &str) -> Result<PathBuf, Error> {
    let package = match name {
        "pghot" => "pghot-cli",
        _ => "pghot-workloads",
    };
    built_file(name, package)
}

/// A binary or library of this workspace, built with the profile of the running program: next to
/// it, or one level up from a test executable in `deps/`.
fn built_file(name: &str, package: &str) -> Result<PathBuf, Error> {
    let exe = std::env::current_exe().map_err(Error::io(Path::new("the running program")))?;
    let mut dir = exe.parent().unwrap_or(Path::new("/"));
    if dir.ends_with("deps") || dir.ends_with("examples") {
        dir = dir.parent().unwrap_or(dir);
    }
    let path = dir.join(name);
    if path.is_file() {
        return Ok(path);
    }
    let release = if dir.ends_with("release") {
        " --release"
    } else {
        ""
    };
    Err(Error::BinaryMissing {
        path,
        command: format!("cargo build{release} -p {package}"),
    })
}

fn counter_of(path: &str, text: &str, counter: &str) -> Result<u64, Error> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| Error::Unexpected {
            what: format!("counter {counter} of {path}"),
            found: "missing".to_owned(),
        })
}
