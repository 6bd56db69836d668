//! A real PostgreSQL with 200 backends, four of them busy, whose shared buffers lie in the lower
//! tier: `pghot run` with its defaults finds the hot ones.
//!
//! No hint fault tells of shared memory, so the source is `pgtscan`; and each backend maps all of
//! it. It takes `testbed/setup.sh --bench` before, and minutes, so it is left to `make test-long`.

#[path = "vm/by_kernel.rs"]
mod by_kernel;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pghot_testbed::{Daemon, Kernel, Machine, Process, Spec, Vm, guest_binary, program};

/// What runs in the guest, of the host; PostgreSQL's own come from its packages.
const TOOLS: &[&str] = &[
    "/bin/sh",
    "/bin/cat",
    "/bin/dd",
    "/bin/ln",
    "/bin/mkdir",
    "/bin/mv",
    "/bin/rm",
    "/bin/tar",
    "/usr/bin/od",
    "/usr/bin/setpriv",
];

/// The packages' files that are no programs, where the programs look for them.
const FILES: &[&str] = &["usr/share/postgresql", "usr/lib/postgresql"];

/// Programs find the other files by where they are themselves.
const LAY_OUT: &str = "tar -C / -xf /bin/files.tar && rm /bin/files.tar && \
    cd /usr/lib/postgresql/* && mkdir bin && \
    for it in postgres initdb; do mv /bin/$it bin/ && ln -s $PWD/bin/$it /bin/$it; done";

/// PostgreSQL does not run as root.
const AS_USER: &str = "setpriv --reuid=990 --regid=990 --clear-groups";

/// Backends that are connected and do nothing, and those that read the same table again and again.
const IDLE: usize = 196;
const BUSY: usize = 4;

/// 8,192 rows, four to a buffer of 8 KiB: 16 MiB, a quarter of the shared buffers.
const MAKE_TABLE: &str = "create extension pg_buffercache; create table hot as \
    select g as id, repeat('x', 1800) as pad from generate_series(1, 8192) g; \
    select sum(length(pad)) from hot";
const HOT_QUERY: &str = "select sum(length(pad)) from hot;";
const HOT_BUFFERS: &str = "select bufferid from pg_buffercache \
    where relfilenode = pg_relation_filenode('hot') and relforknumber = 0";
const BUFFERS_MIN: usize = 2000;

/// Bytes of a buffer, and of a page.
const BUFFER_BYTES: u64 = 8192;
const PAGE_BYTES: u64 = 4096;

const RECALL_MIN: f64 = 0.95;
/// By the guest's clock, from when the daemon answers.
const TIME_MAX: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    by_kernel::main("tiered3::hot_buffers_of_200_backends", hot_buffers)
}

fn hot_buffers(kernel: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Server::boot(kernel, dir.path())?;
    let vm = &server.vm;
    let _busy = server.clients(BUSY, "hot", HOT_QUERY)?;
    let hot = server.hot_pages()?;
    ensure!(
        server.in_lower(&hot)? > 0.95,
        "the hot buffers did not begin in the lower tier"
    );
    let daemon = Daemon::start(vm, &[])?;
    let mut recall = 0.0;
    let found = vm.wait_until("the hot buffers are in the top tier", TIME_MAX, || {
        recall = 1.0 - server.in_lower(&hot).unwrap_or(1.0);
        Ok(recall >= RECALL_MIN)
    });
    println!("{kernel}: recall {recall:.3} of {} pages", hot.len());
    let status = daemon.status()?;
    found.with_context(|| format!("recall {recall:.3}; {status:#}"))?;
    daemon.stop()?;
    Ok(())
}

/// A server in a guest, with its idle backends.
struct Server {
    vm: Vm,
    /// The first page frame of the lower tier.
    lower_pfn: u64,
    /// Where the shared buffers begin in every backend.
    buffers: u64,
    _processes: Vec<Process>,
}

