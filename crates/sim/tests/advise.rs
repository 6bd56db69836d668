//! Advice on scenarios whose answer is known, and what must not change it.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pghot_sim::Error;
use pghot_sim::advise::interval::{FAR_SHARE_MIN, MODEL_FACTORS, Verdict};
use pghot_sim::advise::point::Came;
use pghot_sim::advise::subject::Subject;
use pghot_sim::advise::{Advice, Kept, Need, Question, advise};
use pghot_sim::scenario::Scenario;
use serde_json::Value;

/// Runs that are kept, and of them how many were asked for in vain.
#[derive(Default)]
struct Memory {
    kept: Mutex<HashMap<String, Came>>,
    ran: AtomicUsize,
}

impl Kept for Memory {
    fn find(&self, key: &str) -> Option<Came> {
        self.kept.lock().unwrap().get(key).copied()
    }

    fn keep(&self, key: &str, came: &Came) -> Result<(), Error> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        self.kept.lock().unwrap().insert(key.to_owned(), *came);
        Ok(())
    }
}

fn scenario(seed: u64, process: &str) -> Scenario {
    let machine = "name = 'test'\nmode = 'statistical'\nseconds = 600\n[machine]\n\
        [[machine.node]]\nmemory_mib = 2048\ncpus = 4\nlatency_ns = [100, 250]\n\
        [[machine.node]]\nmemory_mib = 2048\n[machine.costs]\ncompute_ns = 300\n\
        [[process]]\nthreads = 4\n";
    let text = format!("seed = {seed}\n{machine}{process}");
    Scenario::parse(&text, Path::new("test.toml")).unwrap()
}

/// All accesses go to this part of a GiB.
fn hot(seed: u64, from: f64, to: f64) -> Scenario {
    hot_for(seed, from, to, 60_000_000)
}

fn hot_for(seed: u64, from: f64, to: f64, accesses: u64) -> Scenario {
    let text = format!(
        "memory_mib = 1024\n[[process.phase]]\npattern = 'random'\nrange = [{from}, {to}]\n\
         accesses = {accesses}\n"
    );
    scenario(seed, &text)
}

const UNIFORM: &str = "memory_mib = 1024\n[[process.phase]]\npattern = 'random'\n\
    accesses = 100_000_000\n";

fn asked(scenario: &Scenario, question: &Question, kept: &Memory) -> Advice {
    let subject = Subject::described(scenario).unwrap();
    advise(&subject, question, &[], kept, &|_, _| ()).unwrap()
}

fn quick() -> Question {
    Question {
        with_changes: false,
        ..Question::default()
    }
}

fn need<'a>(advice: &'a Advice, system: &str) -> &'a Need {
    advice
        .needs
        .iter()
        .find(|need| need.system == system)
        .unwrap()
}

#[test]
fn a_hot_set_needs_as_much_as_it_is_large() {
    // The first quarter: it is in the top tier from the start. An access takes 400 ns there and 550
    // below, so for 2 % a share of 400 / 150 * 0.02 may be below: 94.7 % of it must not, and the
    // kernel keeps a little free.
    let advice = asked(&hot(1, 0.0, 0.25), &quick(), &Memory::default());
    assert_eq!((advice.memory_mib, advice.working_set_mib), (1024, 256));
    for system in ["none", "numab2", "pghot"] {
        let percent = need(&advice, system).top.unwrap().percent;
        assert!((94..=100).contains(&percent), "{system}: {advice:#?}");
    }
    assert_eq!(advice.verdict, Verdict::LeaveOff, "{advice:#?}");
    assert_eq!(advice.top, need(&advice, "none").top);

    // The last quarter: without tiering all that lies before it must fit, too.
    // Two minutes, so that finding it, which takes four seconds, is no large part of the time.
    let advice = asked(
        &hot_for(1, 0.75, 1.0, 1_200_000_000),
        &quick(),
        &Memory::default(),
    );
    assert!(
        need(&advice, "none").top.unwrap().percent > 380,
        "{advice:#?}"
    );
    let percent = need(&advice, "pghot").top.unwrap().percent;
    assert!((94..=130).contains(&percent), "{advice:#?}");
    assert_eq!(advice.verdict, Verdict::Pghot, "{advice:#?}");
}

#[test]
fn where_all_memory_is_used_alike_pghot_stays_off() {
    let advice = asked(&scenario(1, UNIFORM), &quick(), &Memory::default());
    assert_eq!(advice.verdict, Verdict::LeaveOff, "{advice:#?}");
    assert!(advice.top.unwrap().percent > 85, "{advice:#?}");
}

