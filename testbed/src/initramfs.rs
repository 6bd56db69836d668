//! Writes the guest's whole file system: a cpio archive with the agent as `/init`, binaries of the
//! host in `/bin`, and the shared libraries they need where their loader looks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use crate::Error;

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const CHAR_DEVICE: u32 = 0o020_600;

/// The users: root, and the one that the daemon becomes.
const USERS: &str = "root:x:0:0::/:/bin/sh\npghot:x:990:990::/:/bin/false\n";

/// The archive that boots `agent` and holds `binaries` and kernel `modules`, as the kernel's loader
/// wants it.
pub(crate) fn build(
    agent: &Path,
    binaries: &[PathBuf],
    modules: &[PathBuf],
) -> Result<Vec<u8>, Error> {
    let mut cpio = Cpio::default();
    for dir in ["bin", "dev", "proc", "sys", "tmp", "run"] {
        cpio.dirs(Path::new(dir));
    }
    // The kernel opens this for init's output before anything is mounted.
    cpio.entry("dev/console", CHAR_DEVICE, (5, 1), &[]);

    cpio.content(Path::new("etc/passwd"), USERS.as_bytes());

    let mut libraries = BTreeMap::new();
    let targets = binaries
        .iter()
        .filter_map(|path| Some((path, path.file_name()?)));
    let targets = targets.map(|(path, name)| (path.as_path(), Path::new("bin").join(name)));
    for (source, target) in targets.chain([(agent, PathBuf::from("init"))]) {
        cpio.content(&target, &stripped(source)?);
        libraries.extend(shared_libraries(source)?);
    }
    for (target, library) in libraries {
        cpio.file(&library, &target)?;
    }
    for module in modules {
        let name = module.file_name().unwrap_or_default();
        cpio.file(module, &Path::new("lib/modules").join(name))?;
    }
    Ok(cpio.finish())
}

/// A binary without what only debuggers read, which is most of it and would take memory of the
/// guest. Kept for the next guest of this process. A script, or a host without `strip`, goes in as
/// it is.
fn stripped(binary: &Path) -> Result<Vec<u8>, Error> {
    static KEPT: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(content) = kept.get(binary) {
        return Ok(content.clone());
    }
    let smaller = tempfile::NamedTempFile::new().map_err(Error::io(&env::temp_dir()))?;
    let mut strip = Command::new("strip");
    strip
        .args(["--strip-debug", "-o"])
        .arg(smaller.path())
        .arg(binary);
    let is_done = strip
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let source = if is_done { smaller.path() } else { binary };
    let content = fs::read(source).map_err(Error::io(source))?;
    kept.insert(binary.to_owned(), content.clone());
    Ok(content)
}

/// The libraries and the loader a binary needs: where they go in the guest, and where they are on
/// this host. Asks `ldd`, which knows the search path better than any reader of ELF files; a static
/// binary needs none.
///
/// The libraries of an unpacked package, `ROOT/usr/bin/NAME`, are looked for below `ROOT` first,
/// and go where they would have been installed.
fn shared_libraries(binary: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
    let bin = binary.parent().unwrap_or(Path::new("/"));
    let root = match bin.ends_with("usr/bin") {
        true => bin.ancestors().nth(2).unwrap_or(bin),
        false => Path::new("/"),
    };
    let mut ldd = Command::new("ldd");
    if root != Path::new("/") {
        let folders = env::join_paths(library_folders(root));
        ldd.env("LD_LIBRARY_PATH", folders.unwrap_or_default());
    }
    let ldd = ldd.arg(binary).output();
    let output = ldd.map_err(Error::io(Path::new("ldd")))?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let mut libraries = Vec::new();
    for line in listing.lines() {
        // "libc.so.6 => /lib/libc.so.6 (0x7f..)", "/lib64/ld-linux-x86-64.so.2 (0x7f..)",
        // "libfoo.so => not found", "linux-vdso.so.1 (0x7f..)"
        let (name, found) = line
            .trim()
            .split_once(" => ")
            .unwrap_or((line.trim(), line.trim()));
        if found == "not found" {
            let library = name.to_owned();
            return Err(Error::LibraryMissing {
                binary: binary.to_owned(),
                library,
            });
        }
        libraries.extend(found.split(' ').next().filter(|path| path.starts_with('/')));
    }
    let placed = |library: &str| {
        let source = PathBuf::from(library);
        let target = source
            .strip_prefix(root)
            .or_else(|_| source.strip_prefix("/"));
        (target.unwrap_or(&source).to_owned(), source)
    };
    Ok(libraries.into_iter().map(placed).collect())
}

