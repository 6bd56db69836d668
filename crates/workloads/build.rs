//! Compiles the C side of `hotset --hint`, which uses pghot's C header as an application would.

fn main() {
    println!("cargo::rerun-if-changed=src/hint.c");
    println!("cargo::rerun-if-changed=../../include/pghot_hint.h");
    cc::Build::new()
        .file("src/hint.c")
        .include("../../include")
        .extra_warnings(true)
        .flag("-Wpedantic")
        .warnings_into_errors(true)
        .compile("hint");
}
