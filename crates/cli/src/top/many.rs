//! For tests: what a frame costs where there are many control groups.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pghot_linux::groups::{Bytes, Group};
use pghot_linux::thread_cpu;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::{picture, plain};
use super::model::Model;
use super::testing::{LOOK, status_at};
use super::view::View;
use super::watch::{Found, Seen};

/// More than a screen shows.
const FEW: u32 = 100;
const MANY: u32 = 2000;
const FRAMES: u64 = 20;

fn groups(number: u32) -> Found {
    let group = |number: u32| Group {
        path: format!("/kubepods.slice/pod-{number}.slice/container.scope"),
        bytes: Bytes::from([(0, u64::from(number) << 20), (2, 8192)]),
        limit_bytes: None,
    };
    Found::Groups(Ok((0..number).map(group).collect()))
}

/// CPU time of a frame, at its least.
fn frame(number: u32) -> Duration {
    let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
    let (mut model, view) = (Model::default(), View::default());
    let (begin, mut found) = (Instant::now(), Some(groups(number)));
    let mut least = Duration::MAX;
    for second in 1..=FRAMES {
        let before = thread_cpu();
        model.take(Seen {
            at: begin + Duration::from_secs(second),
            status: Ok(status_at(second as f64)),
            lower: BTreeSet::from([2]),
            nodes: Vec::new(),
            found: found.take(),
        });
        let drawn = terminal.draw(|frame| picture(&model, &view, LOOK, frame.buffer_mut()));
        let drawn = plain(drawn.unwrap().buffer);
        least = least.min(thread_cpu() - before);
        let rows = format!("decisions   {number}\n");
        assert!(drawn.contains(&rows), "{drawn}");
    }
    println!("a frame of {number} cgroups takes {} us", least.as_micros());
    least
}

/// Looking at them has its budget; what is left is to draw those that are on the screen. Twice a
/// frame of few, because all must be sorted: as a ratio, since machines differ.
#[test]
fn many_cgroups_cost_little_more_than_few() {
    assert!(frame(MANY) < 3 * frame(FEW));
}
