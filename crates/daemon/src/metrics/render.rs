//! Renders metrics from a status, as text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::metric::{Kind, Metric, Sample, Samples, Value};
use super::table::METRICS;
use crate::status::Status;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The format before it, 0.0.4, which everything else reads: `promtool`, node_exporter's
    /// textfile collector.
    Classic,
}

impl Format {
    /// Its MIME type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All metrics of a status.
pub fn render(status: &Status, format: Format) -> String {
    let read = |metric: &'static Metric| {
        let mut samples = Samples::default();
        (metric.read)(status, &mut samples);
        (metric, samples.0)
    };
    let families = Families(METRICS.iter().map(read).collect());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    // A String takes everything.
    let _ = encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Classic => classic(&text),
    }
}

/// The classic text of an OpenMetrics text. It names a counter with its `_total` everywhere, and
/// knows neither units nor an end.
pub fn classic(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    let mut help = "";
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        // Only the type, which comes after the help, says whether this is a counter.
        if line.starts_with("# HELP ") {
            help = line;
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|rest| {
            let name = rest.strip_suffix(" counter")?;
            let said = help.strip_prefix("# HELP ")?.strip_prefix(name)?;
            Some((name, said))
        });
        match counter {
            Some((name, said)) => {
                to += &format!("# HELP {name}_total{said}\n# TYPE {name}_total counter\n");
            }
            None if line.starts_with("# TYPE ") => to += &format!("{help}\n{line}\n"),
            None => to += &format!("{line}\n"),
        }
    }
    to
}

