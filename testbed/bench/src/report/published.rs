//! What others published beside what was measured here: ratios of the same two systems, since
//! seconds of different machines cannot be compared.

use maud::{Markup, html};
use serde::Serialize;

use pghot_published::timed::{Ours, Timed, Times};

use crate::summary::{Group, Line};

/// Two systems by what was published and by what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The published table.
    pub table: String,
    /// Where it is from.
    pub source: String,
    /// The two systems, as they are called there.
    pub ratio_of: String,
    /// Published time of the first system by that of the second; none if DAMON was not there.
    pub published: Option<f64>,
    /// How far from 1 a ratio can be by chance: by the same table, or by the noisiest if it does
    /// not tell.
    pub noise: f64,
    /// Whether the table itself tells its noise.
    pub is_noise_known: bool,
    /// What was measured here; none if it was not.
    pub ours: Option<Measured>,
    /// What follows.
    pub verdict: Verdict,
}

/// The ratio of the same two systems here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The kernel.
    pub kernel: String,
    /// The workload.
    pub workload: String,
    /// Its kind of memory.
    pub backing: String,
    /// The two systems, as they are called here.
    pub ratio_of: String,
    /// Of the medians.
    pub ratio: f64,
    /// Of the first's fastest run and the second's slowest.
    pub min: f64,
    /// Of the first's slowest run and the second's fastest.
    pub max: f64,
}

/// Whether both say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same system is faster.
    SameDirection,
    /// The other one is.
    Opposite,
    /// One of the ratios may be 1 by chance.
    WithinNoise,
    /// There is nothing from here.
    NotMeasured,
    /// There is nothing from there.
    NotPublished,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Verdict::SameDirection => "same direction",
            Verdict::Opposite => "opposite",
            Verdict::WithinNoise => "within noise",
            Verdict::NotMeasured => "not measured",
            Verdict::NotPublished => "not published",
        }
    }
}

/// A published system: what found hot pages, on which kernel, and who of ours does the same.
struct Side {
    label: String,
    published: Option<f64>,
    ours: Option<&'static str>,
}

impl Side {
    fn base(table: &Timed, system: &str, ours: &'static str) -> Side {
        Side {
            label: system.to_owned(),
            published: table.base(system),
            ours: Some(ours),
        }
    }
}

/// All that was published beside what these groups have.
pub fn compare(groups: &[Group]) -> Vec<Comparison> {
    let published = Times::load();
    let widest = published.widest_noise();
    let mut comparisons = Vec::new();
    let mut with_damon: Vec<&Ours> = Vec::new();
    for table in &published.timed {
        for (first, second) in pairs(table) {
            comparisons.extend(rows(table, &first, &second, widest, groups));
        }
        // DAMON is in no published table, so it is shown once for each workload.
        if let Some(ours) = table
            .ours
            .as_ref()
            .filter(|ours| !with_damon.contains(ours))
        {
            with_damon.push(ours);
            let damon = Side {
                label: "DAMON".into(),
                published: None,
                ours: Some("damon"),
            };
            let none = Side::base(table, "NUMAB0", "none");
            comparisons.extend(rows(table, &damon, &none, widest, groups));
        }
    }
    comparisons
}

/// Who is compared with whom: the stock kernel's balancing with none, and each patched kernel with
/// both. Rows in which both kernels do the same are noise and no comparison.
fn pairs(table: &Timed) -> Vec<(Side, Side)> {
    let none = || Side::base(table, "NUMAB0", "none");
    let numab2 = || Side::base(table, "NUMAB2", "numab2");
    let mut pairs = vec![(numab2(), none())];
    for row in table.rows.iter().filter(|row| !row.same) {
        let patched = || Side {
            label: format!("patched {}", row.system),
            published: row.patched,
            ours: (row.system == "NUMAB2").then_some("pghot"),
        };
        pairs.extend([(patched(), numab2()), (patched(), none())]);
    }
    // A table without NUMAB rows compares with the stock kernel as it is.
    if numab2().published.is_none() {
        let base = table.rows.iter().find(|row| row.same);
        let patched = table.rows.iter().find(|row| !row.same);
        if let (Some(base), Some(patched)) = (base, patched) {
            let side = |label: String, published| Side {
                label,
                published,
                ours: None,
            };
            pairs.push((
                side(format!("patched {}", patched.system), patched.patched),
                side("stock".into(), base.base),
            ));
        }
    }
    pairs.retain(|(first, second)| first.published.is_some() && second.published.is_some());
    pairs
}

