//! Times of jobs on several systems, and why there are none.

use serde_json::{Value, json};

use super::jobs::Job;

/// The name of this project's device among the systems.
pub(super) const OWN: &str = "BatchMaker";

/// A measured time, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// In milliseconds of a whole job, or in microseconds of a step, as its owner says.
    Time(f64),
    LeftOut(String),
}

impl Outcome {
    pub(super) fn time(&self) -> Option<f64> {
        match self {
            Self::Time(time) => Some(*time),
            Self::LeftOut(_) => None,
        }
    }

    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Time(_) => None,
            Self::LeftOut(reason) => Some(reason),
        }
    }
}

/// The outcome of a job on a system.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) system: &'static str,
    pub(super) job: Job,
    /// Milliseconds of all steps of all layers: of the host for this project's device, of the GPU for others.
    pub(super) outcome: Outcome,
    /// Milliseconds of the host, from its call until the GPU is done, if they are known.
    pub(super) host_ms: Option<f64>,
}

/// All outcomes.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    pub(super) all: Vec<Measurement>,
}

impl Times {
    /// Adds the outcome of a job on a system.
    pub(super) fn add(&mut self, system: &'static str, job: Job, outcome: Outcome) {
        let host_ms = outcome.time().filter(|_| system == OWN);
        self.all.push(Measurement { system, job, outcome, host_ms });
    }

    /// The milliseconds of a job on a system, if they are known.
    pub(super) fn ms(&self, system: &str, job: Job) -> Option<f64> {
        let found = self.all.iter().find(|of| of.system == system && of.job == job);
        found.and_then(|of| of.outcome.time())
    }

    /// The number of jobs of this project's device that have no time.
    pub(super) fn own_failures(&self) -> usize {
        let failed = |of: &&Measurement| of.system == OWN && of.outcome.time().is_none();
        self.all.iter().filter(failed).count()
    }

    /// A line for each system and reason, with the jobs that were left out.
    pub(super) fn left_out(&self) -> Vec<String> {
        let mut groups: Vec<(&str, &str, Vec<String>)> = Vec::new();
        for Measurement { system, job, outcome, .. } in &self.all {
            let Some(reason) = outcome.reason() else { continue };
            match groups.iter_mut().find(|group| (group.0, group.1) == (*system, reason)) {
                Some(group) => group.2.push(job.to_string()),
                None => groups.push((*system, reason, vec![job.to_string()])),
            }
        }
        let line = |(system, reason, jobs): (&str, &str, Vec<String>)| {
            format!("{system}, left out: {reason} ({})", jobs.join("; "))
        };
        groups.into_iter().map(line).collect()
    }

    /// As JSON: a list of jobs with their systems.
    pub(super) fn json(&self) -> Value {
        let of = |Measurement { system, job, outcome, host_ms }: &Measurement| {
            let mut of = job.json();
            of["system"] = json!(system);
            of["host_ms"] = json!(host_ms);
            match outcome {
                Outcome::Time(ms) => of["ms"] = json!(ms),
                Outcome::LeftOut(reason) => of["left_out"] = json!(reason),
            }
            of
        };
        self.all.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs;
    use super::*;

    #[test]
    fn what_is_left_out_is_named_once_for_each_reason() {
        let jobs = jobs::all();
        let mut times = Times::default();
        times.add(OWN, jobs[0], Outcome::Time(0.5));
        times.add(OWN, jobs[1], Outcome::LeftOut("no room".to_owned()));
        times.add("cuDNN", jobs[0], Outcome::LeftOut("no cuDNN".to_owned()));
        times.add("cuDNN", jobs[1], Outcome::LeftOut("no cuDNN".to_owned()));
        assert_eq!((times.ms(OWN, jobs[0]), times.ms("cuDNN", jobs[0])), (Some(0.5), None));
        assert_eq!(times.own_failures(), 1);
        let expected = [
            "BatchMaker, left out: no room (lstm 64 x 10)",
            "cuDNN, left out: no cuDNN (lstm 64 x 1; lstm 64 x 10)",
        ];
        assert_eq!(times.left_out(), expected);
        let json = times.json();
        assert_eq!((&json[0]["ms"], &json[0]["host_ms"]), (&json!(0.5), &json!(0.5)));
        assert_eq!((&json[1]["left_out"], &json[1]["batch"]), (&json!("no room"), &json!(10)));
    }
}
