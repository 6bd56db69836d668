//! The source `page_cache`: files that are read by system calls, promoted through their files.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use pghot_testbed::{Status, Vm};
use serde_json::Value;

use crate::rig::{
    Daemon, finish, kernel_settings, number, outcome, source, start_pagecache, start_workload,
};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("every_page_of_a_file", "tiered3-disk", |ctx| {
        every_page_of_a_file(ctx, "ext4")
    })
    .each_kernel(),
    Test::new("every_page_of_a_file_on_xfs", "tiered3-disk", |ctx| {
        every_page_of_a_file(ctx, "xfs")
    }),
    Test::new("every_page_of_a_file_on_btrfs", "tiered3-disk", |ctx| {
        every_page_of_a_file(ctx, "btrfs")
    })
    .long(),
    Test::new(
        "promotion_is_no_access",
        "tiered3-disk",
        promotion_is_no_access,
    ),
    Test::new(
        "reads_are_watched_while_it_pays",
        "tiered3-disk",
        watched_while_it_pays,
    )
    // Files of others may lie in node 2.
    .fresh()
    .each_kernel(),
    Test::new(
        "reclaim_spares_what_is_read_often",
        "tiered3-disk",
        reclaim_spares_what_is_read_often,
    )
    .fresh()
    .each_kernel(),
    Test::new("files_may_vanish", "tiered3-disk", files_may_vanish),
    Test::new("files_of_tmpfs", "tiered3-disk", files_of_tmpfs),
    Test::new(
        "page_cache_leaves_nothing_behind",
        "tiered3-disk",
        page_cache_leaves_nothing_behind,
    ),
];

const DISK: &str = "/dev/nvme0n1";
pub const DIR: &str = "/tmp/disk";
pub const FILE: &str = "/tmp/disk/file";
pub const ALONE: [&str; 4] = ["--enabled-sources", "0x8", "--freq-threshold", "2"];

/// A new ext4 file system at [`DIR`], where every access that is not hidden shows in the times.
pub fn mount_disk(vm: &Vm) -> Result<()> {
    mount_new(vm, "ext4")
}

/// The same of another kind, whose modules are loaded if the kernel does not know it.
fn mount_new(vm: &Vm, kind: &str) -> Result<()> {
    let known = vm.read("/proc/filesystems")?;
    if !known.split_whitespace().any(|name| name == kind) {
        for module in vm.list("/lib/modules")? {
            // Those of the other kind may be there already; what is missing shows at the mount.
            vm.exec(&["insmod", &format!("/lib/modules/{module}")])?;
        }
    }
    vm.mkdir(DIR)?;
    // ext4 reads its block bitmaps some seconds after the mount, and the tests count reads.
    let (force, options) = match kind {
        "ext4" => ("-F", "strictatime,no_prefetch_block_bitmaps,noinit_itable"),
        _ => ("-f", "strictatime"),
    };
    let make = format!("mkfs.{kind}");
    vm.exec(&[&make, "-q", force, DISK])?.success()?;
    vm.exec(&["mount", "-t", kind, "-o", options, DISK, DIR])?
        .success()?;
    Ok(())
}

pub fn unmount(vm: &Vm) -> Result<()> {
    vm.exec(&["umount", DIR])?.success()?;
    Ok(())
}

fn access_time(vm: &Vm) -> Result<String> {
    Ok(vm.exec(&["stat", "-c", "%x", FILE])?.success()?.stdout)
}

/// Reads from the disk since boot.
fn disk_reads(vm: &Vm) -> Result<u64> {
    let stat = vm.read("/sys/block/nvme0n1/stat")?;
    let reads = stat.split_ascii_whitespace().next();
    Ok(reads.unwrap_or_default().parse()?)
}

fn recorded(daemon: &Daemon) -> Result<f64> {
    recorded_in(&daemon.status()?)
}

fn recorded_in(status: &Value) -> Result<f64> {
    number(source(status, "page_cache")?, "/stats/recorded")
}

/// Runs `pagecache` to its end.
pub fn pagecache(vm: &Vm, flags: &[&str]) -> Result<Value> {
    finish(start_pagecache(vm, flags)?.0)
}