/// One row for each group that has both systems, or one without.
fn rows(
    table: &Timed,
    first: &Side,
    second: &Side,
    widest: f64,
    groups: &[Group],
) -> Vec<Comparison> {
    let noise = table.noise();
    let published = match (first.published, second.published) {
        (Some(first), Some(second)) if table.is_rate => Some(second / first),
        (Some(first), Some(second)) => Some(first / second),
        _ => None,
    };
    let row = |ours: Option<Measured>| {
        let mut row = Comparison {
            table: table.name.clone(),
            source: table.source.clone(),
            ratio_of: format!("{} / {}", first.label, second.label),
            published,
            noise: noise.unwrap_or(widest),
            is_noise_known: noise.is_some(),
            ours,
            verdict: Verdict::NotMeasured,
        };
        row.verdict = verdict(&row);
        row
    };
    let is_like = |group: &&Group| {
        let ours = table.ours.as_ref();
        ours.is_some_and(|o| o.workload == group.workload && o.backings.contains(&group.backing))
    };
    let measured = groups.iter().filter(is_like).filter_map(|group| {
        let line = |name: &str| group.lines.iter().find(|line| line.system == name);
        measured(group, line(first.ours?)?, line(second.ours?)?)
    });
    let found: Vec<Comparison> = measured.map(|ours| row(Some(ours))).collect();
    if found.is_empty() {
        vec![row(None)]
    } else {
        found
    }
}

fn measured(group: &Group, first: &Line, second: &Line) -> Option<Measured> {
    let (of, by) = (first.total_s, second.total_s);
    (by.min > 0.0).then(|| Measured {
        kernel: group.kernel.clone(),
        workload: group.workload.clone(),
        backing: group.backing.clone(),
        ratio_of: format!("{} / {}", first.system, second.system),
        ratio: of.median / by.median,
        min: of.min / by.max,
        max: of.max / by.min,
    })
}

fn verdict(row: &Comparison) -> Verdict {
    let (published, ours) = match (row.published, &row.ours) {
        (_, None) => return Verdict::NotMeasured,
        (None, _) => return Verdict::NotPublished,
        (Some(published), Some(ours)) => (published, ours),
    };
    if (published - 1.0).abs() <= row.noise || (ours.min <= 1.0 && ours.max >= 1.0) {
        Verdict::WithinNoise
    } else if (published < 1.0) == (ours.ratio < 1.0) {
        Verdict::SameDirection
    } else {
        Verdict::Opposite
    }
}

/// The page's section.
pub fn section(comparisons: &[Comparison]) -> Markup {
    html! {
        h2 { "Beside published figures" }
        p.quiet {
            "Ratios of times: below 1 the first system is faster. Other machines, other sizes (a \
             hundredth), other kernels; published times were taken with a clock, ours are modelled \
             from counts. So only the ratio of two systems on the same machine can be compared, \
             and of it the direction rather than the size. Noise is how far two published runs of \
             the same differ, in which nothing is moved; where a table has no such runs, the most \
             of the others is taken (marked with ~). Our range is that of the slowest and the \
             fastest runs. "
            em { "patched" }
            " is the kernel proposal, which stands beside pghot; of the 2024 table, another change \
             of the kernel's balancing. Rates are turned over."
        }
        div.scroll {
            table.loose {
                thead {
                    tr {
                        th { "published" } th { "systems" } th { "ratio" } th { "noise" }
                        th { "here" } th { "ratio" } th { "range" } th {}
                    }
                }
                @for row in comparisons { (in_columns(row)) }
            }
        }
    }
}

