//! What `pghot status --html` writes: the status as one page that works offline, for a report or a
//! colleague. In the order of the text: what is wrong, what happens, how it is set.

use maud::{Markup, html};
use pghot_daemon::owners::OwnerRow;
use pghot_daemon::status::{SourceReport, SourceState, Status};
use pghot_engine::Outcome;
use pghot_page::page as framed;
use pghot_sources::tunables;

use crate::units::{bytes, count, nanoseconds, pages, seconds};

/// Cgroups of the table.
const CGROUPS_SHOWN: usize = 20;

/// The whole page.
pub fn page(status: &Status) -> String {
    let body = html! {
        h1 { "pghot " span { "status" } }
        p.lead {
            "pghot " (status.version) " on Linux " (status.kernel) ", " (status.mode)
            " mode, up " (seconds(status.uptime_s))
        }
        @if status.dry_run { p.verdict { "A dry run: nothing is moved." } }
        @for warning in &status.warnings { p.verdict { "Warning: " (warning) } }
        h2 { "Nodes" }
        (nodes(status))
        h2 { "Policy" }
        (policy(status))
        h2 { "Moves " span { "base pages of 4 KiB since the start" } }
        (outcomes(status))
        @if !status.cgroups.is_empty() {
            h2 { "Cgroups " span { "those with the most memory in the lower tier" } }
            (cgroups(status))
        }
        h2 { "Hotness sources " span { "since they started" } }
        (sources(status))
        h2 { "Daemon" }
        (daemon(status))
        h2 { "Tunables" }
        (settings(status))
    };
    framed("pghot status", &body)
}

fn nodes(status: &Status) -> Markup {
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "node" } th { "tier" } th { "room above the high watermark" }
                        th { "ready in the last pass" } th { "memory with records" }
                        th { "live sections" } th { "hot sections" }
                    }
                }
                @for node in &status.top_tier {
                    tr {
                        td { "node " (node.nid) }
                        td { "top" }
                        td { (bytes(node.room_pages << 12)) }
                        td { "-" } td { "-" } td { "-" } td { "-" }
                    }
                }
                @for node in &status.lower_tier {
                    tr {
                        td { "node " (node.nid) }
                        td { "lower" }
                        td { "-" }
                        td { (pages(node.last_pass.ready)) }
                        td { (bytes(node.pages << 12)) }
                        td { (count(node.live_sections)) }
                        td { (count(node.hot_sections)) }
                    }
                }
            }
        }
    }
}

fn policy(status: &Status) -> Markup {
    let shortcut = status
        .top_tier
        .iter()
        .filter(|node| node.free_space_shortcut);
    html! {
        table.words {
            @for node in &status.lower_tier {
                @for why in &node.why { tr { th { "node " (node.nid) } td { (why) } } }
            }
            @for node in shortcut {
                tr {
                    th { "node " (node.nid) }
                    td {
                        "so much is free that the kernel promotes here by itself, at the first \
                         hint fault"
                    }
                }
            }
            tr { th { "room" } td { (status.demoter.sentence()) } }
            @if let Some(marking) = status.marking {
                tr { th { "marking" } td { (marking.sentence()) } }
            }
        }
    }
}

fn outcomes(status: &Status) -> Markup {
    let all = |outcome: Outcome| {
        let nodes = status.lower_tier.iter();
        nodes
            .map(|node| node.totals.outcomes.get(outcome))
            .sum::<u64>()
    };
    let others = Outcome::ALL
        .iter()
        .copied()
        .filter(|outcome| *outcome != Outcome::Moved);
    let expired = |ready: bool| {
        let nodes = status.lower_tier.iter().map(|node| &node.totals);
        let expired = nodes.map(|totals| match ready {
            true => totals.expired_ready,
            false => totals.expired,
        });
        expired.sum::<u64>()
    };
    html! {
        table.words {
            tr { th { "promoted" } td { (pages(all(Outcome::Moved))) } }
            tr { th { "demoted" } td { (pages(status.demoter.demoted_pages)) } }
            @for outcome in others {
                @let number = all(outcome);
                @if number > 0 {
                    tr {
                        th { (outcome) }
                        td { (count(number)) " pages: " (outcome.sentence()) }
                    }
                }
            }
            tr {
                th { "went cold" }
                td {
                    (count(expired(false))) " records left the window, " (count(expired(true)))
                    " of them ready"
                }
            }
        }
    }
}

