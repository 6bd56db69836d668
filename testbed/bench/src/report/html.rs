//! What every page has: one file that works offline, in one style, light and dark.

/// A whole page.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light \
         dark\">\n<style>\n{}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n</body>\n</html>\n",
        text(title),
        include_str!("page.css"),
    )
}

/// Text that is no markup.
pub fn text(raw: &str) -> String {
    let raw = raw.replace('&', "&amp;").replace('<', "&lt;");
    raw.replace('>', "&gt;").replace('"', "&quot;")
}
