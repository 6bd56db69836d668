//! Pictures, letter by letter: what each terminal shows is in `frames/`. After a wanted change, run
//! the tests with PGHOT_BLESS=1 and look at the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use super::draw::{picture, plain, text};
use super::film::{play, svg};
use super::look::Look;
use super::model::Model;
use super::table::Table;
use super::testing::{LOOK, WIDE, key, looks, model, status_at};
use super::view::{Opened, Tab, View};
use super::watch::{Found, Seen};

const ASCII: Look = Look {
    utf8: false,
    colour: false,
};

fn draw(model: &Model, view: &View, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| picture(model, view, look, frame.buffer_mut()));
    drawn.unwrap().buffer.clone()
}

/// Compares with the file, or writes it.
fn assert_frame(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/frames");
    let file = folder.join(format!("{name}.txt"));
    if std::env::var_os("PGHOT_BLESS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert!(text == expected, "{name} is:\n{text}\nand was:\n{expected}");
}

fn keys(view: &mut View, model: &Model, codes: &[KeyCode]) {
    for code in codes {
        let table = Table::of(model, view, LOOK);
        view.key(key(*code), &table);
    }
}

#[test]
fn every_terminal_shows_what_fits() {
    let (model, view) = (model(), View::default());
    for (width, height) in [(160, 40), (120, 40), (80, 24), (40, 15), (20, 5)] {
        let drawn = draw(&model, &view, LOOK, width, height);
        assert_frame(&format!("{width}x{height}"), &plain(&drawn));
    }
    let drawn = plain(&draw(&model, &view, ASCII, 80, 24));
    assert!(drawn.is_ascii());
    assert_frame("80x24-ascii", &drawn);
    assert_frame("once", &text(&model, &view, LOOK, 100));
}

#[test]
fn no_size_panics_and_no_line_is_broken_off_in_a_letter() {
    let model = model();
    let mut views = vec![View::default(); 5];
    views[1].tab = Tab::Programs;
    views[2].tab = Tab::Decisions;
    views[3].shows_help = true;
    keys(&mut views[4], &model, &[KeyCode::Enter, KeyCode::PageDown]);
    let empty = Model::default();
    for width in (0..60).chain([80, 133, 300]) {
        for height in (0..30).chain([60, 200]) {
            let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
            for view in &views {
                picture(&model, view, LOOK, &mut buffer);
                picture(&empty, view, ASCII, &mut buffer);
            }
        }
    }
}

#[test]
fn rows_open_and_close() {
    let (model, mut view) = (model(), View::default());
    keys(&mut view, &model, &[KeyCode::Enter]);
    assert_frame("cgroup", &plain(&draw(&model, &view, LOOK, 80, 24)));
    keys(&mut view, &model, &[KeyCode::Esc, KeyCode::Tab]);
    assert_frame("programs", &plain(&draw(&model, &view, LOOK, 80, 24)));
    keys(&mut view, &model, &[KeyCode::Tab]);
    assert_frame("decisions", &plain(&draw(&model, &view, LOOK, 80, 24)));
    keys(&mut view, &model, &[KeyCode::Enter]);
    assert_frame("decision", &plain(&draw(&model, &view, LOOK, 80, 24)));
    keys(&mut view, &model, &[KeyCode::Esc, KeyCode::Char('?')]);
    assert_frame("help", &plain(&draw(&model, &view, LOOK, 80, 24)));
}

#[test]
fn a_cgroup_that_vanishes_while_it_is_open_is_said_to_be_gone() {
    let (mut model, mut view) = (model(), View::default());
    keys(&mut view, &model, &[KeyCode::Enter]);
    let shown = |model: &Model| plain(&draw(model, &view, LOOK, 80, 24));
    let path = "/system.slice/redis.service";
    assert!(shown(&model).contains("4242 redis-server"));
    model.find(Found::Group(path.into(), None, Vec::new()), Instant::now());
    let drawn = shown(&model);
    assert!(drawn.contains(path) && drawn.contains("this cgroup is gone"));
    assert!(!drawn.contains("redis-server"), "{drawn}");
    // The daemon and the list forget it too: the page stays, and Esc leads to the others.
    let others = model.groups.clone().unwrap().unwrap();
    let others = others.into_iter().filter(|group| group.path != path);
    model.find(Found::Groups(Ok(others.collect())), Instant::now());
    model.status.as_mut().unwrap().cgroups.clear();
    assert_eq!(shown(&model), drawn);
    keys(&mut view, &model, &[KeyCode::Esc]);
    let back = plain(&draw(&model, &view, LOOK, 80, 24));
    assert!(
        back.contains("session-1.scope") && !back.contains(path),
        "{back}"
    );
}

/// In every tab and with every row open: names come from strangers, sentences from the daemon.
#[test]
fn a_terminal_without_utf8_gets_ascii_alone() {
    let mut model = model();
    let strange = format!("{WIDE}…µ");
    let programs = model.programs.as_mut().unwrap();
    programs[0].name = strange.clone();
    let Some(Ok(decisions)) = &mut model.decisions else {
        panic!("decisions are known");
    };
    decisions[0].file = Some(strange.clone());
    decisions[0].pid = None;
    let status = model.status.as_mut().unwrap();
    status.warnings.push(strange.clone());
    status.lower_tier[0].why = vec![format!("{strange} within 5 µs")];
    status.sources[3].why = Some(strange.clone());
    let redis = model.group.clone().unwrap();
    let mut views = vec![View::default(); 6];
    (views[1].tab, views[2].tab) = (Tab::Programs, Tab::Decisions);
    views[3].opened = Some(Opened::Group(WIDE.into()));
    model.group = Some((WIDE.into(), redis.1, model.programs.clone().unwrap()));
    keys(
        &mut views[4],
        &model,
        &[KeyCode::Tab, KeyCode::Tab, KeyCode::Enter],
    );
    views[5].filter = strange;
    for (width, view) in [160, 60, 30]
        .into_iter()
        .flat_map(|w| views.iter().map(move |v| (w, v)))
    {
        let drawn = plain(&draw(&model, view, ASCII, width, 60));
        assert!(drawn.is_ascii() && drawn.contains('?'), "{drawn}");
        let drawn = text(&model, view, ASCII, width);
        assert!(drawn.is_ascii(), "{drawn}");
    }
    let drawn = plain(&draw(&model, &views[0], ASCII, 160, 60));
    assert!(
        drawn.contains("  /???\n") && drawn.contains("within 5 us"),
        "{drawn}"
    );
}

#[test]
fn wide_letters_stay_in_their_columns() {
    let mut model = model();
    model.programs.as_mut().unwrap()[1].name = "日本日本日本日本日本日本日本".into();
    let redis = model.group.clone().unwrap();
    model.group = Some((redis.0, redis.1, model.programs.clone().unwrap()));
    let mut view = View::default();
    let whole = plain(&draw(&model, &view, LOOK, 120, 40));
    assert!(whole.contains("  /日本é\n"), "{whole}");
    assert!(text(&model, &view, LOOK, 100).contains("  /日本é\n"));
    keys(&mut view, &model, &[KeyCode::Enter]);
    let drawn = plain(&draw(&model, &view, LOOK, 80, 24));
    let row = drawn.lines().find(|line| line.contains('日')).unwrap();
    let head = drawn
        .lines()
        .find(|line| line.starts_with("PROCESS"))
        .unwrap();
    assert_eq!(
        row.width(),
        head.find("lower").unwrap() + "lower".len(),
        "{drawn}"
    );
    view = View::default();
    view.tab = Tab::Programs;
    for width in 30..90 {
        let drawn = plain(&draw(&model, &view, LOOK, width, 24));
        assert!(
            drawn.lines().all(|line| line.width() <= width.into()),
            "{drawn}"
        );
        assert!(drawn.contains('日'), "{drawn}");
    }
}

fn in_docs(name: &str) -> PathBuf {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    docs.join(name)
}

/// The picture in the README is the recorded session, and that shows what is drawn today: the same
/// headings.
#[test]
fn the_readme_shows_a_recorded_session() {
    let cast = fs::read_to_string(in_docs("images/top.cast")).unwrap();
    let frames = play(&cast);
    assert!(frames.len() > 10, "{}", frames.len());
    let first = plain(&frames[0].0);
    for heading in ["MEMORY", "MOVES", "POLICY", "SOURCE", "OUTCOMES"] {
        assert!(first.contains(heading), "{first}");
    }
    let shown: String = frames.iter().map(|(frame, _)| plain(frame)).collect();
    for opened in ["PROCESS", "DECISION", "it was promoted"] {
        assert!(shown.contains(opened), "no {opened}");
    }
    let drawn = svg(&frames);
    assert!(drawn.len() < 200_000, "{}", drawn.len());
    let file = in_docs("images/top.svg");
    if std::env::var_os("PGHOT_BLESS").is_some() {
        fs::write(&file, &drawn).unwrap();
    }
    assert!(drawn == fs::read_to_string(&file).unwrap_or_default());
}

/// The words of a frame that never change: capitals.
fn headings(text: &str) -> BTreeSet<&str> {
    let is_heading = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(is_heading).collect()
}

/// The frame in the documents was printed by a daemon in a guest; a frame of today has the same
/// blocks and columns.
#[test]
fn the_frame_in_the_documents_is_as_today() {
    let page = fs::read_to_string(in_docs("operations.md")).unwrap();
    let (_, after) = page.split_once("<!-- sample: top -->\n```\n").unwrap();
    let (sample, _) = after.split_once("```\n").unwrap();
    let today = text(&model(), &View::default(), LOOK, 72);
    assert_eq!(headings(sample), headings(&today), "{sample}\n{today}");
}

#[test]
fn the_selected_row_is_reversed_and_stays_in_sight() {
    let (mut model, mut view) = (model(), View::default());
    let Some(Ok(groups)) = &mut model.groups else {
        panic!("groups are known");
    };
    let one = groups[0].clone();
    groups.extend((0..200).map(|n| {
        let mut group = one.clone();
        group.path = format!("/many/{n:03}");
        group
    }));
    keys(&mut view, &model, &[KeyCode::End]);
    let buffer = draw(&model, &view, LOOK, 80, 24);
    let y = plain(&buffer)
        .lines()
        .position(|line| line.contains("/many/199"))
        .unwrap();
    let is_reversed = |x| buffer[(x, y as u16)].modifier.contains(Modifier::REVERSED);
    assert!((0..80).all(is_reversed));
}

fn lost(at: Instant, sentence: &str) -> Seen {
    let seen = looks(1).next().unwrap();
    Seen {
        at,
        status: Err(sentence.into()),
        found: None,
        ..seen
    }
}

#[test]
fn a_dead_daemon_leaves_its_last_picture_faint_and_comes_back() {
    let mut model = Model::default();
    let before: Vec<Seen> = looks(5).collect();
    let end = before[4].at;
    before.into_iter().for_each(|seen| model.take(seen));
    let second = |n| end + Duration::from_secs(n);
    let sentence = "pghot is not running (nobody listens on /run/pghot/pghot.sock): start it with \
                    `pghot run`";
    model.take(lost(second(1), sentence));
    let view = View::default();
    let buffer = draw(&model, &view, LOOK, 80, 24);
    assert_frame("dead", &plain(&buffer));
    let (old, said) = (&buffer[(0, 5)], &buffer[(0, 1)]);
    assert!(old.modifier.contains(Modifier::DIM) && old.fg == Color::Reset);
    assert!(!said.modifier.contains(Modifier::DIM) && said.fg == Color::Red);

    // A new one has begun to count anew, and one second later its rates are known.
    for (n, up_s) in [(2, 0.5), (3, 1.5)] {
        let mut seen = lost(second(n), "");
        seen.status = Ok(status_at(up_s));
        model.take(seen);
        assert_eq!(model.lost, None);
        assert_eq!(model.rates.up, (n == 3).then_some(1200.0));
    }
    let up = model.up.columns(300);
    assert_eq!(
        up,
        [
            None,
            Some(1200.0),
            Some(1200.0),
            Some(1200.0),
            Some(1200.0),
            None,
            None,
            Some(1200.0)
        ]
    );
}

#[test]
fn a_key_makes_no_sample_and_a_gap_is_a_blank() {
    let mut model = Model::default();
    let looks: Vec<Seen> = looks(2).collect();
    let (first, mut second) = (looks[0].clone(), looks[1].clone());
    model.take(first.clone());
    model.take(Seen {
        at: first.at + Duration::from_millis(100),
        found: Some(Found::Programs(Vec::new())),
        ..first.clone()
    });
    assert!(model.programs.is_some());
    assert_eq!(model.up.columns(300).len(), 1);
    second.at = first.at + Duration::from_secs(4);
    model.take(second);
    assert_eq!(
        model.up.columns(300),
        [None, None, None, None, Some(1200.0)]
    );
}

#[test]
fn a_daemon_that_is_late_is_named_until_it_answers() {
    let mut model = Model::default();
    let looks: Vec<Seen> = looks(3).collect();
    model.wait(looks[0].at);
    looks[..2].iter().cloned().for_each(|seen| model.take(seen));
    model.wait(looks[1].at + Duration::from_millis(2900));
    assert_eq!(model.lost, None);
    model.wait(looks[1].at + Duration::from_secs(8));
    assert_eq!(
        model.lost.as_deref(),
        Some("no answer from the daemon for 8 s")
    );
    assert_eq!(model.rates.up, None);
    let mut late = looks[2].clone();
    late.at = looks[1].at + Duration::from_secs(9);
    model.take(late);
    assert_eq!(model.lost, None);
}

#[test]
fn without_a_daemon_there_is_a_sentence_and_the_nodes() {
    let mut model = Model::default();
    model.take(lost(Instant::now(), "pghot is not running"));
    let drawn = plain(&draw(&model, &View::default(), LOOK, 60, 8));
    assert!(
        drawn.contains("! pghot is not running") && drawn.contains("node 2"),
        "{drawn}"
    );
}
