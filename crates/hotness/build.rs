//! Compiles the C header's rule for Rust and tells BPF builds where the header lies.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed=src/hotness.c");
    println!("cargo::rerun-if-changed=src/rust.h");
    // Seen by direct dependents as DEP_PGHOT_HOTNESS_INCLUDE.
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    println!("cargo::metadata=include={}", include.display());
    // Always optimised: the rule is inlined C, and a debug build of it would only slow the tests.
    let mut rule = cc::Build::new();
    // clang, because the BPF programs need it anyway: the rule is then compiled by one compiler.
    // The simulator has no BPF programs; where there is no clang, any C compiler does for it.
    if Command::new("clang").arg("--version").output().is_ok() {
        rule.compiler("clang");
    }
    rule.file("src/hotness.c")
        .include("include")
        .opt_level(2)
        .force_frame_pointer(false)
        .compile("hotness");
}
