//! What `pghot status` prints: first what is wrong, then what happens, then how it is set.

use std::fmt::Write;

use pghot_daemon::status::{Change, LowerNode, SourceReport, SourceState, Status, TopNode};
use pghot_engine::Outcome;
use pghot_sources::tunables;

use crate::units::{bytes, count, nanoseconds, pages, seconds};

/// The whole status.
pub fn text(status: &Status) -> String {
    let mut text = format!(
        "pghot {} on Linux {}, {} mode, up {}{}\n",
        status.version,
        status.kernel,
        status.mode,
        seconds(status.uptime_s),
        if status.dry_run {
            ", DRY RUN: nothing is moved"
        } else {
            ""
        }
    );
    for warning in &status.warnings {
        let _ = writeln!(text, "\nWARNING: {warning}");
    }
    text.push_str("\nLower tier\n");
    for node in &status.lower_tier {
        lower_node(&mut text, node, status.now_ms);
    }
    text.push_str("\nTop tier\n");
    for node in &status.top_tier {
        top_node(&mut text, node);
    }
    let demoter = &status.demoter;
    let demoted = format!("{} made room", pages(demoter.demoted_pages));
    let _ = writeln!(text, "  demoted: {demoted}; {}", demoter.sentence());
    if demoter.huge_promoted_pages > 0 {
        let came = pages(demoter.huge_promoted_pages);
        let _ = writeln!(text, "  promoted for huge pages that went down: {came}");
    }
    if let Some(look) = demoter.looks.back().filter(|_| demoter.is_wanted) {
        let _ = writeln!(text, "  last look: {}", look.sentence());
    }
    text.push_str("\nHotness sources\n");
    for report in &status.sources {
        source(&mut text, report);
    }
    if let Some(marking) = status.marking {
        let _ = writeln!(text, "  marking: {}", marking.sentence());
    }
    text.push_str("\nDaemon\n");
    daemon(&mut text, status);
    text.push_str("\nTunables\n");
    for tunable in tunables::all() {
        if let Some(setting) = status.settings.get(tunable.name) {
            let value = tunable.show_number(setting.value);
            let line = format!("{:<24} {value:>6} {}", tunable.name, setting.unit);
            let _ = writeln!(text, "  {}", line.trim_end());
        }
    }
    text
}

fn line(text: &mut String, label: &str, value: &str) {
    let _ = writeln!(text, "    {label:<11} {value}");
}

fn lower_node(text: &mut String, node: &LowerNode, now_ms: u64) {
    let _ = writeln!(text, "  node {}: {}", node.nid, pages(node.pages));
    let sections = format!(
        "{} live, {} of them hot",
        node.live_sections, node.hot_sections
    );
    line(text, "sections", &sections);
    let moved = format!(
        "{} in {} batches",
        pages(node.totals.outcomes.get(Outcome::Moved)),
        count(node.totals.batches)
    );
    line(text, "moved", &moved);
    let others = node
        .totals
        .outcomes
        .iter()
        .filter(|(outcome, n)| *n > 0 && *outcome != Outcome::Moved);
    let others: Vec<String> = others
        .map(|(outcome, n)| format!("{outcome} {}", count(n)))
        .collect();
    if !others.is_empty() {
        line(text, "not moved", &others.join(", "));
    }
    let cold = format!(
        "{} records left the window, {} of them ready",
        count(node.totals.expired),
        count(node.totals.expired_ready)
    );
    line(text, "went cold", &cold);
    let pass = &node.last_pass;
    let last_pass = format!(
        "{} ms ago, took {} ms: {} ready, {} moved",
        now_ms.saturating_sub(pass.started_ms),
        pass.ended_ms.saturating_sub(pass.started_ms),
        count(pass.ready),
        count(pass.moved_pages)
    );
    line(text, "last pass", &last_pass);
    for (index, why) in node.why.iter().enumerate() {
        line(text, if index == 0 { "why" } else { "" }, why);
    }
}

fn top_node(text: &mut String, node: &TopNode) {
    let _ = writeln!(
        text,
        "  node {}: room for {}",
        node.nid,
        pages(node.room_pages)
    );
    if node.free_space_shortcut {
        let shortcut = "so much is free that the kernel promotes here by itself, at the first \
                        hint fault";
        line(text, "note", shortcut);
    }
}

