//! Advice as one page that works offline: the answer, the curves that it was read from, and what it
//! rests on.

use maud::{Markup, html};
use pghot_page::plot::{Axis, Chart, Curve, Mark, round_step};
use pghot_page::{Colour, key, page as framed};
use pghot_sim::advise::interval::{LATENCY_BAND, MODEL_FACTORS};
use pghot_sim::advise::{Advice, CurvePoint, Need, Size};

use super::text::{answer, gib, system_name};
use super::{Answers, Together};

/// Labels of an axis.
const LABELS: f64 = 6.0;

/// Slowdowns beyond so many times the accepted one are cut off: what matters is where the curves
/// come down to it.
const SHOWN_TIMES: f64 = 8.0;

/// All answers.
pub fn page(answers: &Answers) -> String {
    let body = html! {
        h1 { "pghot " span { "advise" } }
        p.lead { "How much fast memory do these programs need?" }
        @if let Some(together) = answers.together.filter(|_| answers.answers.len() > 1) {
            (sum(&together))
        }
        @for advice in &answers.answers { (section(advice)) }
        (how())
    };
    framed("pghot advise", &body)
}

fn sum(together: &Together) -> Markup {
    html! {
        p.verdict {
            "Together " (gib(together.top_mib)) " of top tier, " (gib(together.low_mib)) " to "
            (gib(together.high_mib)) ", if each has its own."
        }
    }
}