fn in_columns(row: &Comparison) -> Markup {
    let ratio = |ratio: Option<f64>| ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
    html! {
        tr {
            td title=(row.source) { (row.table) }
            td { (row.ratio_of) }
            td { (ratio(row.published)) }
            td { @if !row.is_noise_known { "~" } (format!("{:.1} %", row.noise * 100.0)) }
            @match &row.ours {
                Some(ours) => {
                    td {
                        (ours.ratio_of) ", " (ours.workload) ", " (ours.backing) ", kernel "
                        (ours.kernel)
                    }
                    td { (ratio(Some(ours.ratio))) }
                    td { (format!("{:.3} – {:.3}", ours.min, ours.max)) }
                }
                None => { td { "–" } td { "–" } td { "–" } }
            }
            td { (row.verdict.words()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::line;

    fn group(workload: &str, backing: &str, lines: Vec<Line>) -> Group {
        Group {
            kernel: "7".into(),
            workload: workload.into(),
            backing: backing.into(),
            pays: true,
            oracle_s: 1.0,
            foresight_s: None,
            lines,
            verdict: String::new(),
        }
    }

    fn find<'a>(rows: &'a [Comparison], table: &str, ratio_of: &str) -> &'a Comparison {
        let is_it = |row: &&Comparison| row.table == table && row.ratio_of == ratio_of;
        rows.iter().find(is_it).unwrap()
    }

    const DEFAULT: &str = "v6, scenario 1, default mode";

    #[test]
    fn what_was_not_measured_says_so() {
        let rows = compare(&[]);
        assert!(rows.iter().all(|row| row.verdict == Verdict::NotMeasured));
        let graph = find(&rows, "v7, Graph500, TEPS", "patched NUMAB2 / NUMAB2");
        assert_eq!(
            (graph.published.unwrap() * 1000.0).round(),
            868.0,
            "of times"
        );
        assert!(!graph.is_noise_known && (0.038..0.039).contains(&graph.noise));
        let fma = find(
            &rows,
            "v4, page cache that nobody maps",
            "patched FMA / stock",
        );
        assert!(fma.noise > 0.2, "what does nothing differs by that");
        assert!(section(&rows).into_string().contains("not measured"));
    }

    #[test]
    fn directions_are_those_of_the_ratios() {
        let lines = |pghot: &[f64]| {
            vec![
                line("none", &[10.0, 10.0, 10.2]),
                line("numab2", &[8.0, 8.0, 8.1]),
                line("pghot", pghot),
                line("damon", &[9.0]),
            ]
        };
        let rows = compare(&[group("promote", "anon", lines(&[5.0, 5.5]))]);
        let row = find(&rows, DEFAULT, "NUMAB2 / NUMAB0");
        assert_eq!(row.verdict, Verdict::SameDirection);
        let ours = row.ours.as_ref().unwrap();
        assert_eq!(
            (ours.ratio, ours.min, ours.max),
            (0.8, 8.0 / 10.2, 8.1 / 10.0)
        );
        // 1.4 % faster, with a noise of 1.4 %: that says nothing.
        let row = find(&rows, DEFAULT, "patched NUMAB2 / NUMAB2");
        assert!(row.ours.is_some() && row.verdict != Verdict::Opposite);
        let row = find(&rows, DEFAULT, "DAMON / NUMAB0");
        assert_eq!(row.verdict, Verdict::NotPublished);
        let row = find(&rows, "v4, anonymous memory", "patched pgtscan / NUMAB2");
        assert_eq!(
            row.verdict,
            Verdict::NotMeasured,
            "no system of ours is that"
        );

        // Slower than none, where the proposal was faster.
        let rows = compare(&[group("promote", "anon", lines(&[12.0]))]);
        let row = find(&rows, DEFAULT, "patched NUMAB2 / NUMAB0");
        assert_eq!(row.verdict, Verdict::Opposite);
        // Runs that overlap.
        let rows = compare(&[group("promote", "anon", lines(&[9.0, 11.0]))]);
        let row = find(&rows, DEFAULT, "patched NUMAB2 / NUMAB0");
        assert_eq!(row.verdict, Verdict::WithinNoise);
    }

    #[test]
    fn each_kind_of_memory_and_each_kernel_has_its_row() {
        let lines = || vec![line("none", &[10.0]), line("numab2", &[6.0])];
        let mut older = group("promote", "file", lines());
        older.kernel = "6.12".into();
        let groups = [
            group("promote", "shared", lines()),
            older,
            group("promote", "thp", lines()),
            group("uniform", "anon", lines()),
        ];
        let rows = compare(&groups);
        let of = |table: &str| -> Vec<String> {
            let ours = rows.iter().filter(|row| row.table == table);
            let ours = ours.filter_map(|row| row.ours.as_ref());
            ours.map(|ours| format!("{} {}", ours.backing, ours.kernel))
                .collect()
        };
        assert_eq!(of("v4, mapped file"), ["shared 7", "file 6.12"]);
        assert_eq!(of("v3, huge pages"), ["thp 7"]);
        assert!(of(DEFAULT).is_empty());
        assert!(
            section(&rows)
                .into_string()
                .contains("numab2 / none, promote, file, kernel 6.12")
        );
        serde_json::to_string(&rows).unwrap();
    }
}
