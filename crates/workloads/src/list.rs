//! Lists of CPUs and nodes in the kernel's notation: `0`, `0-1`, `0,2-3`.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// The largest id accepted: a typing slip must not become a list of four billion entries.
const MAX_ID: u32 = 8191;

/// Ids in ascending order, each once; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdList(Vec<u32>);

impl IdList {
    /// The ids, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.0
    }

    /// Whether `id` is in the list.
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }
}

impl FromStr for IdList {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut ids = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_id(first)?, parse_id(last)?);
            if first > last {
                bail!("range {part} runs backwards");
            }
            ids.extend(first..=last);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(Self(ids))
    }
}

fn parse_id(text: &str) -> Result<u32> {
    let id = text
        .parse()
        .with_context(|| format!("'{text}' is not a number"))?;
    ensure!(
        id <= MAX_ID,
        "{id} is above {MAX_ID}, the largest id accepted"
    );
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_single_ids_and_ranges() {
        let list: IdList = "3,0-1,1".parse().unwrap();
        assert_eq!(list.ids(), [0, 1, 3]);
        assert!(list.contains(3) && !list.contains(2));
    }

    #[test]
    fn refuses_what_is_no_list() {
        for text in ["", "x", "1-", "-1", "2-1", "0,,1", "0-4294967295"] {
            assert!(text.parse::<IdList>().is_err(), "{text:?}");
        }
    }
}
