//! The sentences of `pghot explain`: a pure function of what is known about a page.

use std::fmt::Write;

use pghot_engine::demoter::DemoterReport;
use pghot_engine::{Decision, Held, Outcome, PassReport, QuickFault, Settings};
use pghot_hotness::Nid;

use crate::page::Mapped;
use crate::protocol::RecordReport;

/// Everything that the sentences are made of.
pub struct Facts {
    /// What lies at the address.
    pub mapped: Mapped,
    /// The page's node, if that is in the lower tier.
    pub lower_nid: Option<Nid>,
    /// Its record, if it is in the lower tier.
    pub record: Option<RecordReport>,
    /// The newest decision about it.
    pub decision: Option<Decision>,
    /// The newest pass over that node.
    pub last_pass: PassReport,
    /// How room is made in the top tier.
    pub demoter: DemoterReport,
    /// `CLOCK_MONOTONIC` ms.
    pub now_ms: u64,
    /// Nothing is moved.
    pub dry_run: bool,
}

/// What to tell an operator.
pub fn sentences(facts: &Facts, settings: &Settings) -> Vec<String> {
    let mut said = vec![place(facts)];
    if let (Some(_), Some(record)) = (facts.lower_nid, facts.record) {
        said.push(history(
            record,
            facts.demoter.quick_fault(settings),
            settings,
        ));
        if record.ready {
            said.push(waiting(facts));
        }
    }
    match facts.decision {
        // Said already.
        Some(decision) if is_refused_and_ready(facts, &decision) => {}
        Some(decision) => said.push(decided(&decision, facts.now_ms)),
        None if facts.lower_nid.is_none() && matches!(facts.mapped, Mapped::Present { .. }) => {
            said.push("pghot remembers no decision about it: it was probably never moved.".into());
        }
        None => {}
    }
    said
}

fn place(facts: &Facts) -> String {
    match (facts.mapped, facts.lower_nid) {
        (Mapped::Absent, _) => "There is no page at this address.".into(),
        (Mapped::Swapped, _) => "The page is swapped out or just being moved.".into(),
        (Mapped::Present { .. }, None) => "The page is in the top tier already.".into(),
        (Mapped::Present { pfn, head }, Some(nid)) if pfn != head => format!(
            "The page is in the lower tier, on node {nid}, in a large folio whose head page has \
             the record."
        ),
        (Mapped::Present { .. }, Some(nid)) => {
            format!("The page is in the lower tier, on node {nid}.")
        }
    }
}

fn history(record: RecordReport, quick: QuickFault, settings: &Settings) -> String {
    let window_ms = settings.freq_window_ms;
    let threshold = settings.freq_threshold;
    let or_in_burst = match quick.in_bursts {
        true => ", or with many neighbours'",
        false => "",
    };
    let one = match quick.within_ms {
        0 => String::new(),
        ms => format!(
            " (or one hint fault within {ms} ms of its mark, {} us if it is a huge page\
             {or_in_burst})",
            quick.huge_within_us()
        ),
    };
    match record {
        RecordReport { freq: 0, .. } => format!(
            "No access was seen within the window of {window_ms} ms; it takes {threshold}{one} to \
             make it ready."
        ),
        RecordReport {
            freq,
            age_ms,
            ready: false,
        } => format!(
            "{freq} of {threshold} accesses within {window_ms} ms were seen, the last about \
             {age_ms} ms ago: it is not hot enough. It takes {threshold}{one}."
        ),
        RecordReport {
            freq,
            age_ms,
            ready: true,
        } => format!(
            "It is ready: {freq} accesses within {window_ms} ms were seen, the last about \
             {age_ms} ms ago."
        ),
    }
}

/// The last attempt to move it failed, and it is tried again.
fn is_refused_and_ready(facts: &Facts, decision: &Decision) -> bool {
    facts.record.is_some_and(|record| record.ready) && !decision.outcome.settles()
}

