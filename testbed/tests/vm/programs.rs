//! What each kernel offers, as docs/kernels.md says: every BPF program is loaded, and every source
//! asked.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;
use serde_json::Value;

use crate::rig::{Daemon, refused};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new(
    "programs_load_where_the_table_says",
    "tiered3",
    programs_load,
)
.each_kernel()];

const TABLES: &str = include_str!("../../../docs/kernels.md");

/// The tables' rows by their first cell, of the column of a kernel.
fn told(kernel: &str) -> Result<BTreeMap<String, String>> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_matches('|');
        inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let (mut column, mut rows) = (None, BTreeMap::new());
    for line in TABLES.lines().filter(|line| line.starts_with('|')) {
        let cells = cells(line);
        if let Some(found) = cells.iter().position(|cell| cell == kernel) {
            column = Some(found);
        } else if !cells[0].starts_with('-') {
            let cell = cells.get(column.context("no column of this kernel")?);
            let cell = cell.context("a short row")?;
            rows.insert(cells[0].clone(), cell.clone());
        }
    }
    Ok(rows)
}

/// `yes`, `off` where the kernel lacks the function that a program is for, `no` for any other
/// reason.
fn found(diagnosis: &Value, section: &str) -> Result<BTreeMap<String, String>> {
    let checks = diagnosis[section].as_array().context("no such section")?;
    let of = |check: &Value| -> Result<(String, String)> {
        let text = |key| check[key].as_str().context("no text");
        let answer = match (text("level")?, text("meaning")?) {
            (_, meaning) if meaning.starts_with("off, ") => "off",
            ("ok", _) => "yes",
            _ => "no",
        };
        Ok((text("id")?.to_owned(), answer.to_owned()))
    };
    checks.iter().map(of).collect()
}

fn programs_load(ctx: &mut Ctx) -> Result<()> {
    const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";
    let mglru = ctx.vm.read(MGLRU)?;
    ctx.vm.write(MGLRU, "y")?;
    // It fails where there is no lower tier, which is no matter here.
    let output = ctx.vm.exec(&["pghot", "doctor", "--json"])?;
    ctx.vm.write(MGLRU, mglru.trim())?;
    let diagnosis: Value = serde_json::from_str(&output.stdout)?;
    let mut found_here = found(&diagnosis, "programs")?;
    ensure!(!found_here.is_empty(), "none was loaded: {diagnosis:#}");
    found_here.extend(found(&diagnosis, "sources")?);
    // Only hardware could tell.
    found_here.remove("hw_sample");
    let told = told(&ctx.kernel.name)?;
    ensure!(
        found_here == told,
        "docs/kernels.md says {told:#?}\nfound: {found_here:#?}\n{:#}\n{:#}",
        diagnosis["programs"],
        diagnosis["sources"]
    );
    if told["resolver/resolve"] == "no" {
        let said = ctx.vm.exec(&["pghot", "run"])?;
        return refused(said, "this kernel has no bpf_rcu_read_lock");
    }
    easily_verified(&ctx.vm)
}

/// No loaded program takes the kernel's verifier more than a fifth of the steps that it allows: a
/// later kernel may need several times as many as this one, and a start waits for them.
fn easily_verified(vm: &Vm) -> Result<()> {
    const STEPS_MAX: u64 = 1_000_000 / 5;
    let daemon = Daemon::start(vm, &["--enabled-sources", "0x3d"])?;
    let folder = format!("/proc/{}/fdinfo", daemon.pid());
    let mut programs = 0;
    for file in vm.list(&folder)? {
        // What was closed meanwhile was no program.
        let info = vm.read(&format!("{folder}/{file}")).unwrap_or_default();
        let steps = info
            .lines()
            .find_map(|line| line.strip_prefix("verified_insns:"));
        let Some(steps) = steps else { continue };
        programs += 1;
        ensure!(steps.trim().parse::<u64>()? <= STEPS_MAX, "{info}");
    }
    ensure!(programs >= 8, "only {programs} programs were loaded");
    daemon.stop()?;
    Ok(())
}
