//! The few flags of the demo.

use std::path::PathBuf;

use crate::systems::System;

/// Shown after a wrong flag.
pub const USAGE: &str = "\
usage: demo [--rounds N] [--systems LIST] [--out FOLDER] [--from FILE]
  --rounds N      measured rounds, after one that only warms up (default 3)
  --systems LIST  any of none,numab2,pghot (default all)
  --out FOLDER    where demo.json and demo.html go (default out)
  --from FILE     run nothing: render an earlier demo.json again
environment: PGHOT_KERNEL=PATH boots another kernel image";

/// What to do.
#[derive(Debug)]
pub struct Flags {
    /// Measured rounds.
    pub rounds: u32,
    /// In the order of the table.
    pub systems: Vec<System>,
    /// Folder of the results.
    pub out: PathBuf,
    /// An earlier `demo.json`.
    pub from: Option<PathBuf>,
}

impl Flags {
    /// Reads the arguments after the program's name.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let systems = System::ALL.to_vec();
        let mut flags = Self {
            rounds: 3,
            systems,
            out: PathBuf::from("out"),
            from: None,
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--rounds" => flags.rounds = rounds(&value()?)?,
                "--systems" => flags.systems = systems_of(&value()?)?,
                "--out" => flags.out = value()?.into(),
                "--from" => flags.from = Some(value()?.into()),
                _ => return Err(format!("unknown flag {flag}")),
            }
        }
        Ok(flags)
    }
}

fn rounds(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err(format!("--rounds is a number from 1 to 1000, not '{text}'")),
    }
}

fn systems_of(list: &str) -> Result<Vec<System>, String> {
    let wanted: Vec<&str> = list.split(',').collect();
    let known = |name: &&&str| System::ALL.iter().any(|system| system.name() == **name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        return Err(format!("unknown system '{unknown}'"));
    }
    Ok(System::ALL
        .into_iter()
        .filter(|system| wanted.contains(&system.name()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        Flags::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn defaults_and_values() {
        let flags = parse("").unwrap();
        assert_eq!((flags.rounds, flags.systems.len()), (3, 3));
        let flags = parse("--rounds 9 --systems pghot,none --out x").unwrap();
        assert_eq!(flags.rounds, 9);
        assert_eq!(flags.systems, [System::None, System::Pghot]);
        assert_eq!(flags.out, PathBuf::from("x"));
    }

    #[test]
    fn wrong_input_is_named() {
        for (line, problem) in [
            ("--rounds", "--rounds needs a value"),
            ("--rounds 0", "from 1 to 1000"),
            ("--systems none,best", "unknown system 'best'"),
            ("--fast", "unknown flag --fast"),
        ] {
            assert!(parse(line).unwrap_err().contains(problem), "{line}");
        }
    }
}
