//! Composes what `pghot status` tells, on request, from what the threads publish: nothing is
//! computed while nobody asks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pghot_engine::{Held, PassReport, Settings, Tunable};
use pghot_linux::host::monotonic;
use pghot_linux::rights;
use pghot_linux::topology::{Node, Topology};
use pghot_linux::vmstat::{Counter, Vmstat};
use pghot_linux::watermarks::Watermarks;
use pghot_linux::{SysRoot, process_cpu};
use pghot_sources::tunables;

use crate::compose_owners;
use crate::config::{Told, mode_name};
use crate::lock;
use crate::log;
use crate::owners;
use crate::shared::{MigratorState, Shared};
use crate::status::{
    Lost, LowerNode, RecordingReport, ReloadReport, SCHEMA, SettingReport, SourceState, Status,
    TopNode,
};

/// Composes the status now. What cannot be read becomes a warning.
pub fn status(shared: &Shared) -> Status {
    let settings = shared.settings();
    let mut warnings = Vec::new();
    let sources = lock(&shared.sources).report();
    let is_seeing = sources.iter().any(|s| s.state == SourceState::Running);
    if !is_seeing {
        warnings.push("no hotness source runs, so pghot sees no access".to_owned());
    }
    if rights::lacks_user() {
        warnings.push(format!("pghot runs as root: {}", rights::LACKS_USER));
    }
    let top_tier = top_tier(shared, &mut warnings);
    let vmstat_growth = vmstat_growth(shared, &mut warnings);
    if let Some(Some(pages)) = vmstat_growth.get(Counter::PgpromoteSuccess.name())
        && *pages > 0
    {
        warnings.push(kernel_promotion(*pages, shared.dry_run, &top_tier));
    }
    let lost = Lost {
        log_lines: log::lines_lost(),
        spans: shared.spans.lost(),
    };
    warnings.extend(lost.sentences());
    let recording = lock(&shared.recording).clone();
    warnings.extend(recording.iter().filter_map(RecordingReport::warning));
    let reload = shared.config_file.last();
    warnings.extend(reload.iter().flat_map(ReloadReport::warnings));
    let (records_bytes, section_marks_bytes) = shared.table.bytes();
    let books = shared.owners.copy();
    let lower = |migrator| lower_node(shared, &settings, migrator, is_seeing);
    Status {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel_release(&shared.root),
        uptime_s: shared.started.elapsed().as_secs_f64(),
        started_unix_s: shared.started_unix.as_millis() as f64 / 1000.0,
        config_generation: shared.config_generation.load(Ordering::Relaxed),
        now_ms: monotonic().as_millis() as u64,
        mode: mode_name(settings.mode).to_owned(),
        dry_run: shared.dry_run,
        settings: setting_reports(&settings, &shared.config_file.told),
        lower_tier: shared.migrators.iter().map(lower).collect(),
        top_tier,
        demoter: lock(&shared.demoter.published).clone(),
        cgroups: compose_owners::counted_apart(shared, &books),
        processes: owners::processes(&books),
        sources,
        marking: *lock(&shared.demoter.marking),
        recording,
        latency: lock(&shared.latency).report(),
        cpu_s: process_cpu().as_secs_f64(),
        moving_cpu_s: shared.moving.spent().as_secs_f64(),
        records_bytes,
        section_marks_bytes,
        vmstat_growth,
        lost,
        config_file: shared.config_file.path.display().to_string(),
        reload,
        warnings,
    }
}