impl Server {
    /// Boots a guest, starts the server in the lower tier, and connects the idle clients.
    fn boot(kernel: &str, dir: &Path) -> Result<Server> {
        let machine = Machine::load("tiered3")?;
        let kernel = Kernel::find(kernel)?;
        let postgres = program("postgres")?;
        let programs = ["postgres", "initdb", "pgbench", "psql"];
        let mut binaries: Vec<PathBuf> = programs.map(|it| postgres.with_file_name(it)).into();
        binaries.extend(TOOLS.iter().map(Into::into));
        binaries.extend([guest_binary("pghot")?, pack(&postgres, dir)?]);
        let mut spec = Spec::new(&machine, &kernel, &binaries);
        spec.limit = Duration::from_secs(1200);
        let vm = Vm::boot(&spec)?;

        let own = vm.read("/proc/zoneinfo")?;
        let lower_pfn = first_frame(&own, 2).context("no node 2 in /proc/zoneinfo")?;
        shell(&vm, LAY_OUT)?;
        let mut server = Server {
            vm,
            lower_pfn,
            buffers: 0,
            _processes: Vec::new(),
        };
        server.start()?;
        server.sql(MAKE_TABLE)?;
        server.buffers = server.find_buffers()?;
        // The backends' own memory comes from wherever there is room.
        server.vm.write(&format!("{CGROUP}/cpuset.mems"), "0-2")?;
        let idle = server.clients(IDLE, "idle", "\\sleep 3600 s")?;
        server._processes.push(idle);
        Ok(server)
    }

    /// Its memory is bound by a cpuset, because pghot moves nothing against a memory policy.
    fn start(&mut self) -> Result<()> {
        let vm = &self.vm;
        vm.write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
        vm.mkdir(CGROUP)?;
        vm.write(&format!("{CGROUP}/cpuset.mems"), "2")?;
        let make = format!(
            "{AS_USER} initdb -D /tmp/pg -U postgres -E SQL_ASCII --locale=C --no-sync -A trust"
        );
        shell(vm, &make)?;
        let settings = [
            "shared_buffers=64MB",
            "max_connections=210",
            "listen_addresses=",
            "unix_socket_directories=/tmp",
            "max_parallel_workers_per_gather=0",
            "autovacuum=off",
            "jit=off",
            "fsync=off",
        ];
        let settings = settings.map(|setting| format!("-c {setting}")).join(" ");
        let run = format!(
            "echo $$ > {CGROUP}/cgroup.procs; exec {AS_USER} postgres -D /tmp/pg {settings}"
        );
        let mut postgres = vm.spawn(&["sh", "-c", &run])?;
        vm.wait_until("PostgreSQL answers", Duration::from_secs(60), || {
            let ended = postgres.try_wait()?.is_some();
            Ok(ended || self.sql("select 1").is_ok())
        })?;
        if postgres.try_wait()?.is_some() {
            bail!("PostgreSQL ended at once: {}", postgres.stderr()?);
        }
        self._processes.push(postgres);
        Ok(())
    }

    /// What a query answers, a line for each row.
    fn sql(&self, query: &str) -> Result<String> {
        let argv = [
            "psql", "-h", "/tmp", "-U", "postgres", "-qAtX", "-c", query, "postgres",
        ];
        Ok(self.vm.exec(&argv)?.success()?.stdout)
    }

    /// Has clients send a script again and again, and waits until all are connected.
    fn clients(&self, number: usize, name: &str, script: &str) -> Result<Process> {
        let file = format!("/tmp/{name}.sql");
        self.vm.write(&file, script)?;
        let count = number.to_string();
        let before: usize = self.backends()?;
        let mut clients = self.vm.spawn(&[
            "pgbench", "-n", "-c", &count, "-T", "3600", "-f", &file, "-h", "/tmp", "-U",
            "postgres", "postgres",
        ])?;
        let mut connected = 0;
        let all = self.vm.wait_until(
            "all clients are connected",
            Duration::from_secs(120),
            || {
                connected = self.backends().map_or(0, |now| now - before);
                Ok(connected >= number || clients.try_wait()?.is_some())
            },
        );
        all.with_context(|| format!("{connected} of {number} {name} clients"))?;
        if connected < number {
            bail!("pgbench ended: {}", clients.stderr()?);
        }
        Ok(clients)
    }

    fn backends(&self) -> Result<usize> {
        let count =
            self.sql("select count(*) from pg_stat_activity where application_name = 'pgbench'")?;
        Ok(count.trim().parse()?)
    }

