//! The table of metrics: what each is, and how it is read from a status.
//!
//! A counter starts at 0 with the daemon and never goes back while it runs. Labels are bounded:
//! nodes, sources, tunables, words that `status` and `explain` use too, the newest generation of
//! the configuration, and the cgroups that the engine counts apart, of which there are at most
//! [`pghot_engine::owners::CGROUPS_MAX`].

use std::borrow::Cow;

use pghot_engine::Outcome;
use pghot_engine::demoter::Doing;

use super::metric::{Kind, Metric, Value, counter, gauge, label, metric, name, seconds};
use crate::status::SourceState;

/// How a source can be, with the words of `status --json`.
const STATES: [(SourceState, &str); 4] = [
    (SourceState::Running, "running"),
    (SourceState::StandingBy, "standing_by"),
    (SourceState::Disabled, "disabled"),
    (SourceState::Unavailable, "unavailable"),
];

/// How demotion can be, with the words of the metric.
const DEMOTION: [(Doing, &str); 5] = [
    (Doing::Unable, "unable"),
    (Doing::NotNeeded, "not_needed"),
    (Doing::Resting, "resting"),
    (Doing::Looking, "looking"),
    (Doing::Exchanging, "exchanging"),
];

const NID: &[&str] = &["nid"];
const SOURCE: &[&str] = &["source"];
const CGROUP: &[&str] = &["cgroup"];

