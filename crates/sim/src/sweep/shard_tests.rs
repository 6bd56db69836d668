//! Shards: together they are the whole, to the byte, and what is not a shard of it is named.

use std::num::NonZero;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::report::{csv, page};
use super::shard::{Ran, Shard, merge};
use super::tests::sweep;
use super::{Sweep, curves, parquet};

fn run(sweep: &Sweep, shard: &str) -> Vec<u8> {
    let shard: Shard = shard.parse().unwrap();
    let ran = sweep.run_shard(shard, NonZero::new(1), &|_, _| {}).unwrap();
    ran.to_parquet().unwrap()
}

/// Three shards of the same sweep.
static SHARDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let sweep = sweep();
    ["1/3", "2/3", "3/3"].map(|shard| run(&sweep, shard)).into()
});

fn read(files: &[(&str, &Vec<u8>)]) -> Result<super::Merged, String> {
    let read = |(file, bytes): &(&str, &Vec<u8>)| {
        Ok((
            (*file).to_owned(),
            Ran::from_parquet(file, (*bytes).clone())?,
        ))
    };
    let shards: Result<_, super::shard::MergeError> = files.iter().map(read).collect();
    shards.and_then(merge).map_err(|error| error.to_string())
}

fn shards() -> Vec<(&'static str, &'static Vec<u8>)> {
    ["a", "b", "c"].into_iter().zip(SHARDS.iter()).collect()
}

#[test]
fn shards_together_are_the_whole_to_the_byte() {
    let whole = sweep().run(None, &|_, _| {}).unwrap();
    let mut files = shards();
    files.reverse();
    let merged = read(&files).unwrap();
    assert_eq!(merged, whole);
    let bytes = |rows: &[super::Row]| {
        let page = page("x", &curves(rows), 2.0).into_bytes();
        [csv(rows).unwrap(), parquet::write(rows).unwrap(), page]
    };
    assert_eq!(bytes(&merged.rows), bytes(&whole.rows));
}

#[test]
fn a_shard_without_points_is_one_too() {
    let mut sweep = sweep();
    sweep.plan.systems.truncate(1);
    sweep.plan.top_percents = vec![50];
    let shards: Vec<_> = (1..=4).map(|n| run(&sweep, &format!("{n}/4"))).collect();
    let files: Vec<_> = ["a", "b", "c", "d"].into_iter().zip(&shards).collect();
    assert_eq!(read(&files).unwrap(), sweep.run(None, &|_, _| {}).unwrap());
}

#[test]
fn what_does_not_fit_is_named_by_file_and_field() {
    fn refused(files: &[(&str, &Vec<u8>)], parts: [&str; 2]) {
        let error = read(files).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let files = shards();
    refused(&[], ["no shards", "sim sweep --shard"]);
    refused(&files[..2], ["3/3", "missing"]);
    refused(&files[1..2], ["1/3, 3/3", "missing"]);
    refused(
        &[files[0], files[1], ("again", files[1].1)],
        ["again: shard: it is 2/3", "b"],
    );
    type Change = fn(&mut Sweep);
    let others: [(Change, &str); 6] = [
        (
            |other| other.scenario.name = "y".into(),
            "scenario: it is `y`",
        ),
        (
            |other| other.scenario.process[0].threads = 1,
            "scenario_crc32",
        ),
        (|other| other.scenario.seed = 7, "scenario_crc32"),
        (|other| other.plan.seeds = 2, "seeds: it is `2`"),
        (
            |other| other.plan.top_percents[0] = 26,
            "top_percents: it is `26,50,100`",
        ),
        (
            |other| drop(other.plan.systems.pop()),
            "systems: it is `none`",
        ),
    ];
    for (change, part) in others {
        let mut other = sweep();
        change(&mut other);
        let other = run(&other, "3/3");
        refused(
            &[files[0], files[1], ("foreign", &other)],
            ["foreign: ", part],
        );
    }
    let other = run(&sweep(), "2/2");
    refused(
        &[files[0], ("foreign", &other)],
        ["foreign: number of shards", "`2`"],
    );
    let rows = parquet::write(&sweep().run(None, &|_, _| {}).unwrap().rows).unwrap();
    refused(&[("table", &rows)], ["table is not a shard", "columns"]);
    refused(
        &[("text", &b"name = 'x'".to_vec())],
        ["text is not a shard", "no Parquet"],
    );
}

#[test]
fn a_shard_of_another_pghot_or_of_other_runs_is_refused() {
    fn changed(change: impl FnOnce(&mut Ran)) -> String {
        let mut ran = Ran::from_parquet("s", SHARDS[0].clone()).unwrap();
        change(&mut ran);
        Ran::from_parquet("s", ran.to_parquet().unwrap())
            .unwrap_err()
            .to_string()
    }
    let error = changed(|ran| ran.header.version = "0.0.1".into());
    assert!(
        error.starts_with("s: version: pghot 0.0.1 ran it"),
        "{error}"
    );
    let error = changed(|ran| ran.header.format = 9);
    assert!(error.starts_with("s: format: it is 9"), "{error}");
    let error = changed(|ran| drop(ran.runs.pop()));
    assert!(error.starts_with("s: runs: "), "{error}");
    let error = changed(|ran| ran.runs[1].seed += 1);
    assert!(error.starts_with("s: runs[1]: "), "{error}");
    let error = changed(|ran| ran.runs.swap(0, 1));
    assert!(error.starts_with("s: runs[0]: "), "{error}");
    let error = changed(|ran| ran.header.plan.seeds = u64::MAX);
    assert!(error.starts_with("s: plan: "), "{error}");
}

#[test]
fn a_shard_is_so_many_of_so_many() {
    for text in [
        "", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/4", "x/y", "1/100001",
    ] {
        let error = text.parse::<Shard>().unwrap_err();
        assert!(error.contains("it must be like 2/8"), "{error}");
    }
    assert_eq!("3/3".parse::<Shard>().unwrap().to_string(), "3/3");
}

#[test]
fn a_shard_that_was_cut_off_is_refused() {
    let whole = &SHARDS[1];
    for length in 0..whole.len() {
        assert!(
            Ran::from_parquet("cut", whole[..length].to_vec()).is_err(),
            "{length}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_changed_byte_is_refused_or_changes_no_run(at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = SHARDS[1].clone();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let sound = Ran::from_parquet("s", SHARDS[1].clone()).unwrap();
        if let Ok(read) = Ran::from_parquet("s", bytes) {
            prop_assert_eq!(read, sound);
        }
    }
}
