use super::*;

#[test]
fn a_seed_is_one_scenario_and_seeds_differ() {
    assert_eq!(scenario(7), scenario(7));
    let names = (0..50).map(|seed| scenario(seed).name);
    let names: std::collections::BTreeSet<String> = names.collect();
    assert_eq!(names.len(), 50);
}

#[test]
fn all_scenarios_can_be_run() {
    for seed in 0..500 {
        let scenario = scenario(seed);
        scenario
            .check()
            .unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

#[test]
fn a_line_is_read_as_it_was_written() {
    let outcome = Outcome {
        seed: 3,
        none_s: 20.0,
        numab2_s: 22.0,
        pghot_s: 10.5,
        daemon_s: 0.25,
        what: "4 CPUs: stream\tand more".to_owned(),
    };
    assert_eq!(outcome.percent().map(f64::round), [10.0, -48.0]);
    let line = outcome.to_string();
    assert_eq!(
        line.split('\t').count(),
        Outcome::HEAD.split('\t').count() + 1
    );
    assert_eq!(Outcome::parse(&line), Some(outcome));
    for damaged in ["", Outcome::HEAD, "1\t0\t1\t1\t1\tx", "1\tnan\t1\t1\t1\tx"] {
        assert_eq!(Outcome::parse(damaged), None, "{damaged}");
    }
}

#[test]
fn a_summary_counts_gains_and_losses() {
    let of = |seed, pghot_s| Outcome {
        seed,
        none_s: 100.0,
        numab2_s: 103.0,
        pghot_s,
        daemon_s: 0.0,
        what: format!("it {seed}"),
    };
    let text = summary(&[of(1, 50.0), of(2, 100.5), of(3, 102.0), of(4, 100.0)]);
    let expected = "numab2: of 4 scenarios 0 gain and 4 lose more than 1 %; +3.0 % at best, +3.0 % \
                    in the middle, +3.0 % at worst\n\
                    pghot: of 4 scenarios 1 gain and 1 lose more than 1 %; -50.0 % at best, +0.5 % \
                    in the middle, +2.0 % at worst\n\
                    pghot against numab2: 3 are quicker and 0 slower by more than 1 %\n\
                    seed 3: +2.0 %, it 3\n";
    assert_eq!(text, expected);
    assert_eq!(summary(&[]), "");
}