/// All pages of a file are read at random, again and again, and all are promoted; nobody sees
/// anything of it: not the access time, not the disk, not the file system when it is unmounted.
fn every_page_of_a_file(ctx: &mut Ctx, file_system: &str) -> Result<()> {
    let vm = &ctx.vm;
    mount_new(vm, file_system)?;
    let daemon = Daemon::start(vm, &ALONE)?;
    let flags = ["--file", FILE, "--size-mib", "16", "--seconds", "40"];
    let flags: Vec<&str> = flags.into_iter().chain(["--until-promoted"]).collect();
    let (reader, _) = start_pagecache(vm, &flags)?;
    let (time, reads) = (access_time(vm)?, disk_reads(vm)?);
    vm.wait_until("pages are promoted", Duration::from_secs(40), || {
        let moved = outcome(&daemon.status()?, "moved");
        Ok(moved.is_ok_and(|moved| moved > 3000.0) || reader.try_wait()?.is_some())
    })?;
    let time_after = access_time(vm);
    let done = finish(reader)?;
    let status = daemon.status()?;
    println!("{done}");
    ensure!(
        number(&done, "/hot_left")? <= 16.0,
        "pages were left behind: {done}\n{status:#}"
    );
    let time_after = time_after?;
    ensure!(time == time_after, "accessed {time}, later {time_after}");
    let reads = disk_reads(vm)? - reads;
    ensure!(reads == 0, "{reads} reads from the disk");
    ensure!(
        outcome(&status, "moved")? >= 4080.0,
        "not by us: {status:#}"
    );
    ensure!(
        vm.vmstat("pgpromote_success")? == 0,
        "the kernel promoted pages"
    );
    unmount(vm)?;
    daemon.stop()?;
    Ok(())
}

/// While nobody reads, thousands of pages are promoted through mappings of the daemon: not one
/// access is recorded for it.
fn promotion_is_no_access(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    mount_disk(vm)?;
    // Precision mode for its long window, in which the reader can be stopped.
    let flags = ["--mode", "precision", "--freq-window-ms", "15000"];
    let flags = [&ALONE[..], &flags, &["--promote-rate-limit-MBps", "0"]].concat();
    let daemon = Daemon::start(vm, &flags)?;
    let (mut reader, _) = start_pagecache(vm, &["--file", FILE, "--size-mib", "16"])?;
    vm.wait_until("pages wait", Duration::from_secs(20), || {
        let ready = daemon.number("/lower_tier/0/last_pass/ready");
        Ok(ready.is_ok_and(|ready| ready > 4000.0))
    })?;
    reader.signal(libc::SIGSTOP)?;
    let before = daemon.status()?;
    vm.exec(&["pghot", "set", "promote_rate_limit_MBps", "1024"])?
        .success()?;
    vm.wait_until("they are promoted", Duration::from_secs(20), || {
        let ready = daemon.number("/lower_tier/0/last_pass/ready");
        Ok(ready.is_ok_and(|ready| ready == 0.0))
    })?;
    let after = daemon.status()?;
    let moved = outcome(&after, "moved")?;
    let recorded = recorded_in(&after)? - recorded_in(&before)?;
    println!("{moved} moved, {recorded} recorded");
    ensure!(moved > 1000.0, "only {moved} pages moved: {after:#}");
    ensure!(recorded == 0.0, "{recorded} accesses by the daemon itself");
    reader.kill()?;
    daemon.stop()?;
    unmount(vm)
}

/// A file is cut short and deleted while its pages are promoted, and its file system goes away
/// right after: what became of the pages is counted, and nothing is stuck.
fn files_may_vanish(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    mount_disk(vm)?;
    // 512 pages a second, so that pages wait all the time.
    let flags = [&ALONE[..], &["--promote-rate-limit-MBps", "2"]].concat();
    let daemon = Daemon::start(vm, &flags)?;
    let (mut reader, _) = start_pagecache(vm, &["--file", FILE, "--size-mib", "64"])?;
    let wait_for_more = |when: &str| {
        let moved = || outcome(&daemon.status()?, "moved");
        let before = moved()?;
        let what = format!("more pages are promoted {when}");
        vm.wait_until(&what, Duration::from_secs(30), || {
            Ok(moved().is_ok_and(|moved| moved >= before + 200.0))
        })
        .map_err(anyhow::Error::from)
    };
    wait_for_more("at first")?;
    vm.exec(&["truncate", "-s", "32M", FILE])?.success()?;
    wait_for_more("of the shorter file")?;
    vm.exec(&["rm", FILE])?.success()?;
    // The reader still has it open, and its pages are as hot as before.
    wait_for_more("of the deleted file")?;
    reader.kill()?;
    // A batch may hold the file for its milliseconds.
    vm.wait_until("it is unmounted", Duration::from_secs(3), || {
        Ok(vm.exec(&["umount", DIR])?.status == Status::Code(0))
    })?;
    vm.wait_until("nothing is ready", Duration::from_secs(20), || {
        let ready = daemon.number("/lower_tier/0/last_pass/ready");
        Ok(ready.is_ok_and(|ready| ready == 0.0))
    })?;
    let status = daemon.status()?;
    println!("{}", status["lower_tier"][0]["totals"]["outcomes"]);
    ensure!(outcome(&status, "failed")? == 0.0, "{status:#}");
    daemon.stop()?;
    Ok(())
}

