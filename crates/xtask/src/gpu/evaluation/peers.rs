//! Other systems on the same GPU: PyTorch, cuDNN by each of its algorithms, FlashRNN. Each is measured by the scripts in `peers/`, in a process of its own:
//! one that fails, or takes too long, leaves the others.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::jobs::{Job, Operator};
use super::times::{Measurement, Outcome, Times};

/// PyTorch, with the algorithm of cuDNN that it chooses.
pub(super) const PYTORCH: &str = "PyTorch";

/// A system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The name that `peers.py` takes.
    name: &'static str,
    /// The name in tables.
    pub(super) title: &'static str,
}

const fn peer(name: &'static str, title: &'static str) -> Peer {
    Peer { name, title }
}

/// All systems. In f32, FlashRNN's fused kernel multiplies in TF32.
pub(super) const PEERS: [Peer; 7] = [
    peer("pytorch", PYTORCH),
    peer("cudnn-standard", "cuDNN standard"),
    peer("cudnn-persist-static", "cuDNN persist static"),
    peer("cudnn-persist-dynamic", "cuDNN persist dynamic"),
    peer("cudnn-persist-static-small-h", "cuDNN persist static, small h"),
    peer("flashrnn-cuda_fused", "FlashRNN fused, TF32, without x"),
    peer("flashrnn-cuda", "FlashRNN alternating, without x"),
];

impl Peer {
    /// Whether the system has the job at all: cuDNN has no GRU whose reset gate comes before the product, and FlashRNN is measured with single layers of LSTM.
    fn has(&self, job: &Job) -> bool {
        match job.operator {
            Operator::GruResetBefore => false,
            _ if !self.is_flash_rnn() => true,
            operator => operator == Operator::Lstm && job.layers == 1,
        }
    }

    fn is_flash_rnn(&self) -> bool {
        self.name.starts_with("flashrnn")
    }
}

/// The scripts, which are written to a folder to run: the program may be where the sources are not.
const SCRIPTS: [(&str, &str); 5] = [
    ("peers.py", include_str!("peers/peers.py")),
    ("clock.py", include_str!("peers/clock.py")),
    ("torch_rnn.py", include_str!("peers/torch_rnn.py")),
    ("cudnn_rnn.py", include_str!("peers/cudnn_rnn.py")),
    ("flash_rnn.py", include_str!("peers/flash_rnn.py")),
];

/// The Python that runs the scripts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Python<'a> {
    pub(super) program: &'a str,
    /// The number of the GPU.
    pub(super) gpu: usize,
    /// The most seconds of each system.
    pub(super) seconds: u32,
}

/// Measures the jobs that each system has, and returns what the systems say of themselves.
pub(super) fn measure(
    python: Python<'_>,
    folder: &Path,
    jobs: &[Job],
    times: &mut Times,
) -> anyhow::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    for (name, text) in SCRIPTS {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    let mut abouts = Vec::new();
    for peer in PEERS {
        eprintln!("  {}", peer.title);
        let jobs: Vec<Job> = jobs.iter().copied().filter(|job| peer.has(job)).collect();
        let (text, reason) = run(python, folder, peer.name, &jobs);
        let answer = Answer::parse(&text, &jobs, &reason);
        abouts.extend(answer.about);
        let measured = jobs.into_iter().zip(answer.outcomes);
        times.all.extend(measured.map(|(job, (outcome, host_ms))| {
            let system = peer.title;
            Measurement { system, job, outcome, host_ms }
        }));
    }
    Ok(abouts)
}

/// What a script printed, and why lines may be missing.
fn run(python: Python<'_>, folder: &Path, peer: &str, jobs: &[Job]) -> (String, String) {
    let Python { program, gpu, seconds } = python;
    let jobs: Value = jobs.iter().map(Job::json).collect();
    let mut command = Command::new(program);
    command.arg("-B").arg(folder.join("peers.py")).args(["--peer", peer]);
    command.args(["--jobs", &jobs.to_string(), "--gpu", &gpu.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            let reason = match (output.status.code(), last) {
                // A signal: its own, after these seconds, or another's.
                (None, _) => format!("it was ended, at the latest after {seconds} s"),
                (_, Some(last)) => last.trim().to_owned(),
                (Some(code), None) => format!("it exited with {code}"),
            };
            (String::from_utf8_lossy(&output.stdout).into_owned(), reason)
        }
        Err(error) => (String::new(), format!("{program} does not start: {error}")),
    }
}

