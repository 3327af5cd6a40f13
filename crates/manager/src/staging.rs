//! The options of batches in stages, and their text.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The batches of [`crate::Policy::Staged`] (DVABatch, section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    /// The buffer pairs of each stage: with one, a batch begins when the one before has ended (the serial manner); with more, stages run
    /// different batches at the same time (the parallel manner), and a batch can be stretched.
    pub pairs: u32,
    /// The most members of a batch, the paper's bs_max.
    pub batch_max: u32,
    /// The most members of all batches in flight (Policy I).
    pub active_max: u32,
    /// How long a request waits for others before a batch is made of them, in nanoseconds.
    pub window_ns: u64,
    /// The age from which on a batch is not stretched, the paper's T_comp_wait, in nanoseconds; 0: none is (Policy III).
    pub stretch_ns: u64,
    /// A batch is split where its halves, one after the other, take less time than the whole by [`crate::Config::stages`], by this percentage of
    /// theirs; 0: no more time, as the paper has it (Policy II). None: no batch is split.
    pub split_margin_percent: Option<u32>,
}

/// The units of a time, with their nanoseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl Default for Staging {
    /// The paper's bs_max, no waiting, and batches that are neither stretched nor split.
    fn default() -> Self {
        Self {
            pairs: 2,
            batch_max: 64,
            active_max: 256,
            window_ns: 0,
            stretch_ns: 0,
            split_margin_percent: None,
        }
    }
}

/// The options that are not the default, each behind a colon.
impl Display for Staging {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let numbers = [
            ("batch", self.batch_max, default.batch_max),
            ("active", self.active_max, default.active_max),
            ("pairs", self.pairs, default.pairs),
        ];
        for (name, number, _) in numbers.iter().filter(|(_, number, usual)| number != usual) {
            write!(f, ":{name}={number}")?;
        }
        for (name, ns) in [("window", self.window_ns), ("stretch", self.stretch_ns)] {
            let unit = UNITS.into_iter().find(|unit| ns % unit.1 == 0).filter(|_| ns > 0);
            if let Some((unit, of)) = unit {
                write!(f, ":{name}={}{unit}", ns / of)?;
            }
        }
        self.split_margin_percent.map_or(Ok(()), |percent| write!(f, ":split={percent}"))
    }
}

/// `[:batch=N][:active=N][:pairs=N][:window=TIME][:stretch=TIME][:split=PERCENT]`, times as in `2ms`.
impl FromStr for Staging {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut staging = Self::default();
        // Each option has a colon before it.
        let (first, options) = match text.split_once(':') {
            Some((first, options)) => (first, Some(options.split(':'))),
            None => (text, None),
        };
        let misplaced = Some(first).filter(|first| !first.is_empty());
        for option in misplaced.into_iter().chain(options.into_iter().flatten()) {
            let named = option.split_once('=').filter(|_| misplaced.is_none());
            let read = named.and_then(|(name, value)| staging.set(name, value));
            read.ok_or_else(|| {
                format!(
                    "'{option}' is no option of the policy staged: expected batch=N, active=N or pairs=N with a number from 1 to 65536, \
                     window=TIME or stretch=TIME with a time such as 2ms, or split=PERCENT"
                )
            })?;
        }
        Ok(staging)
    }
}

impl Staging {
    /// Sets an option, if there is one of that name which takes the value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let number = || value.parse().ok().filter(|number| (1..=65_536).contains(number));
        match name {
            "batch" => self.batch_max = number()?,
            "active" => self.active_max = number()?,
            "pairs" => self.pairs = number()?,
            "window" => self.window_ns = time_ns(value)?,
            "stretch" => self.stretch_ns = time_ns(value)?,
            "split" => {
                let percent = value.parse().ok().filter(|percent| *percent <= 1_000)?;
                self.split_margin_percent = Some(percent);
            }
            _ => return None,
        }
        Some(())
    }
}

fn time_ns(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, of) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back() {
        let all = ":batch=8:active=16:pairs=1:window=1500us:stretch=2s:split=0";
        let staging = all.parse::<Staging>().unwrap();
        let expected = Staging {
            pairs: 1,
            batch_max: 8,
            active_max: 16,
            window_ns: 1_500_000,
            stretch_ns: 2_000_000_000,
            split_margin_percent: Some(0),
        };
        assert_eq!(staging, expected);
        assert_eq!(staging.to_string(), all);
        assert_eq!(":window=0:stretch=0ms".parse::<Staging>().unwrap(), Staging::default());
        assert_eq!("".parse::<Staging>().unwrap(), Staging::default());
        assert_eq!(Staging::default().to_string(), "");
    }

    #[test]
    fn what_is_no_option_is_told() {
        for text in [
            "x",
            "batch=8",
            ":",
            ":batch",
            ":batch=0",
            ":batch=x",
            ":pairs=70000",
            ":window=2",
            ":window=ms",
            ":stretch=99999999999s",
            ":split=-1",
            ":split=2000",
            ":batch=2:",
            ":width=3",
        ] {
            let error = text.parse::<Staging>().unwrap_err();
            assert!(error.contains("is no option of the policy staged"), "{text}: {error}");
        }
    }
}