/// Why a ready page has not moved yet. A pass counts by reason, not by page: what it says of all
/// waiting pages holds for this one.
fn waiting(facts: &Facts) -> String {
    if let Some(decision) = facts.decision.filter(|d| is_refused_and_ready(facts, d)) {
        return format!(
            "The last attempt, {:.1} s ago to node {}, failed: {}. It is tried again soon.",
            ago_s(&decision, facts.now_ms),
            decision.target,
            decision.outcome.named()
        );
    }
    let held = |held: &Held| facts.last_pass.held.contains_key(held);
    let reasons: Vec<_> = Held::ALL
        .into_iter()
        .filter(held)
        .map(Held::named)
        .collect();
    match reasons.as_slice() {
        [] if facts.dry_run => "The next pass picks it, but a dry run moves nothing.".into(),
        [] => "The next pass picks it.".into(),
        reasons => {
            let mut said = format!("It waits because {}.", reasons.join(", or because "));
            if held(&Held::NoRoom) {
                let _ = write!(said, " To make room: {}.", facts.demoter.sentence());
            }
            said
        }
    }
}

fn decided(decision: &Decision, now_ms: u64) -> String {
    let ago_s = ago_s(decision, now_ms);
    let Decision {
        nid,
        target,
        freq,
        age_ms,
        outcome,
        ..
    } = decision;
    match outcome {
        Outcome::Moved => format!(
            "It was promoted from node {nid} to node {target} {ago_s:.1} s ago, after {freq} \
             accesses, the last about {age_ms} ms before."
        ),
        outcome => format!(
            "The newest attempt, {ago_s:.1} s ago to node {target}, ended so: {}.",
            outcome.named()
        ),
    }
}

