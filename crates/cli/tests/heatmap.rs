//! `pghot heatmap` from outside, of a profile whose hot quarter moves in each phase: first it is in
//! the lower tier, then it has been promoted.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pghot_profile::{Interval, Process, Profile, Touched, file};
use pghot_workloads::plan::Pattern;
use serde_json::Value;
use tempfile::TempDir;

/// Pages of the moving program, and of a quarter.
const PAGES: u32 = 64 * 512;
const QUARTER: u32 = PAGES / 4;

/// Intervals of a phase; four quarters take four phases.
const PHASE: u32 = 10;

/// Where the hot quarter is in each phase.
const ORDER: [u32; 4] = [0, 2, 1, 3];

fn hot(interval: u32) -> Range<u32> {
    let start = ORDER[(interval / PHASE) as usize] * QUARTER;
    start..start + QUARTER
}

/// What the workload's plan accesses in an interval: eight of ten in the hot quarter.
fn touched(interval: u32) -> Touched {
    let pattern = Pattern::Skewed {
        hot: hot(interval),
        hot_percent: 80,
        all: 0..PAGES,
    };
    let pages = pattern.pages(u64::from(interval) + 1).take(8000);
    Touched::of(pages.map(|page| page..page + 1).collect())
}

fn interval(number: u32) -> Interval {
    let touched = touched(number);
    let hot = hot(number);
    let is_promoted = number % PHASE >= PHASE / 2;
    let lower = touched
        .runs()
        .filter(|run| !is_promoted && hot.contains(&run.start));
    let lower = lower.map(|run| run.start..run.end.min(hot.end));
    Interval {
        number,
        cpu_us: 900_000,
        lower: Touched::of(lower.collect()),
        touched,
    }
}

/// The program that moves, beside an idle one.
fn recorded(dir: &TempDir) -> PathBuf {
    let intervals = ORDER.len() as u32 * PHASE;
    let moving = Process {
        name: "moving".into(),
        cgroup: String::new(),
        blocks: PAGES / 512,
        huge_blocks: 0,
        intervals: (0..intervals).map(interval).collect(),
    };
    let idle = Process {
        name: "<idle>".into(),
        cgroup: String::new(),
        blocks: 4,
        huge_blocks: 0,
        intervals: vec![Interval {
            number: 0,
            cpu_us: 0,
            touched: Touched::of(std::iter::once(0..1).collect()),
            lower: Touched::default(),
        }],
    };
    let profile = Profile {
        kernel: "6.12".into(),
        interval_ms: 1000,
        intervals,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![idle, moving],
    };
    let path = dir.path().join("moving.profile");
    fs::write(&path, file::encode(&profile)).unwrap();
    path
}

fn heatmap(profile: &Path, locale: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pghot"));
    command.arg("heatmap").arg(profile).args(arguments);
    command.env("LC_ALL", locale).output().unwrap()
}

fn text(profile: &Path, locale: &str, arguments: &[&str]) -> String {
    let ran = heatmap(profile, locale, arguments);
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The cells of a drawn map, the lowest addresses first.
fn cells(text: &str) -> Vec<Vec<char>> {
    let rows = text.lines().filter_map(|line| line.split_once('|'));
    let mut rows: Vec<Vec<char>> = rows.map(|(_, cells)| cells.chars().collect()).collect();
    rows.reverse();
    rows
}

/// The same, interval by interval.
fn columns(cells: &[Vec<char>]) -> Vec<Vec<char>> {
    let of = |column| cells.iter().map(|row| row[column]).collect();
    (0..cells[0].len()).map(of).collect()
}

/// How bright a letter is, whichever tier it is of.
fn brightness(letter: char) -> usize {
    let of = |letters: &str| letters.find(letter);
    of(".:-=+*o%#").or(of(".12345678")).unwrap()
}

#[test]
fn the_brightest_rows_move_with_the_hot_set() {
    let dir = tempfile::tempdir().unwrap();
    // Four letters of labels and axis; then each interval has a column of its own.
    let text = text(&recorded(&dir), "C", &["--width", "45", "--rows", "16"]);
    let cells = cells(&text);
    assert_eq!((cells.len(), cells[0].len()), (16, 40), "{text}");
    for (interval, column) in columns(&cells).iter().enumerate() {
        let (phase, is_promoted) = (interval / 10, interval % 10 >= 5);
        let mut rows: Vec<usize> = (0..16).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(brightness(column[*row])));
        let mut brightest = rows[..4].to_vec();
        brightest.sort_unstable();
        let first = 4 * ORDER[phase] as usize;
        assert_eq!(
            brightest,
            (first..first + 4).collect::<Vec<_>>(),
            "{interval}\n{text}"
        );
        for row in brightest {
            let is_lower = column[row].is_ascii_digit();
            assert_eq!(is_lower, !is_promoted, "{row} {interval}\n{text}");
        }
        // And they stand out.
        let [hot, cold] = [rows[3], rows[4]].map(|row| brightness(column[row]));
        assert!(hot >= cold + 4, "{interval}\n{text}");
    }
}

