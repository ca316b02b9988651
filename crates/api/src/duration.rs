//! Durations as people write them: `500ms`, `30s`, `5m`, `1h`, `7d`.

use std::time::Duration;

use thiserror::Error;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a duration; write 500ms, 30s, 5m, 1h or 7d")]
pub struct NotADuration(pub String);

/// Reads a whole number with its unit.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let wrong = || NotADuration(text.chars().take(40).collect());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs).ok_or_else(wrong);
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_with_a_unit() {
        assert_eq!(parse("1500ms"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(604_800)));
        for bad in
            ["", "s", "10", "-1s", "1.5s", "10 s", "1é", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
