//! `cargo xtask against bits`: the replies of two builds to the same requests, one at a time and many at
//! once.
//!
//! An output that fused recurrent cells alone computed must be equal in bits. One that a general
//! program took part in, by the graph of the request, may differ by
//! [`CLOSE`](super::difference::CLOSE); behind a
//! general program, weights in a reduced precision may add a step of rounding. The reply to a request
//! among others must be that to the same request alone, in bits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use batchmaker_graph::{CellRegistry, ModelId, Precision};
use batchmaker_model::{LoadOptions, PerCell};
use batchmaker_wire::EncodedBody;
use serde_json::Value;

use super::binaries::{Build, Builds, Which};
use super::catalogue::{self, Entry};
use super::findings::{Answers, Findings, Replies, Setting, Subject};
use super::folder::FOLDER;
use super::http::{Connection, Reply};
use super::provenance::Cells;
use super::requests::{self, Job};
use crate::server::Server;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask against bits main~5                     all of it
  cargo xtask against bits main~5 --isa avx2 --precision f32      a first look
  cargo xtask against bits main~5 --models tagger.onnx --every    models of yours
  cargo xtask against bits --base-binary old/batchmaker --binary new/batchmaker

Outputs that recurrent cells alone computed must be equal in bits; those that general programs took
part in may differ by 1e-5 x max(1, max|b|). A request among others must be answered as it is alone.
Exit status 1 if anything differs by more. Needs Python 3.11 or later with venv; installs the rest
into target/against.";

/// Instruction sets, as `--isa` names them, slowest first; a machine may lack some.
const ISAS: [&str; 4] = ["scalar", "avx2", "avx512", "amx"];

/// Rounds in which all requests are sent together, each in another order.
const ROUNDS: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// ONNX files or model directories, instead of models of every kind; repeatable
    #[arg(long, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Precisions of weights; models without weights to multiply with have f32 alone
    #[arg(long, value_delimiter = ',', default_value = "f32,bf16,int8")]
    precision: Vec<Precision>,
    /// Instruction sets: scalar, avx2, avx512, amx [default: all that this machine has]
    #[arg(long, value_delimiter = ',')]
    isa: Vec<String>,
    /// Requests to each model, besides two sessions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    requests: u16,
    /// Connections that ask at once, for the replies to requests among others [default: 32, or 8 for
    /// each core where that is more]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: Option<u16>,
    /// A line for every model, not for every kind
    #[arg(long)]
    every: bool,
    /// The file that receives the figures, a JSON object a model, precision and instruction set
    #[arg(long, default_value = "target/against/bits.jsonl")]
    runs: PathBuf,
}

/// Builds, asks and compares.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let builds = arguments.which.build()?;
    let entries = match arguments.models.as_slice() {
        [] => catalogue::make()?,
        paths => catalogue::given(paths)?,
    };
    let isas = isas(&arguments.isa, &builds)?;
    let mut findings = Findings::new(&arguments.runs)?;
    let taken = taken(&entries, &builds, &mut findings)?;
    for &precision in &arguments.precision {
        let subjects = drawn(&taken, precision, arguments.requests, &mut findings)?;
        for setting in settings(precision, &isas) {
            if subjects.is_empty() {
                continue;
            }
            let start = Instant::now();
            let ask = |build: &Build, side: &str| {
                answers(arguments, build, &subjects, &setting)
                    .with_context(|| format!("{side}, {setting}"))
            };
            let (base, now) = (ask(&builds.base, "base")?, ask(&builds.now, "now")?);
            let mut first = 0;
            for subject in &subjects {
                let jobs = first..first + subject.jobs.len();
                first = jobs.end;
                findings.compare(subject, &setting, jobs, &base, &now)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            eprintln!("{setting}: {} models, {seconds:.0} s", subjects.len());
        }
    }
    print!("{}", findings.table(arguments.every));
    println!("every model: {}", arguments.runs.display());
    match findings.violations().len() {
        0 if findings.outputs() == 0 => bail!("no output was compared"),
        0 => println!("nothing differs by more than it may"),
        count => {
            findings.violations().iter().for_each(|violation| println!("{violation}"));
            bail!("{count} models differ by more than they may or were not compared");
        }
    }
    Ok(())
}

/// Every instruction set with a worker on each core, and the best one, which comes last, with one worker
/// of all cores as well.
fn settings(precision: Precision, isas: &[String]) -> Vec<Setting> {
    let cores = cores();
    let setting = |isa: &String, workers, threads_per_worker| Setting {
        precision: precision.to_string(),
        isa: isa.clone(),
        workers,
        threads_per_worker,
    };
    let mut settings: Vec<Setting> = isas.iter().map(|isa| setting(isa, cores, 1)).collect();
    settings.extend(isas.last().filter(|_| cores > 1).map(|isa| setting(isa, 1, cores)));
    settings
}

/// Cores to use: as many as a server may have workers, or fewer.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(64)
}

