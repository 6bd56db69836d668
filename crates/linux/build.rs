//! Compiles the BPF programs.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const PROGRAMS: [&str; 2] = ["resolver", "fates"];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("set by libbpf-sys");
    for program in PROGRAMS {
        let source = format!("src/{program}.bpf.c");
        println!("cargo::rerun-if-changed={source}");
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{program}.bpf.o")))
            .clang_args([
                format!("-I{libbpf}").as_str(),
                "-Ibpf",
                // <asm/types.h> of Debian's multiarch layout, which a BPF target does not search.
                "-I/usr/include/x86_64-linux-gnu",
                "-Wall",
                "-Werror",
                "-mcpu=v3",
            ])
            .build()
            .unwrap_or_else(|e| panic!("cannot build {source}: {e:#}"));
    }
}
