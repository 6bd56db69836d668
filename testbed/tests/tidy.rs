//! The style of CONTRIBUTING.md, as far as a program can tell: rustfmt and clippy leave the rest.
//!
//! Exceptions stand in lists that only get shorter: an entry that is not needed any more fails too.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Columns of a line of code; a tab goes to the next multiple of 8.
const COLUMNS_MAX: usize = 100;
/// Lines of a file of code: one job each.
const FILE_LINES_MAX: usize = 500;
/// Lines of a function: it can be seen at once.
const FUNCTION_LINES_MAX: usize = 70;
/// Columns of the first line of a commit message.
const SUBJECT_MAX: usize = 80;

/// Files that are longer, with their lines: who touches one makes it shorter.
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions that are longer, by file and name, with their lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    (
        "crates/cli/tests/cli.rs",
        "the_simulator_compares_and_names_what_is_wrong",
        72,
    ),
    ("crates/engine/tests/random.rs", "the_books_balance", 94),
    ("crates/workloads/src/bin/hotset.rs", "access_phase", 74),
];

/// Commits with a longer first line, all older than this test.
const OLD_LONG_SUBJECTS: usize = 21;

/// What a reader stumbles over, and what to write instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("as dear", "as expensive"),
    (" is dear", " is expensive"),
    (" are dear", " are expensive"),
    (" fares", " does, or its status"),
    ("only looks on", "only observes"),
    ("takes root", "requires root"),
    ("cannot make out", "cannot tell"),
    ("meddle", "change"),
    ("stands twice", "is duplicated"),
    ("stood twice", "was duplicated"),
    ("TODO", "an issue"),
    ("FIXME", "an issue"),
];

/// Where a machine or a mirror shows through; in pieces, so that this file has none.
const MACHINES: &[&[&str]] = &[
    &["/wo", "rk/"],
    &["/fa", "rm/"],
    &["://de", "b."],
    &["://secu", "rity."],
    &["://in", "dex."],
    &["://pro", "xy."],
    &["://regi", "stry."],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn git(arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("git is needed to know which files are the project's");
    assert!(output.status.success(), "git {arguments:?} failed");
    String::from_utf8(output.stdout).unwrap()
}

/// The project's files: those of the last commit and those that may be of the next.
fn files() -> Vec<String> {
    let listed = git(&["ls-files", "-co", "--exclude-standard"]);
    let is_there = |file: &&str| root().join(file).is_file();
    listed.lines().filter(is_there).map(str::to_owned).collect()
}

fn is_code(file: &str) -> bool {
    let ending = file.rsplit('.').next().unwrap_or_default();
    ["rs", "c", "h", "sh"].contains(&ending)
}

/// The files of text, with what they hold.
fn texts() -> Vec<(String, String)> {
    let read = |file: String| {
        let text = String::from_utf8(std::fs::read(root().join(&file)).unwrap()).ok()?;
        Some((file, text))
    };
    files().into_iter().filter_map(read).collect()
}

fn code() -> Vec<(String, String)> {
    let mut texts = texts();
    texts.retain(|(file, _)| is_code(file));
    texts
}

fn columns(line: &str) -> usize {
    let after = |at: usize, letter| match letter {
        '\t' => at / 8 * 8 + 8,
        _ => at + 1,
    };
    line.chars().fold(0, after)
}

/// Fails with all that was found, one a line.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// What is longer than it may be, and exceptions that are not needed, or are larger than needed.
fn judge(measured: &[(String, usize)], max: usize, exceptions: &[(String, usize)]) -> Vec<String> {
    let allowed = |name: &String| exceptions.iter().find(|(known, _)| known == name);
    let mut wrong = Vec::new();
    for (name, lines) in measured {
        match allowed(name) {
            None if *lines > max => wrong.push(format!("{name}: {lines} lines, {max} at most")),
            Some((_, allowed)) if lines > allowed => {
                wrong.push(format!("{name}: {lines} lines, and it had {allowed}"));
            }
            Some((_, allowed)) if *lines <= max || lines < allowed => {
                wrong.push(format!(
                    "{name}: {lines} lines, so its exception is out of date"
                ));
            }
            _ => {}
        }
    }
    let is_there = |name: &String| measured.iter().any(|(known, _)| known == name);
    let gone = exceptions.iter().filter(|(name, _)| !is_there(name));
    wrong.extend(gone.map(|(name, _)| format!("{name}: gone, but for its exception")));
    wrong
}

#[test]
fn lines_fit() {
    let mut long = Vec::new();
    for (file, text) in code() {
        for (line, number) in text.lines().zip(1..) {
            if columns(line) > COLUMNS_MAX {
                long.push(format!("{file}:{number}: {} columns", columns(line)));
            }
        }
    }
    assert_none("lines that are too long", &long);
}

#[test]
fn files_have_one_job() {
    let measured: Vec<_> = code()
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .collect();
    let exceptions = LONG_FILES
        .iter()
        .map(|(file, lines)| ((*file).to_owned(), *lines));
    let exceptions: Vec<_> = exceptions.collect();
    assert_none("long files", &judge(&measured, FILE_LINES_MAX, &exceptions));
}

/// Functions with their lines. rustfmt and clang-format put the closing brace below the first
/// letter.
fn functions(file: &str, text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let name = match file.ends_with(".rs") {
            true => rust_function(line),
            // In C, the brace that opens a function stands alone in the first column.
            false if *line == "{" && start > 0 => Some(lines[start - 1]),
            false => None,
        };
        let Some(name) = name else { continue };
        let end = format!("{indent}}}");
        let body = lines[start + 1..].iter();
        let declared = format!("{indent})");
        let is_over =
            |line: &&str| **line == end || (line.starts_with(&declared) && line.ends_with(';'));
        let length = body.take_while(|line| !is_over(line)).count() + 2;
        found.push((format!("{file}, {name}"), length));
    }
    found
}

