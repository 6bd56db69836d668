//! Compiles each source's BPF program, for the feature `kernel`.

fn main() {
    #[cfg(feature = "kernel")]
    programs::build();
}

#[cfg(feature = "kernel")]
mod programs {
    use std::env;
    use std::path::PathBuf;

    use libbpf_cargo::SkeletonBuilder;

    /// One entry per source with a BPF program: its folder and file stem.
    const PROGRAMS: &[&str] = &["hint_fault", "mglru", "page_cache", "pgtscan"];

    pub fn build() {
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
        let libbpf = env::var("DEP_BPF_INCLUDE").expect("set by libbpf-sys");
        let hotness = env::var("DEP_PGHOT_HOTNESS_INCLUDE").expect("set by pghot-hotness");
        let kernel = root.join("../linux/bpf");
        // Paths of this machine stay out of what the programs say of their lines.
        let workspace = root.join("../..").canonicalize().expect("it is there");
        let prefix_map = format!("-ffile-prefix-map={}/=/pghot/", workspace.display());
        println!("cargo::rerun-if-changed=bpf");
        println!("cargo::rerun-if-changed={}", kernel.display());
        println!("cargo::rerun-if-changed={hotness}");
        for name in PROGRAMS {
            let source = root.join(format!("src/{name}/{name}.bpf.c"));
            println!("cargo::rerun-if-changed={}", source.display());
            SkeletonBuilder::new()
                .source(&source)
                .obj(out.join(format!("{name}.bpf.o")))
                .clang_args([
                    prefix_map.as_str(),
                    &format!("-I{}", root.join("bpf").display()),
                    &format!("-I{}", kernel.display()),
                    &format!("-I{hotness}"),
                    &format!("-I{libbpf}"),
                    // <asm/types.h> of Debian's multiarch layout; a BPF target does not search it.
                    "-I/usr/include/x86_64-linux-gnu",
                    "-Wall",
                    "-Werror",
                    // Compare-and-swap, since kernel 5.12.
                    "-mcpu=v3",
                ])
                .build()
                .unwrap_or_else(|e| panic!("cannot build {}: {e:#}", source.display()));
        }
    }
}
