//! What the daemon may do: it leaves root for a user of its own, and keeps the capabilities that
//! docs/install.md gives a reason for.

use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Gid, Resource, Rlimit, Uid, geteuid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, capabilities, move_into_link_name_space,
    set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::SysRoot;

/// The user of a package. Where there is none, the daemon goes on as root.
pub const DEFAULT_USER: &str = "pghot";

/// Why it does then, and what to do.
pub const LACKS_USER: &str = "there is no user `pghot` for it; create one with `useradd --system \
                              --shell /usr/sbin/nologin pghot`, and restart pghot";

/// The capabilities that the daemon keeps. Each has its reason in docs/install.md, "Rights".
pub const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

/// As the unit has it: if the daemon is killed, pages wait until it is started again.
const OOM_SCORE_ADJ: &str = "-900";

/// The unit's directories, which belong to root: for sockets and the state file, and for access
/// profiles.
const OWN_DIRECTORIES: [&str; 2] = ["/run/pghot", "/var/lib/pghot"];

/// The daemon's rights could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// A user that was asked for by name.
    #[error("there is no user `{0}`: create it, or set `user` to one that there is")]
    NoUser(String),
    /// A container's own control groups.
    #[error(
        "cannot leave the container's control groups for the host's: {0}; give it CAP_SYS_ADMIN \
         and the host's processes"
    )]
    ControlGroups(io::Error),
    /// A directory of sockets or of profiles.
    #[error(
        "cannot let the user `{user}` make files in {}: {source}; make it writable for that user, \
         or choose another directory",
        path.display()
    )]
    Directory {
        /// The user.
        user: String,
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused.
    #[error(
        "cannot become the user `{user}`: {source}; a service needs CAP_SETUID and CAP_SETGID for \
         it, or set `user` to \"root\""
    )]
    Refused {
        /// The user.
        user: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A user of this system.
struct User {
    uid: Uid,
    gid: Gid,
}

/// Whether the system has the user for whom nobody has to ask.
pub fn has_user() -> bool {
    find(DEFAULT_USER).is_some()
}

/// Whether this daemon is root only because the system has no such user.
pub fn lacks_user() -> bool {
    geteuid().is_root() && !has_user()
}

/// Has a process of root become `user` and keep [`KEPT`]; it gains no rights any more. One that is
/// not root stays who it is. `files` are those that it shall be able to make.
///
/// For a process with one thread: the kernel's ids and capabilities are a thread's.
pub fn drop_to(user: &str, files: &[&Path]) -> Result<(), RightsError> {
    let refused = |source| RightsError::Refused {
        user: user.to_owned(),
        source,
    };
    if geteuid().is_root() {
        let kept = match find(user) {
            Some(found) if !found.uid.is_root() => {
                let parents = files.iter().filter_map(|file| file.parent());
                // A path of one name is in the working directory.
                for path in parents.filter(|path| !path.as_os_str().is_empty()) {
                    admit(&found, path).map_err(|source| RightsError::Directory {
                        user: user.to_owned(),
                        path: path.to_owned(),
                        source,
                    })?;
                }
                become_user(&found).map_err(refused)?;
                KEPT
            }
            None if user != DEFAULT_USER => return Err(RightsError::NoUser(user.to_owned())),
            // To give the status socket to its group, which the user above is in.
            _ => KEPT | CapabilitySet::CHOWN,
        };
        keep_capabilities(kept).map_err(refused)?;
    }
    set_no_new_privs(true).map_err(|error| refused(error.into()))
}

/// Has a thread see control groups as the host does: in a container their paths begin at its own.
pub fn join_control_groups(root: &SysRoot) -> Result<(), RightsError> {
    let namespace = File::open(root.proc.join("1/ns/cgroup"));
    let joined = namespace.and_then(|it| {
        let kind = Some(LinkNameSpaceType::ControlGroup);
        Ok(move_into_link_name_space(it.as_fd(), kind)?)
    });
    joined.map_err(RightsError::ControlGroups)
}

/// What the unit does for a service, for one that is started by hand: the last to be killed when
/// memory is short, and allowed to lock memory. What it has no right to stays as it was.
pub fn protect() {
    let mut file = OpenOptions::new()
        .write(true)
        .open("/proc/self/oom_score_adj");
    if let Ok(file) = &mut file {
        let _ = file.write_all(OOM_SCORE_ADJ.as_bytes());
    }
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, unlimited);
}

