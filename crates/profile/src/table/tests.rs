//! Tables come back as they were written, and damage is told.

use proptest::prelude::*;

use super::*;

fn profile(seed: u32) -> Profile {
    let interval = |number: u32| Interval {
        number,
        cpu_us: u64::from(number * 1000 + seed),
        touched: Touched::of(vec![0..seed % 5, 10..40, 600..700]),
        lower: Touched::of(vec![12..20, 39..40, 600..700]),
    };
    let process = |name: &str, numbers: &[u32]| Process {
        name: name.into(),
        cgroup: format!("/{name}.slice"),
        blocks: 3,
        huge_blocks: 1,
        intervals: numbers.iter().map(|number| interval(*number)).collect(),
    };
    let mut processes = vec![process("redis", &[0, 1, 5]), process("java", &[2, 5])];
    processes[1].cgroup.clear();
    processes[0].intervals[1].touched = Touched::default();
    processes[0].intervals[1].lower = Touched::default();
    Profile {
        kernel: "6.12.0".into(),
        interval_ms: 500,
        intervals: 9,
        elapsed_ms: 86_400_000,
        disturbed_by: names_of(["", "damon", "damon,damon_stat"][seed as usize % 3]),
        processes,
    }
}

fn written(hosts: &[(&str, Profile)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let mut table = TableWriter::create(&path).unwrap();
    for (host, profile) in hosts {
        table.add(host, profile).unwrap();
    }
    table.finish().unwrap();
    (dir, path)
}

fn read_all(path: &Path) -> Result<Vec<(String, Profile)>, TableError> {
    let mut read_back = Vec::new();
    read(path, &mut |host, profile| {
        read_back.push((host.to_owned(), profile))
    })?;
    Ok(read_back)
}

#[test]
fn profiles_come_back_as_they_were() {
    let hosts = [("a", profile(1)), ("b", profile(2)), ("c", profile(5))];
    let (_dir, path) = written(&hosts);
    let expected = hosts.map(|(name, it)| (name.to_owned(), it));
    assert_eq!(read_all(&path).unwrap(), expected);
}

#[test]
fn more_rows_than_a_group_has_come_back() {
    let mut large = profile(0);
    let runs = || (0..1000).map(|n| 3 * n..3 * n + 2).collect();
    large.intervals = 200;
    large.processes[1].blocks = 7;
    large.processes[1].intervals = (0..150)
        .map(|number| Interval {
            number,
            cpu_us: 1,
            touched: Touched::of(runs()),
            lower: Touched::default(),
        })
        .collect();
    let (_dir, path) = written(&[("a", large.clone()), ("b", profile(1))]);
    let file = Reader::of_file(File::open(&path).unwrap()).unwrap();
    assert!(file.groups().count() > 2);
    let back = read_all(&path).unwrap();
    assert_eq!(back[0].1, large);
    assert_eq!(back[1].1, profile(1));
}

#[test]
fn a_run_takes_few_bytes() {
    let mut scattered = profile(0);
    // Gaps and lengths that look random, by Fibonacci hashing.
    let runs = |of: u32| (0..20_000).map(move |n: u32| (n + of).wrapping_mul(0x9e37_79b9) >> 28);
    let run = |(n, short): (u32, u32)| 32 * n..32 * n + 1 + short;
    scattered.processes[1].blocks = 2000;
    for (of, interval) in (0..).zip(&mut scattered.processes[1].intervals) {
        interval.touched = Touched::of((0..).zip(runs(of)).map(run).collect());
        interval.lower = Touched::default();
    }
    let (_dir, path) = written(&[("a", scattered.clone())]);
    let (rows, bytes) = (40_000, std::fs::metadata(&path).unwrap().len());
    assert!(bytes < 2 * rows, "{bytes} bytes");
    assert_eq!(read_all(&path).unwrap()[0].1, scattered);
}

#[test]
fn without_names_there_is_none() {
    let (_dir, path) = written(&[("a", profile(1).without_names())]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(5).any(|part| part == b"redis"));
    let back = read_all(&path).unwrap();
    assert_eq!(back[0].1.processes[1].name, "process 1");
    assert_eq!(
        back[0].1.processes[1].intervals,
        profile(1).processes[1].intervals
    );
}

/// One process that touched two pages in its only interval, as version 1 wrote it, or as somebody
/// did who put another version on it.
fn first_version(path: &Path, version: &str) {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path);
    let mut writer = Writer::new(file.unwrap(), &old_schema(), &[]).unwrap();
    let (numbers, longs) = ([500, 9, 0, 3], [512, 0, 1500, 7, 5, 2]);
    let row = [()];
    let texts = ["a", "6.12.0", "damon", "redis", LOWER];
    let group = writer.group(|group| {
        group.column::<ByteArrayType, _>(&row, |()| text(texts[0]))?;
        group.column::<ByteArrayType, _>(&row, |()| text(texts[1]))?;
        group.column::<Int32Type, _>(&row, |()| numbers[0])?;
        group.column::<Int32Type, _>(&row, |()| numbers[1])?;
        group.column::<ByteArrayType, _>(&row, |()| text(texts[2]))?;
        group.column::<Int32Type, _>(&row, |()| numbers[2])?;
        group.column::<ByteArrayType, _>(&row, |()| text(texts[3]))?;
        group.column::<Int64Type, _>(&row, |()| longs[0])?;
        group.column::<Int64Type, _>(&row, |()| longs[1])?;
        group.column::<Int32Type, _>(&row, |()| numbers[3])?;
        group.column::<Int64Type, _>(&row, |()| longs[2])?;
        group.column::<Int64Type, _>(&row, |()| longs[3])?;
        group.column::<Int64Type, _>(&row, |()| longs[4])?;
        group.column::<Int64Type, _>(&row, |()| longs[5])?;
        group.column::<ByteArrayType, _>(&row, |()| text(texts[4]))
    });
    group.unwrap();
    writer.finish(&[(KEY, version.to_owned())]).unwrap();
}

