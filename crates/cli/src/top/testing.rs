//! For tests: a daemon's status at any time of its life, and a model with all of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pghot_daemon::owners::{OwnerMoves, OwnerRow};
use pghot_daemon::protocol::DecisionReport;
use pghot_daemon::status::{LowerNode, PastRuns, SourceReport, SourceState, Status, TopNode};
use pghot_engine::demoter::DemoterReport;
use pghot_engine::marking::MarkingReport;
use pghot_engine::{Held, Outcome};
use pghot_linux::groups::{Group, GroupDetail};
use pghot_linux::processes::Process;
use pghot_sources::{SourceCost, SourceStats};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::look::Look;
use super::model::Model;
use super::nodes::NodeMemory;
use super::watch::{Found, Seen};

/// Everything that a terminal can show.
pub const LOOK: Look = Look {
    utf8: true,
    colour: true,
};

/// A control group with letters beyond ASCII, two of them of two columns.
pub const WIDE: &str = "/日本é";

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A key without others held down.
pub fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// A daemon that has just started.
pub fn status() -> Status {
    status_at(1.0)
}

/// A daemon that has been up for so long, in s, and does the same in every second.
pub fn status_at(up_s: f64) -> Status {
    let times = |per_s: u64| (per_s as f64 * up_s) as u64;
    let mut lower = LowerNode {
        nid: 2,
        pages: (512 * GIB) >> 12,
        live_sections: 900,
        hot_sections: 12,
        why: vec![format!(
            "ready and waiting: 4200 pages, because {}",
            Held::NoRoom.named()
        )],
        ..LowerNode::default()
    };
    lower.totals.outcomes.add(Outcome::Moved, times(1200));
    lower.totals.outcomes.add(Outcome::Busy, times(2));
    lower.totals.outcomes.add(Outcome::NotFound, 17);
    lower.last_pass.ready = 4321;
    lower.last_pass.moved_pages = 121;
    lower.last_pass.held.insert(Held::NoRoom, 4200);
    let top = |nid, room_pages| TopNode {
        nid,
        room_pages,
        free_space_shortcut: false,
    };
    let room = "the top tier has room for what waits: nothing is demoted";
    Status {
        version: "0.1.0".into(),
        kernel: "6.12.95+deb13-amd64".into(),
        uptime_s: up_s,
        now_ms: 1_000_000 + (up_s * 1000.0) as u64,
        mode: "default".into(),
        lower_tier: vec![lower],
        top_tier: vec![top(0, 800), top(1, 0)],
        demoter: DemoterReport {
            demoted_pages: times(250),
            touched_ms: 16,
            idle_ms: 32_000,
            is_proven: true,
            is_wanted: true,
            rate_mbps: 128,
            changes: [(990_000, room.into()), (995_000, "now".into())].into(),
            ..DemoterReport::default()
        },
        cgroups: vec![
            group("/system.slice/redis.service", 2048, times(10)),
            group("/user.slice/session-1.scope", 1024, times(990)),
        ],
        processes: vec![process(4242, "redis-server", 2048, times(10))],
        sources: sources(times),
        marking: Some(MarkingReport {
            size_mb: 16,
            faults_per_s: 2500,
            budget_per_s: 8192,
            pays: true,
            ..MarkingReport::default()
        }),
        cpu_s: 0.034 * up_s,
        vmstat_growth: [
            ("pgpromote_success", Some(0)),
            ("pgdemote_kswapd", Some(times(50))),
            ("pgdemote_proactive", Some(times(250))),
            ("pgdemote_direct", None),
        ]
        .map(|(name, grown)| (name.to_owned(), grown))
        .into(),
        ..Status::default()
    }
}

fn process(pid: u32, name: &str, ready_pages: u64, promoted_pages: u64) -> OwnerMoves {
    OwnerMoves {
        pid: Some(pid),
        ..owner(name, ready_pages, promoted_pages)
    }
}

fn group(name: &str, ready_pages: u64, promoted_pages: u64) -> OwnerRow {
    OwnerRow {
        moves: owner(name, ready_pages, promoted_pages),
        share_bytes: Some(12 << 30),
        limit_bytes: Some(48 << 30),
        ..OwnerRow::default()
    }
}

fn owner(name: &str, ready_pages: u64, promoted_pages: u64) -> OwnerMoves {
    OwnerMoves {
        name: name.into(),
        ready_pages,
        promoted_pages,
        demoted_pages: Some(0),
        not_moved: [("busy".to_owned(), 3), ("excluded".to_owned(), 1009)].into(),
        ..OwnerMoves::default()
    }
}