/// tmpfs knows a file by its handle only if somebody asked for the handle.
fn files_of_tmpfs(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let daemon = Daemon::start(vm, &ALONE)?;
    let flags = [
        "--file",
        "/run/file",
        "--size-mib",
        "16",
        "--until-promoted",
    ];
    let unknown = pagecache(vm, &[&flags[..], &["--seconds", "5"]].concat())?;
    ensure!(unknown["hot_promoted"] == 0, "{unknown}");
    let status = daemon.status()?;
    ensure!(outcome(&status, "unopenable")? >= 4096.0, "{status:#}");
    let known = ["--seconds", "30", "--encode-handle"];
    let known = pagecache(vm, &[&flags[..], &known].concat())?;
    println!("{known}");
    ensure!(
        number(&known, "/hot_left")? <= 4.0,
        "{known}\n{:#}",
        daemon.status()?
    );
    daemon.stop()?;
    Ok(())
}

/// With default settings: what is read in the lower tier goes up, and reads are let alone when
/// nothing is left there.
fn watched_while_it_pays(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    mount_disk(vm)?;
    let daemon = Daemon::start(vm, &[])?;
    let state =
        || -> Result<Value> { Ok(source(&daemon.status()?, "page_cache")?["state"].clone()) };
    ensure!(state()? == "standing_by", "nothing is there yet");
    let flags = ["--file", FILE, "--size-mib", "32", "--seconds", "200"];
    let (mut reader, _) = start_pagecache(vm, &flags)?;
    // Half a MiB below is not worth being watched.
    vm.wait_until("nearly all is up", Duration::from_secs(90), || {
        Ok(outcome(&daemon.status()?, "moved").is_ok_and(|moved| moved >= 8192.0 - 128.0))
    })?;
    vm.wait_until("reads are let alone", Duration::from_secs(20), || {
        Ok(state().is_ok_and(|state| state == "standing_by"))
    })?;
    reader.kill()?;
    daemon.stop()?;
    unmount(vm)
}

const GENERATIONS: &str = "/sys/kernel/debug/lru_gen";

/// The memcg, and its oldest and youngest generation on node 0.
fn generations(vm: &Vm) -> Result<(String, u64, u64)> {
    let list = vm.read(GENERATIONS)?;
    let (mut memcg, mut nid, mut seqs) = ("", "", Vec::new());
    for line in list.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["memcg", id, ..] => memcg = id,
            ["node", id] => nid = id,
            [seq, ..] if nid == "0" => seqs.push(seq.parse()?),
            _ => {}
        }
    }
    match seqs[..] {
        [oldest, .., youngest] => Ok((memcg.to_owned(), oldest, youngest)),
        _ => bail!("no generations: {list}"),
    }
}

/// Reads leave no trace in page tables, but the kernel counts them: what is read again and again
/// stays when the oldest generations are evicted, and what is not goes.
fn reclaim_spares_what_is_read_often(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    mount_disk(vm)?;
    vm.write("/sys/kernel/mm/numa/demotion_enabled", "1")?;
    let mut flags = vec!["--file", FILE, "--size-mib", "64", "--hot-percent", "25"];
    flags.extend(["--home", "0", "--fast", "0"]);
    flags.extend(["--cpus", "0", "--seconds", "30"]);
    let (reader, _) = start_workload(vm, "pagecache", &flags)?;
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(2));
        let (memcg, oldest, youngest) = generations(vm)?;
        for command in [
            format!("- {memcg} 0 {oldest} 200 100000\n"),
            format!("+ {memcg} 0 {youngest} 200 1\n"),
        ] {
            vm.write(GENERATIONS, command)?;
        }
    }
    let done = finish(reader)?;
    println!("{done}");
    let (hot, cold) = (4096.0, 12288.0);
    ensure!(number(&done, "/nodes/2")? > 0.9 * cold, "{done}");
    ensure!(number(&done, "/hot_left")? < 0.05 * hot, "{done}");
    unmount(vm)
}

/// Switched off, the source leaves no hook, and it never had a setting.
fn page_cache_leaves_nothing_behind(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let settings = kernel_settings(vm)?;
    let daemon = Daemon::start(vm, &ALONE)?;
    let hooks = || -> Result<usize> {
        let dir = format!("/proc/{}/fdinfo", daemon.pid());
        let infos = vm.list(&dir)?;
        let is_link = |fd: &&String| {
            let info = vm.read(&format!("{dir}/{fd}"));
            info.is_ok_and(|info| info.contains("link_type:"))
        };
        Ok(infos.iter().filter(is_link).count())
    };
    ensure!(hooks()? == 1, "{} hooks while it runs", hooks()?);
    ensure!(
        kernel_settings(vm)? == settings,
        "it changed a kernel setting"
    );
    let (mut reader, _) = start_pagecache(vm, &["--file", "/run/file", "--size-mib", "16"])?;
    vm.wait_until("it records", Duration::from_secs(20), || {
        Ok(recorded(&daemon).is_ok_and(|recorded| recorded > 0.0))
    })?;
    vm.exec(&["pghot", "set", "enabled_sources", "0"])?
        .success()?;
    ensure!(hooks()? == 0, "{} hooks are left", hooks()?);
    reader.kill()?;
    vm.exec(&["rm", "/run/file"])?.success()?;
    daemon.stop()?;
    Ok(())
}
