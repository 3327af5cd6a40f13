//! An ONNX file that is one cell: dimension 0 of every input and output is the batch.

use std::path::Path;

use crate::analysis::driver::analyse;
use crate::analysis::state::{Analysis, Subject};
use crate::data::named_cell::NamedCell;
use crate::data::symbol::BATCH;
use crate::emit::bodies::BODIES;
use crate::emit::cell::{compile, fused_tree};
use crate::emit::recognise::tree_lstm::tree_cell;
use crate::error::LoadError;
use crate::file::amend::Amendments;
use crate::file::files::Files;
use crate::file::onnx_file::OnnxFile;

impl NamedCell {
    /// Reads the ONNX file `file` in the folder `folder`, which external data stays within.
    ///
    /// A TreeLSTM cell in primitive operators is recognised and run by a fused kernel; other cells
    /// run as programs.
    ///
    /// # Errors
    /// See [`LoadError`]: among others, where rows of the batch interact.
    pub fn load(folder: &Path, file: &str) -> Result<Self, LoadError> {
        Self::load_amended(folder, file, &Amendments::default())
    }

    /// As [`Self::load`], with inputs bound to constants and batches on other axes.
    ///
    /// # Errors
    /// As there, and where the file has no such inputs or outputs.
    pub fn load_amended(
        folder: &Path,
        file: &str,
        amendments: &Amendments,
    ) -> Result<Self, LoadError> {
        let files = Files::Folder(folder.to_owned());
        let read = OnnxFile::read(&files, file)?;
        let unknown = amendments.fixed.keys().find(|name| !read.has_input(name));
        if let Some(name) = unknown {
            let reason = format!("fixed `{name}`: there is no such input");
            return Err(LoadError::Malformed { file: read.name, reason });
        }
        Self::of_file(read, amendments)
    }

    pub(crate) fn of_file(file: OnnxFile, amendments: &Amendments) -> Result<Self, LoadError> {
        let (file, mut analysis) = analyse_cell(file, amendments)?;
        match tree_cell(&analysis) {
            Some(recognised) => Ok(fused_tree(&analysis, recognised)),
            None => compile(&file.name, &mut analysis),
        }
    }

    /// As [`Self::of_file`], without the recognition of TreeLSTM cells.
    pub(crate) fn unrecognised(file: OnnxFile, amendments: &Amendments) -> Result<Self, LoadError> {
        let (file, mut analysis) = analyse_cell(file, amendments)?;
        compile(&file.name, &mut analysis)
    }
}

fn analyse_cell(
    mut file: OnnxFile,
    amendments: &Amendments,
) -> Result<(OnnxFile, Analysis), LoadError> {
    if let Err(reason) = file.amend(amendments) {
        return Err(LoadError::Malformed { file: file.name, reason });
    }
    let mut analysis = analyse(&file, Subject::Cell, &BODIES);
    check_edges(&mut analysis);
    match analysis.diagnostics.is_empty() {
        true => Ok((file, analysis)),
        false => Err(LoadError::refused(file.name, analysis.diagnostics)),
    }
}

/// Checks that every input and output is `[batch, ...row]`, and that nothing binds the batch to one row.
fn check_edges(analysis: &mut Analysis) {
    for index in 0..analysis.inputs.len() {
        let input = &analysis.inputs[index];
        let (name, dims) = (input.name.clone(), input.dims.clone());
        if dims.is_empty() && !analysis.diagnostics.iter().any(|b| b.node == name) {
            analysis.diagnose("input", &name, "it is a scalar; dimension 0 is the batch");
        }
        let row = dims.get(1..).unwrap_or_default();
        if row.iter().any(|dim| !dim.in_row()) {
            let shape = analysis.axes.show(&dims);
            let reason = format!(
                "its shape is {shape}; but for dimension 0, a cell's are fixed, and \
                                  a recurrent operator in it does one step"
            );
            analysis.diagnose("input", &name, &reason);
        }
        if row.iter().any(|dim| dim.fixed_part() == 0) {
            analysis.diagnose("input", &name, "its rows are empty");
        }
    }
    for index in 0..analysis.outputs.len() {
        let (name, view) = analysis.outputs[index].clone();
        let is_batch_first = view.dims.first().and_then(|dim| dim.as_symbol()) == Some(BATCH)
            && view.dims[1..].iter().all(|dim| dim.in_row());
        if !is_batch_first {
            let shape = analysis.axes.show(&view.dims);
            let reason =
                format!("its shape is {shape}; dimension 0 of a cell's output is the batch");
            analysis.diagnose("output", &name, &reason);
        }
    }
    if analysis.bound.batch_is_one() {
        analysis.diagnose("graph", "batch", "an operator takes the batch to be one row");
    }
}
