//! The source `app_hint`: what applications hint at is promoted, and nothing else, whoever lies.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::accuracy::Row;
use crate::rig::{
    Daemon, UNHURRIED, finish, number, open_objects, outcome, refused, source, start_hotset,
};
use crate::{Ctx, Test, page_cache};

pub const TESTS: &[Test] = &[
    Test::new("accuracy_app_hint", "tiered3", |ctx| {
        hinted_pages(ctx, SHAPES)
    })
    .each_kernel(),
    Test::new("accuracy_app_hint_file", "tiered3-disk", hinted_file),
    Test::new("hints_by_command", "tiered3", by_command),
    Test::new("lying_hints_are_refused", "tiered3", lies),
    Test::new("hints_leave_nothing_behind", "tiered3", leave_nothing),
];

const SOCKET: &str = "/run/pghot/hint.sock";
const FLAGS: [&str; 4] = ["--enabled-sources", "0x20", "--freq-threshold", "1"];

/// Shapes of memory by name, with what makes `hotset` that shape.
type Shapes = &'static [(&'static str, &'static [&'static str])];

const SHAPES: Shapes = &[
    ("anon 4K scattered", &[]),
    (
        "anon 4K contiguous",
        &["--layout", "contiguous", "--hint-ring"],
    ),
    ("THP", &["--backing", "thp"]),
    ("shared tmpfs", &["--backing", "shared", "--hint-ring"]),
    ("forked", &["--forks", "4", "--store-percent", "0"]),
];
const ON_DISK: Shapes = &[(
    "mapped file",
    &["--backing", "file", "--dir", page_cache::DIR],
)];

fn hinted_file(ctx: &mut Ctx) -> Result<()> {
    page_cache::mount_disk(&ctx.vm)?;
    hinted_pages(ctx, ON_DISK)?;
    page_cache::unmount(&ctx.vm)
}

/// The workload hints at its hot pages once, through the C headers: by messages, or through a ring.
/// All of them are promoted and no other, although all are accessed.
fn hinted_pages(ctx: &mut Ctx, shapes: Shapes) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &FLAGS)?;
    let hinted_so_far = |status: &Value| {
        let of_source = source(status, "app_hint")?;
        ensure!(
            number(of_source, "/details/clients")? == 0.0,
            "{of_source:#}"
        );
        number(of_source, "/stats/recorded_pages")
    };
    let mut hinted_before = 0.0;
    for (shape, more) in shapes {
        let mut flags = vec!["--size-mib", "128", "--hot-percent", "10", "--seconds", "5"];
        flags.extend(["--cold-sweep-seconds", "20", "--report-ms", "500"]);
        flags.extend(["--hint", SOCKET]);
        flags.extend(UNHURRIED);
        flags.extend(*more);
        let (process, ready) = start_hotset(&ctx.vm, &flags)?;
        let done = finish(process)?;
        let status = daemon.status()?;
        let row = Row {
            source: "app_hint",
            kernel: ctx.kernel.name.clone(),
            shape,
            recall: number(&done, "/recall")?,
            precision: number(&done, "/precision")?,
            seconds: done["t95_s"].as_f64(),
        };
        ensure!(
            row.recall == 1.0 && row.precision == 1.0,
            "{row:?}: {done}\n{status:#}"
        );
        row.judge("")?;
        let hinted = hinted_so_far(&status)?;
        ensure!(
            hinted - hinted_before == number(&ready, "/hot_pages")?,
            "{shape}: each page once: {status:#}"
        );
        hinted_before = hinted;
    }
    daemon.stop()?;
    Ok(())
}