/// `uname -r`.
pub fn kernel_release(root: &SysRoot) -> String {
    let text = std::fs::read_to_string(root.sysctl("kernel.osrelease"));
    text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn setting_reports(settings: &Settings, told: &Told) -> BTreeMap<String, SettingReport> {
    let report = |tunable: &Tunable| {
        let report = SettingReport {
            value: tunable.number(settings),
            unit: tunable.unit.to_owned(),
            has_flag: told.has_flag(tunable.name),
        };
        (tunable.name.to_owned(), report)
    };
    tunables::all().map(report).collect()
}

fn lower_node(
    shared: &Shared,
    settings: &Settings,
    migrator: &MigratorState,
    is_seeing: bool,
) -> LowerNode {
    let nid = migrator.nid;
    let published = lock(&migrator.published).clone();
    let (live_sections, hot_sections) = shared.table.live_sections(nid);
    let ranges = shared.table.span().ranges();
    let of_node = ranges.filter(|(range, _)| range.nid == nid);
    LowerNode {
        nid,
        pages: of_node.map(|(range, _)| range.end - range.start).sum(),
        live_sections,
        hot_sections,
        totals: published.totals,
        why: why(&published.last_pass, settings, shared.dry_run, is_seeing),
        last_pass: published.last_pass,
        pass_durations: published.passes,
        batch_durations: published.batches,
    }
}

/// Why pages of a node stay where they are, after its last pass.
fn why(pass: &PassReport, settings: &Settings, dry_run: bool, is_seeing: bool) -> Vec<String> {
    if pass.node_absent {
        return vec!["the node is offline or not in the lower tier any more".into()];
    }
    let mut why = Vec::new();
    if !is_seeing {
        why.push("no hotness source runs, so no access is seen".into());
    }
    if dry_run {
        why.push("this is a dry run: pages are picked but not moved".into());
    }
    if settings.promote_rate_limit_mbps == 0 {
        why.push("promote_rate_limit_MBps is 0, which stops promotion".into());
    }
    if pass.ready == 0 && is_seeing {
        why.push(format!(
            "no page is ready: none was seen {} times within {} ms",
            settings.freq_threshold, settings.freq_window_ms
        ));
    }
    for held in Held::ALL {
        if let Some(pages) = pass.held.get(&held) {
            why.push(format!(
                "ready and waiting: {pages} pages, because {}",
                held.named()
            ));
        }
    }
    why
}

fn top_tier(shared: &Shared, warnings: &mut Vec<String>) -> Vec<TopNode> {
    let (topology, watermarks) =
        match (Topology::read(&shared.root), Watermarks::open(&shared.root)) {
            (Ok(topology), Ok(watermarks)) => (topology, watermarks),
            (Err(error), _) | (_, Err(error)) => {
                warnings.push(error.to_string());
                return Vec::new();
            }
        };
    let node = |node: &Node| TopNode {
        nid: node.nid,
        room_pages: watermarks.room_pages(node.nid, None),
        free_space_shortcut: watermarks.free_space_shortcut(node.nid),
    };
    topology.top_tier_nodes().map(node).collect()
}

fn vmstat_growth(shared: &Shared, warnings: &mut Vec<String>) -> BTreeMap<String, Option<u64>> {
    let now = match Vmstat::read(&shared.root) {
        Ok(now) => now,
        Err(error) => {
            warnings.push(error.to_string());
            return BTreeMap::new();
        }
    };
    let growth = |counter: &Counter| {
        let start = shared.vmstat_at_start.as_ref();
        let growth = start.and_then(|start| now.growth_since(start, *counter));
        (counter.name().to_owned(), growth)
    };
    Counter::ALL.iter().map(growth).collect()
}

/// Why the kernel promotes although pghot runs.
fn kernel_promotion(pages: u64, dry_run: bool, top_tier: &[TopNode]) -> String {
    let why = if dry_run {
        "a dry run leaves the promotion of a kernel that promoted before as it is"
    } else if top_tier.iter().any(|node| node.free_space_shortcut) {
        "a top-tier node has so much free memory that it does so at the first hint fault, \
         whatever its limits; pghot takes over when the node fills"
    } else {
        "a top-tier node had much free memory for a while, or somebody changed \
         kernel.numa_balancing_promote_rate_limit_MBps"
    };
    format!("the kernel has promoted {pages} pages by itself since pghot started: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pghot_hotness::Format;

    fn pass(ready: u64, held: &[(Held, u64)]) -> PassReport {
        PassReport {
            ready,
            held: held.iter().map(|(held, pages)| (*held, *pages)).collect(),
            ..PassReport::default()
        }
    }

    #[test]
    fn it_says_why_nothing_moves() {
        let settings = Settings::new(Format::Default);
        let quiet = why(&pass(0, &[]), &settings, false, true);
        assert_eq!(
            quiet,
            ["no page is ready: none was seen 2 times within 3000 ms"]
        );
        let held = [(Held::NoRoom, 30), (Held::RateLimit, 12)];
        let waiting = why(&pass(42, &held), &settings, false, true);
        assert_eq!(
            waiting,
            [
                "ready and waiting: 12 pages, because promote_rate_limit_MBps is used up for now \
                 (rate_limit)",
                "ready and waiting: 30 pages, because the target node has no free memory above \
                 its high watermark (no_room)",
            ]
        );
        assert!(why(&pass(42, &[]), &settings, false, true).is_empty());
        for held in Held::ALL {
            let said = &why(&pass(1, &[(held, 1)]), &settings, false, true)[0];
            assert!(said.ends_with(&held.named()), "{said}");
        }

        let mut stopped = settings.clone();
        stopped.promote_rate_limit_mbps = 0;
        let all = why(&pass(0, &[]), &stopped, true, false).join("\n");
        for part in [
            "no hotness source",
            "dry run",
            "promote_rate_limit_MBps is 0",
        ] {
            assert!(all.contains(part), "{all}");
        }
        let absent = PassReport {
            node_absent: true,
            ..pass(0, &[])
        };
        assert!(why(&absent, &settings, false, true)[0].contains("offline"));
    }

    #[test]
    fn kernel_promotion_is_explained() {
        let top = |free_space_shortcut| {
            [TopNode {
                nid: 0,
                room_pages: 1,
                free_space_shortcut,
            }]
        };
        assert!(kernel_promotion(5, true, &top(true)).contains("dry run"));
        assert!(kernel_promotion(5, false, &top(true)).contains("first hint fault"));
        assert!(kernel_promotion(5, false, &top(false)).contains("changed"));
    }
}
