//! How numbers are written, in the terminal and on the page.

/// A count with its thousands set apart: `65,536`.
pub fn with_commas(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `value`: a step people can read.
pub fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= value * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases = [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (65_536.0, "65,536"),
        ];
        for (value, text) in cases {
            assert_eq!(with_commas(value), text);
        }
        assert_eq!(with_commas(-1234.5), "-1,234");
    }

    #[test]
    fn steps_are_readable() {
        for (value, step) in [(0.7, 1.0), (1.2, 2.0), (2.0, 2.0), (2.1, 5.0), (6.0, 10.0)] {
            assert_eq!(round_step(value), step, "{value}");
        }
    }
}
