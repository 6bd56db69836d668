//! `hotset`: touch a known hot set of pages and report where they are.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use pghot_workloads::access::{Shared, Sweeper, Worker};
use pghot_workloads::args::Args;
use pghot_workloads::decided::Standing;
use pghot_workloads::hint::Hinter;
use pghot_workloads::hold;
use pghot_workloads::hot_set::HotSet;
use pghot_workloads::idle_forks::IdleForks;
use pghot_workloads::marks::{Mark, Marks};
use pghot_workloads::numa_maps::{self, NodePages};
use pghot_workloads::placement::{Placement, PlacementQuery};
use pghot_workloads::probe::{self, Felt};
use pghot_workloads::region::Region;
use pghot_workloads::report::{self, Done, Event, Ready, Sample, time_to_percent_s};
use pghot_workloads::sys::{self, ThreadUsage};

/// Looking up every page takes too long to do it more often.
const MIN_LOOKUP_MS: u64 = 500;

fn main() -> ExitCode {
    report::exit_code("hotset", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    keep_off_worker_cpus(args)?;
    let region = Region::map(
        (args.size_mib as usize) << 20,
        args.backing,
        args.home,
        &args.dir,
    )?;
    let hot_set = choose(args, &region)?;
    let mut sampler = Sampler {
        args,
        region: &region,
        hot_set: &hot_set,
        query: PlacementQuery::new(&region),
    };

    region.populate(args.seed)?;
    let placement = sampler.look_up()?;
    ensure_at_home(&placement.nodes, args.home, region.pages())?;
    region.release()?;
    let _forks = IdleForks::spawn(args.forks as usize)?;
    if args.mapped_last {
        region.map_last()?;
    }
    if args.holes {
        region.make_holes()?;
    }
    Event::Ready(Ready {
        pid: std::process::id(),
        base: format!("{:#x}", region.range().start),
        page_bytes: region.page_bytes(),
        pages: region.pages().into(),
        hot_pages: hot_set.pages().len() as u64,
        nodes: placement.nodes,
    })
    .print()?;
    hold::wait(args.hold.as_deref())?;
    if let Some(socket) = &args.hint {
        let hinter = Hinter::connect(socket, args.hint_ring)?;
        hinter.hint(&region, hot_set.pages())?;
    }
    let marks = args
        .witness
        .then(|| Marks::open(&region.range()))
        .transpose()?;
    let mark = |mark| {
        if let Some(marks) = &marks {
            marks.mark(mark);
        }
    };
    mark(Mark::Start);
    let phase = access_phase(&mut sampler)?;
    mark(Mark::Stop);
    let placement = sampler.look_up()?;
    // What holes held was given up.
    let errors = match args.holes {
        true => region.damaged_among(args.seed, hot_set.pages().iter().copied()),
        false => region.damaged_pages(args.seed),
    };
    let swept = sampler.swept(phase.elapsed_s);
    let hot_pages = hot_set.pages().len() as u64;
    Event::Done(results(&phase, &placement, hot_pages, swept, errors)).print()
}

/// The hot pages; none is a hole.
fn choose(args: &Args, region: &Region) -> Result<HotSet> {
    let unit_pages = region.unit_pages();
    let hot_set = HotSet::choose(
        region.pages(),
        args.hot_percent,
        args.layout,
        unit_pages,
        args.seed,
    );
    if !args.holes {
        return Ok(hot_set);
    }
    ensure!(unit_pages > 1, "--holes is about huge pages: --backing thp");
    Ok(hot_set.without_first(unit_pages))
}

/// Moves this thread, the sampler, off the CPUs that the workers get, if others are left.
fn keep_off_worker_cpus(args: &Args) -> Result<()> {
    let Some(cpus) = &args.cpus else {
        return Ok(());
    };
    let allowed = sys::allowed_cpus()?;
    for cpu in cpus.ids() {
        ensure!(
            allowed.contains(cpu),
            "CPU {cpu} is not one this process may run on"
        );
    }
    let others: Vec<u32> = allowed
        .into_iter()
        .filter(|cpu| !cpus.contains(*cpu))
        .collect();
    if others.is_empty() {
        Ok(())
    } else {
        sys::run_on(&others)
    }
}

/// All pages start at home, but for those that a quick daemon has promoted already: making them was
/// an access, their frames may have a history of their last owner's accesses, and on a busy host
/// the daemon has time.
fn ensure_at_home(nodes: &NodePages, home: u32, pages: u32) -> Result<()> {
    let at_home = nodes.get(&home).copied().unwrap_or(0);
    ensure!(
        at_home >= u64::from(pages / 2),
        "only {at_home} of {pages} pages are on node {home}, where all should start: {nodes:?}"
    );
    Ok(())
}

/// What the access phase left behind.
struct Phase {
    samples: Vec<Sample>,
    usage: ThreadUsage,
    felt: Option<Felt>,
    accesses: u64,
    elapsed_s: f64,
}

/// Runs workers, sweeper and, on this thread, the sampler.
fn access_phase(sampler: &mut Sampler) -> Result<Phase> {
    let Sampler {
        args,
        region,
        hot_set,
        ..
    } = *sampler;
    let cpus = args.cpus.as_ref().map_or(&[][..], |list| list.ids());
    let sweeps = args.cold_sweep_seconds > 0.0 && !hot_set.is_everything();
    let all = args.threads as usize + usize::from(sweeps) + usize::from(args.probe) + 1;
    let shared = &Shared::new(all);

    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.threads)
            .map(|number| {
                let worker = Worker {
                    region,
                    hot_pages: hot_set.pages(),
                    store_percent: args.store_percent,
                    busy_percent: args.busy_percent,
                    cpu: cpus.iter().cycle().nth(number as usize).copied(),
                    seed: args.seed.wrapping_add(u64::from(number) + 1),
                };
                scope.spawn(move || worker.run(shared))
            })
            .collect();
        let sweeper = sweeps.then(|| {
            let period = Duration::from_secs_f64(args.cold_sweep_seconds);
            // A huge page is one page, or it would be touched 512 times a sweep, and not be cold.
            let mut cold_pages = hot_set.cold_pages();
            cold_pages.retain(|page| page.is_multiple_of(region.unit_pages()));
            let sweeper = Sweeper {
                region,
                cold_pages,
                period,
                cpus,
                stores: args.store_percent == 100,
            };
            scope.spawn(move || sweeper.run(shared))
        });

        let prober = args.probe.then(|| {
            let seed = args.seed.wrapping_sub(1);
            scope.spawn(move || probe::run(region, hot_set.pages(), seed, shared))
        });

        shared.start.wait();
        let started = Instant::now();
        let samples = sampler.sample_until_end(shared, started);
        shared.stop.store(true, Ordering::Relaxed);
        let elapsed_s = started.elapsed().as_secs_f64();

        let mut usage = ThreadUsage::default();
        for worker in workers {
            usage += worker.join().map_err(|_| anyhow!("a worker panicked"))??;
        }
        if let Some(sweeper) = sweeper {
            sweeper
                .join()
                .map_err(|_| anyhow!("the sweeper panicked"))??;
        }
        let felt = match prober {
            Some(prober) => Some(prober.join().map_err(|_| anyhow!("the probe panicked"))??),
            None => None,
        };
        Ok(Phase {
            samples: samples?,
            usage,
            felt,
            accesses: accesses(shared),
            elapsed_s,
        })
    })
}

