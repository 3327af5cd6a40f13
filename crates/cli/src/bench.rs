//! `batchmaker bench`: a load, played to policies of this process or to a server.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use batchmaker::{
    Axis, CellRegistry, CellTypeId, Content, Engine, Fairness, Machine, Policy, Profiles, Request,
    StageStarts,
};
use batchmaker_bench::{
    AnswerTime, Contender, InProcess, KernelRate, KernelTime, Load, Measured, OverHttp, Progress,
    Report, Service, Trace, compare, latency_against_throughput, peak, table, time_cdf,
};
use batchmaker_server::offline;

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{BenchArgs, CellArgs, MachineArgs};
use crate::measured_policy::MeasuredPolicy;
use crate::models::only_model;
use crate::scoped::OfModel;
use crate::start::{Limits, prepare, prepare_plainly, start};

/// Kept in flight by `--saturate` at the end of a wire, where batch limits are out of sight.
const IN_FLIGHT_OVER_HTTP: usize = 256;

/// Turns of several policies.
const TURNS: u16 = 3;

/// Requests that a rate is measured with at least.
const REQUESTS_MIN: usize = 100;

/// Lengths that saturation goes through, over and over again.
const SATURATED_REQUESTS: usize = 100_000;

/// Measures, and prints.
pub(crate) fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    match (&args.write_trace, &args.url) {
        (Some(path), _) => write_trace(args, path),
        (None, Some(url)) => over_http(args, url),
        (None, None) => in_process(args),
    }
}

fn over_http(args: &BenchArgs, url: &str) -> anyhow::Result<()> {
    let in_flight_max = args.in_flight.map_or(IN_FLIGHT_OVER_HTTP, |count| count as usize);
    let model = args.model.to_string_lossy().into_owned();
    let service = OverHttp::new(url, &model, args.seed)?;
    let contender = Contender { policy: url.to_owned(), model, workers: None, service };
    measure(args, vec![contender], in_flight_max, None)
}

fn in_process(args: &BenchArgs) -> anyhow::Result<()> {
    let policies = match args.policy.as_slice() {
        [] => &[MeasuredPolicy::OfEngine(Policy::Cellular)],
        policies => policies,
    };
    let mut engines: Vec<(MeasuredPolicy, String, Engine, Machine)> = Vec::new();
    let mut batch_max = 0;
    let (mut registry, mut profiles) = (CellRegistry::default(), Profiles::default());
    for &policy in policies {
        if engines.iter().any(|(known, ..)| *known == policy) {
            continue;
        }
        // What does not fit waits: a refusal would be measured as an error.
        let limits = Limits::of_own(usize::MAX);
        let paths = std::slice::from_ref(&args.model);
        let policies = [OfModel { model: None, value: policy.of_engine() }];
        let prepared = prepare(paths, &args.machine, &policies, Fairness::default(), limits)?;
        let model = only_model(&prepared.loaded.models, &args.model)?.name.clone();
        let machine = prepared.machine;
        (registry, profiles) = (prepared.loaded.registry.clone(), prepared.loaded.profiles.clone());
        batch_max = registry.cell_types().iter().map(|cell| cell.max_batch_size).max().unwrap_or(1);
        let engine = start(prepared)?;
        engines.push((policy, model, engine, machine));
    }
    let in_flight_max = args.in_flight.map_or(4 * batch_max as usize, |count| count as usize);
    let mut contenders = Vec::new();
    for (policy, model, engine, machine) in &engines {
        let service = match &args.replay {
            Some(path) => InProcess::replaying(engine, model, requests(engine, model, path)?),
            None => InProcess::new(engine, model, args.seed)?,
        };
        let workers = machine.workers;
        contenders.push(Contender {
            policy: policy.to_string(),
            model: model.clone(),
            workers: Some(workers),
            service: match policy.batching(workers) {
                Some(batching) => service.padded(batching)?,
                None => service,
            },
        });
    }
    let machine = engines.first().map(|engine| engine.3).filter(|_| args.kernel_rate);
    let kernels = machine.map(|machine| Kernels { machine, registry, profiles });
    measure(args, contenders, in_flight_max, kernels)
}

