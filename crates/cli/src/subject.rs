//! The model that `batchmaker profile` measures, and its replies to the requests that errors are measured on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, bail};
use batchmaker::{Engine, Pending, Precision, Prepared, StageStarts, Tensor};
use batchmaker_bench::{InProcess, Service as _};
use batchmaker_server::offline;

use crate::args::{CellArgs, MachineArgs, ProfileArgs};
use crate::scoped::OfCell;
use crate::start::{prepare_plainly, start};

/// Random requests.
const REQUESTS: usize = 64;

/// A model, in whatever precisions.
pub(crate) struct Subject<'a> {
    pub(crate) args: &'a ProfileArgs,
    pub(crate) machine_args: MachineArgs,
}

impl Subject<'_> {
    /// Loads it with some cells in other precisions than f32, whatever it says itself.
    ///
    /// # Errors
    /// It does not load.
    pub(crate) fn load(
        &self,
        precisions: &BTreeMap<String, Precision>,
    ) -> anyhow::Result<Prepared> {
        self.prepare(precisions, StageStarts::default())
    }

    /// Loads it in f32, cut into stages.
    ///
    /// # Errors
    /// It does not load, or has none of the nodes that are to begin stages.
    pub(crate) fn load_in_stages(&self, stages: StageStarts) -> anyhow::Result<Prepared> {
        self.prepare(&BTreeMap::new(), stages)
    }

    fn prepare(
        &self,
        precisions: &BTreeMap<String, Precision>,
        stages: StageStarts,
    ) -> anyhow::Result<Prepared> {
        let of_cell = |(cell, value): (&String, &Precision)| OfCell {
            cell: Some(cell.clone()),
            value: *value,
        };
        let mut precision = vec![OfCell { cell: None, value: Precision::F32 }];
        precision.extend(precisions.iter().map(of_cell));
        let cells = CellArgs { precision, ..CellArgs::default() };
        let paths = std::slice::from_ref(&self.args.model);
        prepare_plainly(paths, &self.machine_args, &cells, stages)
    }

    /// The path of the model, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.args.model
    }

    /// The tensors of the replies in f32 to the requests that errors are measured on; none where they
    /// have to be drawn and cannot be.
    ///
    /// # Errors
    /// The requests that were given cannot be read, or the engine fails.
    pub(crate) fn expected(&self) -> anyhow::Result<Option<Vec<Vec<Tensor>>>> {
        match self.replies(&BTreeMap::new()) {
            Ok(replies) => Ok(Some(replies)),
            Err(error) if self.args.requests.is_some() => Err(error),
            Err(error) => {
                eprintln!(
                    "note: what precisions change in replies is not measured, for want of random \
                     requests ({error:#}); give some with --requests, or others with --workload"
                );
                Ok(None)
            }
        }
    }

    /// The tensors of the replies.
    ///
    /// # Errors
    /// The model does not load, the requests cannot be read or drawn, or the engine fails.
    pub(crate) fn replies(
        &self,
        precisions: &BTreeMap<String, Precision>,
    ) -> anyhow::Result<Vec<Vec<Tensor>>> {
        let prepared = self.load(precisions)?;
        let model = prepared.loaded.models[0].name.clone();
        let engine = start(prepared)?;
        let pending = match &self.args.requests {
            Some(path) => given(&engine, &model, path)?,
            None => random(
                &engine,
                &model,
                InProcess::new(&engine, &model, self.args.seed)?,
                self.args,
            )?,
        };
        let tensors = |pending: Pending| -> anyhow::Result<Vec<Tensor>> {
            let tensors = pending.wait()?.outputs;
            Ok(tensors.into_iter().map(|output| output.tensor).collect())
        };
        pending.into_iter().map(tensors).collect()
    }
}

fn given(engine: &Engine, model: &str, path: &Path) -> anyhow::Result<Vec<Pending>> {
    let failed = || format!("cannot read '{}'", path.display());
    let file = BufReader::new(File::open(path).with_context(failed)?);
    let mut all = Vec::new();
    for (number, line) in (1..).zip(file.split(b'\n')) {
        let line = line.with_context(failed)?;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            continue;
        }
        let (_, pending) = offline::submit(engine, model, line)
            .with_context(|| format!("line {number} of '{}'", path.display()))?;
        all.push(pending);
    }
    if all.is_empty() {
        bail!("'{}' holds no requests", path.display());
    }
    Ok(all)
}

fn random(
    engine: &Engine,
    model: &str,
    mut service: InProcess<'_>,
    args: &ProfileArgs,
) -> anyhow::Result<Vec<Pending>> {
    let workload = match (&args.workload, service.arity()) {
        (Some(workload), _) => workload.clone(),
        (None, None) => "europarl:60".parse()?,
        // Each inner node has one leaf more than it takes away, but for its arity.
        (None, Some(arity)) => format!("fixed:{}", 1 + 12 * (arity - 1).max(1)).parse()?,
    };
    let shapes = workload.shapes(service.arity(), REQUESTS, args.seed)?;
    let submit = |(index, shape)| Ok(engine.submit(model, service.prepare(index, shape))?);
    shapes.iter().enumerate().map(submit).collect()
}
