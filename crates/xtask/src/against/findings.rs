//! Compares the replies of two builds: how far they differ, and whether they may.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use batchmaker_wire::Tensor;
use serde_json::{Value, json};

use super::difference::{self, Claim, Difference};
use super::http::Reply;
use super::requests::Job;
use crate::figures_file;

/// A model in a precision, and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The kind of model.
    pub(crate) group: String,
    /// The name in messages and figures.
    pub(crate) label: String,
    pub(crate) path: PathBuf,
    /// The name under which it is served.
    pub(crate) name: String,
    pub(crate) jobs: Vec<Job>,
}

/// The settings that servers are started with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub(crate) precision: String,
    pub(crate) isa: String,
    pub(crate) workers: usize,
    pub(crate) threads_per_worker: usize,
}

/// The replies to all jobs, in their order.
pub(crate) type Replies = Vec<Vec<Reply>>;

/// The replies of a build.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    /// Each request by itself.
    pub(crate) alone: Replies,
    /// All requests at once, in each round.
    pub(crate) together: Vec<Replies>,
}

/// Outputs that one claim holds for.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    outputs: usize,
    equal: usize,
    largest: f64,
}

/// The results for a model, or for a kind of models.
#[derive(Clone, Debug, Default)]
struct Row {
    models: usize,
    requests: usize,
    /// Requests that both builds answered with an error.
    refused: usize,
    by_claim: [Count; 3],
    /// Replies among others, and how many of them differ from those alone.
    together: usize,
    apart: usize,
    violations: usize,
}

/// The results so far.
pub(crate) struct Findings {
    /// The results by group, model and setting, in the order in which they are shown.
    rows: BTreeMap<(String, String, Setting), Row>,
    violations: Vec<String>,
    runs: Box<dyn Write>,
}

impl Setting {
    /// The arguments of `batchmaker serve`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let workers = [self.workers, self.threads_per_worker].map(|count| count.to_string());
        let [workers, threads] = &workers;
        let arguments = [
            ["--precision", &self.precision],
            ["--isa", &self.isa],
            ["--workers", workers],
            ["--threads-per-worker", threads],
        ];
        arguments.concat().into_iter().map(str::to_owned).collect()
    }

    fn split(&self) -> String {
        format!("{}x{}", self.workers, self.threads_per_worker)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, {}", self.precision, self.isa, self.split())
    }
}

impl Findings {
    /// No results yet. They are written to the file `runs` as they come.
    pub(crate) fn new(runs: &Path) -> anyhow::Result<Self> {
        Ok(Self::written_to(Box::new(figures_file::create(runs)?)))
    }

    fn written_to(runs: Box<dyn Write>) -> Self {
        Self { rows: BTreeMap::new(), violations: Vec::new(), runs }
    }

    /// Adds a model that cannot be compared.
    pub(crate) fn fail(&mut self, why: String) {
        self.violations.push(why);
    }

    /// Differences that are not allowed: for each model and setting, the number of outputs and the first of them.
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The number of outputs that were compared.
    pub(crate) fn outputs(&self) -> usize {
        let counts = self.rows.values().flat_map(|row| &row.by_claim);
        counts.map(|count| count.outputs).sum()
    }

    /// Compares a model's replies, which are those of `range`.
    pub(crate) fn compare(
        &mut self,
        subject: &Subject,
        setting: &Setting,
        range: Range<usize>,
        base: &Answers,
        now: &Answers,
    ) -> anyhow::Result<()> {
        let mut row = Row { models: 1, ..Row::default() };
        let mut first = None;
        let about = format!("{}, {setting}", subject.label);
        for (job, at) in subject.jobs.iter().zip(range) {
            let mut add_violation = |what: String| {
                row.violations += 1;
                first.get_or_insert(format!("{}: {what}", job.what));
            };
            for (chunk, (base, found)) in base.alone[at].iter().zip(&now.alone[at]).enumerate() {
                row.requests += 1;
                row.refused += usize::from(base.is_err() && found.is_err());
                if let (Err(_), Err((status @ 500.., error))) = (base, found) {
                    add_violation(format!("status {status}: {error}"));
                }
                for (output, difference) in differences(found, base) {
                    let claim = output.map_or(Claim::Bits, |output| job.claim(output));
                    row.by_claim[claim as usize].add(&difference);
                    if !claim.allows(&difference) {
                        let output = output.unwrap_or("the reply");
                        add_violation(format!("{output}: {difference}"));
                    }
                }
                for together in &now.together {
                    row.together += 1;
                    let differences = differences(&together[at][chunk], found);
                    let apart = differences.iter().find(|(_, of)| *of != Difference::None);
                    if let Some((output, difference)) = apart {
                        row.apart += 1;
                        let output = output.unwrap_or("the reply");
                        add_violation(format!("{output}, among others: {difference} from alone"));
                    }
                }
            }
            // The base's own fault, if it is one.
            let is_alone = |together: &Replies| together[at].iter().zip(&base.alone[at]).all(equal);
            if !base.together.iter().all(is_alone) {
                eprintln!("note: {about}, {}: the base answers another among others", job.what);
            }
        }
        if row.refused == row.requests {
            row.violations += 1;
            first.get_or_insert("both builds refuse every request".to_owned());
        }
        if let Some(first) = first {
            let count = row.violations;
            self.violations.push(format!("{about}: {count}, the first: {first}"));
        }
        writeln!(self.runs, "{}", row.json(&subject.label, setting))?;
        let key = (subject.group.clone(), subject.label.clone(), setting.clone());
        self.rows.insert(key, row);
        Ok(())
    }

