//! Counters of `/proc/vmstat`.

use pghot_linux::SysRoot;
use pghot_linux::vmstat::{Counter, Vmstat};

#[test]
fn a_count_a_zero_and_an_absence_differ() {
    let vmstat = Vmstat::parse("numa_hint_faults 12\nnuma_hint_faults_local 5\npgmigrate_fail 0\n");
    assert_eq!(vmstat.get(Counter::NumaHintFaults), Some(12));
    assert_eq!(vmstat.get(Counter::PgmigrateFail), Some(0));
    assert_eq!(vmstat.get(Counter::PgpromoteCandidateNrl), None);
    assert_eq!(vmstat.demoted_pages(), None);
}

#[test]
fn growth_and_sum() {
    let before = Vmstat::parse("pgpromote_success 5\npgdemote_kswapd 1\npgdemote_direct 2\n");
    let after = Vmstat::parse("pgpromote_success 9\npgdemote_kswapd 1\npgdemote_direct 0\n");
    assert_eq!(
        after.growth_since(&before, Counter::PgpromoteSuccess),
        Some(4)
    );
    assert_eq!(
        after.growth_since(&before, Counter::PgdemoteDirect),
        Some(0)
    );
    assert_eq!(
        after.growth_since(&before, Counter::ThpMigrationSplit),
        None
    );
    assert_eq!(before.demoted_pages(), Some(3));
}

#[test]
fn what_kswapd_demotes_nobody_asked_for() {
    let text = "pgdemote_kswapd 1\npgdemote_direct 2\npgdemote_khugepaged 4\n";
    let vmstat = Vmstat::parse(text);
    assert_eq!(vmstat.demoted_by_request_pages(), 2);
    let vmstat = Vmstat::parse(&format!("{text}pgdemote_proactive 8\n"));
    assert_eq!(vmstat.demoted_by_request_pages(), 10);
}

#[test]
fn this_machine() {
    Vmstat::read(&SysRoot::default()).unwrap();
}
