//! As much HTTP as a scrape takes: judges what a client has sent so far, and words the answer.

use super::render::Format;

/// A longer head of a request is refused. Prometheus sends about 300 bytes.
pub const HEAD_BYTES_MAX: usize = 8192;

/// Header lines of a request.
const HEADERS_MAX: usize = 64;

/// What is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The metrics.
    Metrics(Format),
    /// Where the metrics are.
    Pointer,
    /// This is no request.
    BadRequest,
    /// Nothing is there.
    NotFound,
    /// Only GET is known.
    NotAllowed,
    /// The head of the request is too long.
    TooLong,
}

/// Judges a request by what of it has arrived; `None` while more has to come.
pub fn judge(head: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(status) if status.is_complete() => {}
        Ok(_) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Some(Answer::TooLong),
        Err(_) => return Some(Answer::BadRequest),
    }
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let is_get = request.method == Some("GET");
    Some(match path {
        "/" | "/metrics" if !is_get => Answer::NotAllowed,
        "/" => Answer::Pointer,
        "/metrics" => Answer::Metrics(format(request.headers)),
        _ => Answer::NotFound,
    })
}

/// OpenMetrics for who knows it.
fn format(headers: &[httparse::Header<'_>]) -> Format {
    let is_wanted = |header: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(header.value).to_ascii_lowercase();
        header.name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    match headers.iter().any(is_wanted) {
        true => Format::OpenMetrics,
        false => Format::Classic,
    }
}

impl Answer {
    /// The whole response; `metrics` renders them.
    pub fn response(self, metrics: impl FnOnce(Format) -> String) -> Vec<u8> {
        let plain = "text/plain; charset=utf-8";
        let (status, kind, body) = match self {
            Answer::Metrics(format) => ("200 OK", format.content_type(), metrics(format)),
            Answer::Pointer => ("200 OK", plain, "pghot: see /metrics\n".into()),
            Answer::BadRequest => ("400 Bad Request", plain, "this is not HTTP\n".into()),
            Answer::NotFound => ("404 Not Found", plain, "there is only /metrics\n".into()),
            Answer::NotAllowed => ("405 Method Not Allowed", plain, "GET it\n".into()),
            Answer::TooLong => (
                "431 Request Header Fields Too Large",
                plain,
                format!("a request has at most {HEAD_BYTES_MAX} bytes\n"),
            ),
        };
        let allow = match self {
            Answer::NotAllowed => "Allow: GET\r\n",
            _ => "",
        };
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
             Connection: close\r\n\r\n{body}"
        );
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Answer> {
        judge(text.as_bytes())
    }

    #[test]
    fn requests_are_told_apart() {
        let metrics = Answer::Metrics(Format::Classic);
        for (line, answer) in [
            ("GET /metrics HTTP/1.1", metrics),
            ("GET /metrics HTTP/1.0", metrics),
            ("GET /metrics?x=1 HTTP/1.1", metrics),
            ("GET / HTTP/1.1", Answer::Pointer),
            ("GET /metrics/ HTTP/1.1", Answer::NotFound),
            ("GET /../etc/passwd HTTP/1.1", Answer::NotFound),
            ("POST /metrics HTTP/1.1", Answer::NotAllowed),
            ("HEAD / HTTP/1.1", Answer::NotAllowed),
            ("DELETE /x HTTP/1.1", Answer::NotFound),
            ("GET /metrics", Answer::BadRequest),
            ("GET /metrics HTTP/3.0", Answer::BadRequest),
            ("\u{7f}\u{0}", Answer::BadRequest),
        ] {
            let head = format!("{line}\r\nHost: h\r\n\r\n");
            assert_eq!(of(&head), Some(answer), "{line}");
        }
    }

    #[test]
    fn half_a_request_is_waited_for() {
        let head = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(of(&head[..end]), None, "{end}");
        }
        let long = format!("GET /{} HTTP/1.1", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(of(&long), Some(Answer::TooLong));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
        assert_eq!(of(&many), Some(Answer::TooLong));
    }

    #[test]
    fn who_knows_openmetrics_gets_it() {
        let asks = |accept: &str| of(&format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
        // As Prometheus 2.42 and curl say it.
        let prometheus = "Accept: application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let openmetrics = Some(Answer::Metrics(Format::OpenMetrics));
        assert_eq!(asks(prometheus), openmetrics);
        assert_eq!(asks("accept: Application/OpenMetrics-Text"), openmetrics);
        let classic = Some(Answer::Metrics(Format::Classic));
        assert_eq!(asks("Accept: */*"), classic);
        assert_eq!(asks("X-Accept: application/openmetrics-text"), classic);
    }

    #[test]
    fn an_answer_says_its_length() {
        let response = Answer::Metrics(Format::OpenMetrics).response(|_| "a 1\n".into());
        let text = String::from_utf8(response).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"));
        assert!(text.contains("\r\nContent-Length: 4\r\n"));
        assert!(text.ends_with("\r\n\r\na 1\n"));
        let refused = Answer::NotAllowed.response(|_| unreachable!("nobody asked for them"));
        assert!(
            String::from_utf8(refused)
                .unwrap()
                .contains("\r\nAllow: GET\r\n")
        );
    }
}
