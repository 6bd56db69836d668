//! `kv`: fills a Redis server, then gets and sets skewed keys, and checks every value.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, Parser};
use pghot_workloads::kv::{Connection, Expected, Reply};
use pghot_workloads::random::XorShift;
use pghot_workloads::report;
use pghot_workloads::zipf::Zipf;
use serde::Serialize;

/// Load a Redis server with skewed requests over a Unix socket, and check what it answers.
///
/// `kv fill` sets every key once and prints the JSON line `ready`. `kv run` with the same numbers
/// then gets and sets keys and prints `done`. Between the two, the server's memory can be moved
/// about.
#[derive(Debug, Parser)]
#[command(name = "kv", version)]
enum Command {
    /// Set every key once
    Fill(Data),
    /// Get and set keys, some much more often than others; once after a fill
    Run(Run),
}

#[derive(Debug, Args)]
struct Data {
    /// The server's socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Number of keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,

    /// Size of a value
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    value_bytes: u32,

    /// Seed of the values and of the choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Requests that are sent together
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pipeline: u32,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    data: Data,

    /// Requests
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    operations: u64,

    /// Skew of the keys: the one of rank r is chosen in proportion to 1 / r^S
    #[arg(long, value_name = "S", default_value_t = 0.99)]
    exponent: f64,

    /// Share of the requests that set
    #[arg(long, value_name = "P", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    set_percent: u32,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready {
        keys: u32,
        value_bytes: u32,
        elapsed_s: f64,
    },
    Done(Done),
}

#[derive(Debug, Default, Serialize)]
struct Done {
    operations: u64,
    gets: u64,
    sets: u64,
    elapsed_s: f64,
    operations_per_s: f64,
    /// From the sending of the requests that went together to each one's reply.
    p50_us: u32,
    p99_us: u32,
    /// Keys that the server did not know.
    misses: u64,
    /// Values that were not those that were set last.
    errors: u64,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Fill(data) => fill(&data),
        Command::Run(run) => self::run(&run),
    };
    report::exit_code("kv", done)
}

fn fill(data: &Data) -> Result<()> {
    let started = Instant::now();
    let mut server = Connection::open(&data.socket)?;
    let expected = Expected::new(data.keys, data.value_bytes as usize, data.seed);
    let keys: Vec<u32> = (0..data.keys).collect();
    for together in keys.chunks(data.pipeline as usize) {
        for &key in together {
            server.set(key, &expected.value(key));
        }
        server.send()?;
        for &key in together {
            let reply = server.reply()?;
            ensure!(reply == Reply::Done, "key {key} was not set");
        }
    }
    report::print(&Event::Ready {
        keys: data.keys,
        value_bytes: data.value_bytes,
        elapsed_s: started.elapsed().as_secs_f64(),
    })
}

/// What a reply must be.
enum Due {
    Set,
    Value(Vec<u8>),
}

fn run(run: &Run) -> Result<()> {
    let data = &run.data;
    let mut server = Connection::open(&data.socket)?;
    let mut expected = Expected::new(data.keys, data.value_bytes as usize, data.seed);
    let zipf = Zipf::new(data.keys, run.exponent, data.seed);
    let mut random = XorShift::new(data.seed);
    let mut done = Done::default();
    let mut latencies_us: Vec<u32> = Vec::with_capacity(run.operations as usize);
    let started = Instant::now();
    while done.operations < run.operations {
        let together = u64::from(data.pipeline).min(run.operations - done.operations);
        let mut due = Vec::with_capacity(together as usize);
        for _ in 0..together {
            let key = zipf.choose(&mut random);
            if random.below(100) < run.set_percent {
                server.set(key, &expected.renew(key));
                due.push(Due::Set);
            } else {
                server.get(key);
                due.push(Due::Value(expected.value(key)));
            }
        }
        let sent = Instant::now();
        server.send()?;
        for due in due {
            let reply = server.reply()?;
            latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            done.count(&due, &reply);
        }
    }
    done.elapsed_s = started.elapsed().as_secs_f64();
    done.operations_per_s = done.operations as f64 / done.elapsed_s;
    latencies_us.sort_unstable();
    done.p50_us = percentile(&latencies_us, 50);
    done.p99_us = percentile(&latencies_us, 99);
    let bad = done.misses + done.errors;
    report::print(&Event::Done(done))?;
    ensure!(
        bad == 0,
        "{bad} values are not what was set; `kv run` needs a `kv fill` just before"
    );
    Ok(())
}

impl Done {
    fn count(&mut self, due: &Due, reply: &Reply) {
        self.operations += 1;
        match due {
            Due::Set => self.sets += 1,
            Due::Value(_) => self.gets += 1,
        }
        match (due, reply) {
            (Due::Set, Reply::Done) => {}
            (Due::Value(value), Reply::Value(got)) if got == value => {}
            (Due::Value(_), Reply::Missing) => self.misses += 1,
            _ => self.errors += 1,
        }
    }
}

/// Of sorted numbers; 0 if there are none.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_and_a_missing_one_are_counted() {
        let mut done = Done::default();
        let value = || Due::Value(b"right".into());
        done.count(&Due::Set, &Reply::Done);
        done.count(&value(), &Reply::Value(b"right".into()));
        done.count(&value(), &Reply::Value(b"wrong".into()));
        done.count(&value(), &Reply::Missing);
        assert_eq!((done.operations, done.sets, done.gets), (4, 1, 3));
        assert_eq!((done.errors, done.misses), (1, 1));
    }

    #[test]
    fn percentiles_are_of_the_sorted_numbers() {
        let numbers: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&numbers, 50), 100);
        assert_eq!(percentile(&numbers, 99), 198);
        assert_eq!(percentile(&[], 99), 0);
    }
}
