//! Draws a row that was opened: a control group by kind of memory and node, or a decision.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use pghot_daemon::owners::OwnerRow;
use pghot_daemon::protocol::DecisionReport;
use pghot_linux::groups::{Bytes, GroupDetail};
use pghot_linux::processes::{Process, printable};
use ratatui::text::Line;

use super::block::line;
use super::look::{Look, Role, size, wrap};
use super::model::Model;
use super::view::Opened;
use crate::units::{count, pages};

/// The names before the columns.
const NAME: usize = 20;

/// A column of a node.
const NODE: usize = 13;

/// The row in so many lines, without those that are scrolled away.
pub fn lines(
    model: &Model,
    opened: &Opened,
    scroll: usize,
    look: Look,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let (title, lines) = match opened {
        Opened::Group(path) => (printable(path), group(model, path, look, width)),
        Opened::Decision(decision) => ("DECISION".to_owned(), one(model, decision, look, width)),
    };
    // The last line stays in sight.
    let scroll = scroll.min((lines.len() + 1).saturating_sub(height));
    let title = line(look, [(Role::Title, look.cut_front(&title, width))]);
    let rest = lines.into_iter().skip(scroll);
    std::iter::once(title).chain(rest).take(height).collect()
}

fn group(model: &Model, path: &str, look: Look, width: usize) -> Vec<Line<'static>> {
    let say = |text: &str| vec![line(look, [(Role::Plain, text.to_owned())])];
    let opened = model.group.as_ref().filter(|(known, _, _)| known == path);
    let Some((_, detail, programs)) = opened else {
        return say("looking");
    };
    let Some(detail) = detail else {
        return say("this cgroup is gone");
    };
    let nids = nodes(model, detail, programs, width);
    let row = row_of(model, path);
    let said = row.map(|row| [allowed(row), not_moved(row)]);
    let said = said.iter().flatten().filter(|text| !text.is_empty());
    let mut lines: Vec<Line> = said
        .flat_map(|text| wrap(look, text, width, 3))
        .map(|text| line(look, [(Role::Plain, text)]))
        .collect();
    lines.push(head(model, &nids, "", look));
    let some = |bytes: &Bytes| bytes.values().any(|bytes| *bytes > 0);
    for (kind, bytes) in detail.kinds.iter().filter(|(_, bytes)| some(bytes)) {
        lines.push(by_node(look, kind, None, Some(bytes), &nids));
    }
    lines.push(Line::default());
    lines.push(head(model, &nids, "PROCESS", look));
    if programs.is_empty() {
        lines.extend(say("none"));
    }
    for program in programs {
        let name = format!("{} {}", program.pid, program.name);
        let rss = Some(program.rss_bytes);
        lines.push(by_node(look, &name, rss, program.bytes.as_ref(), &nids));
    }
    lines
}

/// What the daemon tells of the group.
fn row_of<'a>(model: &'a Model, path: &str) -> Option<&'a OwnerRow> {
    let mut rows = model.status.iter().flat_map(|status| &status.cgroups);
    rows.find(|row| row.moves.name == path)
}

/// What the group may have; nothing if all is as usual.
fn allowed(row: &OwnerRow) -> String {
    let limit = row.limit_bytes;
    let share = row.share_bytes;
    let policy = |is_so: bool, what: &str| is_so.then(|| format!("{what} by a policy"));
    let all = [
        limit.map(|bytes| format!("at most {} in all", size(bytes))),
        share.map(|bytes| format!("its weight gives it {} of the top tier", size(bytes))),
        policy(row.excluded, "excluded"),
        policy(row.protected, "protected"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Pages that were to move and did not, by the names that metrics have too; the most first.
fn not_moved(row: &OwnerRow) -> String {
    let mut reasons: Vec<_> = row.moves.not_moved.iter().collect();
    if reasons.is_empty() {
        return String::new();
    }
    reasons.sort_by_key(|(_, pages)| Reverse(**pages));
    let reasons = reasons
        .iter()
        .map(|(name, pages)| format!("{name} {}", count(**pages)));
    format!(
        "pages not moved: {}",
        reasons.collect::<Vec<_>>().join(", ")
    )
}

/// The nodes that have some of it, as many as fit.
fn nodes(model: &Model, detail: &GroupDetail, programs: &[Process], width: usize) -> Vec<u32> {
    let kinds = detail.kinds.iter().map(|(_, bytes)| bytes);
    let all = kinds.chain(programs.iter().filter_map(|program| program.bytes.as_ref()));
    let mut nids: BTreeSet<u32> = model.nodes.iter().map(|node| node.nid).collect();
    nids.extend(
        all.flatten()
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(nid, _)| *nid),
    );
    let fit = width.saturating_sub(NAME + NODE) / NODE;
    nids.into_iter().take(fit).collect()
}

fn head(model: &Model, nids: &[u32], name: &str, look: Look) -> Line<'static> {
    let second = if name.is_empty() { "ALL" } else { "RSS" };
    let mut text = format!("{name:<NAME$}{second:>NODE$}");
    for nid in nids {
        let tier = if model.lower.contains(nid) {
            "lower"
        } else {
            "top"
        };
        text += &format!("{:>NODE$}", format!("{nid} {tier}"));
    }
    line(look, [(Role::Title, text)])
}

fn by_node(
    look: Look,
    name: &str,
    all: Option<u64>,
    bytes: Option<&Bytes>,
    nids: &[u32],
) -> Line<'static> {
    let sum = bytes.map(|bytes| bytes.values().sum());
    let all = all.or(sum).map_or("-".to_owned(), size);
    let mut text = format!("{} {all:>NODE$}", look.left(name, NAME - 1));
    for nid in nids {
        let one = bytes.map(|bytes| size(bytes.get(nid).copied().unwrap_or_default()));
        text += &format!("{:>NODE$}", one.unwrap_or("-".to_owned()));
    }
    line(look, [(Role::Plain, text)])
}

fn one(model: &Model, decision: &DecisionReport, look: Look, width: usize) -> Vec<Line<'static>> {
    let pid = decision.pid.map(|pid| format!("process {pid}"));
    let file = decision.file.as_ref().map(|file| format!("file {file}"));
    let owner = pid.or(file).unwrap_or("nobody".to_owned());
    let address = decision
        .address
        .map(|address| format!(", address {address:x}"));
    let (nid, target) = (decision.nid, decision.target);
    let seen = format!(
        "{} times, the last {} ms before",
        decision.freq, decision.age_ms
    );
    let size = match decision.pages {
        1 => "1 page (4 KiB)".to_owned(),
        more => pages(more.into()),
    };
    let mut facts = vec![
        ("page of", format!("{owner}{}", address.unwrap_or_default())),
        ("size", size),
        ("way", format!("from node {nid} to node {target}")),
        ("seen", seen),
        ("outcome", decision.outcome.clone()),
        ("why", decision.why.clone()),
    ];
    let now = match (decision.pid, decision.address, &model.page) {
        (Some(pid), Some(address), Some((of, at, said))) if (pid, address) == (*of, *at) => {
            said.join(" ")
        }
        (Some(_), Some(_), _) => "looking".to_owned(),
        _ => "only root is told more of a page: `pghot explain PID ADDRESS`".to_owned(),
    };
    facts.push(("now", now));
    let mut lines = Vec::new();
    for (name, text) in facts {
        for (index, text) in wrap(look, &text, width.saturating_sub(10), 6)
            .into_iter()
            .enumerate()
        {
            let name = if index == 0 { name } else { "" };
            lines.push(line(
                look,
                [(Role::Faint, format!("{name:<10}")), (Role::Plain, text)],
            ));
        }
    }
    lines
}
