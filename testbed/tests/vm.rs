//! Tests in guests: each runs on every kernel of `kernels.toml`, on the machine it declares. Where
//! no tests are selected and `PGHOT_LONG` is not set, kernels beside the first run only those that
//! are marked [`Test::each_kernel`].
//!
//! A trial is named `kernel::machine::test`. Guests are reused between tests of the same kernel and
//! machine unless a test asks for a fresh one; a test that fails, or leaves a process behind, costs
//! its guest. What to run is chosen as for any Rust test: `cargo test --test vm -- 6.12::tiered3`.

#[path = "vm/accuracy.rs"]
mod accuracy;
#[path = "vm/app_hint.rs"]
mod app_hint;
#[path = "vm/campaign.rs"]
mod campaign;
#[path = "vm/costs.rs"]
mod costs;
#[path = "vm/dilation.rs"]
mod dilation;
#[path = "vm/documents.rs"]
mod documents;
#[path = "vm/hook.rs"]
mod hook;
#[path = "vm/hw_sample.rs"]
mod hw_sample;
#[path = "vm/keeper.rs"]
mod keeper;
#[path = "vm/mglru.rs"]
mod mglru;
#[path = "vm/model.rs"]
mod model;
#[path = "vm/owners.rs"]
mod owners;
#[path = "vm/page_cache.rs"]
mod page_cache;
#[path = "vm/page_cache_rivals.rs"]
mod page_cache_rivals;
#[path = "vm/pgtscan.rs"]
mod pgtscan;
#[path = "vm/policies.rs"]
mod policies;
#[path = "vm/pool.rs"]
mod pool;
#[path = "vm/programs.rs"]
mod programs;
#[path = "vm/promotion.rs"]
mod promotion;
#[path = "vm/record.rs"]
mod record;
#[path = "vm/reload.rs"]
mod reload;
#[path = "vm/resolver.rs"]
mod resolver;
#[path = "vm/rig.rs"]
mod rig;
#[path = "vm/safety.rs"]
mod safety;
#[path = "vm/scanner.rs"]
mod scanner;
#[path = "vm/session.rs"]
mod session;
#[path = "vm/stress.rs"]
mod stress;
#[path = "vm/stuck.rs"]
mod stuck;
#[path = "vm/table.rs"]
mod table;
#[path = "vm/terminal.rs"]
mod terminal;
#[path = "vm/testbed.rs"]
mod testbed;
#[path = "vm/tiers.rs"]
mod tiers;
#[path = "vm/together.rs"]
mod together;
#[path = "vm/top.rs"]
mod top;
#[path = "vm/witness.rs"]
mod witness;
#[path = "vm/workloads.rs"]
mod workloads;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use pghot_testbed::{Kernel, Ledger, Machine, Vm};

use pool::Pool;

/// Guests alive at the same time: one more than the host has cores, because guests also wait. More
/// only slow each other down and waste memory.
const GUESTS_MAX: usize = 3;

/// Tests whose times are printed at the end: who wants a shorter suite looks there first.
const SLOWEST_SHOWN: usize = 10;

/// One test in a guest.
struct Test {
    name: &'static str,
    machine: &'static str,
    /// Whether it needs a guest that nobody used before.
    fresh: bool,
    /// The only kernel that it runs on; all without.
    kernel: Option<&'static str>,
    /// Whether the short form runs it on each kernel and not on the first alone.
    each_kernel: bool,
    /// Whether it is left to `make test-long`.
    long: bool,
    limit: Duration,
    run: fn(&mut Ctx) -> Result<()>,
}

/// What a test gets.
struct Ctx {
    test: &'static str,
    vm: Vm,
    machine: Machine,
    kernel: Kernel,
}

impl Test {
    /// A test that any guest of the machine will do for, if it puts back what it changes.
    const fn new(
        name: &'static str,
        machine: &'static str,
        run: fn(&mut Ctx) -> Result<()>,
    ) -> Self {
        Self {
            name,
            machine,
            fresh: false,
            kernel: None,
            each_kernel: false,
            long: false,
            limit: Duration::from_secs(200),
            run,
        }
    }

    /// The same in a guest of its own.
    const fn fresh(self) -> Self {
        Self {
            fresh: true,
            ..self
        }
    }

    /// The same on one kernel alone, because others are known to be unable.
    const fn only_on(self, kernel: &'static str) -> Self {
        Self {
            kernel: Some(kernel),
            ..self
        }
    }

    /// The same on each kernel also in the short form: it is about what a kernel may change, once
    /// for each interface that pghot uses.
    const fn each_kernel(self) -> Self {
        Self {
            each_kernel: true,
            ..self
        }
    }

    /// The same in the long form alone, because it takes minutes for what others nearly show, or
    /// measures more than it asserts.
    const fn long(self) -> Self {
        Self { long: true, ..self }
    }

    /// The same with another limit.
    const fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Whether it can run on the kernel, and is not left to the long form.
    fn is_wanted(&self, kernel: &str) -> bool {
        self.kernel.is_none_or(|only| only == kernel) && (!self.long || rig::is_long())
    }

