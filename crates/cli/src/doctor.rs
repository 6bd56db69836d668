//! `pghot doctor`: what this machine offers, and what would fight with pghot.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Command};
use pghot_daemon::doctor::{self, Check, Diagnosis, Grade, NodeReport};
use pghot_linux::SysRoot;

use crate::args::json;
use crate::json::Versioned;
use crate::output::{say, say_json};
use crate::units::bytes;

/// The command.
pub fn command() -> Command {
    Command::new("doctor")
        .about("Check what this kernel and machine offer, and what would fight with pghot")
        .after_help("Exit status: 1 if pghot cannot promote on this machine as it is.")
        .arg(json())
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let diagnosis = doctor::examine(&SysRoot::default());
    match matches.get_flag("json") {
        true => say_json(&Versioned::of(&diagnosis))?,
        false => say(&text(&diagnosis))?,
    }
    Ok(ExitCode::from((diagnosis.verdict == Grade::Fail) as u8))
}

/// The whole diagnosis.
fn text(diagnosis: &Diagnosis) -> String {
    let mut text = format!("Linux {}\n\nNodes\n", diagnosis.kernel);
    for node in &diagnosis.nodes {
        let _ = writeln!(text, "  {}", node_line(node));
    }
    if diagnosis.nodes.is_empty() {
        text.push_str("  none could be read\n");
    }
    let sections = [
        ("What pghot needs", &diagnosis.features),
        ("Hotness sources", &diagnosis.sources),
        ("BPF programs", &diagnosis.programs),
        ("What may fight with pghot", &diagnosis.fights),
    ];
    let width = sections
        .into_iter()
        .flat_map(|(_, checks)| checks)
        .map(|check| check.id.len())
        .max()
        .unwrap_or(0);
    for (title, checks) in sections {
        section(&mut text, title, checks, width);
    }
    text.push_str(match diagnosis.verdict {
        Grade::Ok => "\npghot can promote here.\n",
        Grade::Warn => "\npghot can promote here; see the warnings.\n",
        Grade::Fail => "\npghot cannot promote here as it is: see what is marked FAIL.\n",
    });
    text
}

fn node_line(node: &NodeReport) -> String {
    let tier = match (node.is_lower_tier, node.tier) {
        (true, Some(id)) => format!("lower tier (memory_tier{id})"),
        (false, Some(id)) => format!("top tier (memory_tier{id})"),
        (_, None) => "no tier".to_owned(),
    };
    let memory = bytes(node.memory_mib << 20);
    format!(
        "node {:<3} {tier:<28} {memory:>10}, {} CPUs",
        node.nid, node.cpus
    )
}

fn section(text: &mut String, title: &str, checks: &[Check], width: usize) {
    let _ = writeln!(text, "\n{title}");
    if checks.is_empty() {
        text.push_str("  unknown: only root can find out\n");
    }
    for check in checks {
        let level = match check.level {
            Grade::Ok => "ok",
            Grade::Warn => "WARN",
            Grade::Fail => "FAIL",
        };
        let _ = writeln!(
            text,
            "  {level:<4}  {:<width$}  {}",
            check.id, check.meaning
        );
        if !check.advice.is_empty() {
            let _ = writeln!(text, "        {:<width$}  -> {}", "", check.advice);
        }
    }
}