/// The requests of a file, a line each.
fn requests(engine: &Engine, model: &str, path: &Path) -> anyhow::Result<Vec<Request>> {
    let failed = || format!("cannot read '{}'", path.display());
    let lines = std::fs::read(path).with_context(failed)?;
    let lines = lines.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    let mut requests = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let request = offline::request(engine, model, line);
        requests
            .push(request.with_context(|| format!("line {} of '{}'", number + 1, path.display()))?);
    }
    if requests.is_empty() {
        bail!("'{}' has no requests", path.display());
    }
    Ok(requests)
}

/// The settings with which the kernels' own rate is measured.
struct Kernels {
    machine: Machine,
    registry: CellRegistry,
    profiles: Profiles,
}

impl Kernels {
    fn rate(&self) -> anyhow::Result<KernelRate> {
        let (device, cell_types) = (self.machine.device()?, self.registry.cell_types());
        self.profiles.plan(&self.registry, &*device)?;
        for (id, cell) in (0..).zip(cell_types) {
            device.materialize(CellTypeId(id), cell)?;
        }
        Ok(KernelRate::measure(&device, cell_types)?)
    }

    /// The compute threads' time of a run.
    fn time(&self, rate: &KernelRate, run: &Measured) -> KernelTime {
        // A batch takes all threads of its worker.
        let per_worker = self.machine.threads_per_worker as f64;
        let cells_s = rate.seconds(&run.cells) * per_worker;
        let threads_s = run.wall_s * f64::from(self.machine.workers) * per_worker;
        KernelTime::new(cells_s, threads_s, run.descheduled_s)
    }
}

/// Makes the loads that the arguments ask for.
struct Loads<'a> {
    args: &'a BenchArgs,
    arity: Option<u32>,
    in_flight_max: usize,
}