/// The name of a function whose body begins here.
fn rust_function(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    if words.ends_with([';', '}']) {
        return None;
    }
    for before in [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "const ",
        "async ",
        "unsafe ",
    ] {
        words = words.strip_prefix(before).unwrap_or(words);
    }
    let name = words.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

#[test]
fn functions_can_be_seen_at_once() {
    let mut measured = Vec::new();
    for (file, text) in code().iter().filter(|(file, _)| !file.ends_with(".sh")) {
        measured.extend(functions(file, text));
    }
    assert!(measured.len() > 2000, "found {} functions", measured.len());
    let exceptions = LONG_FUNCTIONS.iter();
    let exceptions = exceptions.map(|(file, name, lines)| (format!("{file}, {name}"), *lines));
    let exceptions: Vec<_> = exceptions.collect();
    let wrong = judge(&measured, FUNCTION_LINES_MAX, &exceptions);
    assert_none("long functions", &wrong);
}

#[test]
fn words_are_those_of_the_field() {
    let own = PathBuf::from(file!());
    let own = own.file_name().unwrap().to_str().unwrap();
    let mut found = Vec::new();
    for (file, text) in texts().iter().filter(|(file, _)| !file.ends_with(own)) {
        for (line, number) in text.lines().zip(1..) {
            for (word, better) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                found.push(format!(
                    "{file}:{number}: `{}`: write `{better}`",
                    word.trim()
                ));
            }
        }
    }
    assert_none("words that a reader stumbles over", &found);
}

#[test]
fn no_machine_shows_through() {
    let mut found = Vec::new();
    for (file, text) in texts() {
        for (line, number) in text.lines().zip(1..) {
            let is_there = |parts: &&&[&str]| line.contains(&parts.concat());
            let shown = MACHINES.iter().filter(is_there);
            found.extend(shown.map(|parts| format!("{file}:{number}: {}", parts.concat())));
        }
    }
    assert_none("paths and hosts of one machine", &found);
}

#[test]
fn commit_subjects_are_short() {
    let subjects = git(&["log", "--no-merges", "--format=%s"]);
    let long = subjects
        .lines()
        .filter(|subject| columns(subject) > SUBJECT_MAX);
    let long: Vec<String> = long.map(str::to_owned).collect();
    assert!(
        long.len() <= OLD_LONG_SUBJECTS,
        "{} first lines have over {SUBJECT_MAX} columns, {OLD_LONG_SUBJECTS} of them are old; the \
         newest: {}",
        long.len(),
        long[0]
    );
}

/// Without, `make fuzz` ends there in a fresh clone.
#[test]
fn every_fuzz_target_has_seeds() {
    let files = files();
    let targets = files.iter().filter_map(|file| {
        let file = file.strip_prefix("fuzz/src/bin/")?;
        file.strip_suffix(".rs")
    });
    let (mut seen, mut bare) = (0, Vec::new());
    for target in targets {
        seen += 1;
        let seeds = format!("fuzz/corpus/{target}/");
        if !files.iter().any(|file| file.starts_with(&seeds)) {
            bare.push(target.to_owned());
        }
    }
    assert!(seen > 0);
    assert_none("fuzz targets without seeds", &bare);
}

#[test]
fn this_test_sees() {
    let c = "int f(void)\n{\n\treturn 0;\n}\n";
    assert_eq!(functions("a.c", c), [("a.c, int f(void)".to_owned(), 3)]);
    let rust = "trait T {\n    fn declared(\n        a: u8,\n    ) -> u8;\n}\n\
                pub fn f() {\n    g(\n    );\n    h()\n}\n";
    let found = functions("a.rs", rust);
    assert_eq!(found[0].1, 3, "a declaration ends with its semicolon");
    assert_eq!(found[1], ("a.rs, f".to_owned(), 5));
    assert_eq!(columns("\ta"), 9);
    let long = [
        ("f".to_owned(), 80),
        ("g".to_owned(), 90),
        ("h".to_owned(), 5),
    ];
    let known = [
        ("g".to_owned(), 90),
        ("h".to_owned(), 75),
        ("i".to_owned(), 99),
    ];
    let wrong = judge(&long, 70, &known);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
