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

/// Pages beyond the share, by the number of the cgroup: of those that have some. Empty where no
/// weight is set.
pub fn above(holders: &[Holder], policies: &Policies) -> BTreeMap<u64, u64> {
    if !policies.has_weights() {
        return BTreeMap::new();
    }
    let weight = |holder: &Holder| u64::from(policies.weight(&holder.cgroup));
    let all: u64 = holders.iter().map(|holder| holder.pages).sum();
    let weights: u64 = holders.iter().map(weight).sum();
    let above = holders.iter().filter_map(|holder| {
        let share = u128::from(all) * u128::from(weight(holder)) / u128::from(weights.max(1));
        let above = holder.pages.saturating_sub(share as u64);
        (above > 0).then_some((holder.memcg_id, above))
    });
    above.collect()
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
