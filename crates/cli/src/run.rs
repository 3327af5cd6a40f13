//! `batchmaker run`: requests from a file, replies to a file, in order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail};
use batchmaker::{Engine, Fairness, Pending};
use batchmaker_server::offline;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::RunArgs;
use crate::models::only_model;
use crate::start::{Limits, prepare, start};

/// Requests in flight: enough to fill the largest batches many times over.
const IN_FLIGHT_MAX: usize = 2048;

/// A line's reply, or what will become of it.
enum Answer {
    Pending(Box<(offline::Context, Pending)>),
    Failed(String),
}

/// Runs a model over a file.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let limits = Limits::of_own(IN_FLIGHT_MAX);
    let paths = std::slice::from_ref(&args.model);
    let prepared = prepare(paths, &args.machine, &[], Fairness::default(), limits)?;
    let model = only_model(&prepared.loaded.models, &args.model)?.name.clone();
    let engine = start(prepared)?;
    let input = open(&args.input)?;
    let mut output = create(&args.output)?;
    let progress = progress_bar(&args.input);
    let mut answers = VecDeque::new();
    let (mut lines, mut failures) = (0u64, 0u64);
    for line in input.split(b'\n') {
        let mut line = line.with_context(|| format!("cannot read '{}'", args.input.display()))?;
        progress.inc(line.len() as u64 + 1);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        lines += 1;
        answers.push_back((lines, submit(&engine, &model, &line)));
        if answers.len() == IN_FLIGHT_MAX
            && let Some((number, answer)) = answers.pop_front()
        {
            failures += u64::from(!write(&mut output, number, answer)?);
        }
    }
    for (number, answer) in answers {
        failures += u64::from(!write(&mut output, number, answer)?);
    }
    output.flush().context("cannot write the replies")?;
    progress.finish_and_clear();
    if failures > 0 {
        bail!("{failures} of {lines} lines failed; each has an error in its place");
    }
    Ok(())
}

fn submit(engine: &Engine, model: &str, line: &[u8]) -> Answer {
    match offline::submit(engine, model, line) {
        Ok(submitted) => Answer::Pending(Box::new(submitted)),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Writes a reply, or an error in its place; tells whether it was a reply.
fn write(output: &mut dyn Write, number: u64, answer: Answer) -> anyhow::Result<bool> {
    let reply = match answer {
        Answer::Pending(submitted) => {
            let (context, pending) = *submitted;
            pending.wait().map_err(|error| error.to_string()).and_then(|reply| {
                offline::encode(context, reply).map_err(|error| error.to_string())
            })
        }
        Answer::Failed(error) => Err(error),
    };
    let is_reply = reply.is_ok();
    let line = reply.unwrap_or_else(|error| {
        serde_json::json!({ "error": format!("line {number}: {error}") }).to_string().into_bytes()
    });
    output.write_all(&line).and_then(|()| output.write_all(b"\n"))?;
    Ok(is_reply)
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if is_standard(path) {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = File::open(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn create(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if is_standard(path) {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    let file = File::create(path).with_context(|| format!("cannot write '{}'", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Bytes of the input so far, on a terminal; hidden elsewhere.
fn progress_bar(input: &Path) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let length = std::fs::metadata(input).ok().filter(|_| !is_standard(input));
    match length {
        Some(length) => ProgressBar::new(length.len()).with_style(
            ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        ),
        None => ProgressBar::new_spinner(),
    }
}
