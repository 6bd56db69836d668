//! Real programs, which know of no witness.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Job, Prepared, Ran};
use crate::programs::{self, Program, Size};

struct Theirs(Box<dyn programs::Prepared>);

impl Prepared for Theirs {
    fn run(self: Box<Self>) -> Result<Ran> {
        let said = self.0.run()?;
        Ok(Ran {
            ready: json!({ "nodes": said["nodes_start"] }),
            done: said["run"].clone(),
        })
    }
}

/// What Redis needs.
pub fn redis_binaries() -> Result<Vec<PathBuf>> {
    program("redis-server")?.binaries()
}

/// Fills Redis.
pub fn redis(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    prepare(job, "redis-server")
}

/// What fio needs.
pub fn fio_binaries() -> Result<Vec<PathBuf>> {
    program("fio")?.binaries()
}

/// Writes fio's file.
pub fn fio(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    prepare(job, "fio")
}

fn program(name: &str) -> Result<&'static Program> {
    programs::find(name).with_context(|| format!("there is no program {name}"))
}

fn prepare(job: &Job<'_>, name: &str) -> Result<Box<dyn Prepared>> {
    let size = Size {
        mib: job.size_mib,
        operations: job.setting.accesses,
    };
    let prepared = (program(name)?.prepare)(job.vm, &size, job.setting.seed)?;
    Ok(Box::new(Theirs(prepared)))
}
