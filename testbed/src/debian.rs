//! The disk of a guest that runs a real Debian: a copy of one that `setup.sh` made, with the agent
//! as a service of systemd, and files of the host.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::kernel::cache_dir;

/// Kernel options: the disk is the root, and systemd waits for no device, because there is no udev.
pub(crate) const APPEND: &str = "root=/dev/nvme0n1 rootwait rw init=/lib/systemd/systemd \
                                 systemd.getty_auto=no systemd.firstboot=no";

/// A disk with a Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debian {
    /// As small as it can be, with systemd.
    Minimal,
    /// With containerd, etcd and Kubernetes.
    Kubernetes,
}

impl Debian {
    /// Where it lies in the cache, and the option of `setup.sh` that makes it.
    fn made_by(self) -> (&'static str, &'static str) {
        match self {
            Debian::Minimal => ("debian/root.img", "--package"),
            Debian::Kubernetes => ("kube/root.img", "--kube"),
        }
    }
}

/// The folder in the guest with the files of the host.
pub const FILES: &str = "/opt/testbed";

const UNIT_DIR: &str = "/etc/systemd/system";
const AGENT_UNIT: &str = "testbed-agent.service";
const AGENT_SERVICE: &str = "[Unit]\nAfter=basic.target\n\
                             [Service]\nExecStart=/opt/testbed/pghot-agent\n";

/// What takes an emulator long and is of no use here.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
];

/// Writes the disk to `disk`.
pub(crate) fn make_disk(
    image: Debian,
    disk: &Path,
    agent: &Path,
    files: &[PathBuf],
) -> Result<(), Error> {
    let (path, option) = image.made_by();
    let base = cache_dir().join(path);
    if !base.is_file() {
        return Err(Error::ProgramMissing {
            name: "the Debian of guests".to_owned(),
            reason: "it was never made".to_owned(),
            option,
        });
    }
    fs::copy(&base, disk).map_err(Error::io(&base))?;
    let dir = disk.parent().unwrap_or(Path::new("/"));
    let made = |name: &str, content: &str| -> Result<PathBuf, Error> {
        let path = dir.join(name);
        fs::write(&path, content).map_err(Error::io(&path))?;
        Ok(path)
    };
    let unit = made(AGENT_UNIT, AGENT_SERVICE)?;
    // With an identity it is no first boot, which would enable and disable services.
    let identity = made("machine-id", "70676870676870676870676870676867\n")?;
    let mut script = format!("mkdir {FILES}\ncd {FILES}\n");
    for file in files.iter().map(PathBuf::as_path).chain([agent]) {
        let name = file.file_name().unwrap_or_default().display();
        script += &format!("write {} {name}\nsif {name} mode 0100755\n", file.display());
    }
    script += &format!(
        "cd /etc\nrm machine-id\nwrite {} machine-id\n",
        identity.display()
    );
    script += &format!("cd {UNIT_DIR}\nwrite {} {AGENT_UNIT}\n", unit.display());
    for name in MASKED {
        script += &format!("symlink {name} /dev/null\n");
    }
    script += &format!("cd multi-user.target.wants\nsymlink {AGENT_UNIT} ../{AGENT_UNIT}\n");
    edit(disk, &script)
}

/// Changes a file system by debugfs(8), which takes neither root nor a mount.
fn edit(disk: &Path, script: &str) -> Result<(), Error> {
    let mut command = Command::new("debugfs");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    command
        .env("PATH", std::env::join_paths(folders).unwrap_or(path))
        .args(["-w", "-f", "-"])
        .arg(disk)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let at = || Error::io(Path::new("debugfs"));
    let mut child = command.spawn().map_err(at())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(at())?;
    }
    let output = child.wait_with_output().map_err(at())?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Besides its version it says what went wrong, and succeeds all the same.
    let problems: Vec<&str> = said
        .lines()
        .filter(|l| !l.starts_with("debugfs "))
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Unexpected {
            what: "what debugfs says".to_owned(),
            found: problems.join("; "),
        }),
    }
}
