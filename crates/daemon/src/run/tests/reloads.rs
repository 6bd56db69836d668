//! SIGHUP while pages go up.

use signal_hook::consts::SIGHUP;

use super::*;
use crate::reload::start_reloader;
use crate::signals::is_ignored;

const RELOADS: u64 = 1000;

/// Files that are wrong, or were read while somebody wrote them. The first line of some is right,
/// and must not be taken either.
const WRONG: &[&str] = &[
    "freq_threshold = 9",
    "freq_threshold = 1\nkmigrated_sleep_ms = 10",
    "freq_threshold = 1\nfreq_window_ms = ",
    "freq_threshold = 1\nfreq_win",
    "freq_threshold = 1\nmode = \"prec",
    "freq_threshold = 1\nmode = \"precision\"\nfreq_window_ms = 17000",
    "freq_threshold = 1\ntarget_nid = 9",
    "\0\0\0\0",
];

/// Half of them are refused. What each says is in force, or nothing of it, and every page that was
/// touched meanwhile goes up.
#[test]
fn a_thousand_reloads_under_load_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut shared, _) = daemon(dir.path());
    let file = dir.path().join("pghot.toml");
    write(&file, "enabled_sources = 0x1");
    let options = config::load(Some(&file), Vec::new()).unwrap();
    let ending = Arc::new(Ending::default());
    // Whoever runs tests under nohup(1) ignores it, and so would the daemon.
    if is_ignored(SIGHUP) {
        // SAFETY: no handler of ours is there yet.
        unsafe { libc::signal(SIGHUP, libc::SIG_DFL) };
    }
    let _signals = SignalWatch::start(&ending).unwrap();
    let own = Arc::get_mut(&mut shared).unwrap();
    (own.config_file, own.stop) = (Arc::new(ConfigFile::new(&options)), ending.new_session());
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    start_reloader(&shared).unwrap();
    let hosts: Vec<Box<dyn Machine + Send>> = vec![Box::new(host(RELOADS))];
    threads.start_migrators(&shared, hosts).unwrap();
    let main = watched(&shared);

    let mut generation = 0;
    for n in 0..RELOADS {
        let before = shared.settings();
        let right = format!(
            "enabled_sources = 0x1\nfreq_threshold = {}\nkmigrated_sleep_ms = {}\n",
            1 + n / 2 % 3,
            50 + n % 50
        );
        let is_right = n % 2 == 0;
        let wrong = WRONG[n as usize / 2 % WRONG.len()];
        std::fs::write(&file, if is_right { &right } else { wrong }).unwrap();
        // As often as any of these files asks for.
        (0..3).for_each(|_| touch(&shared, LOWER_PFN + n));
        signal_hook::low_level::raise(SIGHUP).unwrap();
        until(|| {
            let last = shared.config_file.last();
            last.is_some_and(|last| last.count == n + 1)
        });
        let report = shared.config_file.last().unwrap();
        assert_eq!(report.error.is_none(), is_right, "{wrong:?}: {report:?}");
        let settings = shared.settings();
        match is_right {
            true => assert_eq!(u64::from(settings.freq_threshold), 1 + n / 2 % 3),
            false => assert_eq!(settings, before, "{wrong:?}"),
        }
        generation += u64::from(settings != before);
        if n % 100 == 99 {
            wait_for(&shared, |it| moved(it) == n + 1);
        }
    }
    assert_eq!(shared.config_generation.load(Relaxed), generation);
    assert!(generation >= RELOADS / 2 - 1);
    assert!(!shared.stop.is_requested());
    end(&shared, threads, restorer).unwrap();
    assert!(!main.join().unwrap());
}
