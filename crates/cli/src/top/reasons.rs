//! For tests: why a page was not promoted has one name and one sentence, wherever it is told.

use std::fs;
use std::path::Path;

use pghot_daemon::metrics::{Format, render};
use pghot_daemon::status::Status;
use pghot_engine::{Held, Outcome};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::draw::{picture, plain};
use super::model::Model;
use super::testing::{LOOK, decision, model, status};
use super::view::{Opened, Tab, View};

/// The documents' table has a row of this name and sentence.
fn is_documented(name: &str, sentence: &str) -> bool {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = fs::read_to_string(docs).unwrap();
    page.contains(&format!("\n| `{name}` | {sentence} | "))
}

/// Wide enough for the longest sentence.
fn frame(model: &Model, view: &View) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 60));
    picture(model, view, LOOK, &mut buffer);
    plain(&buffer)
}

fn has_sample(status: &Status, metric: &str, label: &str, name: &str) -> bool {
    let sample = format!("\n{metric}{{nid=\"2\",{label}=\"{name}\"}} 7\n");
    render(status, Format::Classic).contains(&sample)
}

#[test]
fn why_a_page_waits_has_one_name() {
    for held in Held::ALL {
        let (name, sentence) = (held.name(), held.sentence());
        assert!(is_documented(name, sentence), "{name}");
        let (mut model, mut status) = (model(), status());
        let lower = &mut status.lower_tier[0];
        lower.last_pass.held = [(held, 7)].into();
        lower.why = vec![format!("7 pages wait, because {}", held.named())];
        assert!(
            has_sample(&status, "pghot_held_pages", "reason", name),
            "{name}"
        );
        model.status = Some(status);
        let drawn = frame(&model, &View::default());
        assert!(drawn.contains(&format!("{sentence} ({name})\n")), "{drawn}");
    }
}

#[test]
fn how_an_attempt_ended_has_one_name() {
    for outcome in Outcome::ALL.iter().copied() {
        let (name, sentence) = (outcome.name(), outcome.sentence());
        assert!(is_documented(name, sentence), "{name}");
        let (mut model, mut status) = (model(), status());
        let lower = &mut status.lower_tier[0];
        lower.totals.outcomes = Default::default();
        lower.totals.outcomes.add(outcome, 7);
        assert!(
            has_sample(&status, "pghot_outcomes_total", "outcome", name),
            "{name}"
        );
        let not_moved = [(name.to_owned(), 7)].into();
        status.cgroups[0].moves.not_moved = not_moved;
        model.status = Some(status);
        model.decisions = Some(Ok(vec![decision(4242, 120, outcome)]));
        let mut view = View {
            tab: Tab::Decisions,
            ..View::default()
        };
        let drawn = frame(&model, &view);
        assert!(drawn.contains(&format!("\n{name} 7")), "{drawn}");
        assert!(drawn.contains(&format!("{sentence} ({name})\n")), "{drawn}");
        view.opened = Some(Opened::Group("/system.slice/redis.service".into()));
        let drawn = frame(&model, &view);
        assert!(
            drawn.contains(&format!("\npages not moved: {name} 7\n")),
            "{drawn}"
        );
    }
}
