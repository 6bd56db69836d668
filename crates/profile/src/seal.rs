//! A checksum over a whole Parquet file, in its own metadata. A reader of Parquet may go down with
//! a file of which a bit has changed; so the checksum is looked at before anything is decoded.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::columns::Damage;

/// The key in the metadata; the value are so many hexadecimal digits of CRC-32, which are taken for
/// zeros when it is computed.
pub(crate) const KEY: &str = "pghot_crc32";

/// What stands there until the file is sealed.
pub(crate) const BLANK: [u8; 8] = *b"00000000";

/// Behind the metadata of a file: its length, and four letters.
const TAIL_BYTES: u64 = 8;

/// The longest metadata that is searched.
const METADATA_MAX: u64 = 64 << 20;

/// Puts the checksum into a file that has a blank one.
pub(crate) fn seal(file: &mut (impl Read + Write + Seek)) -> Result<(), Damage> {
    let written = |error: io::Error| Damage::Write(error.to_string());
    let at = find(file)?;
    let crc = crc_of(file, at).map_err(written)?;
    file.seek(SeekFrom::Start(at)).map_err(written)?;
    file.write_all(format!("{crc:08x}").as_bytes())
        .map_err(written)?;
    file.flush().map_err(written)
}

/// Whether a file is as it was sealed.
pub(crate) fn check(file: &mut (impl Read + Seek)) -> Result<(), Damage> {
    let unreadable = |error: io::Error| Damage::Unreadable(error.to_string());
    let at = find(file)?;
    let crc = crc_of(file, at).map_err(unreadable)?;
    let mut told = BLANK;
    let read = file
        .seek(SeekFrom::Start(at))
        .and_then(|_| file.read_exact(&mut told));
    read.map_err(unreadable)?;
    match told == *format!("{crc:08x}").as_bytes() {
        true => Ok(()),
        false => Err(Damage::Unreadable("its checksum is wrong".into())),
    }
}

/// Where the checksum is.
fn find(file: &mut (impl Read + Seek)) -> Result<u64, Damage> {
    let unreadable = |error: io::Error| Damage::Unreadable(error.to_string());
    let wrong = |what: &str| Err(Damage::Unreadable(what.to_owned()));
    let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    if length < 2 * TAIL_BYTES {
        return wrong("it is too short");
    }
    let mut tail = [0; TAIL_BYTES as usize];
    let read = file.seek(SeekFrom::Start(length - TAIL_BYTES));
    read.and_then(|_| file.read_exact(&mut tail))
        .map_err(unreadable)?;
    if !tail.ends_with(b"PAR1") {
        return wrong("it does not end as one");
    }
    let metadata = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if metadata > METADATA_MAX || metadata + TAIL_BYTES > length {
        return wrong("its metadata has an impossible length");
    }
    let start = length - TAIL_BYTES - metadata;
    let mut bytes = vec![0; metadata as usize];
    let read = file
        .seek(SeekFrom::Start(start))
        .and_then(|_| file.read_exact(&mut bytes));
    read.map_err(unreadable)?;
    // In Thrift's compact protocol: the key, the value's field and its length, the value.
    let key = bytes
        .windows(KEY.len())
        .rposition(|part| part == KEY.as_bytes());
    let value = key.map(|key| key + KEY.len() + 2);
    match value.filter(|value| value + BLANK.len() <= bytes.len()) {
        Some(value) => Ok(start + value as u64),
        None => Err(Damage::Metadata(KEY)),
    }
}

/// Of a file, the checksum at `at` blank.
fn crc_of(file: &mut (impl Read + Seek), at: u64) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = vec![0; 1 << 20];
    let mut start = 0;
    loop {
        let read = file.read(&mut bytes)?;
        if read == 0 {
            return Ok(hasher.finalize());
        }
        for (n, blank) in BLANK.iter().enumerate() {
            let at = (at + n as u64).wrapping_sub(start);
            if at < read as u64 {
                bytes[at as usize] = *blank;
            }
        }
        hasher.update(&bytes[..read]);
        start += read as u64;
    }
}