/// Where packages unpacked into `root` keep libraries: the two usual folders, and those in them
/// that a package names in its own binaries.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let usual = ["lib", "usr/lib"].map(|lib| root.join(lib).join("x86_64-linux-gnu"));
    let inner = usual.iter().filter_map(|folder| fs::read_dir(folder).ok());
    let inner = inner.flatten().flatten().map(|entry| entry.path());
    let inner: Vec<PathBuf> = inner.filter(|path| path.is_dir()).collect();
    usual.into_iter().chain(inner).collect()
}

/// An archive in cpio's "newc" format: per entry a header of hexadecimal fields, the name, the
/// content, the latter two padded to four bytes.
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
    made: BTreeSet<PathBuf>,
}

impl Cpio {
    /// Adds a directory and its parents, each once.
    fn dirs(&mut self, path: &Path) {
        let mut parents: Vec<_> = path
            .ancestors()
            .filter(|dir| *dir != Path::new(""))
            .collect();
        parents.reverse();
        for dir in parents {
            if self.made.insert(dir.to_owned()) {
                self.entry(&dir.to_string_lossy(), DIR, (0, 0), &[]);
            }
        }
    }

    fn file(&mut self, source: &Path, target: &Path) -> Result<(), Error> {
        let content = fs::read(source).map_err(Error::io(source))?;
        self.content(target, &content);
        Ok(())
    }

    fn content(&mut self, target: &Path, content: &[u8]) {
        self.dirs(target.parent().unwrap_or(Path::new("")));
        self.entry(&target.to_string_lossy(), FILE, (0, 0), content);
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let (inode, links, owner, time, check) = (self.entries, 1, 0, 0, 0);
        // A guest whose file system is above 4 GiB would not boot anyway.
        let content_len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_len = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        self.bytes.extend(b"070701");
        for field in [
            inode,
            mode,
            owner,
            owner,
            links,
            time,
            content_len,
            0,
            0,
            device.0,
            device.1,
            name_len,
            check,
        ] {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's reader is the judge in the VM tests; here the loader of the host's libraries.
    #[test]
    fn a_dynamic_binary_brings_its_loader() {
        let archive = build(Path::new("/bin/true"), &["/bin/cat".into()], &[]).unwrap();
        let names = String::from_utf8_lossy(&archive).into_owned();
        for name in [
            "init\0",
            "bin/cat\0",
            "libc.so.6\0",
            "ld-linux-x86-64.so.2\0",
            "TRAILER!!!\0",
        ] {
            assert!(names.contains(name), "{name:?}");
        }
    }

    #[test]
    fn an_unpacked_program_brings_its_own_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = ("usr/bin", "usr/lib/x86_64-linux-gnu/own");
        for folder in [bin, lib] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let program = dir.path().join(bin).join("cat");
        fs::copy("/bin/cat", &program).unwrap();
        let libraries = shared_libraries(&program).unwrap();
        let is_libc = |path: &Path| path.ends_with("libc.so.6");
        let (_, hosts) = libraries.iter().find(|(at, _)| is_libc(at)).unwrap();

        let own = dir.path().join(lib).join("libc.so.6");
        fs::copy(hosts, &own).unwrap();
        let libraries = shared_libraries(&program).unwrap();
        let found = libraries.iter().find(|(at, _)| is_libc(at)).unwrap();
        assert_eq!(*found, (Path::new(lib).join("libc.so.6"), own));
    }

    #[test]
    fn an_entry_is_laid_out_as_the_format_says() {
        let mut cpio = Cpio::default();
        cpio.entry("name", FILE, (0, 0), b"12345");
        // Inode 1, mode, two owners, one link, time, length 5, four device numbers, length of the
        // name with its NUL, no checksum; then name and content, padded.
        let header = [1, 0o100_755, 0, 0, 1, 0, 5, 0, 0, 0, 0, 5, 0].map(|n| format!("{n:08x}"));
        let expected = format!("070701{}name\0{}12345{}", header.concat(), "\0", "\0\0\0");
        assert_eq!(String::from_utf8_lossy(&cpio.bytes), expected);
    }
}