/// The instruction sets to compare on, of which the machine must have those that are named.
fn isas(named: &[String], builds: &Builds) -> anyhow::Result<Vec<String>> {
    let works = |isa: &str| {
        let mut probe = Command::new(&builds.base.binary);
        probe.args(["run", "langid", "--isa", isa]).stdin(Stdio::null());
        probe.stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    if let Some(isa) = named.iter().find(|isa| !works(isa)) {
        bail!("'{isa}' is no instruction set of this machine");
    }
    let is_wanted = |isa: &&str| match named {
        [] => works(isa),
        named => named.iter().any(|of| of == isa),
    };
    let all: Vec<String> = ISAS.into_iter().filter(is_wanted).map(str::to_owned).collect();
    ensure!(!all.is_empty(), "'{}' runs no model", builds.base.binary.display());
    Ok(all)
}

/// The cells that a build makes of a model, and whether they are fused; or the reason for which it refuses the model.
fn inspect(build: &Build, path: &Path) -> anyhow::Result<Result<Vec<(String, bool)>, String>> {
    let mut command = Command::new(&build.binary);
    command.arg("inspect").arg(path).arg("--json");
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let model: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?} describes no single model"))?;
    let cells = model["cells"].as_array().context("cells")?.iter();
    let cell = |cell: &Value| {
        (cell["name"].as_str().unwrap_or_default().to_owned(), cell["how"] == "fused")
    };
    Ok(Ok(cells.map(cell).collect()))
}

/// A model that both builds take.
struct Taken {
    entry: Entry,
    /// Whether the same cells are fused in both; where not, a program may have done a kernel's work.
    fused_alike: bool,
}

/// The models that both builds take.
fn taken(
    entries: &[Entry],
    builds: &Builds,
    findings: &mut Findings,
) -> anyhow::Result<Vec<Taken>> {
    let mut taken = Vec::new();
    for entry in entries {
        let name = entry.name();
        match (inspect(&builds.base, &entry.path)?, inspect(&builds.now, &entry.path)?) {
            (Ok(base), Ok(now)) => {
                if base != now {
                    eprintln!("note: {name}: cut into other cells than in the base");
                }
                let fused = |cells: &[(String, bool)]| -> Vec<String> {
                    let fused = cells.iter().filter(|(_, is_fused)| *is_fused);
                    fused.map(|(name, _)| name.clone()).collect()
                };
                let fused_alike = fused(&base) == fused(&now);
                taken.push(Taken { entry: entry.clone(), fused_alike });
            }
            (Ok(_), Err(error)) => findings.fail(format!("{name}: refused: {error}")),
            (Err(_), Ok(_)) => eprintln!("note: {name}: the base refuses it"),
            (Err(error), Err(_)) => eprintln!("note: {name}: both refuse it: {error}"),
        }
    }
    Ok(taken)
}

/// The models that have weights in a precision, and requests to each.
fn drawn(
    taken: &[Taken],
    precision: Precision,
    count: u16,
    findings: &mut Findings,
) -> anyhow::Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for Taken { entry, fused_alike } in taken {
        let options = LoadOptions {
            precision: PerCell { all: Some(precision), ..PerCell::default() },
            ..LoadOptions::new(ModelId(0))
        };
        let mut registry = CellRegistry::default();
        let model = batchmaker_model::load(&entry.path, &options, &mut registry)?;
        let cells = Cells::of(&model, &registry);
        if precision != Precision::F32 && !cells.have_precisions() {
            continue;
        }
        let mut jobs = requests::draw(&model, &cells, usize::from(count))?;
        if jobs.is_empty() {
            findings.fail(format!("{}: no request that it takes was drawn", entry.name()));
            continue;
        }
        if !fused_alike {
            jobs.iter_mut().for_each(Job::loosen);
        }
        let (group, label) = (entry.group.clone(), entry.name());
        subjects.push(Subject { group, label, path: entry.path.clone(), name: model.name, jobs });
    }
    Ok(subjects)
}

/// Asks a server of a build everything, one at a time and then together.
fn answers(
    arguments: &Arguments,
    build: &Build,
    subjects: &[Subject],
    setting: &Setting,
) -> anyhow::Result<Answers> {
    let log = Path::new(FOLDER).join("server.log");
    let mut serve = Command::new(&build.binary);
    serve.arg("serve").args(subjects.iter().map(|subject| &subject.path));
    serve.args(setting.arguments());
    let file = File::create(&log);
    serve.stderr(file.with_context(|| format!("cannot write '{}'", log.display()))?);
    let server = Server::start(&mut serve)
        .with_context(|| format!("{}; it says why in '{}'", build.name, log.display()))?;
    let jobs: Vec<(&str, &[EncodedBody])> = subjects
        .iter()
        .flat_map(|subject| subject.jobs.iter().map(|job| (&*subject.name, &*job.bodies)))
        .collect();
    let in_order: Vec<usize> = (0..jobs.len()).collect();
    let in_flight = match arguments.in_flight {
        Some(connections) => usize::from(connections),
        None => (8 * cores()).clamp(32, 1024),
    };
    let alone = ask(server.url(), &jobs, &in_order, 1)?;
    let rounds = (0..ROUNDS).map(|round| {
        let mut order = in_order.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        ask(server.url(), &jobs, &order, in_flight)
    });
    Ok(Answers { alone, together: rounds.collect::<Result<_, _>>()? })
}

/// Does all jobs in the given order, `at_once` of them at a time. The replies have the order of `jobs`.
fn ask(
    url: &str,
    jobs: &[(&str, &[EncodedBody])],
    order: &[usize],
    at_once: usize,
) -> anyhow::Result<Replies> {
    let replies: Vec<Mutex<Vec<Reply>>> = jobs.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        let mut connection = Connection::open(url)?;
        while let Some(&job) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (model, bodies) = jobs[job];
            for body in bodies {
                let reply = connection.infer(model, body)?;
                replies[job].lock().expect("no thread panics").push(reply);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(replies.into_iter().map(|replies| replies.into_inner().expect("no thread panics")).collect())
}
