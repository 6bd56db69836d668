//! What every page of pghot keeps, for the tests of those who write one: the frame, both colour
//! schemes, a phone's width, and nothing from elsewhere.

use crate::{colour, page};

/// What would look something up.
const FOREIGN: [&str; 7] = [
    "http://", "https://", "<script", "<link", "src=", "@import", "url(",
];

/// What is wrong with a page, in words; nothing of a good one.
pub fn of(html: &str) -> Vec<String> {
    // The name of SVG is a name, and is not looked up.
    let plain = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    let foreign = FOREIGN.iter().filter(|mark| plain.contains(**mark));
    let mut faults: Vec<String> = foreign
        .map(|mark| format!("it looks something up elsewhere: {mark}"))
        .collect();
    let frame = page("", &maud::html! {});
    let style = |page: &str| {
        let (_, rest) = page.split_once("<style>")?;
        Some(rest.split_once("</style>")?.0.to_owned())
    };
    let schemes = colour::css();
    for (is_there, what) in [
        (html.starts_with("<!DOCTYPE html>"), "the document type"),
        (html.ends_with("</main></body></html>\n"), "the frame"),
        (html.contains("<title>"), "a title"),
        (html.contains("<h1>"), "a headline"),
        (html.contains("name=\"viewport\""), "the width of a phone"),
        (html.contains("content=\"light dark\""), "the dark scheme"),
        (html.contains(&schemes), "the colours"),
        (style(html) == style(&frame), "the style of all pages"),
    ] {
        if !is_there {
            faults.push(format!("it lacks {what}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told() {
        let good = page("x", &maud::html! { h1 { "x" } });
        assert_eq!(of(&good), [""; 0]);
        for (part, with) in [
            ("<!DOCTYPE html>", ""),
            ("</main>", ""),
            ("<title>", "<p>"),
            ("<h1>", "<h1><img src=\"x\">"),
            ("name=\"viewport\"", ""),
            ("light dark", "light"),
            ("prefers-color-scheme:dark", "print"),
            ("max-width: 480px", "max-width: 48px"),
            ("</body>", "<script></script></body>"),
        ] {
            let changed = good.replace(part, with);
            assert!(changed != good && !of(&changed).is_empty(), "{part}");
        }
    }
}
