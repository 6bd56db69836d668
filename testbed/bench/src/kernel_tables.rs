//! What the kernel itself does, without any system at work: how fast it moves pages by the size of
//! a batch, and how its balancing between sockets brings threads and memory together. Beside them,
//! what others published.

use anyhow::{Context, Result, bail};
use pghot_published::autonuma::Autonuma as Autonuma2012;
use pghot_published::migration::{self, Measure};
use pghot_testbed::{Kernel, Machine, Spec, Vm, guest_binary};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Two nodes with CPUs and one without.
const MACHINE: &str = "tiered3";

/// Folios in a call that both the published table and ours have. Ratios are to the last but one.
const BATCHES: [&str; 5] = ["1", "8", "64", "512", "4096"];
/// See [`BATCHES`].
const BASE_BATCH: &str = "512";

/// The programs of autonumabench: here, and as published.
const PROGRAMS: [(&str, &str); 4] = [
    ("numa01", "NUMA01"),
    ("numa01-threadlocal", "NUMA01_THREADLOCAL"),
    ("numa02", "NUMA02"),
    ("numa02-smt", "NUMA02_SMT"),
];

/// The balancing kernel of 2012 that is nearest to the one of today, and the one without.
const BALANCING: &str = "moron";

/// All of it on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelTables {
    /// The kernel's name.
    pub kernel: String,
    /// By folios in a call.
    pub batches: Vec<Batch>,
    /// By program.
    pub autonuma: Vec<Autonuma>,
}

/// Base pages moved by `move_pages(2)`, so many in a call, by one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// In a call.
    pub folios: String,
    /// Throughput: the emulator's.
    pub gb_per_s: f64,
    /// Until the first folio of a call is mapped again; none if the kernel does not tell.
    pub first_folio_us: Option<f64>,
    /// Throughput by that of a call of 512.
    pub ratio: Option<f64>,
    /// The same as published.
    pub published_ratio: Option<f64>,
    /// µs as published.
    pub published_first_us: Option<f64>,
}

/// One program of autonumabench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Autonuma {
    /// Its name.
    pub program: String,
    /// Share of the threads' memory that is on their node at the end, without balancing.
    pub local_share_off: Option<f64>,
    /// The same with `numa_balancing=1`. Elapsed times say nothing here: the emulator's nodes are
    /// alike.
    pub local_share_on: Option<f64>,
    /// Elapsed time with balancing by that without, as published in 2012.
    pub published_ratio: Option<f64>,
}

/// Measures them in a guest without a witness, which would only slow it down.
pub fn measure(kernel: &str) -> Result<KernelTables> {
    let (machine, image) = (Machine::load(MACHINE)?, Kernel::find(kernel)?);
    let binaries = [guest_binary("migrate")?, guest_binary("autonuma")?];
    let vm = Vm::boot(&Spec::new(&machine, &image, &binaries))?;
    Ok(KernelTables {
        kernel: kernel.to_owned(),
        batches: batches(&vm)?,
        autonuma: autonuma(&vm)?,
    })
}

fn lines(vm: &Vm, argv: &[&str]) -> Result<Vec<Value>> {
    let output = vm.exec(argv)?.success()?;
    let lines = output.stdout.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

fn batches(vm: &Vm) -> Result<Vec<Batch>> {
    let counts = BATCHES.join(",");
    let numbers = ["--size-mib", "8", "--batch", &counts, "--repeat", "3"];
    let place = ["migrate", "--from", "2", "--to", "0"];
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;
    let lines = lines(vm, &[&place[..], &numbers].concat())?;
    let moved: Vec<&Value> = lines.iter().filter(|l| l["event"] == "moved").collect();
    if moved.len() != BATCHES.len() {
        bail!(
            "`migrate` measured {} batches, not {}",
            moved.len(),
            BATCHES.len()
        );
    }
    let rate = |line: &Value| line["gb_per_s"]["median"].as_f64();
    let base = BATCHES.iter().position(|count| *count == BASE_BATCH);
    let base = base.and_then(|place| rate(moved[place]));
    let published = migration::load();
    let batch = |(folios, line): (&&str, &&Value)| {
        let gb_per_s = rate(line).context("`migrate` moved nothing")?;
        let (ratio, first_us) = published_batch(&published, folios);
        Ok(Batch {
            folios: (*folios).to_owned(),
            gb_per_s,
            first_folio_us: line["first_folio_us"]["median"].as_f64(),
            ratio: base.map(|base| gb_per_s / base),
            published_ratio: ratio,
            published_first_us: first_us,
        })
    };
    BATCHES.iter().zip(&moved).map(batch).collect()
}

/// Of so many base pages in a call: throughput by that of 512, and the first folio's µs.
fn published_batch(tables: &[migration::Table], folios: &str) -> (Option<f64>, Option<f64>) {
    let figure = |measure, folios: &str| {
        let folios = folios.parse().ok()?;
        migration::stock_call(tables, measure, folios)
    };
    let rate = |folios| figure(Measure::Throughput, folios);
    let ratio = rate(folios)
        .zip(rate(BASE_BATCH))
        .map(|(own, base)| own / base);
    (ratio, figure(Measure::FirstFolio, folios))
}

fn autonuma(vm: &Vm) -> Result<Vec<Autonuma>> {
    let published = Autonuma2012::load();
    let local_share = |program: &str, balancing: &str| -> Result<Option<f64>> {
        vm.write("/proc/sys/kernel/numa_balancing", balancing)?;
        let size = ["--process-mib", "32", "--rounds", "400"];
        let lines = lines(vm, &[&["autonuma", program][..], &size].concat())?;
        let done = lines.last().context("`autonuma` said nothing")?;
        Ok(done["local_share"].as_f64())
    };
    let row = |(ours, theirs): &(&str, &str)| {
        Ok(Autonuma {
            program: (*theirs).to_owned(),
            local_share_off: local_share(ours, "0")?,
            local_share_on: local_share(ours, "1")?,
            published_ratio: published.elapsed_ratio(theirs, BALANCING),
        })
    };
    PROGRAMS.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_found_for_every_row() {
        let tables = migration::load();
        for folios in BATCHES {
            let (ratio, first_us) = published_batch(&tables, folios);
            assert!(ratio.is_some() && first_us.is_some(), "{folios}");
        }
        let base = published_batch(&tables, BASE_BATCH);
        assert_eq!(base, (Some(1.0), Some(264.0)));
        let published = Autonuma2012::load();
        let mut tests = PROGRAMS.iter();
        assert!(tests.all(|(_, test)| published.elapsed_ratio(test, BALANCING).is_some()));
    }
}