fn accesses(shared: &Shared) -> u64 {
    shared.hot_accesses.load(Ordering::Relaxed) + shared.cold_accesses.load(Ordering::Relaxed)
}

/// Takes and prints the samples; never on a worker's thread.
struct Sampler<'a> {
    args: &'a Args,
    region: &'a Region,
    hot_set: &'a HotSet,
    query: PlacementQuery,
}

impl Sampler<'_> {
    /// Samples until the time is up, or until all is promoted if that was asked for.
    fn sample_until_end(&mut self, shared: &Shared, started: Instant) -> Result<Vec<Sample>> {
        let all_hot = self.hot_set.is_everything();
        let step_ms = if all_hot {
            self.args.report_ms
        } else {
            self.args.report_ms.max(MIN_LOOKUP_MS)
        };
        let mut end = Duration::from_secs_f64(self.args.seconds);
        let mut promoted = false;
        let mut samples: Vec<Sample> = Vec::new();
        loop {
            let placement = if all_hot {
                self.count()?
            } else {
                self.look_up()?
            };
            let elapsed = started.elapsed();
            let sample = Sample {
                t_s: elapsed.as_secs_f64(),
                nodes: placement.nodes,
                hot_fast: placement.hot_fast,
                cold_fast: placement.cold_fast,
                accesses: accesses(shared),
            };
            if !promoted && sample.hot_fast == self.hot_set.pages().len() as u64 {
                promoted = true;
                if self.args.until_promoted {
                    end = end.min(elapsed + Duration::from_millis(self.args.linger_ms));
                }
            }
            let standing = Standing {
                hot_pages: self.hot_set.pages().len() as u64,
                hot_fast: sample.hot_fast,
                cold_fast: sample.cold_fast,
                swept: self.swept(sample.t_s),
            };
            let precision = self
                .args
                .until_good
                .map(|percent| f64::from(percent) / 100.0);
            if precision.is_some_and(|precision| standing.is_good(precision)) {
                end = elapsed;
            }
            Event::Sample(sample.clone()).print()?;
            samples.push(sample);
            // A worker that failed stops all.
            if elapsed >= end || shared.stop.load(Ordering::Relaxed) {
                return Ok(samples);
            }
            // On a fixed grid, so that a slow sample does not delay all later ones.
            let next = Duration::from_millis(step_ms * (elapsed.as_millis() as u64 / step_ms + 1));
            thread::sleep(next.min(end).saturating_sub(started.elapsed()));
        }
    }

    /// The share of the cold pages that has been touched after so long; 1 if none are to be.
    fn swept(&self, elapsed_s: f64) -> f64 {
        match self.args.cold_sweep_seconds {
            sweep_s if sweep_s > 0.0 => (elapsed_s / sweep_s).min(1.0),
            _ => 1.0,
        }
    }

    /// Pages per node alone: enough when all are hot.
    fn count(&self) -> Result<Placement> {
        let nodes = numa_maps::read(&self.region.range())?;
        let on_fast = nodes
            .iter()
            .filter(|(node, _)| self.args.fast.contains(**node));
        Ok(Placement {
            hot_fast: on_fast.map(|(_, pages)| pages).sum(),
            cold_fast: 0,
            nodes,
        })
    }

    /// Every page.
    fn look_up(&mut self) -> Result<Placement> {
        self.query.run(self.hot_set, &self.args.fast)
    }
}

fn results(phase: &Phase, end: &Placement, hot_pages: u64, swept: f64, errors: u64) -> Done {
    let hot_fast: Vec<_> = phase.samples.iter().map(|s| (s.t_s, s.hot_fast)).collect();
    let time_to = |percent| time_to_percent_s(&hot_fast, hot_pages, percent);
    let standing = Standing {
        hot_pages,
        hot_fast: end.hot_fast,
        cold_fast: end.cold_fast,
        swept,
    };
    Done {
        t50_s: time_to(50),
        t90_s: time_to(90),
        t95_s: time_to(95),
        t100_s: time_to(100),
        hot_promoted: end.hot_fast,
        cold_promoted: end.cold_fast,
        hot_left: hot_pages - end.hot_fast,
        recall: end.hot_fast as f64 / hot_pages as f64,
        precision: standing.precision(),
        swept,
        nodes: end.nodes.clone(),
        accesses: phase.accesses,
        worker_user_s: phase.usage.user_s,
        worker_kernel_s: phase.usage.kernel_s,
        worker_minor_faults: phase.usage.minor_faults,
        felt: phase.felt,
        elapsed_s: phase.elapsed_s,
        errors,
    }
}