/// Every metric, in the order in which they are printed.
pub const METRICS: &[Metric] = &[
    // --- The lower tier ---
    counter(
        ("pghot_promoted_pages", "pages"),
        NID,
        "Base pages promoted, by the node that they left.",
        |status, to| to.lower(status, |node| node.totals.outcomes.get(Outcome::Moved)),
    ),
    counter(
        ("pghot_outcomes", ""),
        &["nid", "outcome"],
        "Base pages by how an attempt to promote them ended.",
        |status, to| {
            for node in &status.lower_tier {
                for (outcome, pages) in node.totals.outcomes.iter() {
                    let labels = vec![label(node.nid), outcome.name().into()];
                    to.add(labels, Value::Whole(pages));
                }
            }
        },
    ),
    gauge(
        ("pghot_held_pages", "pages"),
        &["nid", "reason"],
        "Ready base pages that wait after the newest pass, by the reason.",
        |status, to| to.held(status),
    ),
    gauge(
        ("pghot_ready_pages", "pages"),
        NID,
        "Ready base pages that the newest pass saw.",
        |status, to| to.lower(status, |node| node.last_pass.ready),
    ),
    counter(
        ("pghot_returned_pages", "pages"),
        NID,
        "Base pages that were hot in the lower tier soon after they had been promoted.",
        |status, to| to.lower(status, |node| node.totals.returned_pages),
    ),
    counter(
        ("pghot_expired_pages", "pages"),
        NID,
        "Records that left the window: pages that were not touched again.",
        |status, to| to.lower(status, |node| node.totals.expired),
    ),
    counter(
        ("pghot_expired_ready_pages", "pages"),
        NID,
        "Of those, pages that were ready and went cold before they could move.",
        |status, to| to.lower(status, |node| node.totals.expired_ready),
    ),
    counter(
        ("pghot_large_folios_moved", ""),
        NID,
        "Large folios promoted, each counted once.",
        |status, to| to.lower(status, |node| node.totals.large_folios_moved),
    ),
    counter(
        ("pghot_batches", ""),
        NID,
        "Batches of pages handed to the kernel.",
        |status, to| to.lower(status, |node| node.totals.batches),
    ),
    counter(
        ("pghot_passes", ""),
        NID,
        "Passes of the migrator over the node; they go on while nothing moves.",
        |status, to| to.lower(status, |node| node.totals.passes),
    ),
    metric(
        Kind::Histogram,
        ("pghot_pass_duration_seconds", "seconds"),
        NID,
        "How long passes took.",
        |status, to| to.durations(status, |node| &node.pass_durations),
    ),
    metric(
        Kind::Histogram,
        ("pghot_batch_duration_seconds", "seconds"),
        NID,
        "How long the kernel took for batches.",
        |status, to| to.durations(status, |node| &node.batch_durations),
    ),
    gauge(
        ("pghot_node_absent", ""),
        NID,
        "1 if the node is offline or not in the lower tier any more, else 0.",
        |status, to| to.lower(status, |node| node.last_pass.node_absent.into()),
    ),
    gauge(
        ("pghot_tracked_pages", "pages"),
        NID,
        "Base pages of the node that have a record.",
        |status, to| to.lower(status, |node| node.pages),
    ),
    gauge(
        ("pghot_live_sections", "sections"),
        NID,
        "Sections of 32768 pages with records of recent accesses.",
        |status, to| to.lower(status, |node| node.live_sections),
    ),
    gauge(
        ("pghot_hot_sections", "sections"),
        NID,
        "Of those, sections with ready pages.",
        |status, to| to.lower(status, |node| node.hot_sections),
    ),
    metric(
        Kind::Histogram,
        ("pghot_ready_to_moved_seconds", "seconds"),
        &[],
        "How long sampled pages waited from ready to moved; one page in 64 is sampled.",
        |status, to| to.add(Vec::new(), Value::Counts((&status.latency).into())),
    ),
    // --- The top tier ---
    gauge(
        ("pghot_room_pages", "pages"),
        NID,
        "Base pages that a top-tier node takes and still stays above its high watermark.",
        |status, to| to.top(status, |node| node.room_pages),
    ),
    gauge(
        ("pghot_free_space_shortcut", ""),
        NID,
        "1 if a top-tier node has so much free memory that the kernel promotes by itself, else 0.",
        |status, to| to.top(status, |node| node.free_space_shortcut.into()),
    ),
    counter(
        ("pghot_demoted_pages", "pages"),
        &[],
        "Base pages that pghot had the kernel demote, to make room.",
        |status, to| to.whole(status.demoter.demoted_pages),
    ),
    counter(
        ("pghot_huge_promoted_pages", "pages"),
        &[],
        "Base pages promoted as parts of huge pages that changed places with others by name.",
        |status, to| to.whole(status.demoter.huge_promoted_pages),
    ),
    gauge(
        ("pghot_demotion_state", ""),
        &["state"],
        "1 for what demotion does now, 0 for the other states.",
        |status, to| {
            let now = status.demoter.doing();
            for (doing, word) in DEMOTION {
                to.add(vec![word.into()], Value::Whole((doing == now).into()));
            }
        },
    ),
    counter(
        ("pghot_agings", ""),
        &[],
        "Times that the kernel was asked to age the pages of the top tier.",
        |status, to| to.whole(status.demoter.agings),
    ),
    // --- Cgroups ---
    counter(
        ("pghot_cgroup_outcomes", ""),
        &["cgroup", "outcome"],
        "Base pages by cgroup and by how an attempt to promote them ended; outcomes that were \
         never met are left out.",
        |status, to| {
            for cgroup in status.cgroups.iter().map(|cgroup| &cgroup.moves) {
                let moved = (Outcome::Moved.name(), cgroup.promoted_pages);
                let others = cgroup
                    .not_moved
                    .iter()
                    .map(|(name, pages)| (&name[..], *pages));
                for (outcome, pages) in std::iter::once(moved).chain(others) {
                    let labels = vec![cgroup.name.clone().into(), outcome.to_owned().into()];
                    to.add(labels, Value::Whole(pages));
                }
            }
        },
    ),
    counter(
        ("pghot_cgroup_demoted_pages", "pages"),
        CGROUP,
        "Base pages of a cgroup that pghot had the kernel demote.",
        |status, to| to.cgroups(status, |cgroup| cgroup.moves.demoted_pages),
    ),
    gauge(
        ("pghot_cgroup_ready_pages", "pages"),
        CGROUP,
        "Base pages of a cgroup that are hot and wait in the lower tier, estimated from a sample.",
        |status, to| to.cgroups(status, |cgroup| Some(cgroup.moves.ready_pages)),
    ),
    gauge(
        ("pghot_cgroup_memory_bytes", "bytes"),
        &["cgroup", "tier"],
        "Anonymous memory and page cache of a cgroup by tier, top or lower, without that of \
         cgroups below it.",
        |status, to| to.tiers(status),
    ),
    gauge(
        ("pghot_cgroup_share_bytes", "bytes"),
        CGROUP,
        "What a cgroup's weight gives it of the top tier; none where no policy sets a weight.",
        |status, to| to.cgroups(status, |cgroup| cgroup.share_bytes),
    ),
    gauge(
        ("pghot_cgroup_limit_bytes", "bytes"),
        CGROUP,
        "The most memory that a cgroup may have, memory.max; none where it has no limit.",
        |status, to| to.cgroups(status, |cgroup| cgroup.limit_bytes),
    ),
    // --- Sources ---
    gauge(
        ("pghot_source_state", ""),
        &["source", "state"],
        "1 for the state that a hotness source is in, 0 for the others.",
        |status, to| {
            for source in &status.sources {
                for (state, word) in STATES {
                    let is_in = (source.state == state).into();
                    to.add(vec![name(source), word.into()], Value::Whole(is_in));
                }
            }
        },
    ),
    counter(
        ("pghot_hint_faults", ""),
        &["until_ms"],
        "Hint faults by how soon they came after their marks: within 8 ms, else within 16, and so \
         on, or later; those in bursts as half a second at least; none where pghot does not tell \
         the kernel what to mark.",
        |status, to| to.fault_times(status),
    ),
    counter(
        ("pghot_source_recorded_accesses", "accesses"),
        SOURCE,
        "Accesses that a source put into records.",
        |status, to| to.reports(status, |stats| stats.recorded),
    ),
    counter(
        ("pghot_source_recorded_pages", "pages"),
        SOURCE,
        "Base pages of those accesses: a large folio counts by its pages.",
        |status, to| to.reports(status, |stats| stats.recorded_pages),
    ),
    counter(
        ("pghot_source_became_ready", ""),
        SOURCE,
        "Of the accesses, those that made a page ready.",
        |status, to| to.reports(status, |stats| stats.became_ready),
    ),
    counter(
        ("pghot_source_lost_reports", "reports"),
        SOURCE,
        "Reports that lost 64 races in a row; should stay 0.",
        |status, to| to.reports(status, |stats| stats.lost),
    ),
    counter(
        ("pghot_source_not_tracked_accesses", "accesses"),
        SOURCE,
        "Accesses to pages outside the lower tier.",
        |status, to| to.reports(status, |stats| stats.not_tracked),
    ),
    counter(
        ("pghot_source_unreadable_accesses", "accesses"),
        SOURCE,
        "Accesses whose page the source could not tell; should stay 0.",
        |status, to| to.reports(status, |stats| stats.unreadable),
    ),
    counter(
        ("pghot_source_cpu_seconds", "seconds"),
        SOURCE,
        "CPU time of a source's thread.",
        |status, to| to.costs(status, |cost| seconds(cost.thread_cpu_ns)),
    ),
    counter(
        ("pghot_source_bpf_seconds", "seconds"),
        SOURCE,
        "Time in a source's BPF programs, counted while kernel.bpf_stats_enabled is 1.",
        |status, to| to.costs(status, |cost| seconds(cost.bpf_ns)),
    ),
    counter(
        ("pghot_source_bpf_runs", ""),
        SOURCE,
        "Runs of a source's BPF programs, counted while kernel.bpf_stats_enabled is 1.",
        |status, to| to.costs(status, |cost| Value::Whole(cost.bpf_runs)),
    ),
    // --- The kernel ---
    counter(
        ("pghot_vmstat_growth", ""),
        &["counter"],
        "Growth of counters of /proc/vmstat since the daemon started; those the kernel has.",
        |status, to| {
            for (counter, growth) in &status.vmstat_growth {
                if let Some(growth) = growth {
                    to.add(vec![counter.clone().into()], Value::Whole(*growth));
                }
            }
        },
    ),
    // --- The daemon ---
    gauge(
        ("pghot_build_info", ""),
        &["version", "kernel", "mode"],
        "Always 1; the labels say what runs.",
        |status, to| {
            let or_unknown = |text: &str| match text {
                "" => Cow::from("unknown"),
                text => text.to_owned().into(),
            };
            let labels = [&status.version, &status.kernel, &status.mode];
            to.add(labels.map(|text| or_unknown(text)).into(), Value::Whole(1));
        },
    ),
    gauge(
        ("pghot_start_time_seconds", "seconds"),
        &[],
        "When the daemon started, in Unix time; its counters started at 0 then.",
        |status, to| to.real(status.started_unix_s),
    ),
    gauge(
        ("pghot_dry_run", ""),
        &[],
        "1 if nothing is moved, else 0.",
        |status, to| to.whole(status.dry_run.into()),
    ),
    gauge(
        ("pghot_config_generation", ""),
        &[],
        "Changes of tunables that were accepted since the daemon started.",
        |status, to| to.whole(status.config_generation),
    ),
    gauge(
        ("pghot_config_info", ""),
        &["generation"],
        "Always 1; the label is pghot_config_generation, for joins with other series.",
        |status, to| to.add(vec![label(status.config_generation)], Value::Whole(1)),
    ),
    counter(
        ("pghot_config_reloads", ""),
        &["result"],
        "Times that the config file was read again and taken over, or refused since it is wrong.",
        |status, to| {
            let reload = status.reload.as_ref();
            let (all, refused) = reload.map_or((0, 0), |it| (it.count, it.refused));
            for (result, times) in [("ok", all - refused), ("refused", refused)] {
                to.add(vec![result.into()], Value::Whole(times));
            }
        },
    ),
    gauge(
        ("pghot_setting", ""),
        &["name"],
        "Tunables in force, in their own units; none where the machine decides.",
        |status, to| {
            for (name, setting) in &status.settings {
                if let Some(value) = setting.value {
                    to.add(vec![name.clone().into()], Value::Whole(value));
                }
            }
        },
    ),
    counter(
        ("pghot_recorded_profiles", "profiles"),
        &[],
        "Access profiles that were recorded and kept; none where `record_file` asks for none.",
        |status, to| to.recording(status, |recording| recording.profiles),
    ),
    gauge(
        ("pghot_recording_failed", ""),
        &[],
        "1 if the newest access profile could not be recorded or kept, else 0; none where \
         `record_file` asks for none.",
        |status, to| to.recording(status, |recording| recording.error.is_some().into()),
    ),
    gauge(
        ("pghot_warnings", ""),
        &[],
        "Warnings that `pghot status` shows.",
        |status, to| to.whole(status.warnings.len() as u64),
    ),
    counter(
        ("pghot_lost_log_lines", "lines"),
        &[],
        "Lines of the log that its reader was too slow for.",
        |status, to| to.whole(status.lost.log_lines),
    ),
    counter(
        ("pghot_lost_spans", "spans"),
        &[],
        "Spans of traces that the collector did not take.",
        |status, to| to.whole(status.lost.spans),
    ),
    counter(
        ("pghot_cpu_seconds", "seconds"),
        &[],
        "CPU time of the daemon.",
        |status, to| to.real(status.cpu_s),
    ),
    counter(
        ("pghot_moving_cpu_seconds", "seconds"),
        &[],
        "The part of it in calls that move pages.",
        |status, to| to.real(status.moving_cpu_s),
    ),
    gauge(
        ("pghot_records_bytes", "bytes"),
        &[],
        "Memory of the hotness records.",
        |status, to| to.whole(status.records_bytes),
    ),
    gauge(
        ("pghot_section_marks_bytes", "bytes"),
        &[],
        "Memory of the section marks.",
        |status, to| to.whole(status.section_marks_bytes),
    ),
];

#[cfg(test)]
mod tests {
    use pghot_engine::Held;

    use super::*;

    /// The words of labels are those of `status --json`.
    #[test]
    fn reasons_are_named_as_in_reports() {
        let word = |value| serde_json::to_string(&value).unwrap();
        for held in Held::ALL {
            assert_eq!(word(held), format!("\"{}\"", held.name()));
        }
        for (state, name) in STATES {
            let word = serde_json::to_string(&state).unwrap();
            assert_eq!(word, format!("\"{name}\""));
        }
    }

    #[test]
    fn a_unit_ends_the_name() {
        for metric in METRICS {
            assert!(metric.name.starts_with("pghot_"), "{}", metric.name);
            assert!(metric.name.ends_with(metric.unit), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(!metric.name.ends_with("_total"), "it is added");
        }
    }
}