    /// A line for each kind of model, or for every model, and each setting.
    pub(crate) fn table(&self, every: bool) -> String {
        let mut lines: BTreeMap<(&str, &Setting), Row> = BTreeMap::new();
        for ((group, label, setting), row) in &self.rows {
            let of = if every { label } else { group };
            lines.entry((of, setting)).or_default().add(row);
        }
        let width = lines.keys().map(|(of, _)| of.len()).max().unwrap_or(0).max("models".len());
        let mut text = format!(
            "{:<width$} {:<9} {:<7} {:<5} {:>6} {:>8} {:>7} {:>15} {:>15} {:>8} {:>15} {:>8}  {}\n",
            "models",
            "precision",
            "isa",
            "split",
            "count",
            "requests",
            "refused",
            "recurrent equal",
            "general equal",
            "largest",
            "rounded equal",
            "largest",
            "among others"
        );
        for ((of, setting), row) in lines {
            let Setting { precision, isa, .. } = setting;
            let [bits, close, rounded] = row.by_claim;
            let _ = writeln!(
                text,
                "{of:<width$} {precision:<9} {isa:<7} {:<5} {:>6} {:>8} {:>7} {bits:>15} \
                 {close:>15} {:>8} {rounded:>15} {:>8}  {}{}",
                setting.split(),
                row.models,
                row.requests,
                row.refused,
                close.largest(),
                rounded.largest(),
                match row.apart {
                    0 => "equal".to_owned(),
                    apart => format!("{apart} of {} differ", row.together),
                },
                if row.violations == 0 { "" } else { ", FAILS" },
            );
        }
        let _ = writeln!(
            text,
            "split: workers x threads of each; largest: |a - b| over max(1, max|b|); what general programs took part in may differ by \
             {:.0e}, where that is rounded to a reduced precision by {:.0e}",
            difference::CLOSE,
            difference::ROUNDED
        );
        text
    }
}

fn equal((a, b): (&Reply, &Reply)) -> bool {
    differences(a, b).iter().all(|(_, difference)| *difference == Difference::None)
}

/// The difference of each output, by name; under no name if the replies have different outputs.
fn differences<'a>(found: &'a Reply, wanted: &'a Reply) -> Vec<(Option<&'a str>, Difference)> {
    let other = |what: String| vec![(None, Difference::Other(what))];
    match (found, wanted) {
        // Texts of errors may differ.
        (Err((found, _)), Err((wanted, _))) if found == wanted => Vec::new(),
        (Err((status, error)), _) => other(format!("status {status}: {error}")),
        (Ok(_), Err((status, _))) => other(format!("a reply, was status {status}")),
        (Ok(found), Ok(wanted)) => {
            let (found, wanted) = (&found.outputs, &wanted.outputs);
            let name = |tensor: &Tensor| tensor.name.clone();
            if !found.iter().map(name).eq(wanted.iter().map(name)) {
                return other("other outputs".to_owned());
            }
            let pairs = found.iter().zip(wanted);
            pairs.map(|(a, b)| (Some(&*a.name), Difference::of(a, b))).collect()
        }
    }
}

impl Count {
    fn add(&mut self, difference: &Difference) {
        self.outputs += 1;
        match difference {
            Difference::None => self.equal += 1,
            Difference::Number(number) => self.largest = self.largest.max(*number),
            Difference::Other(_) => self.largest = f64::INFINITY,
        }
    }

