//! What `pghot doctor` prints.

use std::fmt::Write;

use pghot_daemon::doctor::{Check, Diagnosis, Grade, NodeReport};

use crate::units::bytes;

/// The whole diagnosis.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut text = format!("Linux {}\n\nNodes\n", diagnosis.kernel);
    for node in &diagnosis.nodes {
        let _ = writeln!(text, "  {}", node_line(node));
    }
    if diagnosis.nodes.is_empty() {
        text.push_str("  none could be read\n");
    }
    let width = [&diagnosis.features, &diagnosis.sources, &diagnosis.fights]
        .into_iter()
        .flatten()
        .map(|check| check.id.len())
        .max()
        .unwrap_or(0);
    section(&mut text, "What pghot needs", &diagnosis.features, width);
    section(&mut text, "Hotness sources", &diagnosis.sources, width);
    section(
        &mut text,
        "What may fight with pghot",
        &diagnosis.fights,
        width,
    );
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
