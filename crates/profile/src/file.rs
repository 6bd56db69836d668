//! Profiles on disk.
//!
//! ```text
//! 8 bytes  "pghotprf"
//! 2 bytes  version, little endian
//! 4 bytes  CRC-32 of all that follows, little endian
//! ...      the profile, by `postcard`: see `stored.rs`
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::v1::{self, ProfileV1};
use crate::v2::{self, ProfileV2};
use crate::v3::{self, ProfileV3};
use crate::{Invalid, Profile, stored};

/// What a profile begins with.
pub const MAGIC: &[u8; 8] = b"pghotprf";

/// Of the format.
const VERSION: u16 = 5;

/// The last version in which a profile was as it is in memory.
const WHOLE_VERSION: u16 = 4;

const HEADER_BYTES: usize = MAGIC.len() + 2 + 4;

/// The largest profile that is read: it is held in memory.
const BYTES_MAX: u64 = 2 << 30;

/// A profile that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is not a profile, or not a whole one.
    #[error("{path} is not a profile that can be replayed: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: Damage,
    },
}

/// What is wrong with the bytes of a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It begins otherwise.
    #[error("it does not begin as one; `pghot record` writes them")]
    NotOne,
    /// By another pghot.
    #[error("it has version {0} of the format, and this pghot reads versions 1 to {VERSION}")]
    Version(u16),
    /// Cut off, or changed.
    #[error("its checksum is wrong: it was cut off or changed after the recording")]
    Checksum,
    /// Too large, as it is or unpacked.
    #[error(
        "it is larger than {} MiB, or than {} MiB in memory",
        BYTES_MAX >> 20,
        stored::NUMBERS_MAX >> 18
    )]
    TooLarge,
    /// The checksum is right, the rest is not.
    #[error("its contents are not those of a profile")]
    Contents,
    /// A field has an impossible value.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The bytes of a profile's file.
pub fn encode(profile: &Profile) -> Vec<u8> {
    let mut body = Vec::new();
    stored::encode(profile, &mut body);
    with_header(&body)
}

/// A file with this behind its header.
pub fn with_header(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from(MAGIC.as_slice());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32fast::hash(body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Reads and checks the bytes of a profile's file.
pub fn decode(bytes: &[u8]) -> Result<Profile, Damage> {
    let begins = bytes.get(..MAGIC.len()) == Some(MAGIC);
    let (true, Some(header)) = (begins, bytes.get(MAGIC.len()..HEADER_BYTES)) else {
        return Err(Damage::NotOne);
    };
    let version = u16::from_le_bytes([header[0], header[1]]);
    if !(v1::VERSION..=VERSION).contains(&version) {
        return Err(Damage::Version(version));
    }
    let body = &bytes[HEADER_BYTES..];
    if crc32fast::hash(body).to_le_bytes() != header[2..6] {
        return Err(Damage::Checksum);
    }
    let profile = match version {
        v1::VERSION => whole::<ProfileV1>(body)?.into(),
        v2::VERSION => whole::<ProfileV2>(body)?.into(),
        v3::VERSION => whole::<ProfileV3>(body)?.into(),
        WHOLE_VERSION => whole::<Profile>(body)?,
        _ => stored::decode(body)?,
    };
    profile.check()?;
    Ok(profile)
}

/// What the body holds, and nothing besides.
fn whole<T: DeserializeOwned>(body: &[u8]) -> Result<T, Damage> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(Damage::Contents),
    }
}

/// Whether a file begins as a profile does. False also of what cannot be read.
pub fn is_profile(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *MAGIC
}

