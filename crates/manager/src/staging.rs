//! The options of batches in stages, and their text.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The batches of [`crate::Policy::Staged`] (DVABatch, section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    /// The buffer pairs of each stage: with one, a batch begins when the one before has ended (the serial manner); with more, stages run
    /// different batches at the same time (the parallel manner), and a batch can be stretched.
    pub pairs: u32,
    /// How many executors each stage has, each of which is in a pipeline of its own: batches of one pipeline do not meet those of another.
    /// None: as many as there are workers. The paper has one.
    pub pipelines: Option<u32>,
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
    /// The paper's bs_max, no bound on all batches, no waiting, and batches that are neither stretched nor split.
    fn default() -> Self {
        Self {
            pairs: 2,
            pipelines: None,
            batch_max: 64,
            active_max: u32::MAX,
            window_ns: 0,
            stretch_ns: 0,
            split_margin_percent: None,
        }
    }
}

/// The batches of [`crate::Policy::Delayed`], which run as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The most members of a batch.
    pub batch_max: u32,
    /// How long a request waits for others, in nanoseconds: none in ZeroBatch.
    pub window_ns: u64,
}

impl Default for Delay {
    /// ZeroBatch, with the paper's bs_max.
    fn default() -> Self {
        Self { batch_max: Staging::default().batch_max, window_ns: 0 }
    }
}

impl Delay {
    /// The same for a model of one stage.
    pub fn staging(self) -> Staging {
        let Self { batch_max, window_ns } = self;
        Staging { pairs: 1, batch_max, active_max: u32::MAX, window_ns, ..Staging::default() }
    }
}

/// `zero[:batch=N]` or `delay:window=TIME[:batch=N]`.
impl Display for Delay {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let usual = Self::default().batch_max;
        let options = StagingOptions {
            batch_max: Some(self.batch_max).filter(|&max| max != usual),
            window_ns: Some(self.window_ns).filter(|&ns| ns > 0),
            ..StagingOptions::default()
        };
        write!(f, "{}{options}", if self.window_ns > 0 { "delay" } else { "zero" })
    }
}

/// See [`Display`]; options in any order.
impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let name = text.split(':').next()?;
            let options: StagingOptions = text.strip_prefix(name)?.parse().ok()?;
            let StagingOptions { batch_max, window_ns, .. } = options;
            let others = StagingOptions { batch_max: None, window_ns: None, ..options };
            let batch_max = batch_max.unwrap_or(Self::default().batch_max);
            match (name, window_ns) {
                _ if others != StagingOptions::default() => None,
                ("zero", None) => Some(Self { batch_max, window_ns: 0 }),
                ("delay", Some(window_ns)) => Some(Self { batch_max, window_ns }),
                _ => None,
            }
        };
        parsed().ok_or_else(|| {
            format!(
                "'{text}' is no policy: expected zero[:batch=N] or delay:window=TIME[:batch=N], with N from 1 to 65536 and a time such as 2ms"
            )
        })
    }
}

/// The options of [`crate::Policy::Staged`]. Those that are none are chosen by whoever knows the model's profile; without one, they are those of
/// [`Staging::default`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingOptions {
    /// The policy of section 7.
    pub diversity: Option<Diversity>,
    /// See [`Staging::pairs`].
    pub pairs: Option<u32>,
    /// See [`Staging::pipelines`].
    pub pipelines: Option<u32>,
    /// See [`Staging::batch_max`].
    pub batch_max: Option<u32>,
    /// See [`Staging::active_max`].
    pub active_max: Option<u32>,
    /// See [`Staging::window_ns`].
    pub window_ns: Option<u64>,
    /// See [`Staging::stretch_ns`].
    pub stretch_ns: Option<u64>,
    /// See [`Staging::split_margin_percent`].
    pub split: Option<Split>,
}

/// The diversity that a policy serves (DVABatch, sections 7.2 to 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diversity {
    /// Policy I: requests have inputs of different lengths.
    Input,
    /// Policy II: stages prefer batches of different sizes.
    Operator,
    /// Policy III: requests come at different rates.
    Load,
}