    fn largest(&self) -> String {
        match self.outputs {
            0 => "-".to_owned(),
            _ => format!("{:.1e}", self.largest),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.outputs {
            0 => f.pad("-"),
            outputs => f.pad(&format!("{} of {outputs}", self.equal)),
        }
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.models += other.models;
        self.requests += other.requests;
        self.refused += other.refused;
        self.together += other.together;
        self.apart += other.apart;
        self.violations += other.violations;
        for (count, other) in self.by_claim.iter_mut().zip(other.by_claim) {
            count.outputs += other.outputs;
            count.equal += other.equal;
            count.largest = count.largest.max(other.largest);
        }
    }

    fn json(&self, model: &str, setting: &Setting) -> Value {
        let count = |claim: Claim| {
            let Count { outputs, equal, largest } = self.by_claim[claim as usize];
            json!({ "outputs": outputs, "equal": equal, "largest": largest })
        };
        json!({
            "model": model,
            "precision": setting.precision,
            "isa": setting.isa,
            "workers": setting.workers,
            "threads_per_worker": setting.threads_per_worker,
            "requests": self.requests,
            "refused": self.refused,
            "recurrent": count(Claim::Bits),
            "general": count(Claim::Close),
            "rounded": count(Claim::Rounded),
            "among_others": self.together,
            "among_others_differ": self.apart,
            "violations": self.violations,
        })
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_wire::InferResponse;

    use super::*;

    fn reply(y: f32) -> Reply {
        let outputs = vec![Tensor::new("y", vec![1], vec![y]).unwrap()];
        Ok(InferResponse { outputs, ..InferResponse::default() })
    }

    fn answers(alone: Reply, together: Reply) -> Answers {
        Answers { alone: vec![vec![alone]], together: vec![vec![vec![together]]] }
    }

    /// The violations in the replies of a model with one output and one request.
    fn violations(claim: Claim, base: &Answers, now: &Answers) -> Vec<String> {
        let mut findings = Findings::written_to(Box::new(std::io::sink()));
        let subject = Subject {
            group: "g".to_owned(),
            label: "g-m".to_owned(),
            path: PathBuf::new(),
            name: "m".to_owned(),
            jobs: vec![Job::of_output("request 0", "y", claim)],
        };
        let setting = Setting {
            precision: "f32".to_owned(),
            isa: "avx2".to_owned(),
            workers: 2,
            threads_per_worker: 1,
        };
        findings.compare(&subject, &setting, 0..1, base, now).unwrap();
        let fails = findings.table(true).contains("FAILS");
        assert_eq!(fails, !findings.violations().is_empty());
        findings.violations
    }

    #[test]
    fn replies_differ_by_no_more_than_their_claim() {
        let same = answers(reply(0.5), reply(0.5));
        let near = answers(reply(0.500_001), reply(0.500_001));
        assert!(violations(Claim::Bits, &same, &same).is_empty());
        assert!(violations(Claim::Close, &same, &near).is_empty());
        let found = violations(Claim::Bits, &same, &near);
        let wanted = "g-m, f32, avx2, 2x1: 1, the first: request 0: y: differs by 1.0e-6";
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn among_others_a_reply_is_what_it_is_alone() {
        let same = answers(reply(0.5), reply(0.5));
        let apart = answers(reply(0.5), reply(0.500_001));
        let found = violations(Claim::Close, &same, &apart);
        let wanted = "request 0: y, among others: differs by 1.0e-6 from alone";
        assert!(found[0].ends_with(wanted), "{found:?}");
        assert!(violations(Claim::Close, &apart, &same).is_empty(), "the base's own fault");
    }

    #[test]
    fn errors_are_replies_too() {
        let refused =
            |status| answers(Err((status, "no".to_owned())), Err((status, String::new())));
        let found = violations(Claim::Bits, &refused(400), &refused(400));
        assert!(
            found[0].ends_with(": 1, the first: both builds refuse every request"),
            "{found:?}"
        );
        let found = violations(Claim::Bits, &refused(500), &refused(500));
        assert!(found[0].contains("request 0: status 500: no"), "{found:?}");
        assert!(!violations(Claim::Close, &refused(400), &refused(500)).is_empty());
        let same = answers(reply(0.5), reply(0.5));
        let found = violations(Claim::Close, &same, &refused(400));
        assert!(found[0].contains("the reply: status 400: no"), "{found:?}");
    }
}
