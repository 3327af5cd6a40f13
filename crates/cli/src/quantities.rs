//! Addresses, sizes and durations as people write them on a command line.
//!
//! A text that has one meaning is read; the answer to any other text shows what would be read. A suffix such as `4G`
//! is refused: some programs take it for 10^9 and others for 2^30.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The longest duration, in seconds: 11 days.
const SECONDS_MAX: f64 = 1e6;

/// The units of sizes, and how many bytes each is.
const SIZES: [(&str, u64); 9] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// The units of durations, and how many seconds each is.
const TIMES: [(&str, f64); 5] =
    [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0)];

/// Reads an address to listen on: `ADDRESS:PORT`, `localhost:PORT`, or a port of this machine alone, as `PORT`
/// or `:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let local = |port: &str| Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.parse().ok()?));
    let of_host = match host {
        "" | "localhost" => local(port),
        _ => None,
    };
    of_host.or_else(|| text.parse().ok()).ok_or_else(|| {
        let with_port = match text.parse::<IpAddr>() {
            Ok(address) => {
                format!("an address and a port, such as {}", SocketAddr::new(address, 8000))
            }
            Err(_) => "a port of this machine, such as 8000, or an address and a port, such as \
                       127.0.0.1:8000, 0.0.0.0:8000 for the whole network, or [::1]:8000"
                .to_owned(),
        };
        format!("expected {with_port}")
    })
}

/// Reads a number of bytes: `67108864`, `64MiB` or `1.5 GB`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let read = || {
        let (number, unit) = number_and_unit(text);
        let unit = unit.to_ascii_lowercase();
        if unit.is_empty() {
            return number.parse().ok();
        }
        let (_, size) = SIZES.iter().find(|(name, _)| *name == unit)?;
        if let Ok(number) = number.parse::<u64>() {
            return usize::try_from(number.checked_mul(*size)?).ok();
        }
        let bytes = (number.parse::<f64>().ok()? * *size as f64).round();
        (0.0..2f64.powi(63)).contains(&bytes).then_some(bytes as usize)
    };
    read().ok_or_else(|| {
        "expected a number of bytes, such as 4294967296, 4GiB (2^30 bytes each) or 4GB (10^9 bytes \
         each); also KiB, MiB, TiB, kB, MB, TB"
            .to_owned()
    })
}

/// Reads a duration of zero or more: `30` (seconds), `30s`, `500ms`, `5m` or `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    seconds(text, 0.0).ok_or_else(|| expected_duration("0"))
}

/// Reads a duration of a millisecond or more, written as for [`duration`].
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    seconds(text, 1e-3).ok_or_else(|| expected_duration("0.001"))
}

fn seconds(text: &str, min: f64) -> Option<Duration> {
    let (number, unit) = number_and_unit(text);
    let scale = match unit {
        "" => 1.0,
        unit => TIMES.iter().find(|(name, _)| *name == unit)?.1,
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    (min..SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn expected_duration(min: &str) -> String {
    format!("expected seconds, from {min} up, such as 30 or 30s; or 500ms, 5m, 1h")
}

/// Splits `1.5 GB` into `1.5` and `GB`.
fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.trim_end_matches(|char: char| char.is_ascii_alphabetic()).len();
    let (number, unit) = text.split_at(end);
    match number.is_empty() {
        // `inf` and `nan` are no units.
        true => (text, ""),
        false => (number.trim_end(), unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let is = |text: &str, address: &str| {
            assert_eq!(super::address(text), Ok(address.parse().unwrap()), "{text}");
        };
        is("8000", "127.0.0.1:8000");
        is(":8000", "127.0.0.1:8000");
        is("localhost:8000", "127.0.0.1:8000");
        is("0.0.0.0:0", "0.0.0.0:0");
        is("[::1]:8000", "[::1]:8000");
        for text in ["", "localhost", "80000", ":", "example.org:80", "http://localhost:8000", "-1"]
        {
            let error = address(text).unwrap_err();
            assert!(error.contains("such as 8000") && error.contains("0.0.0.0:8000"), "{error}");
        }
        let error = "expected an address and a port, such as 10.0.0.1:8000";
        assert_eq!(address("10.0.0.1"), Err(error.to_owned()));
        let error = "expected an address and a port, such as [::1]:8000";
        assert_eq!(address("::1"), Err(error.to_owned()));
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4294967296"), Ok(4 << 30));
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert_eq!(bytes("4GB"), Ok(4_000_000_000));
        assert_eq!(bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(bytes("1.5kb"), Ok(1500));
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("7B"), Ok(7));
        for text in ["4G", "GB", "", "-1", "-1GB", "1.5", "nan", "1e30GB", "99999999999TB", "4GBs"]
        {
            let error = bytes(text).expect_err(text);
            assert!(error.contains("4GiB") && error.contains("4GB"), "{error}");
        }
    }

    #[test]
    fn durations() {
        let is = |text: &str, ms: u64| {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        };
        is("30", 30_000);
        is("30s", 30_000);
        is("0.25", 250);
        is("500ms", 500);
        is("5m", 300_000);
        is("5 min", 300_000);
        is("1h", 3_600_000);
        is("0", 0);
        for text in ["", "s", "-1", "1d", "inf", "nan", "1e6", "300h"] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("30s") && error.contains("5m"), "{error}");
        }
        assert_eq!(period("1ms"), Ok(Duration::from_millis(1)));
        assert!(period("0").is_err() && period("0.5ms").is_err());
    }
}