/// Reads a profile's file.
pub fn load(path: &Path) -> Result<Profile, ReadError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    let profile = match bytes.len() as u64 > BYTES_MAX {
        true => Err(Damage::TooLarge),
        false => decode(&bytes),
    };
    profile.map_err(|why| ReadError::Damaged {
        path: path.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Interval, Process, Touched};

    fn sound() -> Profile {
        let interval = |number, pages| Interval {
            number,
            cpu_us: 500_000,
            lower: Touched::of(std::iter::once(700..701).collect()),
            touched: Touched::of(vec![pages, 700..701]),
        };
        Profile {
            kernel: "6.12.0".into(),
            interval_ms: 1000,
            intervals: 9,
            elapsed_ms: 9000,
            disturbed_by: vec!["damon".into()],
            processes: vec![Process {
                name: "redis-server".into(),
                cgroup: "/system.slice/redis.service".into(),
                blocks: 2,
                huge_blocks: 1,
                intervals: vec![interval(0, 0..512), interval(3, 5..9), interval(8, 0..0)],
            }],
        }
    }

    #[test]
    fn a_profile_survives_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        std::fs::write(&path, encode(&sound())).unwrap();
        assert!(is_profile(&path) && !is_profile(dir.path()));
        assert_eq!(load(&path).unwrap(), sound());
        let error = load(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }

    /// The same recording, as version 1 wrote it.
    #[test]
    fn version_1_is_read() {
        let sound = sound();
        let intervals = |process: &Process| -> Vec<(u32, u64, Touched)> {
            let intervals = process.intervals.iter();
            intervals
                .map(|it| (it.number, it.cpu_us, it.touched.clone()))
                .collect()
        };
        let process = |it: &Process| (it.name.clone(), it.blocks, it.huge_blocks, intervals(it));
        let processes: Vec<_> = sound.processes.iter().map(process).collect();
        let old = (&sound.kernel, sound.interval_ms, sound.intervals, processes);
        let mut bytes = with_header(&postcard::to_allocvec(&old).unwrap());
        assert!(decode(&bytes).is_err(), "the newest says more");
        bytes[MAGIC.len()] = 1;
        let read = decode(&bytes).unwrap();
        let mut expected = sound;
        expected.processes[0].cgroup.clear();
        expected.disturbed_by.clear();
        for interval in &mut expected.processes[0].intervals {
            interval.lower = Touched::default();
        }
        assert_eq!(read, expected);
        bytes[MAGIC.len()] = 6;
        assert_eq!(decode(&bytes), Err(Damage::Version(6)));
    }

    /// The same recording, as version 4 wrote it.
    #[test]
    fn version_4_is_read() {
        let mut bytes = with_header(&postcard::to_allocvec(&sound()).unwrap());
        bytes[MAGIC.len()] = 4;
        assert_eq!(decode(&bytes), Ok(sound()));
    }

    /// The same recording, as versions 2 and 3 wrote it.
    #[test]
    fn versions_2_and_3_are_read() {
        let mut sound = sound();
        let Profile {
            kernel,
            interval_ms,
            intervals,
            disturbed_by,
            processes,
            ..
        } = &sound;
        let process = |it: &Process| {
            let intervals = it.intervals.clone();
            (it.name.clone(), it.blocks, it.huge_blocks, intervals)
        };
        let processes: Vec<_> = processes.iter().map(process).collect();
        let second = (kernel, interval_ms, intervals, &processes);
        let third = (kernel, interval_ms, intervals, disturbed_by, &processes);
        let mut second = with_header(&postcard::to_allocvec(&second).unwrap());
        let mut third = with_header(&postcard::to_allocvec(&third).unwrap());
        for (bytes, version) in [(&mut second, 2), (&mut third, 3)] {
            assert!(decode(bytes).is_err(), "the newest says more");
            bytes[MAGIC.len()] = version;
        }
        sound.processes[0].cgroup.clear();
        assert_eq!(decode(&third).as_ref(), Ok(&sound));
        sound.disturbed_by.clear();
        assert_eq!(decode(&second), Ok(sound));
    }

    #[test]
    fn a_profile_is_told_apart_by_cgroup_and_made_nameless() {
        let mut whole = sound();
        let other = |cgroup: &str| Process {
            cgroup: cgroup.into(),
            ..whole.processes[0].clone()
        };
        let more = [other("/a/b"), other(""), other("/a/b")];
        whole.processes.extend(more);
        let parts = whole.clone().by_cgroup();
        let sizes = parts
            .iter()
            .map(|(path, it)| (&path[..], it.processes.len()));
        let redis = "/system.slice/redis.service";
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [("", 1), ("/a/b", 2), (redis, 1)]
        );
        assert_eq!(parts[redis], sound());
        let nameless = whole.without_names();
        let names = nameless
            .processes
            .iter()
            .map(|it| (&it.name[..], &it.cgroup[..]));
        let expected = [
            ("process 0", "/cgroup 0"),
            ("process 1", "/cgroup 1"),
            ("process 2", ""),
            ("process 3", "/cgroup 1"),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(nameless.check(), Ok(()));
    }

    #[test]
    fn every_field_is_checked() {
        fn refused(field: &str, change: impl FnOnce(&mut Profile)) {
            let mut profile = sound();
            change(&mut profile);
            let error = decode(&encode(&profile)).unwrap_err().to_string();
            assert!(error.starts_with(field), "{field}: {error}");
        }
        refused("interval_ms", |profile| profile.interval_ms = 0);
        refused("intervals", |profile| profile.intervals = u32::MAX);
        refused("processes", |profile| profile.processes.clear());
        refused("kernel", |profile| profile.kernel = "a\nb".into());
        refused("disturbed_by", |profile| {
            profile.disturbed_by.push("\n".into())
        });
        refused("disturbed_by", |profile| {
            profile.disturbed_by = vec![String::new(); 17]
        });
        let process = "processes[0]";
        refused(&format!("{process}.name"), |p| {
            p.processes[0].name = "x".repeat(65)
        });
        refused("elapsed_ms", |profile| profile.elapsed_ms = u64::MAX);
        for path in ["a", "/a/../b", "/..", "/a//b", "/a\n", "/a/"] {
            refused(&format!("{process}.cgroup"), |p| {
                p.processes[0].cgroup = path.into();
            });
        }
        refused(&format!("{process}.blocks"), |p| p.processes[0].blocks = 0);
        refused(&format!("{process}.blocks"), |p| {
            p.processes[0].blocks = u32::MAX
        });
        refused(&format!("{process}.huge_blocks"), |p| {
            p.processes[0].huge_blocks = 3
        });
        refused(&format!("{process}.intervals: 0"), |p| {
            p.processes[0].intervals[1].number = 0;
        });
        refused(&format!("{process}.intervals: 9"), |p| {
            p.processes[0].intervals[2].number = 9;
        });
        refused(&format!("{process}.intervals[3].touched"), |p| {
            p.processes[0].intervals[1].touched = Touched::of(vec![3..4, 1023..1025]);
        });
        refused(&format!("{process}.intervals[3].lower"), |p| {
            p.processes[0].intervals[1].lower = Touched::of(vec![4..5, 5..6]);
        });
    }

    #[test]
    fn what_was_cut_off_or_is_something_else_is_told() {
        let whole = encode(&sound());
        assert_eq!(decode(b""), Err(Damage::NotOne));
        assert_eq!(decode(b"name = 'a scenario'"), Err(Damage::NotOne));
        for length in MAGIC.len()..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length}");
        }
        let mut later = whole.clone();
        later[8] = 6;
        assert_eq!(decode(&later), Err(Damage::Version(6)));
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(decode(&changed), Err(Damage::Checksum));
    }

    /// Bytes with a header that is right, so that what is behind it is looked at.
    fn headed(body: &[u8]) -> Vec<u8> {
        let crc = crc32fast::hash(body).to_le_bytes();
        [MAGIC.as_slice(), &VERSION.to_le_bytes(), &crc, body].concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&body);
            let _ = decode(&headed(&body));
        }

        #[test]
        fn a_changed_byte_is_refused_or_makes_a_sound_profile(
            at in 0usize..500,
            to in any::<u8>(),
        ) {
            let mut body = encode(&sound())[HEADER_BYTES..].to_vec();
            let at = at % body.len();
            body[at] = to;
            if let Ok(profile) = decode(&headed(&body)) {
                prop_assert_eq!(profile.check(), Ok(()));
                for process in &profile.processes {
                    for interval in &process.intervals {
                        prop_assert!(interval.touched.runs().all(|run| run.end <= process.pages()));
                    }
                }
            }
        }
    }
}
