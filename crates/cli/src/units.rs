//! Quantities as people read them.

/// A number with its digits in groups of three.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest binary unit that leaves a number of at least 1.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.trim_end_matches(".0"), UNITS[unit])
}

/// Pages of 4 KiB with their size.
pub fn pages(pages: u64) -> String {
    format!("{} pages ({})", count(pages), bytes(pages << 12))
}

/// A time in its two largest units.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

/// A short time, in ns, in the unit that suits it.
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(
            ["0", "999", "1,000", "65,536"],
            [0, 999, 1000, 65_536].map(count)
        );
        assert_eq!(
            ["0 bytes", "4 KiB", "1.5 MiB", "2048 TiB"],
            [bytes(0), bytes(4096), bytes(3 << 19), bytes(2 << 50)]
        );
        assert_eq!(pages(65_536), "65,536 pages (256 MiB)");
        let short = [7, 1500, 2_000_000, 3_500_000_000].map(nanoseconds);
        assert_eq!(short, ["7 ns", "1.5 µs", "2.0 ms", "3.50 s"]);
        let times = [0.25, 61.0, 7260.0, 90_000.0].map(seconds);
        assert_eq!(times, ["0.2 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]);
    }
}