/// When a batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Not at all.
    Never,
    /// If its halves, one after the other, are faster than the whole by this percentage.
    Margin(u32),
}

impl StagingOptions {
    /// The options, with `others` where these are not settled.
    pub fn or(self, others: Self) -> Self {
        Self {
            diversity: self.diversity.or(others.diversity),
            pairs: self.pairs.or(others.pairs),
            pipelines: self.pipelines.or(others.pipelines),
            batch_max: self.batch_max.or(others.batch_max),
            active_max: self.active_max.or(others.active_max),
            window_ns: self.window_ns.or(others.window_ns),
            stretch_ns: self.stretch_ns.or(others.stretch_ns),
            split: self.split.or(others.split),
        }
    }

    /// The batches, by the defaults where these are not settled.
    pub fn staging(self) -> Staging {
        let default = Staging::default();
        Staging {
            pairs: self.pairs.unwrap_or(default.pairs),
            pipelines: self.pipelines.or(default.pipelines),
            batch_max: self.batch_max.unwrap_or(default.batch_max),
            active_max: self.active_max.unwrap_or(default.active_max),
            window_ns: self.window_ns.unwrap_or(default.window_ns),
            stretch_ns: self.stretch_ns.unwrap_or(default.stretch_ns),
            split_margin_percent: match self.split {
                None => default.split_margin_percent,
                Some(Split::Never) => None,
                Some(Split::Margin(percent)) => Some(percent),
            },
        }
    }
}

/// All of them settled.
impl From<Staging> for StagingOptions {
    fn from(staging: Staging) -> Self {
        Self {
            diversity: None,
            pairs: Some(staging.pairs),
            pipelines: staging.pipelines,
            batch_max: Some(staging.batch_max),
            active_max: Some(staging.active_max),
            window_ns: Some(staging.window_ns),
            stretch_ns: Some(staging.stretch_ns),
            split: Some(staging.split_margin_percent.map_or(Split::Never, Split::Margin)),
        }
    }
}

/// The names of policies.
const DIVERSITIES: [(&str, Diversity); 3] =
    [("input", Diversity::Input), ("operator", Diversity::Operator), ("load", Diversity::Load)];

impl Display for Diversity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = DIVERSITIES.iter().find(|(_, diversity)| diversity == self);
        f.write_str(name.expect("each has a name").0)
    }
}

/// The options that are settled, each behind a colon.
impl Display for StagingOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.diversity.map_or(Ok(()), |diversity| write!(f, ":{diversity}"))?;
        let numbers = [
            ("batch", self.batch_max),
            ("active", self.active_max),
            ("pairs", self.pairs),
            ("pipelines", self.pipelines),
        ];
        for (name, number) in numbers {
            number.map_or(Ok(()), |number| write!(f, ":{name}={number}"))?;
        }
        for (name, ns) in [("window", self.window_ns), ("stretch", self.stretch_ns)] {
            let Some(ns) = ns else { continue };
            match UNITS.into_iter().find(|unit| ns % unit.1 == 0).filter(|_| ns > 0) {
                Some((unit, of)) => write!(f, ":{name}={}{unit}", ns / of)?,
                None => write!(f, ":{name}=0")?,
            }
        }
        match self.split {
            None => Ok(()),
            Some(Split::Never) => write!(f, ":split=never"),
            Some(Split::Margin(percent)) => write!(f, ":split={percent}"),
        }
    }
}

