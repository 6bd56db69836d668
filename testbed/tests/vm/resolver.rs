//! From a page frame to who maps it: what is not found where it is looked for first.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::rig::{Daemon, finish, go, hold_hotset, outcome};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "a_huge_page_without_its_first_page_is_found",
        "tiered3",
        without_first_page,
    ),
    Test::new(
        "the_last_of_many_processes_is_found",
        "tiered3",
        the_last_of_many,
    ),
    Test::new(
        "shared_memory_of_each_kind_is_found",
        "tiered3",
        shared_of_each_kind,
    )
    .each_kernel(),
];

/// Programs give back single pages of a huge page; what is left is still one folio.
fn without_first_page(ctx: &mut Ctx) -> Result<()> {
    const PAUSE: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
    // It would make the huge pages whole again.
    let pause = ctx.vm.read(PAUSE)?;
    ctx.vm.write(PAUSE, "10000000")?;
    promotes(
        ctx,
        "0x1",
        &["--size-mib", "64", "--backing", "thp", "--holes"],
    )?;
    ctx.vm.write(PAUSE, pause.trim())?;
    Ok(())
}

/// Shared memory that 200 processes map, as a database's: the one that uses it is met last. A page
/// that somebody maps but that is not found is not taken for page cache that nobody maps.
fn the_last_of_many(ctx: &mut Ctx) -> Result<()> {
    let flags = ["--size-mib", "32", "--backing", "shared"];
    let many = ["--forks", "200", "--mapped-last"];
    promotes(ctx, "0x4", &[&flags[..], &many].concat())
}

/// As forked processes share it, and as older databases do.
fn shared_of_each_kind(ctx: &mut Ctx) -> Result<()> {
    for backing in ["shared-anon", "sys-v"] {
        let flags = ["--size-mib", "32", "--backing", backing, "--forks", "5"];
        promotes(ctx, "0x4", &flags)?;
    }
    Ok(())
}

/// All of a hot set that is held back goes up by one source.
fn promotes(ctx: &mut Ctx, sources: &str, flags: &[&str]) -> Result<()> {
    let vm = &ctx.vm;
    let common = ["--until-promoted", "--seconds", "90", "--report-ms", "500"];
    let held = hold_hotset(vm, &[flags, &common].concat())?;
    let daemon = Daemon::start(vm, &["--enabled-sources", sources])?;
    go(vm)?;
    let done = finish(held)?;
    let status = daemon.status()?;
    ensure!(done["hot_left"] == 0, "{done}\n{status:#}");
    let lost = outcome(&status, "unopenable")?;
    ensure!(lost == 0.0, "{lost} pages were given up: {status:#}");
    daemon.stop()?;
    // So many processes take a while to go.
    vm.wait_until("they are gone", Duration::from_secs(30), || {
        let is_one = |pid: &String| {
            let name = vm.read(&format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "hotset"
        };
        Ok(!vm.list("/proc")?.iter().any(is_one))
    })?;
    Ok(())
}