fn become_user(user: &User) -> io::Result<()> {
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(user.gid, user.gid, user.gid)?;
    set_thread_res_uid(user.uid, user.uid, user.uid)?;
    Ok(set_keep_capabilities(false)?)
}

/// Lets a user make files in a directory of pghot's own, or in another one that there is not yet.
/// Those that others have made are theirs.
///
/// Root keeps the directory, because the keeper's state file lies there too, and adds a line to its
/// access control list: that takes no capability.
fn admit(user: &User, directory: &Path) -> io::Result<()> {
    let is_new = !directory.exists();
    if is_new {
        let mut all = DirBuilder::new();
        all.recursive(true).mode(0o755).create(directory)?;
    }
    if is_new || OWN_DIRECTORIES.map(Path::new).contains(&directory) {
        let list = access_list(user.uid);
        let flags = XattrFlags::empty();
        setxattr(directory, "system.posix_acl_access", &list, flags)?;
    }
    Ok(())
}

/// `u::rwx,u:USER:rwx,g::r-x,m::rwx,o::r-x` as linux/posix_acl_xattr.h has it: a version, and of
/// each entry its tag, its rights, and whom it is about.
fn access_list(user: Uid) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 0o7, NOBODY),
        (0x02, 0o7, user.as_raw()),
        (0x04, 0o5, NOBODY),
        (0x10, 0o7, NOBODY),
        (0x20, 0o5, NOBODY),
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Gives up all capabilities but these.
fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let kept = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Looks a user up.
fn find(name: &str) -> Option<User> {
    let name = CString::new(name).ok()?;
    // SAFETY: all zeroes is a value of a struct of pointers and numbers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut buffer = vec![0; 1 << 14];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers live as long as the call, and the buffer has the length that is given.
    let error = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    (error == 0 && !found.is_null()).then(|| User {
        uid: Uid::from_raw(entry.pw_uid),
        gid: Gid::from_raw(entry.pw_gid),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_user_is_admitted_to_a_new_directory_and_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let user = User {
            uid: Uid::from_raw(4242),
            gid: Gid::from_raw(4242),
        };
        let list_of = |path: &Path| {
            let mut list = vec![0; 64];
            let name = "system.posix_acl_access";
            let bytes = rustix::fs::getxattr(path, name, &mut list).ok()?;
            list.truncate(bytes);
            Some(list)
        };
        let new = dir.path().join("run/pghot");
        admit(&user, &new).unwrap();
        assert_eq!(list_of(&new), Some(access_list(user.uid)));
        assert_eq!(list_of(new.parent().unwrap()), None);
        admit(&user, dir.path()).unwrap();
        assert_eq!(list_of(dir.path()), None, "it is somebody's own");
    }

    #[test]
    fn a_thread_in_control_groups_of_its_own_joins_the_host() {
        let own = format!("/proc/{}/ns/cgroup", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        std::fs::create_dir_all(root.proc.join("1/ns")).unwrap();
        symlink(&own, root.proc.join("1/ns/cgroup")).unwrap();
        let thread = std::thread::spawn(move || {
            let namespace = |of: &str| std::fs::read_link(of).unwrap();
            let this = "/proc/thread-self/ns/cgroup";
            // SAFETY: of this thread alone, the view of control groups changes.
            let left = unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } == 0;
            assert_eq!(left, namespace(this) != namespace(&own));
            let joined = join_control_groups(&root);
            match geteuid().is_root() {
                true => {
                    assert!(left);
                    joined.unwrap();
                    assert_eq!(namespace(this), namespace(&own));
                }
                false => assert!(joined.unwrap_err().to_string().contains("CAP_SYS_ADMIN")),
            }
        });
        thread.join().unwrap();
    }
}