fn cgroups(status: &Status) -> Markup {
    let mut rows: Vec<&OwnerRow> = status.cgroups.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.lower_bytes, row.moves.ready_pages)));
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "cgroup" } th { "lower tier" } th { "top tier" }
                        th { "share by weight" } th { "limit" } th { "hot below" }
                        th { "promoted" } th { "demoted" }
                    }
                }
                @for row in rows.into_iter().take(CGROUPS_SHOWN) {
                    tr {
                        td { (row.moves.name) }
                        td { (size(row.lower_bytes)) }
                        td { (size(row.top_bytes)) }
                        td { (size(row.share_bytes)) }
                        td { (size(row.limit_bytes)) }
                        td { (bytes(row.moves.ready_pages << 12)) }
                        td { (bytes(row.moves.promoted_pages << 12)) }
                        td { (size(row.moves.demoted_pages.map(|pages| pages << 12))) }
                    }
                }
            }
        }
    }
}

fn sources(status: &Status) -> Markup {
    html! {
        div.scroll {
            table.loose {
                thead {
                    tr {
                        th { "source" } th { "state" } th { "accesses" } th { "made ready" }
                        th { "lost" } th { "CPU time of its thread" } th { "BPF runs" }
                        th { "time of a BPF run" }
                    }
                }
                @for report in &status.sources { (source(report)) }
            }
        }
    }
}

fn source(report: &SourceReport) -> Markup {
    let state = match report.state {
        SourceState::Running => "running",
        SourceState::StandingBy => "standing by",
        SourceState::Disabled => "disabled",
        SourceState::Unavailable => "unavailable",
    };
    let dash = || "-".to_owned();
    let stats = |of: fn(&pghot_sources::SourceStats) -> u64| {
        report
            .stats
            .as_ref()
            .map_or_else(dash, |stats| count(of(stats)))
    };
    let cost = report.cost.as_ref();
    let bpf_ns = cost.and_then(|cost| cost.bpf_ns.checked_div(cost.bpf_runs));
    html! {
        tr {
            td { (report.name) @if let Some(why) = &report.why { small { (why) } } }
            td { (state) }
            td { (stats(|stats| stats.recorded)) }
            td { (stats(|stats| stats.became_ready)) }
            td { (stats(|stats| stats.lost)) }
            td { (cost.map_or_else(dash, |cost| nanoseconds(cost.thread_cpu_ns))) }
            td { (cost.map_or_else(dash, |cost| count(cost.bpf_runs))) }
            td { (bpf_ns.map_or_else(dash, nanoseconds)) }
        }
    }
}

fn daemon(status: &Status) -> Markup {
    let share = 100.0 * status.cpu_s / status.uptime_s.max(0.001);
    let latency = &status.latency;
    let grown = status.vmstat_growth.iter().filter_map(|(name, growth)| {
        let growth = growth.filter(|growth| *growth > 0)?;
        Some((name, growth))
    });
    html! {
        table.words {
            tr {
                th { "CPU time" }
                td {
                    (format!("{:.2} s, {share:.2} % of one CPU", status.cpu_s))
                    "; moving pages took " (format!("{:.2} s", status.moving_cpu_s)) " of it"
                }
            }
            tr {
                th { "memory" }
                td {
                    (bytes(status.records_bytes)) " of records, "
                    (bytes(status.section_marks_bytes)) " of marks"
                }
            }
            tr {
                th { "from ready to moved" }
                td {
                    @if latency.samples == 0 { "nothing measured yet" } @else {
                        (format!(
                            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                            latency.p50_ms, latency.p99_ms, latency.max_ms
                        ))
                        ", of " (count(latency.samples)) " pages sampled"
                    }
                }
            }
            @for (name, growth) in grown {
                tr { th { code { (name) } } td { "+" (count(growth)) " since the start" } }
            }
        }
    }
}

fn settings(status: &Status) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { th { "tunable" } th { "value" } th { "unit" } } }
                @for tunable in tunables::all() {
                    @if let Some(setting) = status.settings.get(tunable.name) {
                        tr {
                            td { code { (tunable.name) } }
                            td { (tunable.show_number(setting.value)) }
                            td { (setting.unit) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    #[test]
    fn the_page_tells_what_the_text_tells() {
        let mut status = testing::status_at(100.0);
        status.warnings.push("mind the <gap>".into());
        let page = page(&status);
        assert_eq!(pghot_page::faults::of(&page), [""; 0]);
        let told = [
            "Warning: mind the &lt;gap&gt;",
            "120,000 pages (468.8 MiB)",
            "200 pages: the kernel found it busy",
            "because the target node has no free memory",
            "4,321 pages (16.9 MiB)</td><td>512 GiB</td>",
            "this CPU has no event that samples loads",
            "nothing measured yet",
            "redis.service</td><td>-</td><td>-</td><td>12 GiB</td><td>48 GiB</td>",
            "pgdemote_kswapd",
        ];
        for part in told {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<gap>"), "{page}");
    }
}