fn sources(times: impl Fn(u64) -> u64) -> Vec<SourceReport> {
    let source = |name: &str, state, recorded: Option<u64>, cpu_ns: u64| SourceReport {
        name: name.into(),
        state,
        why: None,
        stats: recorded.map(|recorded| SourceStats {
            recorded: times(recorded),
            became_ready: times(recorded / 2),
            ..SourceStats::default()
        }),
        cost: recorded.map(|_| SourceCost {
            thread_cpu_ns: times(cpu_ns),
            ..SourceCost::default()
        }),
        past: PastRuns::default(),
        details: BTreeMap::new(),
    };
    let mut unavailable = source("hw_sample", SourceState::Unavailable, None, 0);
    unavailable.why = Some("this CPU has no event that samples loads".into());
    vec![
        source("hint_fault", SourceState::Running, Some(2500), 0),
        source("pgtscan", SourceState::Running, Some(31_400), 21_000_000),
        source("mglru", SourceState::StandingBy, Some(0), 1000),
        unavailable,
        source("page_cache", SourceState::Disabled, None, 0),
        source("app_hint", SourceState::Disabled, None, 0),
    ]
}

/// A decision about a page of this process.
pub fn decision(pid: u32, ago_ms: u64, outcome: Outcome) -> DecisionReport {
    DecisionReport {
        ago_ms,
        pfn: Some(7),
        nid: 2,
        target: 0,
        pid: Some(pid),
        file: None,
        address: Some(0x7f5e_1c20_0000),
        pages: 1,
        freq: 2,
        age_ms: 256,
        outcome: outcome.name().into(),
        why: outcome.sentence().into(),
    }
}

fn groups(grown: u64) -> Vec<Group> {
    let group = |path: &str, near: u64, far: u64| Group {
        path: path.into(),
        bytes: [(0, near), (2, far)].into(),
        limit_bytes: None,
    };
    let session = 700 * MIB - 2 * grown;
    vec![
        group("/init.scope", 12 * MIB, 0),
        group("/system.slice/redis.service", GIB, 4 * GIB + grown),
        group("/user.slice/session-1.scope", 300 * MIB, session),
        group(WIDE, 3 * MIB, MIB),
    ]
}

/// Looks in the seconds after one another: so many of them, from the daemon's tenth second on.
pub fn looks(seconds: u64) -> impl Iterator<Item = Seen> {
    let start = Instant::now();
    (0..seconds).map(move |second| {
        let node = |nid, total: u64, free: u64| NodeMemory {
            nid,
            total_bytes: total * GIB,
            free_bytes: free,
        };
        let mut groups = groups(second * 2 * MIB);
        // One has come in the newest second.
        groups.retain(|group| group.path != "/init.scope" || second + 1 == seconds);
        Seen {
            at: start + Duration::from_secs(second),
            status: Ok(status_at(10.0 + second as f64)),
            lower: [2].into(),
            nodes: vec![
                node(0, 128, 4 * GIB),
                node(1, 128, 3 * GIB + 500 * MIB),
                node(2, 512, 190 * GIB),
            ],
            found: Some(Found::Groups(Ok(groups))),
        }
    })
}

/// What is found when all tabs are looked at.
pub fn found() -> Vec<Found> {
    let redis = Process {
        pid: 4242,
        name: "redis-server".into(),
        rss_bytes: 5 * GIB,
        bytes: Some([(0, GIB), (2, 4 * GIB)].into()),
    };
    let huge = Process {
        pid: 99,
        name: "huge".into(),
        rss_bytes: 300 * GIB,
        bytes: None,
    };
    let kinds = [
        ("anon", [(0, GIB), (1, 0), (2, 3 * GIB)]),
        ("file", [(0, 0), (1, 0), (2, GIB)]),
        ("slab", [(0, 0), (1, 0), (2, 0)]),
    ];
    let detail = GroupDetail {
        kinds: kinds
            .map(|(kind, bytes)| (kind.into(), bytes.into()))
            .into(),
        pids: vec![4242],
    };
    let path = "/system.slice/redis.service".to_owned();
    vec![
        Found::Group(path, Some(detail), vec![redis.clone()]),
        Found::Programs(vec![huge, redis]),
        Found::Decisions(Ok(vec![
            decision(4242, 120, Outcome::Moved),
            decision(99, 340, Outcome::Busy),
            decision(4242, 5000, Outcome::NotFound),
        ])),
        Found::Page(
            4242,
            0x7f5e_1c20_0000,
            vec!["The page is in the top tier already.".into()],
        ),
    ]
}

/// All of it after 40 seconds.
pub fn model() -> Model {
    let mut model = Model::default();
    looks(40).for_each(|seen| model.take(seen));
    for found in found() {
        model.find(found, Instant::now());
    }
    model
}