#[test]
fn version_1_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    first_version(&path, "1");
    let touched = Touched::of(std::iter::once(5..7).collect());
    let process = Process {
        name: "redis".into(),
        cgroup: String::new(),
        blocks: 1,
        huge_blocks: 0,
        intervals: vec![Interval {
            number: 3,
            cpu_us: 7,
            touched: touched.clone(),
            lower: touched,
        }],
    };
    let expected = Profile {
        kernel: "6.12.0".into(),
        interval_ms: 500,
        intervals: 9,
        elapsed_ms: 4500,
        disturbed_by: vec!["damon".into()],
        processes: vec![process],
    };
    assert_eq!(read_all(&path).unwrap(), [("a".to_owned(), expected)]);
    for (version, why) in [("2", "its columns are not"), ("3", "no version that")] {
        let path = dir.path().join(version);
        first_version(&path, version);
        let error = read_all(&path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_is_no_table_is_told() {
    let (dir, path) = written(&[("a", profile(1))]);
    let refused = |path: &Path, part: &str| {
        let error = read_all(path).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&dir.path().join("none"), "none: No such file");
    let bytes = std::fs::read(&path).unwrap();
    let cut = dir.path().join("cut");
    for length in (0..bytes.len()).step_by(7) {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        refused(&cut, "cut is not a table of profiles: ");
    }
    let mut wrong = profile(1);
    wrong.processes[0].blocks = 1;
    let (_dir, path) = written(&[("a", wrong)]);
    refused(&path, "host a: processes[0].intervals[0].touched: page 699");
}

proptest! {
    #[test]
    fn every_page_is_in_one_piece_of_its_tier(
        touched in prop::collection::btree_set(0u32..60, 0..40),
        lower in prop::collection::btree_set(0u32..60, 0..40),
    ) {
        fn of<'a>(pages: impl Iterator<Item = &'a u32>) -> Touched {
            Touched::of(pages.map(|page| *page..page + 1).collect())
        }
        let interval = Interval {
            number: 0,
            cpu_us: 0,
            touched: of(touched.iter()),
            lower: of(lower.intersection(&touched)),
        };
        let pieces = pieces(&interval);
        let all: Vec<u32> = pieces.iter().flat_map(|(run, _)| run.clone()).collect();
        prop_assert_eq!(all, touched.iter().copied().collect::<Vec<_>>());
        let low = pieces.iter().filter(|(_, is_lower)| *is_lower);
        let low: Vec<u32> = low.flat_map(|(run, _)| run.clone()).collect();
        prop_assert_eq!(low, lower.intersection(&touched).copied().collect::<Vec<_>>());
    }
}
