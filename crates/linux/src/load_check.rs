//! Which of the BPF programs the running kernel takes: each is loaded once, by itself, and let go.

use libbpf_rs::{ErrorKind, ObjectBuilder, OpenObject};

use crate::SysRoot;
use crate::bpf::has_function;
use crate::probe::{Answer, FEATURES};

/// What loading asks for, by the names of [`FEATURES`].
const NEEDS: &[&str] = &["btf", "cap_bpf", "cap_perfmon", "cap_sys_admin"];

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What the kernel said.
    pub loads: Loads,
}

/// Whether a kernel takes a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loads {
    /// It does.
    Yes,
    /// It has not the function that the program is for.
    WithoutFunction(String),
    /// It does not, and this is why.
    No(String),
}

/// Whether anything can be said here: without the right to load programs nothing can.
pub fn can_ask(root: &SysRoot) -> bool {
    let needed = FEATURES.iter().filter(|it| NEEDS.contains(&it.id));
    let mut answers = needed.map(|it| (it.ask)(root));
    answers.all(|answer| answer == Answer::Available)
}

/// Loads each program of an object, after `prepare` has had the object.
pub fn programs(
    root: &SysRoot,
    image: &[u8],
    prepare: impl Fn(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for (name, function) in list(image)? {
        let is_absent = |function: &String| has_function(root, function) == Some(false);
        let loads = match function.filter(is_absent) {
            Some(function) => Loads::WithoutFunction(function),
            None => match load(image, &name, &prepare) {
                Ok(()) => Loads::Yes,
                Err(error) => Loads::No(refusal(&error)),
            },
        };
        programs.push(Program { name, loads });
    }
    Ok(programs)
}

/// The programs with the functions that their sections name: `fentry/FUNCTION`.
fn list(image: &[u8]) -> libbpf_rs::Result<Vec<(String, Option<String>)>> {
    let open = ObjectBuilder::default().open_memory(image)?;
    let described = open.progs().map(|program| {
        let section = program.section().to_string_lossy().into_owned();
        let function = section.split_once('/').map(|(_, name)| name.to_owned());
        (program.name().to_string_lossy().into_owned(), function)
    });
    Ok(described.collect())
}

fn load(
    image: &[u8],
    name: &str,
    prepare: impl Fn(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<()> {
    let mut open = ObjectBuilder::default().open_memory(image)?;
    prepare(&mut open)?;
    for mut program in open.progs_mut() {
        let is_it = program.name() == name;
        program.set_autoload(is_it);
    }
    open.load().map(drop)
}

/// The verifier's own words are in libbpf's messages, for who writes programs.
fn refusal(error: &libbpf_rs::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidInput => "the verifier refuses it, or a field that it reads is missing",
        ErrorKind::PermissionDenied => "the verifier or a security module refuses it",
        _ => return format!("the kernel does not load it: {error}"),
    }
    .to_owned()
}