fn source(text: &mut String, report: &SourceReport) {
    let state = match report.state {
        SourceState::Running => "running",
        SourceState::StandingBy => "standing by",
        SourceState::Disabled => "disabled",
        SourceState::Unavailable => "unavailable",
    };
    let why = report
        .why
        .as_ref()
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    let _ = writeln!(text, "  {}: {state}{why}", report.name);
    if let Some(stats) = &report.stats {
        let recorded = format!(
            "{} accesses of {}",
            count(stats.recorded),
            pages(stats.recorded_pages)
        );
        line(text, "recorded", &recorded);
        line(text, "made ready", &count(stats.became_ready));
        let lost = format!(
            "{} lost, {} not in the lower tier, {} unreadable",
            count(stats.lost),
            count(stats.not_tracked),
            count(stats.unreadable)
        );
        line(text, "others", &lost);
    }
    if let Some(cost) = &report.cost {
        let mut costs = Vec::new();
        if cost.thread_cpu_ns > 0 {
            let recorded = report.stats.map_or(0, |stats| stats.recorded);
            let each = cost.thread_cpu_ns.checked_div(recorded);
            let each = each.map_or(String::new(), |each_ns| {
                format!(", {} an access", nanoseconds(each_ns))
            });
            costs.push(format!(
                "{} of CPU time in its thread{each}",
                nanoseconds(cost.thread_cpu_ns)
            ));
        }
        if let Some(each_ns) = cost.bpf_ns.checked_div(cost.bpf_runs) {
            let (runs, each) = (count(cost.bpf_runs), nanoseconds(each_ns));
            costs.push(format!("{runs} BPF runs of {each}"));
        }
        if !costs.is_empty() {
            line(text, "cost", &costs.join(", "));
        }
    }
    let details = report.details.iter();
    let details: Vec<String> = details
        .map(|(name, value)| format!("{name} {}", count(*value)))
        .collect();
    if !details.is_empty() {
        line(text, "details", &details.join(", "));
    }
}

/// The config file, and what came of the last reload; what was wrong is a warning already.
fn config(status: &Status) -> String {
    let Some(reload) = &status.reload else {
        return status.config_file.clone();
    };
    let ago_s = status.now_ms.saturating_sub(reload.at_ms) as f64 / 1000.0;
    let changed: Vec<String> = reload.changed.iter().map(Change::to_string).collect();
    let outcome = match (&reload.error, changed.is_empty()) {
        (Some(_), _) => "refused".to_owned(),
        (None, true) => "no tunable has changed".to_owned(),
        (None, false) => changed.join(", "),
    };
    format!(
        "{}, read again {} ago: {outcome}",
        status.config_file,
        seconds(ago_s)
    )
}

fn daemon(text: &mut String, status: &Status) {
    let share = 100.0 * status.cpu_s / status.uptime_s.max(0.001);
    line(
        text,
        "CPU",
        &format!(
            "{:.2} s, {share:.2} % of one CPU; moving pages took {:.2} s of it",
            status.cpu_s, status.moving_cpu_s
        ),
    );
    let (records, marks) = (status.records_bytes, status.section_marks_bytes);
    line(
        text,
        "memory",
        &format!("{} of records, {} of marks", bytes(records), bytes(marks)),
    );
    if let Some(recording) = &status.recording {
        let kept = format!(
            "{} profiles kept, the newest in {}; {} looks of the next, the last at {} processes",
            count(recording.profiles),
            recording.file,
            recording.intervals,
            recording.processes
        );
        line(text, "recording", &kept);
    }
    line(text, "config", &config(status));
    let latency = &status.latency;
    let waits = match latency.samples {
        0 => "nothing measured yet".to_owned(),
        samples => format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} pages sampled)",
            latency.p50_ms,
            latency.p99_ms,
            latency.max_ms,
            count(samples)
        ),
    };
    line(text, "ready-moved", &waits);
    let grown = status.vmstat_growth.iter().filter_map(|(name, growth)| {
        let growth = growth.filter(|growth| *growth > 0)?;
        Some(format!("{name} +{}", count(growth)))
    });
    let mut grown: Vec<String> = grown.collect();
    if grown.is_empty() {
        grown.push("no counter has grown".into());
    }
    for (index, grown) in grown.iter().enumerate() {
        line(text, if index == 0 { "vmstat" } else { "" }, grown);
    }
}

#[cfg(test)]
mod tests {
    use pghot_engine::exchange::Look;

    use super::*;

    #[test]
    fn the_last_look_is_shown_while_pages_wait() {
        let mut status = Status::default();
        status.demoter.looks.push_back(Look {
            at_ms: 1,
            touched_ms: 8,
            idle_ms: 16,
            idle_share: 0.0414,
            least_share: 0.0128,
            wanted_pages: 4096,
            went_pages: 1100,
        });
        assert!(!text(&status).contains("last look"));
        status.demoter.is_wanted = true;
        let line = "  last look: 4.1 % of the top tier was idle for 16 ms; to exchange it for \
                    pages touched within 8 ms, more than 1.3 % must be; of 4096 pages that were to \
                    go 1100 went\n";
        assert!(text(&status).contains(line), "{}", text(&status));
    }
}