fn ago_s(decision: &Decision, now_ms: u64) -> f64 {
    now_ms.saturating_sub(decision.when_ms) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use pghot_engine::Place;
    use pghot_hotness::Format;

    const PRESENT: Mapped = Mapped::Present { pfn: 7, head: 7 };

    fn facts() -> Facts {
        Facts {
            mapped: PRESENT,
            lower_nid: Some(2),
            record: Some(RecordReport {
                freq: 0,
                age_ms: 0,
                ready: false,
            }),
            decision: None,
            last_pass: PassReport::default(),
            demoter: DemoterReport {
                has_room: true,
                ..DemoterReport::default()
            },
            now_ms: 10_000,
            dry_run: false,
        }
    }

    fn decision(outcome: Outcome) -> Option<Decision> {
        Some(Decision {
            when_ms: 8500,
            pfn: 7,
            nid: 2,
            target: 1,
            place: Some(Place::in_process(5, 0x7000)),
            pages: 1,
            freq: 2,
            age_ms: 256,
            outcome,
        })
    }

    fn ready() -> Facts {
        let record = Some(RecordReport {
            freq: 2,
            age_ms: 256,
            ready: true,
        });
        Facts { record, ..facts() }
    }

    fn said(facts: &Facts) -> String {
        sentences(facts, &Settings::new(Format::Default)).join(" ")
    }

    #[test]
    fn pages_that_are_elsewhere() {
        let absent = Facts {
            mapped: Mapped::Absent,
            lower_nid: None,
            record: None,
            ..facts()
        };
        assert_eq!(said(&absent), "There is no page at this address.");
        let swapped = Facts {
            mapped: Mapped::Swapped,
            ..absent
        };
        assert_eq!(
            said(&swapped),
            "The page is swapped out or just being moved."
        );
        let top = Facts {
            mapped: PRESENT,
            ..swapped
        };
        assert_eq!(
            said(&top),
            "The page is in the top tier already. pghot remembers no decision about it: it was \
             probably never moved."
        );
        let moved = Facts {
            decision: decision(Outcome::Moved),
            ..top
        };
        assert_eq!(
            said(&moved),
            "The page is in the top tier already. It was promoted from node 2 to node 1 1.5 s \
             ago, after 2 accesses, the last about 256 ms before."
        );
    }

    #[test]
    fn pages_that_are_not_hot() {
        assert_eq!(
            said(&facts()),
            "The page is in the lower tier, on node 2. No access was seen within the window of \
             3000 ms; it takes 2 (or one hint fault within 125 ms of its mark, 16 us if it is a \
             huge page, or with many neighbours') to make it ready."
        );
        let record = Some(RecordReport {
            freq: 1,
            age_ms: 512,
            ready: false,
        });
        assert_eq!(
            said(&Facts { record, ..facts() }),
            "The page is in the lower tier, on node 2. 1 of 2 accesses within 3000 ms were seen, \
             the last about 512 ms ago: it is not hot enough. It takes 2 (or one hint \
             fault within 125 ms of its mark, 16 us if it is a huge page, or with many \
             neighbours')."
        );
        let tail = Mapped::Present { pfn: 9, head: 7 };
        assert!(
            said(&Facts {
                mapped: tail,
                ..facts()
            })
            .contains("large folio")
        );
    }

    #[test]
    fn pages_that_wait() {
        assert!(said(&ready()).ends_with("The next pass picks it."));
        assert!(
            said(&Facts {
                dry_run: true,
                ..ready()
            })
            .ends_with("a dry run moves nothing.")
        );
        let mut held = ready();
        held.last_pass.held.insert(Held::NoRoom, 5);
        assert!(said(&held).ends_with(
            "It waits because the target node has no free memory above its high watermark \
             (no_room). To make room: the top tier has room for what waits: nothing is demoted."
        ));
        held.last_pass.held.insert(Held::RateLimit, 5);
        assert!(
            said(&held).contains(" for now (rate_limit), or because the target node has no free")
        );
    }

    /// As hot as a page must be that is to go up for another one.
    #[test]
    fn what_it_takes_where_pages_change_places() {
        let mut held = ready();
        held.last_pass.held.insert(Held::NoRoom, 5);
        held.demoter = DemoterReport {
            is_wanted: true,
            is_proven: true,
            touched_ms: 16,
            idle_ms: 32,
            rate_mbps: 128,
            ..DemoterReport::default()
        };
        assert!(said(&held).ends_with(
            "To make room: pages touched within 16 ms go up for pages idle for 32 ms, 128 MB/s at \
             most."
        ));
        held.record = facts().record;
        assert!(said(&held).contains("one hint fault within 16 ms"));
        let mut settings = Settings::new(Format::Default);
        settings.quick_fault_ms = 0;
        let said = sentences(&facts(), &settings).join(" ");
        assert!(said.contains("it takes 2 to make it ready"), "{said}");
    }

    #[test]
    fn pages_that_were_refused() {
        let refused = Facts {
            decision: decision(Outcome::Busy),
            ..ready()
        };
        assert!(said(&refused).ends_with(
            "The last attempt, 1.5 s ago to node 1, failed: the kernel found it busy (pinned, \
             locked or under writeback) (busy). It is tried again soon."
        ));
        let cooled = Facts {
            decision: decision(Outcome::Shared),
            ..facts()
        };
        assert!(said(&cooled).ends_with(
            "The newest attempt, 1.5 s ago to node 1, ended so: several processes map it and the \
             kernel would not move it (shared)."
        ));
    }

    /// Whatever keeps a page down, its name is behind the sentence, as metrics have it.
    #[test]
    fn every_reason_is_named() {
        for held in Held::ALL {
            let mut waits = ready();
            waits.last_pass.held.insert(held, 1);
            let said = said(&waits);
            let expected = format!("because {} ({})", held.sentence(), held.name());
            assert!(said.contains(&expected), "{said}");
        }
        let others = Outcome::ALL.iter().filter(|it| **it != Outcome::Moved);
        for outcome in others.copied() {
            let decision = decision(outcome);
            for facts in [
                Facts {
                    decision,
                    ..facts()
                },
                Facts {
                    decision,
                    ..ready()
                },
            ] {
                let said = said(&facts);
                // Settled, and ready again since: then the next pass is what counts.
                let expected = format!(": {} ({}).", outcome.sentence(), outcome.name());
                assert!(said.contains(&expected), "{said}");
            }
        }
    }
}