fn section(advice: &Advice) -> Markup {
    html! {
        h2 { (advice.name) " " span { (gib(advice.memory_mib)) " of memory" } }
        p.verdict { (capital(&answer(advice))) "." }
        p { (advice.verdict.sentence()) }
        @for remark in &advice.remarks { p.quiet { (remark) } }
        div.cards { @for need in &advice.needs { (card(advice, need)) } }
        (key(
            advice.needs.iter().enumerate().map(|(n, need)| {
                (Colour::of_system(&need.system, n), system_name(&need.system).to_owned())
            }),
            "bands: the model's published error; dashed: the answer",
        ))
        section.plots {
            (plot(advice, "slowdown, %", &|point| {
                Some((point.slowdown_percent?, point.slowdown_low_percent?,
                      point.slowdown_high_percent?))
            }))
            (plot(advice, "accesses served by the top tier, %", &|point| {
                Some(exact(point.came.near_share * 100.0))
            }))
            (plot(advice, "promoted and demoted, GiB", &|point| {
                Some(exact((point.came.promoted_mib + point.came.demoted_mib) as f64 / 1024.0))
            }))
        }
        @if !advice.changes.is_empty() { (changes(advice)) }
        (parts(advice))
        (table(advice))
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn card(advice: &Advice, need: &Need) -> Markup {
    let is_chosen = need.system == advice.verdict.system();
    html! {
        div.card {
            p.who {
                (system_name(&need.system))
                @if is_chosen { " — the answer" }
            }
            @match (need.top, need.low, need.high) {
                (Some(top), Some(low), Some(high)) => {
                    b { (gib(top.mib)) }
                    p { (top.percent) " % of the working set" }
                    p.rival {
                        "interval" span { (gib(low.mib)) " to " (gib(high.mib)) }
                    }
                }
                _ => { b { "none" } p { "No size keeps the slowdown within what is accepted." } }
            }
        }
    }
}

fn exact(value: f64) -> (f64, f64, f64) {
    (value, value, value)
}

/// A value with the least and the most that it may be, if there is one.
type Of<'a> = &'a dyn Fn(&CurvePoint) -> Option<(f64, f64, f64)>;

fn plot(advice: &Advice, title: &str, of: Of<'_>) -> Markup {
    let sizes = || advice.needs.iter().flat_map(|need| &need.curve);
    let unit_mib = match advice.memory_mib {
        0..8192 => 1.0,
        _ => 1024.0,
    };
    let x_of = |size: Size| size.mib as f64 / unit_mib;
    let x_end = sizes().map(|point| x_of(point.size)).fold(1.0, f64::max);
    let highest = sizes()
        .filter_map(of)
        .map(|(value, ..)| value)
        .fold(1.0, f64::max);
    let is_slowdown = title.starts_with("slowdown");
    let y_end = match is_slowdown {
        true => (highest * 1.05).min(SHOWN_TIMES * advice.slowdown_percent),
        false => highest * 1.05,
    };
    let cut = |value: f64| value.clamp(0.0, y_end);
    let curve = |(n, need): (usize, &Need)| {
        let known = need
            .curve
            .iter()
            .filter_map(|point| Some((x_of(point.size), of(point)?)));
        let known: Vec<(f64, (f64, f64, f64))> = known.collect();
        let has_band = known.iter().any(|(_, (_, low, high))| low < high);
        Curve {
            colour: Colour::of_system(&need.system, n),
            is_faint: false,
            points: known
                .iter()
                .map(|(x, (value, ..))| (*x, cut(*value)))
                .collect(),
            band: (known.iter().filter(|_| has_band))
                .map(|(x, (_, low, high))| (*x, cut(*low), cut(*high)))
                .collect(),
        }
    };
    let mut curves: Vec<Curve> = advice.needs.iter().enumerate().map(curve).collect();
    if is_slowdown {
        curves.insert(0, accepted(advice.slowdown_percent, x_end));
    }
    let name = format!("top tier, {}", if unit_mib > 1.0 { "GiB" } else { "MiB" });
    let chart = Chart {
        label: title,
        x: Axis {
            name: &name,
            start: 0.0,
            end: x_end,
            step: round_step(x_end / LABELS),
            label: short,
        },
        y: Axis {
            name: title,
            start: 0.0,
            end: y_end,
            step: round_step(y_end / LABELS),
            label: short,
        },
        curves,
        mark: advice.top.map(|top| Mark {
            x: x_of(top),
            is_reached: true,
            note: gib(top.mib),
        }),
    };
    html! { figure { figcaption { (title) } (chart.draw()) } }
}

/// A line at what is accepted.
fn accepted(percent: f64, x_end: f64) -> Curve {
    Curve {
        colour: Colour::INK,
        is_faint: true,
        points: vec![(0.0, percent), (x_end, percent)],
        band: Vec::new(),
    }
}

/// Without zeros that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn changes(advice: &Advice) -> Markup {
    html! {
        h2 { "What would change the answer " span { "one thing at a time" } }
        div.scroll {
            table.loose {
                thead { tr { th { "if there were" } th { "needs" } th { "more, %" } th { "of" } } }
                tbody {
                    @for change in &advice.changes {
                        tr {
                            th { (change.what) }
                            td { @match change.top {
                                Some(top) => (gib(top.mib)), None => "no size suffices",
                            } }
                            td { (format!("{:+}", change.by_percent)) }
                            td { (system_name(&change.system)) }
                        }
                    }
                }
            }
        }
        p.quiet {
            "In percent of the working set. The search goes on from the answer for a few runs."
        }
    }
}

fn parts(advice: &Advice) -> Markup {
    let band = |band: pghot_sim::advise::interval::Band| format!("{} to {}", band.low, band.high);
    html! {
        h2 { "What the intervals are made of " span { "% of the working set" } }
        div.scroll {
            table {
                thead { tr {
                    th { "" } th { "answer" } th { "other seeds" } th { "other latency" }
                    th { "error of the model" }
                } }
                @for need in &advice.needs {
                    @if let (Some(top), Some(parts)) = (need.top, need.parts) {
                        tr {
                            td { (system_name(&need.system)) }
                            td { (top.percent) }
                            td { (band(parts.seeds)) }
                            td { (band(parts.latency)) }
                            td { (band(parts.model)) }
                        }
                    }
                }
            }
        }
    }
}

fn table(advice: &Advice) -> Markup {
    let percent = |value: Option<f64>| value.map_or("not done".into(), |it| format!("{it:.2}"));
    html! {
        details {
            summary { "all runs with the first seed" }
            div.scroll {
                table {
                    thead { tr {
                        th { "" } th { "top tier" } th { "% of the working set" }
                        th { "slowdown, %" } th { "near, %" } th { "promoted, MiB" }
                        th { "demoted, MiB" } th { "daemon, s" }
                    } }
                    @for need in &advice.needs {
                        @for point in &need.curve {
                            tr {
                                td { (system_name(&need.system)) }
                                td { (gib(point.size.mib)) }
                                td { (point.size.percent) }
                                td { (percent(point.slowdown_percent)) }
                                td { (format!("{:.1}", point.came.near_share * 100.0)) }
                                td { (point.came.promoted_mib) }
                                td { (point.came.demoted_mib) }
                                td { (format!("{:.2}", point.came.daemon_s)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn how() -> Markup {
    let factors = MODEL_FACTORS.iter().filter(|(_, factor)| *factor > 1.0);
    let factors: Vec<String> = factors
        .map(|(system, factor)| format!("{factor} for {}", system_name(system)))
        .collect();
    html! {
        p.quiet {
            "Modelled. The slowdown is that of the same work against everything in the top tier; "
            "what the top tier loses, the lower tier gains. The working set is all memory that was "
            "accessed. An interval is the root of the sum of the squares of three: other seeds, a "
            "lower tier " (LATENCY_BAND) " times as far or as near, and the model's published "
            "error, "
            "by which the lower tier serves more or fewer accesses, by a factor of "
            (factors.join(", ")) "."
        }
    }
}

#[cfg(test)]
mod tests {
    use pghot_sim::advise::change::Change;
    use pghot_sim::advise::interval::Verdict;
    use pghot_sim::advise::point::Came;

    use super::*;

    fn advice(name: &str) -> Advice {
        let size = |percent: u32| Size {
            mib: u64::from(percent) * 100,
            percent,
        };
        let point = |percent: u32, slowdown: Option<f64>| CurvePoint {
            size: size(percent),
            slowdown_percent: slowdown,
            slowdown_low_percent: slowdown.map(|it| it / 2.0),
            slowdown_high_percent: slowdown.map(|it| it * 2.0),
            came: Came {
                work_s: 1.0,
                far_time_share: 0.1,
                near_share: 0.5,
                promoted_mib: 3,
                demoted_mib: 4,
                daemon_s: 0.5,
                is_complete: slowdown.is_some(),
            },
        };
        let need = |system: &str| Need {
            system: system.into(),
            top: Some(size(50)),
            low: Some(size(40)),
            high: Some(size(60)),
            parts: None,
            rises: None,
            curve: vec![point(10, None), point(50, Some(2.0)), point(100, Some(0.0))],
        };
        Advice {
            name: name.into(),
            slowdown_percent: 2.0,
            memory_mib: 10_000,
            working_set_mib: 10_000,
            page_weight: 1,
            verdict: Verdict::Kernel,
            top: Some(size(50)),
            low: Some(size(40)),
            high: Some(size(60)),
            needs: ["none", "numab2", "pghot"].map(need).to_vec(),
            changes: vec![Change {
                what: "a <b>".into(),
                system: "pghot".into(),
                top: None,
                by_percent: 7,
            }],
            remarks: vec!["It was <short>.".into()],
        }
    }

    #[test]
    fn the_page_has_the_answer_the_bands_and_the_sum_and_markup_stays_text() {
        let one = advice("<script>1");
        let together = super::super::together(&[one.clone(), one.clone()]);
        let page = page(&Answers {
            answers: vec![one.clone(), one],
            together,
        });
        assert!(page.contains("Together 9.8 GiB"), "{page}");
        assert!(page.contains("4.9 GiB of top tier") && page.contains("Leave pghot off"));
        assert_eq!(page.matches("<svg").count(), 2 * 3);
        // Three bands in each plot of the slowdown, none elsewhere.
        assert_eq!(page.matches("<polygon").count(), 2 * 3);
        assert!(!page.contains("<script") && page.contains("It was &lt;short&gt;."));
        assert!(page.contains("not done") && page.contains("no size suffices"));
        assert_eq!(pghot_page::faults::of(&page), [""; 0]);
    }

    #[test]
    fn no_answer_is_no_sum() {
        let mut none = advice("x");
        none.top = None;
        assert_eq!(super::super::together(&[advice("y"), none.clone()]), None);
        let page = page(&Answers {
            answers: vec![none],
            together: None,
        });
        assert!(page.contains("No size of the top tier keeps the slowdown within 2 %"));
    }
}