/// What a script answered.
#[derive(Debug, Default)]
struct Answer {
    about: Option<String>,
    /// For each job, with the host's milliseconds.
    outcomes: Vec<(Outcome, Option<f64>)>,
}

impl Answer {
    /// Reads the lines of a script; a job without a line has `reason`.
    fn parse(text: &str, jobs: &[Job], reason: &str) -> Self {
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines: Vec<Value> = lines.collect();
        let about = lines.iter().find_map(|line| Some(line.get("about")?.as_str()?.to_owned()));
        let outcomes = jobs.iter().map(|job| {
            let line = lines.iter().find(|line| is_of(line, job));
            let time = |key| line.and_then(|line: &Value| line.get(key)?.as_f64());
            let own_reason = || line.and_then(|line| line.get("left_out")?.as_str());
            let outcome = match time("ms").filter(|ms| *ms > 0.0) {
                Some(ms) => Outcome::Time(ms),
                None => Outcome::LeftOut(own_reason().unwrap_or(reason).to_owned()),
            };
            (outcome, time("wall_ms"))
        });
        Self { about, outcomes: outcomes.collect() }
    }
}

/// Whether a line repeats a job.
fn is_of(line: &Value, job: &Job) -> bool {
    let job = job.json();
    job.as_object().is_some_and(|keys| keys.iter().all(|(key, value)| line.get(key) == Some(value)))
}

#[cfg(test)]
mod tests {
    use super::super::jobs;
    use super::super::times::OWN;
    use super::*;

    #[test]
    fn a_script_is_read_up_to_where_it_ended() {
        let jobs = &jobs::all()[..4];
        let line = |job: &Job, key: &str, value: Value| {
            let mut line = job.json();
            line[key] = value;
            line.to_string()
        };
        let lines = [
            "{\"about\": \"cuDNN 91900\"}".to_owned(),
            "[1/2] nvcc prints this".to_owned(),
            line(&jobs[0], "ms", 0.25.into()).replace('}', ", \"wall_ms\": 0.5}"),
            line(&jobs[1], "left_out", "RuntimeError: CUDNN_STATUS_NOT_SUPPORTED".into()),
            line(&jobs[2], "ms", Value::Null),
            // A line that is cut off.
            jobs[3].json().to_string()[..20].to_owned(),
        ];
        let answer = Answer::parse(&lines.join("\n"), jobs, "it was ended");
        assert_eq!(answer.about.as_deref(), Some("cuDNN 91900"));
        let left_out = |reason: &str| (Outcome::LeftOut(reason.to_owned()), None);
        let expected = [
            (Outcome::Time(0.25), Some(0.5)),
            left_out("RuntimeError: CUDNN_STATUS_NOT_SUPPORTED"),
            left_out("it was ended"),
            left_out("it was ended"),
        ];
        assert_eq!(answer.outcomes, expected);
    }

    #[test]
    fn systems_are_given_what_they_have() {
        let jobs = jobs::all();
        let counts = PEERS.map(|peer| jobs.iter().filter(|job| peer.has(job)).count());
        assert_eq!(counts, [28, 28, 28, 28, 28, 9, 9]);
        assert!(PEERS.iter().all(|peer| peer.title != OWN));
    }

    /// Where there is no such Python, every job is left out, and says why.
    #[test]
    fn without_python_all_is_left_out() {
        let folder = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
        let python = Python { program: "no-such-python", gpu: 0, seconds: 1 };
        let mut times = Times::default();
        let abouts = measure(python, &folder, &jobs::all()[..2], &mut times);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(abouts.unwrap().is_empty());
        let left_out = times.left_out();
        assert_eq!(left_out.len(), PEERS.len());
        assert!(left_out[0].starts_with("PyTorch, left out: no-such-python does not start"));
    }
}
