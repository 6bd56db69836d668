//! Who has more of a node than his share.
//!
//! What the cgroups have together on the node is divided by their weights. Who has more than his
//! part is above his share, and demotion takes from him first.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Policies;

/// A cgroup's pages on the node.
pub struct Holder {
    /// Its number.
    pub memcg_id: u64,
    /// Its path.
    pub cgroup: Arc<str>,
    /// Base pages.
    pub pages: u64,
}

/// What each of those who may go is to have of a node, by its weight: a share of what they have
/// there together. Takes paths with pages or bytes, and answers in the same order.
pub fn shares(held: &[(&str, u64)], policies: &Policies) -> Vec<u64> {
    let weight = |path: &str| u128::from(policies.weight(path));
    let all: u64 = held.iter().map(|(_, size)| size).sum();
    let weights: u128 = held.iter().map(|(path, _)| weight(path)).sum();
    let share = |(path, _): &(&str, u64)| (u128::from(all) * weight(path) / weights.max(1)) as u64;
    held.iter().map(share).collect()
}

/// Pages beyond the share, by the number of the cgroup: of those that have some. Empty where no
/// weight is set.
pub fn above(holders: &[Holder], policies: &Policies) -> BTreeMap<u64, u64> {
    if !policies.has_weights() {
        return BTreeMap::new();
    }
    let held = holders.iter().map(|holder| (&*holder.cgroup, holder.pages));
    let shares = shares(&held.collect::<Vec<_>>(), policies);
    let above = holders.iter().zip(shares).map(|(holder, share)| {
        let above = holder.pages.saturating_sub(share);
        (holder.memcg_id, above)
    });
    above.filter(|(_, pages)| *pages > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Policy};

    fn holders() -> Vec<Holder> {
        let holder = |(memcg_id, cgroup, pages): (u64, &str, u64)| Holder {
            memcg_id,
            cgroup: cgroup.into(),
            pages,
        };
        [(1, "/a", 600), (2, "/b", 200), (3, "/c", 100)]
            .map(holder)
            .into()
    }

    fn weight(cgroup: &str, weight: u32) -> Policies {
        Policies::new(vec![Policy {
            cgroup: Some(Pattern::of_cgroup(cgroup).unwrap()),
            weight: Some(weight),
            ..Policy::default()
        }])
    }

    #[test]
    fn a_share_goes_by_weight() {
        assert!(above(&holders(), &Policies::default()).is_empty());
        // 300 for each.
        assert_eq!(above(&holders(), &weight("/a", 100)), [(1, 300)].into());
        // 600, 150 and 150.
        assert_eq!(above(&holders(), &weight("/a", 400)), [(2, 50)].into());
        // 9, 445 and 445.
        assert_eq!(above(&holders(), &weight("/a", 2)), [(1, 592)].into());
        assert!(above(&[], &weight("/a", 2)).is_empty());
    }
}