    /// Runs the test, and once more in another guest if it fails: emulated machines on a busy host
    /// miss a deadline now and then. The first failure is printed and goes into the ledger, which
    /// says when it is one too many; what is really broken fails both times.
    fn run_twice(
        &self,
        name: &str,
        kernel: &str,
        pool: &Pool,
        ledger: Option<&Ledger>,
    ) -> Result<()> {
        let first = self.run(kernel, pool, self.fresh);
        let noted = ledger.map_or(Ok(()), |ledger| ledger.note(name, first.is_ok()));
        if let Err(error) = first {
            eprintln!("{name} failed and is run once more, in a guest of its own: {error:#}");
            self.run(kernel, pool, true)?;
        }
        noted.map_err(|error| anyhow!(error))
    }

    fn run(&self, kernel: &str, pool: &Pool, fresh: bool) -> Result<()> {
        let machine = Machine::load(self.machine)?;
        let kernel = Kernel::find(kernel)?;
        let vm = pool.take(&machine, &kernel, fresh)?;
        vm.set_limit(self.limit);
        // Debian boots several nodes with 1, whose faults and moves would mix with the test's.
        vm.write("/proc/sys/kernel/numa_balancing", "0")?;

        let mut ctx = Ctx {
            test: self.name,
            vm,
            machine,
            kernel,
        };
        (self.run)(&mut ctx)?;
        if fresh {
            return Ok(());
        }
        let left = ctx.vm.sweep().context("after the test")?;
        ensure!(
            left.is_empty(),
            "the test left processes behind: {}",
            left.join(", ")
        );
        pool.put_back(&ctx.machine, &ctx.kernel, ctx.vm);
        Ok(())
    }
}

/// The tests of all themes.
fn tests() -> impl Iterator<Item = &'static Test> {
    [
        testbed::TESTS,
        promotion::TESTS,
        programs::TESTS,
        resolver::TESTS,
        safety::TESTS,
        scanner::TESTS,
        campaign::TESTS,
        tiers::TESTS,
        stress::TESTS,
        stuck::TESTS,
        together::TESTS,
        top::TESTS,
        terminal::TESTS,
        session::TESTS,
        reload::TESTS,
        owners::TESTS,
        policies::TESTS,
        costs::TESTS,
        witness::TESTS,
        dilation::TESTS,
        workloads::TESTS,
        mglru::TESTS,
        model::TESTS,
        record::TESTS,
        page_cache::TESTS,
        page_cache_rivals::TESTS,
        pgtscan::TESTS,
        hook::TESTS,
        hw_sample::TESTS,
        keeper::TESTS,
        app_hint::TESTS,
        documents::TESTS,
    ]
    .into_iter()
    .flatten()
    .chain(accuracy::tests())
}

/// Shows and writes how long tests took, and what they measured.
fn publish(times: &[(Duration, String)]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("the testbed lies in a folder")?;
    let tables = [
        accuracy::table()?,
        costs::table()?,
        model::table()?,
        page_cache_rivals::table()?,
    ];
    for table in tables.into_iter().flatten() {
        table.publish(root)?;
    }

    let of_test =
        |(took, name): &(Duration, String)| format!("{name} took {:.0} s", took.as_secs_f64());
    for test in times.iter().take(SLOWEST_SHOWN) {
        println!("slow: {}", of_test(test));
    }
    let all: Duration = times.iter().map(|(took, _)| *took).sum();
    println!("slow: all {} took {:.0} s", times.len(), all.as_secs_f64());
    let lines: String = times.iter().map(|test| of_test(test) + "\n").collect();
    let path = root.join("out/vm-times.txt");
    fs::create_dir_all(root.join("out"))?;
    fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(GUESTS_MAX);
    let kernels = Kernel::names();
    let (kernels, more) = match kernels.and_then(|it| Ok((it, Kernel::names_for_programs()?))) {
        Ok(kernels) => kernels,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };

    // Who picks tests is at work on them, and on a host that does other things besides.
    let is_suite = arguments.filter.is_none() && arguments.skip.is_empty();
    let ledger = is_suite.then(|| Arc::new(Ledger::of_host()));
    let pool = Arc::new(Pool::default());
    let mut trials = Vec::new();
    let wanted = kernels.into_iter().enumerate().map(|(number, kernel)| {
        let is_cut = is_suite && number > 0 && !rig::is_long();
        let of_suite =
            tests().filter(|test| test.is_wanted(&kernel) && (test.each_kernel || !is_cut));
        (of_suite.collect::<Vec<_>>(), kernel)
    });
    let loaded = more
        .into_iter()
        .map(|it| (Vec::from_iter(programs::TESTS), it));
    for (mut tests, kernel) in wanted.collect::<Vec<_>>().into_iter().chain(loaded) {
        // Tests of one machine follow each other, so that they find its guest running.
        tests.sort_by_key(|test| test.machine);
        for test in tests {
            let (kernel, pool, ledger) = (kernel.clone(), Arc::clone(&pool), ledger.clone());
            let name = format!("{kernel}::{}::{}", test.machine, test.name);
            trials.push(Trial::test(name.clone(), move || {
                let start = Instant::now();
                let result = test.run_twice(&name, &kernel, &pool, ledger.as_deref());
                pool.note_time(&name, start.elapsed());
                result.map_err(|error| Failed::from(format!("{error:#}")))
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    pool.clear();
    for line in ledger.iter().flat_map(|ledger| ledger.lines()) {
        println!("{line}");
    }
    if let Err(error) = publish(&pool.times()) {
        eprintln!("cannot write what was measured: {error:#}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
