//! Campaigns: the same thing at many random moments. A few of each in every run of the suite, as
//! many as are promised in its long form.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use pghot_testbed::kill_with_keeper;

use crate::rig::{Daemon, LowerTier, finish, is_long, kernel_settings, promotes_all, start_hotset};
use crate::{Ctx, Test};

/// Kills of the daemon.
const KILLS: u64 = 12;
const LONG_KILLS: u64 = 1000;

/// All settings are changed so long after the first, in ms, and some more.
const SOON_MS: u64 = 500;

/// Times that the lower tier's memory goes offline and comes back; `PGHOT_LONG=100` makes 100.
const PLUGS: u64 = 5;

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

pub const TESTS: &[Test] = &[
    Test::new(
        "killed_at_any_moment_it_can_be_undone",
        "tiered3",
        killed_at_any_moment,
    )
    .limit(Duration::from_secs(7200)),
    Test::new(
        "memory_comes_and_goes_under_load",
        "tiered3",
        memory_comes_and_goes,
    )
    .limit(Duration::from_secs(7200))
    .long()
    .fresh(),
];

/// Numbers that are the same in each run (a linear congruential generator).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// `PGHOT_LONG=200` makes 200 of them.
fn rounds(usual: u64, long: u64) -> u64 {
    let told = std::env::var("PGHOT_LONG").ok();
    let told = told.and_then(|count| count.parse().ok());
    match told.filter(|&count| count > 1) {
        Some(count) => count,
        None if is_long() => long,
        None => usual,
    }
}

/// `kill -9` of the daemon and its keeper at once, from before the daemon changes the first setting
/// until long after the last one; what undoes it is killed too, or the next daemon takes over what
/// the last one left. The settings are always put back, and the state file goes.
fn killed_at_any_moment(ctx: &mut Ctx) -> Result<()> {
    let balancing = ctx.vm.read(BALANCING)?;
    ctx.vm.write(BALANCING, "1")?;
    let original = kernel_settings(&ctx.vm)?;
    let began = Instant::now();
    Daemon::start(&ctx.vm, &[])?.stop()?;
    let start_ms = began.elapsed().as_millis() as u64;
    let mut random = Random(1);
    let (mut changed, mut slowest) = (0, Duration::ZERO);
    let kills = rounds(KILLS, LONG_KILLS);
    for round in 0..kills {
        let mut daemon = ctx.vm.spawn(&["pghot", "run"])?;
        // How long a start takes varies more than the time in which settings change. So every other
        // kill comes soon after the first change, however late that is.
        let after_ms = match round % 2 {
            0 => random.below(start_ms * 5 / 4),
            _ => {
                let limit = Duration::from_secs(60);
                ctx.vm.wait_until("a setting has changed", limit, || {
                    Ok(kernel_settings(&ctx.vm).is_ok_and(|now| now != original))
                })?;
                random.below(SOON_MS)
            }
        };
        std::thread::sleep(Duration::from_millis(after_ms));
        kill_with_keeper(&ctx.vm, &mut daemon)?;
        changed += u64::from(kernel_settings(&ctx.vm)? != original);
        match round % 3 {
            0 => {}
            1 => {
                let mut restore = ctx.vm.spawn(&["pghot", "restore"])?;
                std::thread::sleep(Duration::from_millis(random.below(50)));
                restore.kill()?;
            }
            // The next daemon finds what this one left.
            _ => continue,
        }
        let began = Instant::now();
        ctx.vm.exec(&["pghot", "restore"])?.success()?;
        slowest = slowest.max(began.elapsed());
        let now = kernel_settings(&ctx.vm)?;
        ensure!(
            now == original,
            "killed after {after_ms} ms, in round {round}, it left {now:?} for \
             {original:?}"
        );
        ensure!(
            !ctx.vm.exists("/run/pghot/state.json")?,
            "the state file is left"
        );
    }
    ctx.vm.exec(&["pghot", "restore"])?.success()?;
    ensure!(kernel_settings(&ctx.vm)? == original);
    ctx.vm.write(BALANCING, balancing)?;
    println!(
        "kill -9: {kills}, of those by the clock at up to {} ms, {changed} while settings were \
         changed; slowest restore {} ms",
        start_ms * 5 / 4,
        slowest.as_millis()
    );
    ensure!(
        changed * 3 >= kills,
        "{changed} of {kills} kills came while settings were changed"
    );
    Ok(())
}

/// All memory of the lower tier that can goes offline, again and again, while a program uses it and
/// pghot promotes from it: what is online has records and nothing else, nothing is leaked, no page
/// is damaged, and the kernel warns of nothing.
fn memory_comes_and_goes(ctx: &mut Ctx) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(90);
    let vm = &ctx.vm;
    let tainted = || vm.read("/proc/sys/kernel/tainted");
    let (before, plugs) = (tainted()?, rounds(PLUGS, PLUGS));
    let daemon = Daemon::start(vm, &["--wait-for-lower-tier", "--enabled-sources", "0x5"])?;
    let lower_tier = LowerTier::of(vm)?;
    let tracks = |blocks: usize, what: &str| {
        let waited = vm.wait_until(what, LIMIT, || {
            let pages = daemon.number("/lower_tier/0/pages");
            Ok(match blocks {
                0 => pages.is_err(),
                blocks => pages.is_ok_and(|pages| pages == lower_tier.pages(blocks)),
            })
        });
        waited.with_context(|| format!("{:#}", daemon.status().unwrap_or_default()))
    };
    let all = lower_tier.blocks();
    tracks(all, "all has records")?;
    let open = || vm.list(&format!("/proc/{}/fd", daemon.pid()));
    let (mut fewest, mut files) = (all, None);
    for round in 0..plugs {
        let flags = ["--size-mib", "64", "--hot-percent", "50", "--seconds", "6"];
        let (load, _) = start_hotset(vm, &flags)?;
        let left = all - lower_tier.offline(vm)?;
        ensure!(left < all, "no block could be offlined in round {round}");
        fewest = fewest.min(left);
        tracks(left, "what is offline has no records")?;
        finish(load).with_context(|| format!("in round {round}"))?;
        lower_tier.online(vm)?;
        tracks(all, "what is online has records")?;
        let now = open()?.len();
        ensure!(
            *files.get_or_insert(now) == now,
            "{now} files are open in round {round}, {files:?} after the first"
        );
        ensure!(tainted()? == before, "the kernel warned in round {round}");
    }
    promotes_all(vm, &daemon)?;
    println!("{plugs} times offline and online, down to {fewest} of {all} blocks");
    daemon.stop()?;
    Ok(())
}
