//! The pages that pghot draws: one frame, one style in light and dark, and plots. A page is one
//! file that works offline. Its markup is written with `maud`, which escapes what is no markup.

mod colour;
pub mod faults;
pub mod heat;
pub mod plot;

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use colour::Colour;

/// A whole page.
pub fn page(title: &str, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                style { (PreEscaped(colour::css())) (PreEscaped(include_str!("page.css"))) }
            }
            body { main { (body) } }
        }
    };
    markup.into_string() + "\n"
}

/// What the colours of plots stand for, and a note.
pub fn key<'a>(
    names: impl IntoIterator<Item = (Colour, impl AsRef<str> + 'a)>,
    note: &str,
) -> Markup {
    html! {
        p.key {
            @for (colour, name) in names {
                span class=(colour.name()) { i {} (name.as_ref()) }
            }
            span.quiet { (note) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_words_stays_text() {
        let hostile = "<script>alert(\"1\")</script>&";
        let body = html! { h1 {} (key([(Colour::BLUE, hostile)], hostile)) };
        let page = page(hostile, &body);
        assert!(!page.contains("<script"), "{page}");
        let escaped = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;";
        assert_eq!(page.matches(escaped).count(), 3, "{page}");
        assert_eq!(faults::of(&page), [""; 0]);
    }
}