impl Loads<'_> {
    /// All loads but those that depend on a peak.
    fn all(&self) -> anyhow::Result<Vec<Load>> {
        let args = self.args;
        if !args.stepping.is_empty() {
            return Ok(vec![self.stepping()?]);
        }
        let rates: Vec<Option<f64>> = match (args.rate, args.saturate) {
            (Some(rate), _) => vec![Some(rate)],
            (None, true) => vec![None],
            (None, false) => args.sweep.iter().copied().map(Some).collect(),
        };
        rates.into_iter().map(|rate| self.at(rate)).collect()
    }

    /// The load of a rate, or the saturated one.
    fn at(&self, rate_rps: Option<f64>) -> anyhow::Result<Load> {
        let args = self.args;
        let default = match rate_rps {
            Some(rate) => ((rate * args.seconds.as_secs_f64()) as usize).max(REQUESTS_MIN),
            None => SATURATED_REQUESTS,
        };
        let requests = args.requests.map_or(default, |requests| requests as usize);
        let shapes = args.workload.shapes(self.arity, requests, args.seed)?;
        let trace = match rate_rps {
            Some(rate_rps) => Trace::poisson(shapes, rate_rps, args.seed),
            None => Trace::saturated(shapes),
        };
        let is_timed = rate_rps.is_none() && args.requests.is_none();
        Ok(self.of(trace, rate_rps, is_timed.then_some(args.seconds)))
    }

    /// The saturated load for the time of a search's run, however many requests a rate has.
    fn saturated(&self) -> anyhow::Result<Load> {
        let shapes = self.args.workload.shapes(self.arity, SATURATED_REQUESTS, self.args.seed)?;
        let load = self.of(Trace::saturated(shapes), None, Some(self.args.seconds));
        Ok(Load { parts: 1, ..load })
    }

    /// The load of several rates in one run. Its rate is their mean.
    fn stepping(&self) -> anyhow::Result<Load> {
        let args = self.args;
        let time: f64 = args.stepping.iter().map(|(_, time)| time.as_secs_f64()).sum();
        let requests: f64 =
            args.stepping.iter().map(|(rate, time)| rate * time.as_secs_f64()).sum();
        let shapes = args.workload.shapes(self.arity, requests.ceil() as usize, args.seed)?;
        let trace = Trace::stepping(&shapes, &args.stepping, args.seed);
        if trace.arrivals.is_empty() {
            bail!("--stepping: no request comes in that time");
        }
        let load = self.of(trace, Some(requests / time), None);
        // The steps follow each other in one run, unless turns are asked for.
        Ok(Load { parts: args.turns.map_or(1, usize::from).min(load.trace.arrivals.len()), ..load })
    }

    fn of(&self, trace: Trace, rate_rps: Option<f64>, time: Option<Duration>) -> Load {
        let args = self.args;
        let takes_turns = args.policy.len() > 1 || args.kernel_rate;
        let turns = args.turns.unwrap_or(if takes_turns { TURNS } else { 1 });
        let replayed = args.replay.as_ref().map(|path| format!("replay:{}", path.display()));
        Load {
            workload: replayed.unwrap_or_else(|| args.workload.to_string()),
            seed: args.seed,
            parts: usize::from(turns).min(trace.arrivals.len()),
            in_flight_max: self.in_flight_max,
            rate_rps,
            trace,
            time,
        }
    }

    /// The loads, where some depend on the peak of the first contender.
    fn known<S: Service>(&self, contenders: &mut [Contender<S>]) -> anyhow::Result<Vec<Load>> {
        let Some(first) = contenders.first_mut().filter(|_| !self.args.shares.is_empty()) else {
            return self.all();
        };
        let peak_rps = self.peak(first)?;
        if peak_rps == 0.0 {
            bail!("{} keeps {} at no rate", first.policy, self.args.qos);
        }
        eprintln!(
            "batchmaker: the peak of {} under {} is {peak_rps:.1} requests a second",
            first.policy, self.args.qos
        );
        self.args.shares.iter().map(|share| self.at(Some(share * peak_rps))).collect()
    }

    /// The peak of a contender, in requests a second.
    fn peak<S: Service>(&self, contender: &mut Contender<S>) -> anyhow::Result<f64> {
        let saturated = self.saturated()?;
        let load = |rate: Option<f64>| match rate {
            None => saturated.clone(),
            // What can go wrong has not with the saturated one.
            rate => Load { parts: 1, ..self.at(rate).expect("a load was made of the workload") },
        };
        Ok(peak(contender, self.args.qos, load, &mut |_| {})?)
    }
}

/// The number of children of the nodes of a model's trees, if it is a model of trees; `-` is none.
fn arity_of(model: &Path) -> anyhow::Result<Option<u32>> {
    if model == Path::new("-") {
        return Ok(None);
    }
    let (machine, cells) = (MachineArgs::default(), CellArgs::default());
    let loaded =
        prepare_plainly(&[model.to_owned()], &machine, &cells, StageStarts::default())?.loaded;
    let layouts = loaded.models.iter().flat_map(|model| model.layouts());
    let mut children = layouts.filter(|layout| layout.content == Content::Children);
    Ok(children.next().and_then(|layout| match layout.axes[..] {
        [_, Axis::Fixed(arity)] => Some(arity as u32),
        _ => None,
    }))
}

fn write_trace(args: &BenchArgs, path: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write '{}'", path.display());
    let loads = Loads { args, arity: arity_of(&args.model)?, in_flight_max: 1 };
    for load in loads.all()? {
        let file = BufWriter::new(File::create(path).with_context(failed)?);
        load.trace.write_jsonl(file).with_context(failed)?;
    }
    Ok(())
}