    /// Where the buffers begin: the server says how far into its shared memory.
    fn find_buffers(&self) -> Result<u64> {
        let offset: u64 = self
            .sql("select off from pg_shmem_allocations where name = 'Buffer Blocks'")?
            .trim()
            .parse()?;
        let postmaster = self.vm.read("/tmp/pg/postmaster.pid")?;
        let pid = postmaster.lines().next().unwrap_or_default();
        let maps = self.vm.read(&format!("/proc/{pid}/maps"))?;
        let sizes = maps.lines().filter(|line| line.contains("/dev/zero"));
        let ranges = sizes.filter_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some((address(end)? - address(start)?, address(start)?))
        });
        let (_, start) = ranges.max().context("no shared memory")?;
        Ok(start + offset)
    }

    /// Pages of the shared buffers that hold the table, by number.
    fn hot_pages(&self) -> Result<BTreeSet<u64>> {
        let buffers = self.sql(HOT_BUFFERS)?;
        let buffers: BTreeSet<u64> = buffers.lines().filter_map(|id| id.parse().ok()).collect();
        ensure!(buffers.len() >= BUFFERS_MIN, "{} buffers", buffers.len());
        let pages = BUFFER_BYTES / PAGE_BYTES;
        let of_buffer = |id: u64| (id - 1) * pages..id * pages;
        Ok(buffers.into_iter().flat_map(of_buffer).collect())
    }

    /// The part of these pages that lies in the lower tier, by a busy backend's page tables.
    fn in_lower(&self, pages: &BTreeSet<u64>) -> Result<f64> {
        let busy = self.sql(
            "select pid from pg_stat_activity where application_name = 'pgbench' \
             and query like 'select sum%' limit 1",
        )?;
        let first = self.buffers / PAGE_BYTES;
        let count = pages.last().map_or(0, |last| last + 1);
        let read = format!(
            "dd if=/proc/{}/pagemap bs=8 skip={first} count={count} 2>/dev/null | \
             od -An -v -tu8 -w8",
            busy.trim()
        );
        let entries = self.vm.exec(&["sh", "-c", &read])?.success()?.stdout;
        let entries: Vec<u64> = entries
            .lines()
            .filter_map(|it| it.trim().parse().ok())
            .collect();
        let frame = |page: &u64| {
            entries
                .get(*page as usize)
                .map(|entry| entry & ((1 << 55) - 1))
        };
        let frames: Vec<u64> = pages
            .iter()
            .filter_map(frame)
            .filter(|pfn| *pfn > 0)
            .collect();
        ensure!(!frames.is_empty(), "process {} maps none", busy.trim());
        let lower = frames.iter().filter(|pfn| **pfn >= self.lower_pfn).count();
        Ok(lower as f64 / frames.len() as f64)
    }
}

const CGROUP: &str = "/sys/fs/cgroup/postgres";

fn shell(vm: &Vm, script: &str) -> Result<()> {
    vm.exec(&["sh", "-c", script])?.success()?;
    Ok(())
}

/// The packages' files as one archive, without what only a compiler in the server needs.
fn pack(postgres: &Path, dir: &Path) -> Result<PathBuf> {
    let root = postgres.ancestors().nth(3).context("no root of packages")?;
    let archive = dir.join("files.tar");
    let packed = Command::new("tar")
        .arg("-C")
        .arg(root)
        .arg("-cf")
        .arg(&archive)
        .args(["--exclude=bitcode", "--exclude=bin"])
        .args(FILES)
        .status()?;
    ensure!(packed.success(), "tar cannot pack {}", root.display());
    Ok(archive)
}

/// The first page frame of a node, the lowest of its zones.
fn first_frame(zoneinfo: &str, node: u32) -> Option<u64> {
    let name = format!("Node {node},");
    let mut is_of_node = false;
    let mut frames = Vec::new();
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            is_of_node = line.starts_with(&name);
        }
        let start = line.trim().strip_prefix("start_pfn:");
        frames.extend(
            start
                .filter(|_| is_of_node)
                .and_then(|it| it.trim().parse::<u64>().ok()),
        );
    }
    frames.into_iter().filter(|pfn| *pfn > 0).min()
}
