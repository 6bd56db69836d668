//! Commands on a terminal of the guest: a session of `pghot top`, with keys, while a program's
//! pages go up, and a live heatmap.
//!
//! With `PGHOT_BLESS=1` the session is kept as `docs/images/top.cast`, from which the picture in
//! the README is made.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;
use serde_json::json;

use crate::rig::{Daemon, UNHURRIED, end_hog, go, hog_in, hold_hotset_in, start_hotset};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("a_session_of_top_shows_how_pages_go_up", "tiered3", session),
    Test::new("a_live_heatmap_is_drawn_again", "tiered3", live_heatmap),
];

/// Columns and lines of the terminal.
const SIZE: (u32, u32) = (100, 30);

const MOUNT: &str = "/sys/fs/cgroup";
const TERMINALS: &str = "/dev/pts";

/// Looks at the cgroups, one of them, programs, and a decision, and ends it.
const KEYS: &str = "sleep 14; printf '\\r'; sleep 4; printf '\\033'; sleep 2; printf '\\t'; \
                    sleep 4; printf '\\t'; sleep 4; printf '\\r'; sleep 4; printf q; sleep 1";

/// What was written to the terminal, with the seconds since the start.
type Written = Vec<(f64, String)>;

fn session(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let daemon = Daemon::start(vm, &["--promote-rate-limit-MBps", "8"])?;
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "+memory")?;
    let [db, backup] = ["db.service", "backup.service"].map(|name| format!("{MOUNT}/{name}"));
    vm.mkdir(&db)?;
    vm.mkdir(&backup)?;
    let idle = hog_in(vm, &backup, 0, 64.0)?;
    let flags = ["--size-mib", "192", "--seconds", "600"];
    let mut hot = hold_hotset_in(vm, &db, &flags)?;
    go(vm)?;
    let written = on_terminal(vm, KEYS, "pghot top")?;
    let all: String = written.iter().map(|(_, text)| text.as_str()).collect();
    // Only what differs from the picture before is written, so not every word is in one piece.
    for shown in ["/db.service", "/backup.service", "it was promoted"] {
        let why = format!(
            "no {shown} in what was written to the terminal, {} bytes",
            all.len()
        );
        ensure!(all.contains(shown), why);
    }
    let (last_s, _) = written.last().context("nothing was written")?;
    // A picture a second, and one for each key.
    ensure!(
        written.len() as f64 > last_s / 2.0,
        "{} in {last_s} s",
        written.len()
    );
    if std::env::var_os("PGHOT_BLESS").is_some() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.context("the testbed lies in a folder")?;
        std::fs::write(root.join("docs/images/top.cast"), cast(&written))?;
    }
    hot.kill()?;
    end_hog(vm, idle)?;
    daemon.stop()?;
    for folder in [db, backup] {
        vm.wait_until("its memory is free", Duration::from_secs(30), || {
            Ok(vm.exec(&["rmdir", &folder])?.success().is_ok())
        })?;
    }
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "-memory")?;
    Ok(())
}

/// While it records, frame by frame in the same place, and one map is left in the end.
fn live_heatmap(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let flags = ["--size-mib", "32", "--seconds", "100"];
    let (mut program, _) = start_hotset(vm, &[&flags[..], UNHURRIED].concat())?;
    let pid = program.pid();
    let command = format!("pghot heatmap --pid {pid} --seconds 6 --stall-max-ms 300");
    let written = on_terminal(vm, "sleep 12", &command)?;
    program.kill()?;
    let all: String = written.iter().map(|(_, text)| text.as_str()).collect();
    let mut frames: Vec<&str> = all.split("\u{1b}[J").collect();
    let last = frames.pop().unwrap_or_default();
    let is_frame = |frame: &&str| frame.contains("hotset: ") && frame.contains("Ctrl-C ends it");
    let drawn = frames.iter().copied().filter(is_frame).count();
    ensure!((2..=6).contains(&drawn), "{drawn} frames: {all}");
    let is_left = last.contains("hotset: ") && !last.contains("Ctrl-C");
    ensure!(is_left, "{last}");
    Ok(())
}

/// From now on the guest has terminals.
pub fn make_terminals(vm: &Vm) -> Result<()> {
    if !vm.exists(&format!("{TERMINALS}/ptmx"))? {
        vm.mkdir(TERMINALS)?;
        vm.exec(&["mount", "-t", "devpts", "devpts", TERMINALS])?
            .success()?;
    }
    Ok(())
}

/// What a command writes to a terminal that gets these keys.
fn on_terminal(vm: &Vm, keys: &str, command: &str) -> Result<Written> {
    make_terminals(vm)?;
    const OUT: &str = "/tmp/top.out";
    const TIMING: &str = "/tmp/top.timing";
    let (columns, lines) = SIZE;
    let command = format!(
        "({keys}) | script --quiet --echo never --log-out {OUT} --log-timing {TIMING} \
         --logging-format classic --command \
         'stty cols {columns} rows {lines}; exec {command}' >/tmp/top.screen"
    );
    let env = [("LC_ALL", "C.UTF-8"), ("TERM", "xterm-256color")];
    vm.exec_with(&["sh", "-c", &command], &env, b"")?
        .success()?;
    let (out, timing) = (vm.read_bytes(OUT)?, vm.read(TIMING)?);
    vm.exec(&["rm", OUT, TIMING, "/tmp/top.screen"])?
        .success()?;
    // The first line is script's own.
    let start = out.iter().position(|byte| *byte == b'\n');
    let mut rest = &out[start.context("it is empty")? + 1..];
    let (mut at_s, mut written) = (0.0, Written::new());
    for line in timing.lines() {
        let (delay_s, bytes) = line.split_once(' ').context("no line of timing")?;
        at_s += delay_s.parse::<f64>()?;
        let taken = rest.split_at_checked(bytes.parse()?);
        let (part, left) = taken.context("timing and output differ")?;
        written.push((at_s, String::from_utf8_lossy(part).into_owned()));
        rest = left;
    }
    Ok(written)
}

/// As asciinema has it, version 2.
fn cast(written: &Written) -> String {
    let (width, height) = SIZE;
    let head = json!({"version": 2, "width": width, "height": height, "title": "pghot top"});
    let mut cast = format!("{head}\n");
    for (at_s, text) in written {
        let at_s = (at_s * 1000.0).round() / 1000.0;
        cast += &format!("{}\n", json!([at_s, "o", text]));
    }
    cast
}
