//! Campaigns: the same thing at many random moments. A few of each in every run of the suite, more
//! in its long form, and as many as are promised by `testbed/campaign.sh`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use pghot_testbed::{Vm, kill_with_keeper};

use crate::keeper::puts_back_in_time;
use crate::rig::{Daemon, LowerTier, finish, kernel_settings, promotes_all, rounds, start_hotset};
use crate::{Ctx, Test};

/// Kills of the daemon.
const KILLS: u64 = 6;
const LONG_KILLS: u64 = 100;

/// All settings are changed so long after the first, in ms, and some more.
const SOON_MS: u64 = 500;

/// Times that the lower tier's memory goes offline and comes back.
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

/// Where the daemon keeps the original settings.
const STATE: &str = "/run/pghot/state.json";

/// Numbers that are the same in each run (a linear congruential generator), or those of
/// `PGHOT_SEED`.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let seed = std::env::var("PGHOT_SEED").ok();
        Random(seed.and_then(|seed| seed.parse().ok()).unwrap_or(1))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// The dead of a round, and who puts the settings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// The daemon; its keeper does it.
    Daemon,
    /// Both, and the next daemon does it with what they left.
    BothLeft,
    /// Both; `pghot restore` does it.
    Both,
    /// `pghot restore` too; the next one does it.
    RestoreToo,
}

/// The kinds of rounds, one after the other.
const KINDS: [Killed; 6] = [
    Killed::Daemon,
    Killed::BothLeft,
    Killed::Both,
    Killed::Daemon,
    Killed::RestoreToo,
    Killed::Daemon,
];

/// `kill -9` at random moments, from before the daemon changes the first setting until long after
/// the last one. The settings are always put back, by the keeper within a second, and the state
/// file goes.
fn killed_at_any_moment(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let balancing = vm.read(BALANCING)?;
    vm.write(BALANCING, "1")?;
    let original = kernel_settings(vm)?;
    let began = Instant::now();
    Daemon::start(vm, &[])?.stop()?;
    let start_ms = began.elapsed().as_millis() as u64;
    let mut random = Random::new();
    let (mut changed, mut by_keeper, mut slowest_ms) = (0, 0, 0);
    let kills = rounds(KILLS, LONG_KILLS);
    for round in 0..kills {
        let killed = KINDS[(round % 6) as usize];
        let mut daemon = vm.spawn(&["pghot", "run"])?;
        // How long a start takes varies more than the time in which settings change. So every other
        // kill comes soon after the first change, however late that is.
        let after_ms = match (round + round / 6) % 2 {
            0 => random.below(start_ms * 5 / 4),
            _ => {
                let limit = Duration::from_secs(60);
                vm.wait_until("a setting has changed", limit, || {
                    Ok(kernel_settings(vm).is_ok_and(|now| now != original))
                })?;
                random.below(SOON_MS)
            }
        };
        std::thread::sleep(Duration::from_millis(after_ms));
        changed += u64::from(kernel_settings(vm)? != original);
        let told = || format!("round {round}: killed {killed:?} after {after_ms} ms");
        if killed == Killed::Daemon {
            let took_ms = puts_back_in_time(vm, daemon.pid(), "KILL", &original);
            slowest_ms = slowest_ms.max(took_ms.with_context(told)?);
            by_keeper += 1;
            daemon.kill()?;
        } else {
            kill_with_keeper(vm, &mut daemon)?;
        }
        if killed == Killed::RestoreToo {
            let mut restore = vm.spawn(&["pghot", "restore"])?;
            std::thread::sleep(Duration::from_millis(random.below(50)));
            restore.kill()?;
        }
        match killed {
            Killed::Daemon => wait_for_no_state(vm).with_context(told)?,
            Killed::BothLeft => continue,
            Killed::Both | Killed::RestoreToo => {
                vm.exec(&["pghot", "restore"])?.success()?;
                ensure!(!vm.exists(STATE)?, "{}: the state file is left", told());
            }
        }
        let now = kernel_settings(vm)?;
        ensure!(
            now == original,
            "{}: left {now:?}, not {original:?}",
            told()
        );
    }
    vm.exec(&["pghot", "restore"])?.success()?;
    ensure!(kernel_settings(vm)? == original);
    vm.write(BALANCING, balancing)?;
    println!(
        "campaign: {kills} settings_were_changed={changed} put_back_by_keeper={by_keeper} \
         most_ms={slowest_ms}"
    );
    ensure!(
        changed * 3 >= kills,
        "{changed} of {kills} kills came while settings were changed"
    );
    Ok(())
}

/// A keeper may still be at it when the settings are back, and is there no more when it is gone.
fn wait_for_no_state(vm: &Vm) -> Result<()> {
    let soon = Duration::from_secs(10);
    vm.wait_until("the state file is gone", soon, || Ok(!vm.exists(STATE)?))?;
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
    println!("campaign: {plugs} least_blocks_online={fewest} most_blocks={all}");
    daemon.stop()?;
    Ok(())
}