#[test]
fn the_answer_does_not_depend_on_the_grid() {
    let kept = Memory::default();
    let answers = [3, 8, 13].map(|coarse_steps| {
        let question = Question {
            coarse_steps,
            ..quick()
        };
        let advice = asked(&hot(1, 0.6, 0.9), &question, &kept);
        advice
            .needs
            .iter()
            .map(|need| need.top.unwrap().percent)
            .collect::<Vec<_>>()
    });
    for (system, place) in [("none", 0), ("numab2", 1), ("pghot", 2)] {
        let of: Vec<u32> = answers.iter().map(|needs| needs[place]).collect();
        let (low, high) = (of.iter().min().unwrap(), of.iter().max().unwrap());
        assert!(high - low <= 2, "{system}: {of:?}");
    }
}

#[test]
fn the_interval_contains_the_answers_of_other_seeds() {
    let first = asked(&hot(1, 0.6, 0.9), &quick(), &Memory::default());
    for seed in [100, 200] {
        let other = asked(&hot(seed, 0.6, 0.9), &quick(), &Memory::default());
        for system in ["none", "numab2", "pghot"] {
            let (here, there) = (need(&first, system), need(&other, system));
            let interval = here.low.unwrap().percent..=here.high.unwrap().percent;
            let percent = there.top.unwrap().percent;
            assert!(
                interval.contains(&percent),
                "{system}, seed {seed}: {percent}, {interval:?}"
            );
        }
    }
}

#[test]
fn whoever_goes_on_says_the_same_and_does_not_begin_again() {
    let (whole, half, other) = (Memory::default(), Memory::default(), Memory::default());
    let scenario = hot(1, 0.75, 1.0);
    let question = Question::default();
    let advice = asked(&scenario, &question, &whole);
    let all = whole.ran.load(Ordering::Relaxed);
    for (number, (key, came)) in whole.kept.lock().unwrap().iter().enumerate() {
        if number % 2 == 0 {
            half.kept.lock().unwrap().insert(key.clone(), *came);
        }
    }
    let text = |advice: &Advice| serde_json::to_string(advice).unwrap();
    assert_eq!(text(&asked(&scenario, &question, &half)), text(&advice));
    assert_eq!(half.ran.load(Ordering::Relaxed), all / 2);
    // From nothing, too, however many threads there are.
    assert_eq!(text(&asked(&scenario, &question, &other)), text(&advice));
    let changes = advice.changes.iter().map(|change| change.by_percent.abs());
    assert!(
        changes.is_sorted_by(|a, b| a >= b) && advice.changes.len() > 5,
        "{advice:#?}"
    );
}

#[test]
fn more_doubts_make_the_interval_wider() {
    let subject = Subject::described(&hot(1, 0.6, 0.9)).unwrap();
    let kept = Memory::default();
    let interval = |doubts: &[String]| {
        let advice = advise(&subject, &quick(), doubts, &kept, &|_, _| ()).unwrap();
        assert!(doubts.iter().all(|doubt| advice.remarks.contains(doubt)));
        (advice.low.unwrap().percent, advice.high.unwrap().percent)
    };
    let (sure, unsure) = (
        interval(&[]),
        interval(&["It was short.".into(), "And idle.".into()]),
    );
    assert!(
        unsure.0 < sure.0 && unsure.1 > sure.1,
        "{sure:?} {unsure:?}"
    );
}

#[test]
fn work_that_is_never_done_in_time_is_refused() {
    let mut endless = hot(1, 0.0, 0.25);
    endless.seconds = 1.0;
    let subject = Subject::described(&endless).unwrap();
    let error = advise(&subject, &quick(), &[], &Memory::default(), &|_, _| ()).unwrap_err();
    assert!(error.to_string().starts_with("seconds: "), "{error}");
}

/// The constants cover the published error and are at most a tenth wider: rows that are measured
/// anew do not move an interval by themselves.
#[test]
fn the_models_factors_are_those_of_the_published_comparison() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/data/model.json");
    let data: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (system, factor) in MODEL_FACTORS {
        let pairs = data["pairs"].as_array().unwrap().iter();
        let mut factors = Vec::new();
        for pair in pairs.filter(|pair| pair["setting"]["system"] == system) {
            for half in 0..2 {
                let far = |of: &str| 1.0 - pair[of]["near"][half].as_f64().unwrap();
                let (guest, model) = (far("guest"), far("model"));
                if guest.max(model) > FAR_SHARE_MIN {
                    let ratio = guest.max(FAR_SHARE_MIN) / model.max(FAR_SHARE_MIN);
                    factors.push(ratio.max(1.0 / ratio));
                }
            }
        }
        factors.sort_by(f64::total_cmp);
        assert!(factors.len() >= 20, "{system}");
        let of_eight_seven = factors[7 * factors.len() / 8];
        assert!(
            (of_eight_seven - 0.01..1.1 * of_eight_seven).contains(&factor),
            "{system}: {of_eight_seven}, of {} measurements",
            factors.len()
        );
    }
}
