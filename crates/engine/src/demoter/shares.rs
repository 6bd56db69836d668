//! Whom demotion takes from, by weight.
//!
//! It takes from the cgroup with the most pages for its weight, until the next one has as many for
//! its own, and then from both: weighted max-min fairness. A share of the node would not do. Beside
//! many small cgroups each share is small and all large ones are above theirs, so the largest would
//! give first, whatever its weight.

use std::cmp::Reverse;
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

/// What each of those who may go would have of a node if all had as much for their weight, of what
/// they have there together. Takes paths with pages or bytes, and answers in the same order.
pub fn shares(held: &[(&str, u64)], policies: &Policies) -> Vec<u64> {
    let weight = |path: &str| u128::from(policies.weight(path));
    let all: u64 = held.iter().map(|(_, size)| size).sum();
    let weights: u128 = held.iter().map(|(path, _)| weight(path)).sum();
    let share = |(path, _): &(&str, u64)| (u128::from(all) * weight(path) / weights.max(1)) as u64;
    held.iter().map(share).collect()
}

/// The numbers of the cgroups that give pages, and how many of so many in all, who gives most
/// first. Nobody where no weight is set.
pub fn givers(holders: &[Holder], wanted: u64, policies: &Policies) -> Vec<(u64, u64)> {
    if !policies.has_weights() {
        return Vec::new();
    }
    let weighed = |holder: &Holder| {
        let weight = policies.weight(&holder.cgroup);
        (
            holder.memcg_id,
            u128::from(holder.pages),
            u128::from(weight),
        )
    };
    let mut all: Vec<(u64, u128, u128)> = holders.iter().map(weighed).collect();
    // The most pages for its weight first: a / b > c / d is a d > c b.
    all.sort_by(|(_, a, b), (_, c, d)| (c * b).cmp(&(a * d)));
    // How many give, the pages and the weights of all of them, and what of these they keep.
    let (mut count, mut had, mut weights, mut kept) = (0, 0, 0, 0);
    for (_, pages, weight) in &all {
        if count > 0 && pages * weights <= kept * weight {
            break;
        }
        (count, had, weights) = (count + 1, had + pages, weights + weight);
        kept = u128::saturating_sub(had, wanted.into());
    }
    let gives = |(memcg_id, pages, weight): &(u64, u128, u128)| {
        let keeps = kept * weight / weights;
        (*memcg_id, pages.saturating_sub(keeps) as u64)
    };
    let mut givers: Vec<(u64, u64)> = all[..count].iter().map(gives).collect();
    givers.sort_by_key(|(_, pages)| Reverse(*pages));
    givers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Policy};

    fn holder(memcg_id: u64, cgroup: &str, pages: u64) -> Holder {
        Holder {
            memcg_id,
            cgroup: cgroup.into(),
            pages,
        }
    }

    fn holders() -> [Holder; 3] {
        [
            holder(1, "/a", 600),
            holder(2, "/b", 200),
            holder(3, "/c", 100),
        ]
    }

    fn weight(cgroup: &str, weight: u32) -> Policies {
        Policies::new(vec![Policy {
            cgroup: Some(Pattern::of_cgroup(cgroup).unwrap()),
            weight: Some(weight),
            ..Policy::default()
        }])
    }

    #[test]
    fn who_has_most_for_his_weight_gives() {
        let gives = |wanted, policies: &Policies| givers(&holders(), wanted, policies);
        assert!(gives(100, &Policies::default()).is_empty());
        assert!(givers(&[], 100, &weight("/a", 2)).is_empty());
        // 600, 200 and 100 by equal weights.
        let equal = weight("/a", 100);
        assert_eq!(gives(400, &equal), [(1, 400)]);
        assert_eq!(gives(500, &equal), [(1, 450), (2, 50)]);
        // All go down to 50.
        assert_eq!(gives(750, &equal), [(1, 550), (2, 150), (3, 50)]);
        assert_eq!(gives(u64::MAX, &equal), [(1, 600), (2, 200), (3, 100)]);
        // 600 for 400 is less than 200 for 100.
        assert_eq!(gives(50, &weight("/a", 400)), [(2, 50)]);
        assert_eq!(gives(150, &weight("/a", 400)), [(1, 80), (2, 70)]);
    }

    #[test]
    fn small_cgroups_do_not_make_a_weight_void() {
        let mut holders: Vec<Holder> = (0..100).map(|id| holder(id, "/small", 10)).collect();
        holders.push(holder(100, "/heavy", 100_000));
        holders.push(holder(101, "/light", 50_000));
        let gives = givers(&holders, 10_000, &weight("/heavy", 1000));
        assert_eq!(
            gives,
            [(101, 10_000)],
            "the heavy one has more, but less for its weight"
        );
    }
}
