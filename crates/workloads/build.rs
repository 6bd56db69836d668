//! Compiles the C side of `hotset --hint`, which uses pghot's C headers as an application would.

fn main() {
    println!("cargo::rerun-if-changed=src/hint.c");
    println!("cargo::rerun-if-changed=../../include/pghot_hint.h");
    println!("cargo::rerun-if-changed=../../include/pghot_hint_ring.h");
    cc::Build::new()
        .file("src/hint.c")
        .include("../../include")
        .extra_warnings(true)
        .flag("-Wpedantic")
        .warnings_into_errors(true)
        .compile("hint");
}