/// What was read, by metric.
#[derive(Debug)]
struct Families(Vec<(&'static Metric, Vec<Sample>)>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (metric, samples) in &self.0 {
            let unit = Unit::Other(metric.unit.to_owned());
            // It is appended to the name again.
            let suffix = format!("_{}", metric.unit);
            let (name, unit) = match metric.name.strip_suffix(&suffix) {
                Some(name) => (name, Some(&unit)),
                None => (metric.name, None),
            };
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, metric.help, unit, kind)?;
            for sample in samples {
                let names = metric.labels.iter().copied();
                let values = sample.labels.iter().map(|value| value.as_ref());
                let labels: Vec<(&str, &str)> = names.zip(values).collect();
                match labels.is_empty() {
                    true => value(&mut family, metric.kind, &sample.value)?,
                    false => {
                        let mut of_labels = family.encode_family(&labels)?;
                        value(&mut of_labels, metric.kind, &sample.value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(whole)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(whole, None)
        }
        (Kind::Counter, Value::Real(real)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(real, None)
        }
        (_, Value::Whole(whole)) => encoder.encode_gauge(whole),
        (_, Value::Real(real)) => encoder.encode_gauge(real),
        (_, Value::Counts(of)) => {
            let bounds = of.bounds_s.iter().copied().chain([f64::INFINITY]);
            let counts = of.counts.iter().copied().chain(std::iter::repeat(0));
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let all = of.counts.iter().sum();
            encoder.encode_histogram::<NoLabelSet>(of.sum_s, all, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pghot_engine::marking::MarkingReport;
    use pghot_engine::{Held, Outcome};

    use super::*;
    use crate::owners::{OwnerMoves, OwnerRow};
    use crate::status::{
        LowerNode, RecordingReport, ReloadReport, SourceReport, SourceState, TopNode,
    };
    use crate::{compose, testing};

    /// A status that has something of everything.
    fn status() -> Status {
        let mut lower = LowerNode {
            nid: 2,
            ..LowerNode::default()
        };
        lower.batch_durations.add(20_000_000);
        lower.totals.outcomes.add(Outcome::Moved, 65_536);
        lower.totals.outcomes.add(Outcome::Busy, 3);
        lower.last_pass.held.insert(Held::NoRoom, 30);
        let mut status = Status {
            version: "1.0 \"quoted\" \\ and\nbroken".into(),
            lower_tier: vec![lower],
            cpu_s: 1.5,
            ..Status::default()
        };
        status.cgroups.push(OwnerRow {
            moves: OwnerMoves {
                name: "/a \"quoted\"".into(),
                promoted_pages: 65_536,
                demoted_pages: Some(0),
                not_moved: [("busy".to_owned(), 3)].into(),
                ready_pages: 30,
                ..OwnerMoves::default()
            },
            top_bytes: Some(4096),
            lower_bytes: Some(8192),
            share_bytes: Some(5000),
            limit_bytes: Some(1 << 20),
            ..OwnerRow::default()
        });
        status.reload = Some(ReloadReport {
            count: 5,
            refused: 2,
            ..ReloadReport::default()
        });
        status.recording = Some(RecordingReport {
            profiles: 7,
            error: Some("no room".into()),
            ..RecordingReport::default()
        });
        status.top_tier.push(TopNode {
            nid: 0,
            room_pages: 512,
            free_space_shortcut: true,
        });
        status.sources.push(SourceReport {
            name: "hint_fault".into(),
            state: SourceState::Disabled,
            why: None,
            stats: None,
            cost: None,
            past: Default::default(),
            details: Default::default(),
        });
        status.marking = Some(MarkingReport::default());
        status.latency.samples = 3;
        status.latency.sum_ms = 1510.0;
        status.latency.counts = vec![1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1];
        let vmstat = ("pgpromote_success".to_owned(), Some(7));
        status.vmstat_growth.extend([vmstat]);
        let setting = crate::status::SettingReport {
            value: Some(2),
            unit: String::new(),
            has_flag: false,
        };
        status.settings.insert("freq_threshold".into(), setting);
        status
    }

    #[test]
    fn every_metric_of_the_table_appears_with_help_and_type() {
        let text = render(&status(), Format::OpenMetrics);
        for metric in METRICS {
            let kind = metric.kind.name();
            let name = metric.name;
            assert!(text.contains(&format!("# HELP {name} {}\n", metric.help)));
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
            if !metric.unit.is_empty() {
                assert!(text.contains(&format!("# UNIT {name} {}\n", metric.unit)));
            }
            let sample = |line: &str| line.starts_with(metric.sample_name().as_str());
            assert!(text.lines().any(sample), "{name} has no sample");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn the_text_is_as_prometheus_reads_it() {
        let text = render(&status(), Format::OpenMetrics);
        for line in [
            "pghot_promoted_pages_total{nid=\"2\"} 65536",
            "pghot_outcomes_total{nid=\"2\",outcome=\"busy\"} 3",
            "pghot_outcomes_total{nid=\"2\",outcome=\"gone\"} 0",
            "pghot_held_pages{nid=\"2\",reason=\"no_room\"} 30",
            "pghot_held_pages{nid=\"2\",reason=\"rate_limit\"} 0",
            r#"pghot_cgroup_outcomes_total{cgroup="/a \"quoted\"",outcome="moved"} 65536"#,
            r#"pghot_cgroup_outcomes_total{cgroup="/a \"quoted\"",outcome="busy"} 3"#,
            r#"pghot_cgroup_ready_pages{cgroup="/a \"quoted\""} 30"#,
            r#"pghot_cgroup_memory_bytes{cgroup="/a \"quoted\"",tier="lower"} 8192"#,
            r#"pghot_cgroup_share_bytes{cgroup="/a \"quoted\""} 5000"#,
            "pghot_config_reloads_total{result=\"ok\"} 3",
            "pghot_config_reloads_total{result=\"refused\"} 2",
            "pghot_recorded_profiles_total 7",
            "pghot_recording_failed 1",
            "pghot_room_pages{nid=\"0\"} 512",
            "pghot_source_state{source=\"hint_fault\",state=\"disabled\"} 1",
            "pghot_source_state{source=\"hint_fault\",state=\"running\"} 0",
            "pghot_ready_to_moved_seconds_sum 1.51",
            "pghot_ready_to_moved_seconds_count 3",
            "pghot_ready_to_moved_seconds_bucket{le=\"0.01\"} 1",
            "pghot_ready_to_moved_seconds_bucket{le=\"0.5\"} 2",
            "pghot_ready_to_moved_seconds_bucket{le=\"60.0\"} 2",
            "pghot_ready_to_moved_seconds_bucket{le=\"+Inf\"} 3",
            "pghot_batch_duration_seconds_bucket{le=\"0.01\",nid=\"2\"} 0",
            "pghot_batch_duration_seconds_bucket{le=\"0.025\",nid=\"2\"} 1",
            "pghot_batch_duration_seconds_sum{nid=\"2\"} 0.02",
            "pghot_cpu_seconds_total 1.5",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn what_a_label_says_is_escaped() {
        let text = render(&status(), Format::OpenMetrics);
        let info = "pghot_build_info{version=\"1.0 \\\"quoted\\\" \\\\ and\\nbroken\"";
        assert!(text.lines().any(|line| line.starts_with(info)), "{text}");
    }

    #[test]
    fn the_classic_text_names_counters_in_full_and_has_the_same_samples() {
        let text = render(&status(), Format::OpenMetrics);
        let classic = render(&status(), Format::Classic);
        assert!(classic.contains("# TYPE pghot_promoted_pages_total counter\n"));
        assert!(classic.contains("# HELP pghot_promoted_pages_total Base pages"));
        assert!(classic.contains("# TYPE pghot_held_pages gauge\n"));
        assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"));
        let samples = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(samples(&text), samples(&classic));
    }

    #[test]
    fn no_series_comes_twice_and_all_labels_have_values() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = testing::daemon(dir.path());
        let text = render(&compose::status(&shared), Format::Classic);
        let series = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let all: Vec<String> = lines.map(series).collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(!text.contains("=\"\""), "{text}");
        for metric in METRICS {
            let mut samples = Samples::default();
            (metric.read)(&status(), &mut samples);
            let fits = |sample: &Sample| sample.labels.len() == metric.labels.len();
            assert!(samples.0.iter().all(fits), "{}", metric.name);
        }
    }

    /// A source that is stopped and started again counts from zero; what it said before stays.
    #[test]
    fn counters_of_a_source_never_go_back() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = testing::daemon(dir.path());
        let recorded = || {
            let text = render(&compose::status(&shared), Format::Classic);
            let start = "pghot_source_recorded_pages_total{source=\"faults\"} ";
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.unwrap().parse::<u64>().unwrap()
        };
        let recorded_pages = &watched.recorded_pages;
        recorded_pages.store(5, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(recorded(), 5);
        shared.set("enabled_sources", "0").unwrap();
        assert_eq!(recorded(), 5);
        recorded_pages.store(2, std::sync::atomic::Ordering::Relaxed);
        shared.set("enabled_sources", "1").unwrap();
        assert_eq!(recorded(), 7);
    }
}