/// `[:input|:operator|:load][:batch=N][:active=N][:pairs=N][:pipelines=N][:window=TIME][:stretch=TIME][:split=PERCENT|never]`, times as in `2ms`.
impl FromStr for StagingOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let mut parts = text.split(':');
        // Each option has a colon before it.
        let misplaced = parts.next().filter(|first| !first.is_empty());
        for option in misplaced.into_iter().chain(parts) {
            let read = match option.split_once('=') {
                _ if misplaced.is_some() => None,
                Some((name, value)) => options.set(name, value),
                None => options.set_diversity(option),
            };
            read.ok_or_else(|| {
                format!(
                    "'{option}' is no option of the policy staged: expected input, operator or load, batch=N, active=N, pairs=N or pipelines=N with a number \
                     from 1 to 65536, window=TIME or stretch=TIME with a time such as 2ms, split=PERCENT or split=never"
                )
            })?;
        }
        Ok(options)
    }
}

impl StagingOptions {
    /// Sets an option, if there is one of that name which takes the value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let number = || value.parse().ok().filter(|number| (1..=65_536).contains(number));
        match name {
            "batch" => set_once(&mut self.batch_max, number()?),
            "active" => set_once(&mut self.active_max, number()?),
            "pairs" => set_once(&mut self.pairs, number()?),
            "pipelines" => set_once(&mut self.pipelines, number()?),
            "window" => set_once(&mut self.window_ns, time_ns(value)?),
            "stretch" => set_once(&mut self.stretch_ns, time_ns(value)?),
            "split" if value == "never" => set_once(&mut self.split, Split::Never),
            "split" => {
                let percent = value.parse().ok().filter(|percent| *percent <= 1_000)?;
                set_once(&mut self.split, Split::Margin(percent))
            }
            _ => None,
        }
    }

    /// Sets the policy, if there is one of that name and none is set.
    fn set_diversity(&mut self, name: &str) -> Option<()> {
        let of_name = DIVERSITIES.iter().find(|(known, _)| *known == name)?;
        set_once(&mut self.diversity, of_name.1)
    }
}

/// Sets what is not set.
fn set_once<T>(option: &mut Option<T>, value: T) -> Option<()> {
    option.is_none().then(|| *option = Some(value))
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
        for text in [
            "",
            ":input",
            ":operator:batch=8:split=10",
            ":load:stretch=2ms",
            ":batch=8:active=16:pairs=1:pipelines=3:window=1500us:stretch=2s:split=0",
            ":window=0:stretch=0:split=never",
        ] {
            assert_eq!(text.parse::<StagingOptions>().unwrap().to_string(), text);
        }
        assert_eq!(":stretch=0ms".parse::<StagingOptions>().unwrap().to_string(), ":stretch=0");
    }

    #[test]
    fn what_is_not_settled_is_the_default() {
        let options: StagingOptions = ":batch=8:split=5:window=1500us".parse().unwrap();
        let expected = Staging {
            batch_max: 8,
            window_ns: 1_500_000,
            split_margin_percent: Some(5),
            ..Staging::default()
        };
        assert_eq!(options.staging(), expected);
        assert_eq!(StagingOptions::default().staging(), Staging::default());
        assert_eq!(StagingOptions::from(expected).staging(), expected);
        let others = ":load:batch=2:pairs=3:split=never".parse().unwrap();
        assert_eq!(options.or(others).to_string(), ":load:batch=8:pairs=3:window=1500us:split=5");
    }

    #[test]
    fn delays_read_back() {
        for text in ["zero", "zero:batch=8", "delay:window=2ms", "delay:batch=8:window=1500us"] {
            assert_eq!(text.parse::<Delay>().unwrap().to_string(), text);
        }
        assert_eq!("delay:window=0".parse(), Ok(Delay::default()));
        for text in
            ["delay", "zero:window=1ms", "delay:window=1ms:pairs=2", "zero:8", "delays:window=1s"]
        {
            assert!(text.parse::<Delay>().unwrap_err().contains("is no policy"), "{text}");
        }
    }

    #[test]
    fn what_is_no_option_is_told() {
        for text in [
            "x",
            "batch=8",
            "input",
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
            ":inputs",
            ":input:load",
            ":batch=2:batch=8",
        ] {
            let error = text.parse::<StagingOptions>().unwrap_err();
            assert!(error.contains("is no option of the policy staged"), "{text}: {error}");
        }
    }
}
