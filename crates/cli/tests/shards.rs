//! A sweep in shards, by the command line: together they are the files of one run, to the byte.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

const SCENARIO: &str = "name = 'small'\nmode = 'statistical'\n[[machine.node]]\nmemory_mib = 64\n\
    cpus = 2\nlatency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\n\
    workload = 'promote'\nmemory_mib = 16\naccesses = 20_000_000\n";

const FILES: [&str; 3] = ["sweep.csv", "sweep.html", "sweep.parquet"];

fn pghot(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pghot"));
    command.args(line.split_whitespace()).current_dir(dir);
    command.output().unwrap()
}

fn done(dir: &Path, line: &str) -> String {
    let output = pghot(dir, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, line: &str, parts: &[&str]) {
    let output = pghot(dir, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
    assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
}

#[test]
fn shards_together_are_the_files_of_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("small.toml"), SCENARIO).unwrap();
    let sweep = "sim sweep small.toml --top 100,60,20 --systems none,pghot --seeds 2 \
                 --vary pghot.freq_threshold=1,2";
    let said = done(dir, &format!("{sweep} --out whole --slowdown 5"));
    for number in 1..=3 {
        let shard = done(dir, &format!("{sweep} --out parts --shard {number}/3"));
        assert_eq!(shard, format!("parts/sweep-{number}-of-3.parquet\n"));
    }
    let [one, two, three] = [1, 2, 3].map(|n| format!("parts/sweep-{n}-of-3.parquet"));
    let merged = done(
        dir,
        &format!("sim merge {three} {one} {two} --out merged --slowdown 5"),
    );
    assert_eq!(merged, said.replace("whole", "merged"));
    for file in FILES {
        let read = |folder| std::fs::read(dir.join(folder).join(file)).unwrap();
        assert!(read("merged") == read("whole"), "{file} is not the same");
    }
    let csv = std::fs::read_to_string(dir.join("whole/sweep.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3 * 2);

    refused(
        dir,
        &format!("sim merge {one} {three}"),
        &["2/3", "missing"],
    );
    refused(
        dir,
        &format!("sim merge {one} {two} {two}"),
        &[&two, "shard: it is 2/3"],
    );
    done(
        dir,
        &sweep.replace("--seeds 2", "--seeds 1 --out parts --shard 4/4"),
    );
    let foreign = "parts/sweep-4-of-4.parquet";
    refused(
        dir,
        &format!("sim merge {one} {foreign}"),
        &[foreign, "seeds: it is `1`"],
    );
    let cut = std::fs::read(dir.join(&one)).unwrap();
    std::fs::write(dir.join("cut"), &cut[..cut.len() / 2]).unwrap();
    refused(
        dir,
        &format!("sim merge cut {two} {three}"),
        &["cut is not a shard", "cut off"],
    );
    refused(dir, "sim merge small.toml", &["small.toml is not a shard"]);
    refused(
        dir,
        &format!("sim merge {one} --slowdown=-1"),
        &["--slowdown"],
    );
    let wrong = pghot(dir, "sim sweep small.toml --shard 0/3");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("it must be like 2/8"));
    assert!(!dir.join("out").exists(), "what is refused writes nothing");
}