/// A script hints for a program that knows nothing of pghot.
fn by_command(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &FLAGS)?;
    let (mut process, ready) = start_hotset(&ctx.vm, &["--size-mib", "16", "--seconds", "60"])?;
    let (pid, base) = (
        process.pid().to_string(),
        ready["base"].as_str().unwrap_or(""),
    );
    let hint = ["pghot", "hint", &pid, base, "8388608"];
    let said = ctx.vm.exec(&hint)?.success()?.stdout;
    ensure!(said.contains("2048 pages"), "{said}");
    ctx.vm
        .wait_until("8 MiB are promoted", Duration::from_secs(20), || {
            let status = daemon.status();
            Ok(status.is_ok_and(|status| outcome(&status, "moved").is_ok_and(|n| n >= 2048.0)))
        })?;
    process.kill()?;
    refused(ctx.vm.exec(&hint)?, "no such process")?;
    let status = daemon.status()?;
    ensure!(outcome(&status, "moved")? == 2048.0, "{status:#}");
    daemon.stop()?;
    Ok(())
}

fn lies(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &FLAGS)?;
    let (mut process, ready) = start_hotset(&ctx.vm, &["--size-mib", "16", "--seconds", "100"])?;
    let (pid, base) = (
        process.pid().to_string(),
        ready["base"].as_str().unwrap_or(""),
    );
    let somebody = [
        "setpriv",
        "--reuid",
        "1000",
        "--regid",
        "1000",
        "--clear-groups",
    ];
    let refused = |prefix: &[&str], address: &str, length: &str, why: &str| -> Result<()> {
        let argv = prefix.iter().chain(&["pghot", "hint"]).copied();
        let argv: Vec<&str> = argv.chain([pid.as_str(), address, length]).collect();
        crate::rig::refused(ctx.vm.exec(&argv)?, why)
    };
    refused(&somebody, base, "4096", "only root")?;
    refused(&[], "ffff888000000000", "4096", "none of user space")?;
    refused(&[], base, "1152921504606846976", "longer than 1 GiB")?;
    refused(&[], base, "0", "empty")?;
    // Nothing is mapped there: true, and of no use.
    let nothing = ["pghot", "hint", pid.as_str(), "1000", "1073741824"];
    let said = ctx.vm.exec(&nothing)?.success()?.stdout;
    ensure!(said.contains("hinted "), "{said}");
    let status = daemon.status()?;
    let of_source = source(&status, "app_hint")?;
    for name in ["foreign", "bad_address", "too_long", "empty"] {
        let refused = number(of_source, &format!("/details/refused_ranges_{name}"))?;
        ensure!(refused == 1.0, "{name}: {of_source:#}");
    }
    // Another user's hints of its own memory are as good as root's.
    let hotset = [
        "hotset",
        "--home",
        "2",
        "--fast",
        "0,1",
        "--size-mib",
        "4",
        "--seconds",
        "20",
    ];
    let more = ["--until-promoted", "--hint", SOCKET, "--hint-ring"];
    let argv: Vec<&str> = somebody
        .iter()
        .chain(&hotset)
        .chain(&more)
        .copied()
        .collect();
    let done = finish(ctx.vm.spawn(&argv)?)?;
    ensure!(done["hot_left"] == 0, "{done}");
    process.kill()?;
    daemon.stop()?;
    Ok(())
}

/// Switched off: no socket, no thread, and clients are told.
fn leave_nothing(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", "0"])?;
    let set = |mask| {
        let set = ["pghot", "set", "enabled_sources", mask];
        ctx.vm.exec(&set)?.success()
    };
    let objects = || open_objects(&ctx.vm, daemon.pid());
    let before = objects()?;
    for _ in 0..3 {
        set("0x20")?;
        ensure!(ctx.vm.exists(SOCKET)?, "there is no socket");
        ensure!(objects()?.len() > before.len());
        set("0")?;
        ensure!(!ctx.vm.exists(SOCKET)?, "the socket is left");
        // The connection that asked may still be closing.
        ctx.vm
            .wait_until("all is closed", Duration::from_secs(10), || {
                Ok(objects().is_ok_and(|after| after == before))
            })?;
    }
    refused(ctx.vm.exec(&["pghot", "hint", "1", "1000"])?, "app_hint")?;
    daemon.stop()?;
    Ok(())
}
