//! "The way of one access" in ARCHITECTURE.md can be walked: each step names its file, the file has
//! what the step tells of it, and the spine is short.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Files of the spine, policy included.
const FILES_MAX: usize = 10;
const STEPS_MIN: usize = 8;

/// The numbered steps of the section, each with its lines in one.
fn steps(document: &str) -> Vec<String> {
    let section = document
        .split("\n## ")
        .find(|s| s.starts_with("The way of one access"));
    let mut steps: Vec<String> = Vec::new();
    let mut is_in_step = false;
    for line in section.expect("ARCHITECTURE.md tells the way").lines() {
        let number = format!("{}. ", steps.len() + 1);
        if let Some(text) = line.strip_prefix(&number) {
            steps.push(text.to_owned());
            is_in_step = true;
        } else if is_in_step && line.starts_with("   ") {
            let step = steps.last_mut().unwrap();
            step.push(' ');
            step.push_str(line.trim());
        } else {
            is_in_step = false;
        }
    }
    steps
}

/// The files that a step links to, but for documents.
fn files(step: &str) -> Vec<&str> {
    let links = step.split("](").skip(1);
    let targets = links.filter_map(|link| link.split(')').next());
    targets.filter(|target| !target.ends_with(".md")).collect()
}

/// The functions that a step names, as in "`name()`".
fn functions(step: &str) -> Vec<&str> {
    let names = step.split('`').skip(1).step_by(2);
    names.filter_map(|name| name.strip_suffix("()")).collect()
}

/// What the kernel has and not we.
const KERNELS: &[&str] = &["numa_migrate_check"];

fn is_defined(text: &str, function: &str) -> bool {
    let is_definition = |line: &str| {
        let is_start = line.contains(&format!("fn {function}("))
            || line.contains(&format!("fn {function}<"))
            || (line.contains(&format!(" {function}(")) && !line.starts_with([' ', '\t', '/']))
            || line.starts_with(&format!("{function}("));
        is_start && !line.trim_end().ends_with(';')
    };
    text.lines().any(is_definition)
}

#[test]
fn each_step_names_its_file_and_what_it_tells_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let steps = steps(&document);
    assert!(
        steps.len() >= STEPS_MIN,
        "only {} steps were found",
        steps.len()
    );
    let mut spine = BTreeSet::new();
    let mut wrong = Vec::new();
    for (step, number) in steps.iter().zip(1..) {
        let files = files(step);
        if files.is_empty() {
            wrong.push(format!("step {number} names no file"));
        }
        let mut texts = String::new();
        for file in files {
            match fs::read_to_string(root.join(file)) {
                Ok(text) => texts += &text,
                Err(error) => wrong.push(format!("step {number}: {file}: {error}")),
            }
            spine.insert(file);
        }
        for function in functions(step) {
            if !KERNELS.contains(&function) && !is_defined(&texts, function) {
                wrong.push(format!("step {number}: no `{function}()` in its file"));
            }
        }
    }
    if spine.len() > FILES_MAX {
        wrong.push(format!(
            "the spine has {} files, {FILES_MAX} at most",
            spine.len()
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_step_is_read_to_its_end() {
    let document = "# A\n## The way of one access\n\nText.\n\n1. In [a](x/a.rs).\n   `f()` and\n   \
                    `g`.\n\n2. In [b](b.c), [c](c.md).\n\nMore `h()`.\n## Rooms\n3. [d](d)\n";
    let steps = steps(document);
    assert_eq!(steps.len(), 2);
    assert_eq!(
        (files(&steps[0]), functions(&steps[0])),
        (vec!["x/a.rs"], vec!["f"])
    );
    assert_eq!(
        (files(&steps[1]), functions(&steps[1])),
        (vec!["b.c"], vec![])
    );
    assert!(is_defined("pub fn pass(&self)", "pass"));
    assert!(is_defined(
        "static long resolve_one(__u32 i)",
        "resolve_one"
    ));
    assert!(!is_defined(
        "\tresolve_one(1);\n// fn other\n",
        "resolve_one"
    ));
}