fn measure<S: Service>(
    args: &BenchArgs,
    mut contenders: Vec<Contender<S>>,
    in_flight_max: usize,
    kernels: Option<Kernels>,
) -> anyhow::Result<()> {
    let arity = contenders.first().and_then(|contender| contender.service.arity());
    let makes = Loads { args, arity, in_flight_max };
    if args.peak {
        return peaks(args, &makes, &mut contenders);
    }
    let loads = makes.known(&mut contenders)?;
    let requests: usize = loads.iter().map(|load| load.trace.arrivals.len()).sum();
    let is_counted = args.requests.is_some() || !args.saturate;
    let bar = progress_bar(is_counted.then_some(requests * contenders.len()));
    let mut measured: Vec<Measured> = Vec::new();
    let mut failures = 0;
    for load in &loads {
        let before = bar.position();
        let rate = load.rate_rps.map_or("saturated".to_owned(), |rate| format!("{rate} req/s"));
        let mut progress = |progress: Progress<'_>| {
            bar.set_message(format!("{} {rate}", progress.policy));
            bar.set_position(before + progress.answered as u64);
        };
        let mut rates = Vec::new();
        let mut between = || {
            if let Some(kernels) = &kernels {
                bar.set_message("the kernels alone");
                rates.push(kernels.rate());
            }
        };
        let mut runs = compare(load, &mut contenders, &mut between, &mut progress)?;
        let rates: Vec<KernelRate> = rates.into_iter().collect::<anyhow::Result<_>>()?;
        if let Some((kernels, rate)) = kernels.as_ref().zip(KernelRate::mean(&rates)) {
            for run in &mut runs {
                run.report.kernel = Some(kernels.time(&rate, run));
            }
        }
        for one in runs {
            let Report { errors, requests, policy, .. } = &one.report;
            failures += errors;
            if let Some(error) = &one.first_error {
                let all = errors + requests;
                eprintln!(
                    "batchmaker: {policy}: {errors} of {all} requests failed; the first: {error}"
                );
            }
            if args.json {
                bar.suspend(|| println!("{}", one.report.json_line()));
            }
            measured.push(one);
        }
    }
    bar.finish_and_clear();
    let reports: Vec<Report> = measured.iter().map(|one| one.report.clone()).collect();
    if !args.json {
        print!("{}", table(&reports));
    }
    let title = match reports.first() {
        Some(report) => format!("{}, {}", report.model, report.workload),
        None => String::new(),
    };
    if let Some(path) = &args.plot {
        write(path, &latency_against_throughput(&reports, &title)?)?;
    }
    if let Some(path) = &args.write_latencies {
        write_latencies(path, &measured)?;
    }
    if let Some(path) = &args.plot_times {
        let series = measured.into_iter().flat_map(|one| {
            let name = |of: &str| format!("{} {of}", one.report.policy);
            [(name("queue"), one.queue_cdf), (name("compute"), one.compute_cdf)]
        });
        let series: Vec<_> = series.collect();
        write(path, &time_cdf(&series, &title, "time (ms)")?)?;
    }
    if failures > 0 {
        bail!("{failures} requests failed");
    }
    Ok(())
}

/// Prints the peak of each contender.
fn peaks<S: Service>(
    args: &BenchArgs,
    loads: &Loads<'_>,
    contenders: &mut [Contender<S>],
) -> anyhow::Result<()> {
    if !args.json {
        println!("peak under {}, requests a second", args.qos);
    }
    for contender in contenders {
        let peak_rps = loads.peak(contender)?;
        let Contender { policy, model, .. } = contender;
        match args.json {
            true => {
                let line = serde_json::json!({
                    "policy": policy, "model": model, "qos": args.qos.to_string(), "peak_rps": peak_rps,
                });
                println!("{line}");
            }
            false => println!("{peak_rps:10.1}  {policy}"),
        }
    }
    Ok(())
}

/// Writes the latency of each request, a line each.
fn write_latencies(path: &Path, measured: &[Measured]) -> anyhow::Result<()> {
    let mut text = String::new();
    for Measured { report, answers, .. } in measured {
        for AnswerTime { at_s, latency_ms } in answers {
            let line = serde_json::json!({
                "policy": report.policy, "rate_rps": report.rate_rps, "at_s": at_s, "latency_ms": latency_ms,
            });
            text += &format!("{line}\n");
        }
    }
    write(path, &text)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

/// On a terminal.
fn progress_bar(requests: Option<usize>) -> ProgressBar {
    let (bar, style) = match requests {
        Some(requests) => (
            ProgressBar::new(requests as u64),
            "{elapsed} {wide_bar} {pos} of {len} requests, {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{elapsed} {spinner} {pos} requests, {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(style).expect("a valid template"))
}
