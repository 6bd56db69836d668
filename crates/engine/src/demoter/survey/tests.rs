//! Whose pages go first, and how many.

use super::*;
use crate::demoter::{Exchanged, Generation, Unable};
use crate::exchange::Fates;
use crate::{Pattern, Place, Policy};

/// Two cgroups on a node; what is demanded of whom, and by how much more at least goes at once.
#[derive(Default)]
struct Asked {
    demands: Vec<(u64, u64)>,
    folio_pages: u64,
    /// Of so many one goes.
    touched_again: u64,
}

impl Reclaim for Asked {
    fn now_ms(&self) -> u64 {
        0
    }
    fn room_pages(&mut self, _: Nid) -> u64 {
        0
    }
    fn lower_room_pages(&mut self, _: Nid) -> u64 {
        0
    }
    fn lruvecs(&mut self, _: Nid) -> Result<Vec<Lruvec>, Unable> {
        Ok(Vec::new())
    }
    fn age(&mut self, _: Nid, _: u64, _: u64) {}
    fn look_at(&mut self, _: &[Place]) -> Fates {
        Fates::default()
    }
    fn huge_share(&mut self, _: Nid) -> f64 {
        0.0
    }
    fn program(&mut self, _: crate::Pid) -> Option<crate::Program> {
        None
    }
    fn exchange_huge(&mut self, _: Nid, _: &[Place], _: &[Place]) -> Exchanged {
        Exchanged::default()
    }
    fn demote(&mut self, _: Nid, memcg_id: u64, _: u64, pages: u64) -> u64 {
        self.demands.push((memcg_id, pages));
        pages.next_multiple_of(self.folio_pages.max(1)) / self.touched_again.max(1)
    }
}

/// Of 1000 pages so many have been idle for so long.
fn lruvec(memcg_id: u64, path: &str, idle_ms: u64, cold: u64) -> Lruvec {
    let generations = [
        (1, idle_ms + 1000, cold),
        (2, idle_ms, 0),
        (3, 10, 1000 - cold),
    ];
    let generation = |(seq, age_ms, pages)| Generation { seq, age_ms, pages };
    Lruvec {
        memcg_id,
        cgroup: path.into(),
        generations: generations.map(generation).into(),
    }
}

/// A huge page goes whole, and what went is paid for: the next to go is not asked as well.
#[test]
fn a_round_overdraws_by_one_folio() {
    let lruvecs = [lruvec(1, "/a", 9000, 600), lruvec(2, "/b", 5000, 600)];
    let mut machine = Asked {
        folio_pages: 512,
        ..Asked::default()
    };
    let survey = Survey::new(&lruvecs, 1000);
    let went = survey.demote(0, 700, &Policies::default(), &mut machine);
    assert_eq!(machine.demands, [(1, 600)]);
    assert_eq!(went, [("/a".into(), 1024)]);
}

#[test]
fn who_has_most_for_his_weight_gives_first() {
    let lruvecs = [lruvec(1, "/a", 9000, 300), lruvec(2, "/b", 5000, 600)];
    let asked = |policies: &Policies, wanted| {
        let mut machine = Asked::default();
        let survey = Survey::new(&lruvecs, 1000);
        let went = survey.demote(0, wanted, policies, &mut machine);
        assert_eq!(went.iter().map(|(_, pages)| pages).sum::<u64>(), wanted);
        machine.demands
    };
    let none = Policies::default();
    assert_eq!(asked(&none, 400), [(1, 300), (2, 100)], "the longest idle");
    // It has 5 pages for each part of its weight, and the other 10.
    let heavy = Policies::new(vec![Policy {
        weight: Some(200),
        cgroup: Some(Pattern::of_cgroup("/a").unwrap()),
        ..Policy::default()
    }]);
    assert_eq!(asked(&heavy, 200), [(2, 200)]);
    assert_eq!(asked(&heavy, 400), [(2, 400)]);
    assert_eq!(asked(&heavy, 530), [(2, 510), (1, 20)]);
    let all = [(2, 600), (1, 267), (1, 33)];
    assert_eq!(asked(&heavy, 900), all, "one has too few idle pages");
}

/// Half of what is asked for has been touched by then.
#[test]
fn others_do_not_give_what_a_giver_could_not() {
    let lruvecs = [lruvec(1, "/a", 9000, 600), lruvec(2, "/b", 5000, 600)];
    let light = Policies::new(vec![Policy {
        weight: Some(10),
        cgroup: Some(Pattern::of_cgroup("/b").unwrap()),
        ..Policy::default()
    }]);
    let asked = |policies: &Policies| {
        let mut machine = Asked {
            touched_again: 2,
            ..Asked::default()
        };
        Survey::new(&lruvecs, 1000).demote(0, 400, policies, &mut machine);
        machine.demands
    };
    assert_eq!(asked(&light), [(2, 400)]);
    assert_eq!(asked(&Policies::default()), [(1, 400), (2, 200)]);
}

#[test]
fn who_was_idle_and_is_no_more_is_counted_though_generations_are_put_together() {
    let listed = |memcg_id, generations: &[(u64, u64)]| Lruvec {
        memcg_id,
        cgroup: "/".into(),
        generations: (generations.iter())
            .map(|&(seq, pages)| Generation {
                seq,
                age_ms: 0,
                pages,
            })
            .collect(),
    };
    // 5 was opened by the first aging, 6 by the second: 3 and 4 were idle in between.
    let before = listed(7, &[(3, 100), (4, 200), (5, 50), (6, 0)]);
    // The third opened 7, and put 3 and 4 together.
    let after = listed(7, &[(4, 240), (5, 40), (6, 70), (7, 0)]);
    let count = |after: &[Lruvec]| no_more_idle([std::slice::from_ref(&before), after]);
    assert_eq!(count(&[listed(6, &[(1, 9)]), after]), (300, 60));
    assert_eq!(count(&[]), (300, 300), "the group is gone");
    assert_eq!(no_more_idle([&[listed(7, &[])], &[]]), (0, 0));
}
