//! What the file and the flags come to, and what is wrong with them.

use super::*;

fn flag(name: &str, text: &str) -> Assignment {
    Assignment {
        name: name.into(),
        text: text.into(),
        origin: Origin::Flag,
    }
}

fn from_file(text: &str) -> Result<Vec<Assignment>, ConfigError> {
    parse_file(Path::new("pghot.toml"), text)
}

#[test]
fn every_option_can_be_set_in_the_file() {
    let mut text = "mode = \"precision\"\nsocket = \"/a\"\nstatus_socket = \"/d\"\n\
                    hint_socket = \"/c\"\nstate_file = \"/b\"\nuser = \"u\"\n\
                    metrics_address = \"[::1]:9464\"\nlog_format = \"json\"\n\
                    otlp_endpoint = \"[::1]:4318\"\nrecord_file = \"/e\"\n\
                    record_seconds = 60\nrecord_keep = 0x10\n\
                    record_day_max_mb = 200\n"
        .to_owned();
    for tunable in tunables::all() {
        let (_, max) = (tunable.range)(Format::Precision);
        let quote = match tunable.kind {
            Kind::Number | Kind::Node => "",
            Kind::Set { .. } => "\"",
        };
        let (name, max) = (tunable.name, tunable.show(max));
        text.push_str(&format!("{name} = {quote}{max}{quote}\n"));
    }
    let assignments = from_file(&text).unwrap();
    let mut names: Vec<_> = assignments.iter().map(|a| a.name.as_str()).collect();
    let mut all = option_names();
    names.sort();
    all.sort();
    assert_eq!(names, all);
    let options = resolve(&assignments).unwrap();
    assert_eq!(options.settings.mode, Format::Precision);
    for tunable in tunables::all() {
        let (_, max) = (tunable.range)(Format::Precision);
        assert_eq!(options.settings.get(tunable), max, "{}", tunable.name);
    }
    assert_eq!(options.socket, Path::new("/a"));
    assert_eq!(options.user, "u");
    assert_eq!(options.metrics_address, "[::1]:9464".parse().ok());
    assert_eq!(options.record_file.as_deref(), Some(Path::new("/e")));
    assert_eq!((options.record_seconds, options.record_keep), (60, 16));
    assert_eq!(options.record_day_max_mb, 200);
}

#[test]
fn flags_win_and_the_mode_decides_ranges_wherever_it_stands() {
    let mut assignments = from_file("freq_threshold = 1\nkmigrated_sleep_ms = 200").unwrap();
    assignments.push(flag("freq_threshold", "7"));
    assignments.push(flag("mode", "precision"));
    let options = resolve(&assignments).unwrap();
    assert_eq!(options.settings.freq_threshold, 7);
    assert_eq!(options.settings.kmigrated_sleep_ms, 200);
    assert_eq!(
        options.settings.freq_window_ms, 5000,
        "the default of the mode"
    );
    assert_eq!(options.settings.target_nid, None);
}

/// A file that is wrong, and how the sentence about it begins.
const BAD_FILES: &[(&str, &str)] = &[
    ("\nfreq_threshold = 9", "line 2: freq_threshold is 1 to 3"),
    (
        "freq = 1",
        "line 1: there is no option `freq`: did you mean `freq_",
    ),
    (
        "\n\nfreq_threshold = \"2\"",
        "line 3: freq_threshold takes a whole number",
    ),
    (
        "freq_threshold = 2.5",
        "line 1: freq_threshold takes a whole number",
    ),
    (
        "freq_threshold = -1",
        "line 1: freq_threshold takes a whole number, not `-1`",
    ),
    (
        "target_nid = 99999999999999999999",
        "line 1: target_nid is too large",
    ),
    ("mode = 4", "line 1: mode takes a string"),
    (
        "mode = \"fast\"",
        "line 1: mode is `default` or `precision`, not `fast`",
    ),
    ("socket = \"\"", "line 1: socket is a path"),
    (
        "metrics_address = \"localhost\"",
        "line 1: metrics_address is an address and a port",
    ),
    ("\nmode = ", "line 2: this is not TOML"),
    (
        "mode = \"default\"\nmode = \"default\"",
        "line 2: this is not TOML",
    ),
    (
        "otlp_endpoint = \"http://collector\"",
        "line 1: otlp_endpoint is an address and a port",
    ),
    (
        "log_format = \"xml\"",
        "line 1: log_format is `auto`, `text`, `json` or `journald`",
    ),
    (
        "record_seconds = \"60\"",
        "line 1: record_seconds takes a number, not a string",
    ),
    (
        "record_seconds = 0",
        "line 1: record_seconds is a number from 1 to 604800, not `0`",
    ),
    (
        "record_keep = -1",
        "line 1: record_keep is a number from 1 to 100000, not `-1`",
    ),
    (
        "record_file = \"\"",
        "line 1: record_file is a path or `off`",
    ),
    (
        "[tunables]\nfreq_threshold = 2",
        "line 1: there is no option `tunables`; there are mode",
    ),
    (
        "enabled_sources = [\"pgscan\"]",
        "line 1: enabled_sources: there is no source `pgscan`: did you mean `pgtscan`?",
    ),
    (
        "enabled_sources = [1]",
        "line 1: enabled_sources takes a list of strings, and here is an integer",
    ),
    (
        "freq_threshold = [\"2\"]",
        "line 1: freq_threshold takes a whole number, not an array",
    ),
];

#[test]
fn a_bad_file_is_one_sentence_with_its_line() {
    for (text, expected) in BAD_FILES.iter().copied() {
        let error = from_file(text)
            .and_then(|assignments| resolve(&assignments))
            .unwrap_err();
        let sentence = error.to_string();
        let expected = format!("pghot.toml, {expected}");
        assert!(sentence.starts_with(&expected), "{text:?}: {sentence}");
        assert!(!sentence.contains('\n') && !error.is_usage(), "{sentence}");
    }
}

#[test]
fn a_bad_flag_is_a_usage_error() {
    for (name, text) in [("mode", "x"), ("freq_threshold", "0"), ("target_nid", "a")] {
        let error = resolve(&[flag(name, text)]).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains(name),
            "{error}"
        );
    }
}

#[test]
fn paths_are_found_in_a_file_that_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pghot.toml");
    let paths = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let (options, error) = load_paths(Some(&file), vec![flag("state_file", "/b")]).unwrap();
        (options.socket, options.state_file, error.is_some())
    };
    let expected = |socket: &str, is_wrong| (socket.into(), "/b".into(), is_wrong);
    assert_eq!(paths("socket = '/a'"), expected("/a", false));
    assert_eq!(
        paths("socket = '/a'\nfreq_threshold = 9\nx = 1"),
        expected("/a", true)
    );
    assert_eq!(paths("socket = '/a'\nmode = 'fast'"), expected("/a", true));
    assert_eq!(paths("socket = '"), expected("/run/pghot/pghot.sock", true));
    assert!(load_paths(Some(&file), vec![flag("freq_threshold", "9")]).is_err());
    assert!(load_paths(Some(Path::new("/nonexistent/pghot.toml")), Vec::new()).is_err());
}

#[test]
fn a_named_file_must_exist() {
    let missing = Path::new("/nonexistent/pghot.toml");
    let error = load(Some(missing), Vec::new()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the config file /nonexistent/pghot.toml"),
        "{error}"
    );
}