/// Its words, but for names and numbers.
fn words(text: &str) -> Vec<&str> {
    let lines = text.lines().skip(1).filter(|line| !line.contains('|'));
    let words = lines.flat_map(str::split_whitespace);
    words
        .filter(|word| word.chars().all(char::is_alphabetic))
        .collect()
}

/// The map in the documents was recorded in a guest; one of today has the same words around it.
#[test]
fn the_map_in_the_documents_is_as_today() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("operations.md")).unwrap();
    let (_, after) = page.split_once("<!-- sample: heatmap -->\n```\n").unwrap();
    let (sample, _) = after.split_once("```\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--width", "48", "--rows", "14", "--program", "moving"];
    let today = text(&recorded(&dir), "C", &flags);
    let unit = |word: &&str| *word != "s";
    let of = |text| words(text).into_iter().filter(unit).collect::<Vec<_>>();
    assert_eq!(of(sample), of(&today), "{sample}\n{today}");
    assert!(words(&today).len() > 15, "{today}");
}

/// Compares with the file, or writes it.
fn assert_frame(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heatmaps");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("PGHOT_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} is:\n{text}\nand was:\n{expected}");
}

#[test]
fn a_map_fits_every_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let profile = recorded(&dir);
    let wide = text(&profile, "C.UTF-8", &["--width", "80", "--rows", "16"]);
    assert_frame("80", &wide);
    assert_frame(
        "80-ascii",
        &text(&profile, "C", &["--width", "80", "--rows", "16"]),
    );
    assert_frame(
        "20",
        &text(&profile, "C", &["--width", "20", "--rows", "8"]),
    );
    for (width, rows) in [(20, 1), (21, 7), (33, 1000), (1000, 3)] {
        let flags = ["--width", &width.to_string(), "--rows", &rows.to_string()];
        for (locale, program) in [("C", "moving"), ("C.UTF-8", "<idle>")] {
            let flags = [&flags[..], &["--program", program]].concat();
            let text = text(&profile, locale, &flags);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {text}");
            assert!(!text.contains("Not shown"), "{text}");
        }
    }
}

#[test]
fn scripts_get_json_and_people_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let profile = recorded(&dir);
    let json = text(&profile, "C", &["--json", "--rows", "4"]);
    let maps: Value = serde_json::from_str(&json).unwrap();
    let map = &maps["programs"][0];
    assert_eq!(
        (&map["name"], &map["row_pages"]),
        (&"moving".into(), &QUARTER.into())
    );
    let sum = |name: &str, row: usize, phase: usize| -> u64 {
        let cells = map[name][row].as_array().unwrap();
        let phase = &cells[10 * phase..10 * (phase + 1)];
        phase.iter().map(|cell| cell.as_u64().unwrap()).sum()
    };
    for (phase, row) in ORDER.iter().map(|row| *row as usize).enumerate() {
        assert!(sum("touched", row, phase) > 10 * sum("touched", (row + 1) % 4, phase));
        let share = sum("lower", row, phase) as f64 / sum("touched", row, phase) as f64;
        assert!((0.45..0.55).contains(&share), "{share}");
        assert_eq!(sum("looked", row, phase), u64::from(QUARTER * PHASE));
    }

    let page = dir.path().join("page.html");
    text(&profile, "C", &["--html", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(pghot_page::faults::of(&page), [""; 0]);
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("&lt;idle&gt;") && !page.contains("<idle>"));
    assert!(page.contains("memory by address, MiB") && page.contains("time, s"));
    assert!(page.len() < 400_000, "{}", page.len());
}

#[test]
fn what_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let profile = recorded(&dir);
    for (flags, code, part) in [
        (&["--program", "none"][..], 2, "there are <idle>, moving"),
        (&["--program", "movin"], 2, "did you mean `moving`?"),
        (
            &["--html", "/nowhere/page.html"],
            1,
            "cannot write /nowhere/page.html",
        ),
        (&["--pid", "1"], 2, "cannot be used with"),
        (&["--width", "19"], 2, "20..=1000"),
        (&["--html", "x", "--json"], 2, "cannot be used with"),
    ] {
        let ran = heatmap(&profile, "C", flags);
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(
            (ran.status.code(), error.contains(part)),
            (Some(code), true),
            "{error}"
        );
        assert!(ran.stdout.is_empty());
    }
    let ran = heatmap(Path::new("/etc/passwd"), "C", &[]);
    assert!(
        String::from_utf8_lossy(&ran.stderr).contains("is not a profile"),
        "{ran:?}"
    );
}
