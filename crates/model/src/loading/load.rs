//! Loading: from a path or embedded bytes to a [`Model`] whose cells are registered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use batchmaker_graph::{CellRegistry, Tensor};

use crate::analysis::ids::id_bound;
use crate::analysis::value::View;
use crate::data::named_cell::NamedCell;
use crate::emit::registration::{LoadOptions, ModelCell, NewCell, StageStarts};
use crate::error::LoadError;
use crate::file::amend::Amendments;
use crate::file::files::Files;
use crate::file::onnx_file::OnnxFile;
use crate::loading::directory::{self, Directory, MAX_LENGTH, UnfoldTable};
use crate::loading::fixed_rows::advice;
use crate::loading::model::{Model, Tables};
use crate::loading::newcomer_notes::{fixed_lengths, missing_model_toml};
use crate::loading::quantised_note::products_of_bytes;
use crate::loading::toml_tables::{
    CellTable, ChainTable, EncoderDecoderTable, TreeTable, step_outputs,
};
use crate::loading::whole_file::{WholeFile, analysed};
use crate::unfold::cell_names::CellNames;
use crate::unfold::planner::plan;
use crate::unfold::templates::chain::Chain;
use crate::unfold::templates::encoder_decoder::{DecoderRules, EncoderDecoder, StepBound};
use crate::unfold::templates::template_cell::{StepOutput, TemplateCell};
use crate::unfold::templates::tree::Tree;
use crate::unfold::unfolding::{Takes, Unfolding};
use crate::unfold::variants::Variants;

/// The name of the model in an ONNX file, or in a directory with a `model.toml`, which is not loaded.
///
/// # Errors
/// See [`LoadError`].
pub fn name_of(path: &Path) -> Result<String, LoadError> {
    let name = name_of_path(path)?;
    if !path.is_dir() {
        return Ok(name);
    }
    Ok(directory::read(&Files::Folder(path.to_owned()), name)?.tables.name)
}

/// The name of a model that has no other: that of its file, or of its directory.
fn name_of_path(path: &Path) -> Result<String, LoadError> {
    let missing = |error: std::io::Error| LoadError::File {
        file: path.display().to_string(),
        reason: error.to_string(),
    };
    if std::fs::metadata(path).map_err(missing)?.is_dir() {
        let real = path.canonicalize().map_err(missing)?;
        return utf_8(path, real.file_name());
    }
    utf_8(path, path.file_stem())
}

/// A part of a path as text.
fn utf_8(path: &Path, part: Option<&std::ffi::OsStr>) -> Result<String, LoadError> {
    let text = part.and_then(|part| part.to_str()).map(str::to_owned);
    let reason = "its name is not UTF-8".to_owned();
    text.ok_or_else(|| LoadError::File { file: path.display().to_string(), reason })
}

/// Loads an ONNX file, or a directory with a `model.toml`.
///
/// # Errors
/// See [`LoadError`]. The registry is changed only where loading succeeds.
pub fn load(
    path: &Path,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let name = name_of_path(path)?;
    if path.is_dir() {
        return load_directory(&Files::Folder(path.to_owned()), name, options, registry);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let files = Files::Folder(folder.to_owned());
    let file = utf_8(path, path.file_name())?;
    let notes = missing_model_toml(folder, path).into_iter().collect();
    let tables = Tables { name, version: "1".to_owned(), notes, ..Tables::default() };
    let content = OnnxFile::read(&files, &file)?;
    load_graph((&file, content), &files, tables, MAX_LENGTH, options, registry)
}

/// Loads a model directory that is compiled into the program: names and bytes of its
/// files. `name` is that of the model, unless its `model.toml` has one.
///
/// # Errors
/// See [`LoadError`].
pub fn load_embedded(
    name: &str,
    files: &[(&str, &[u8])],
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    load_directory(&Files::Embedded(files), name.to_owned(), options, registry)
}

fn load_directory(
    files: &Files<'_>,
    name: String,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let Directory { unfold, cells, max_length, mut tables, fixed, rules } =
        directory::read(files, name)?;
    if let UnfoldTable::Onnx { graph, row } = &unfold {
        let mut file = OnnxFile::read(files, graph)?;
        if let Some(name) = fixed.keys().find(|name| !file.has_input(name)) {
            return Err(no_input(files, name));
        }
        let amendments = Amendments { fixed, rows: row.clone(), ..Amendments::default() };
        file.amend(&amendments)
            .and_then(|()| file.apply(&rules))
            .map_err(|reason| LoadError::Malformed { file: files.label("model.toml"), reason })?;
        return load_graph((graph, file), files, tables, max_length, options, registry);
    }
    if matches!(&options.stages, StageStarts::Named(starts) if !starts.is_empty()) {
        let reason = "only a model that is one ONNX file is cut into stages";
        return Err(in_stages(&files.label("model.toml"), reason));
    }
    // Registered in a copy first: the tables may still refuse the model.
    let mut registered = registry.clone();
    let (used, bound) = (Vec::new(), BTreeSet::new());
    let (registry_copy, tables_of_cells) = (&mut registered, &mut tables);
    let cells = Cells {
        files,
        cells,
        fixed,
        bound,
        used,
        tables: tables_of_cells,
        options,
        registry: registry_copy,
    };
    let unfolding = match unfold {
        UnfoldTable::Onnx { .. } => unreachable!("it was loaded above"),
        UnfoldTable::Chain(table) => cells.chain(&table, max_length),
        UnfoldTable::Tree(table) => cells.tree(&table, max_length),
        UnfoldTable::EncoderDecoder(table) => cells.encoder_decoder(&table, max_length),
    };
    let model = Model::with_tables(unfolding?, tables, files)?;
    *registry = registered;
    Ok(model)
}

/// The cells of a directory, and those of them that were used so far.
struct Cells<'a> {
    files: &'a Files<'a>,
    cells: Vec<CellTable>,
    /// Inputs that are constants, and those of them that cells have.
    fixed: BTreeMap<String, Tensor>,
    bound: BTreeSet<String>,
    used: Vec<ModelCell>,
    /// The model's tables, which take notes on the cells' files and bounds on outputs.
    tables: &'a mut Tables,
    options: &'a LoadOptions,
    registry: &'a mut CellRegistry,
}

impl Cells<'_> {
    fn malformed(&self, reason: String) -> LoadError {
        LoadError::Malformed { file: self.files.label("model.toml"), reason }
    }

    /// Reads and registers the cell `name`, the next in the order of computation.
    fn take(&mut self, name: &str) -> Result<TemplateCell, LoadError> {
        self.take_step(name, &BTreeMap::new())
    }

    /// As [`Self::take`], with states.
    fn take_step(
        &mut self,
        name: &str,
        states: &BTreeMap<String, String>,
    ) -> Result<TemplateCell, LoadError> {
        let Some(table) = self.cells.iter().find(|cell| cell.name == name).cloned() else {
            return Err(self.malformed(format!("unfold: there is no [[cell]] named `{name}`")));
        };
        let file = OnnxFile::read(self.files, &table.graph)?;
        self.tables.notes.extend(file.notes.iter().cloned());
        let of_file = self.fixed.keys().filter(|name| file.has_input(name)).cloned();
        self.bound.extend(of_file);
        let (fixed, rows) = (self.fixed.clone(), table.row.clone());
        let amendments = Amendments { fixed, rows, batch_axis: table.batch_axis.clone() };
        let cell = NamedCell::step_of_file(file, &amendments, states)?
            .map_err(|reason| self.malformed(format!("cell `{name}`: {reason}")))?;
        let priority = table.priority.unwrap_or(self.used.len() as i32);
        let NamedCell { cell: body, fused, description, .. } = &cell;
        let new = NewCell { name, cell: body, stage: 0, priority, fused: *fused, description };
        let used =
            self.options.register(self.registry, &new, table.max_batch_size, table.precision);
        let cell_type = used.cell_type;
        self.used.push(used);
        Ok(TemplateCell { name: name.to_owned(), cell_type, cell })
    }

    /// Records the bounds of integer outputs: `from` finds the bounds of the cell outputs that a reply's tensor
    /// is made of.
    fn bound_outputs<const N: usize>(
        &mut self,
        outputs: &[StepOutput],
        from: impl Fn(&str) -> [Option<usize>; N],
    ) {
        for output in outputs {
            let bounds: Option<Vec<usize>> = from(&output.from).into_iter().collect();
            if let Some(bound) = bounds.and_then(|bounds| bounds.into_iter().max()) {
                self.tables.id_bounds.insert(output.name.clone(), bound);
            }
        }
    }

    /// Checks that every cell and every constant is used.
    fn finish(self) -> Result<Vec<ModelCell>, LoadError> {
        if let Some(name) = self.fixed.keys().find(|name| !self.bound.contains(*name)) {
            return Err(no_input(self.files, name));
        }
        let is_used = |cell: &CellTable| self.used.iter().any(|used| used.name == cell.name);
        match self.cells.iter().find(|cell| !is_used(cell)) {
            Some(cell) => {
                Err(self.malformed(format!("[[cell]] `{}`: unfold makes no use of it", cell.name)))
            }
            None => Ok(self.used),
        }
    }

    fn chain(mut self, table: &ChainTable, max_length: usize) -> Result<Unfolding, LoadError> {
        let step = self.take_step(&table.cell, &table.state)?;
        let direction = table.direction().map_err(|reason| self.malformed(reason))?;
        let outputs = step_outputs(&table.outputs);
        self.bound_outputs(&outputs, |name| [bound_of(&step, name)]);
        let rows = [&table.sequence[..], &table.constant[..]];
        let chain = Chain::new(step, direction, rows, outputs, max_length);
        let chain = chain.map_err(|reason| self.malformed(reason))?;
        let (inputs, outputs) = (chain.inputs(), chain.reply());
        let cells = self.finish()?;
        let (unfolder, takes) = (Arc::new(chain), Takes::ALL);
        Ok(Unfolding { unfolder, inputs, outputs, cells, max_length, takes })
    }

    fn encoder_decoder(
        mut self,
        table: &EncoderDecoderTable,
        max_length: usize,
    ) -> Result<Unfolding, LoadError> {
        let EncoderDecoderTable { encoder, decoder, outputs, .. } = table;
        let states = decoder.states().map_err(|reason| self.malformed(reason))?;
        let encoder_cell = self.take_step(&encoder.cell, &encoder.state)?;
        let decoder_cell = self.take_step(&decoder.cell, &states)?;
        let rules = DecoderRules {
            start: &decoder.start,
            init: &decoder.init,
            stop: decoder.stop.as_ref().map(|stop| (&*stop.output, stop.value)),
            max_steps: StepBound {
                per_input: decoder.max_steps.per_input,
                plus: decoder.max_steps.plus,
            },
        };
        let (outputs, sequence) = (step_outputs(outputs), &encoder.sequence);
        self.bound_outputs(&outputs, |name| {
            [name.strip_prefix("decoder.").and_then(|name| bound_of(&decoder_cell, name))]
        });
        let direction = encoder.direction().map_err(|reason| self.malformed(reason))?;
        let sequence = (&sequence[..], direction);
        let unfolder =
            EncoderDecoder::new(encoder_cell, sequence, decoder_cell, &rules, outputs, max_length);
        let unfolder = unfolder.map_err(|reason| self.malformed(reason))?;
        let (inputs, outputs) = (unfolder.inputs(), unfolder.reply());
        let cells = self.finish()?;
        let (unfolder, takes) = (Arc::new(unfolder), Takes::ALL);
        Ok(Unfolding { unfolder, inputs, outputs, cells, max_length, takes })
    }

    fn tree(mut self, table: &TreeTable, max_length: usize) -> Result<Unfolding, LoadError> {
        let leaf = self.take(&table.leaf.cell)?;
        let inner = self.take(&table.internal.cell)?;
        let outputs = step_outputs(&table.outputs);
        self.bound_outputs(&outputs, |name| [bound_of(&leaf, name), bound_of(&inner, name)]);
        let (sequence, children) = (&table.leaf.sequence, &table.internal.children);
        let tree = Tree::new(leaf, sequence, inner, children, outputs, max_length);
        let tree = tree.map_err(|reason| self.malformed(reason))?;
        let (inputs, outputs) = (tree.inputs(), tree.reply());
        let cells = self.finish()?;
        let (unfolder, takes) = (Arc::new(tree), Takes::NONE);
        Ok(Unfolding { unfolder, inputs, outputs, cells, max_length, takes })
    }
}

/// The number that the integers of a cell's output are below, if its file implies one.
fn bound_of(cell: &TemplateCell, output: &str) -> Option<usize> {
    cell.cell.output(output)?.bound
}

/// The error that `fixed` names a tensor that is no input.
fn no_input(files: &Files<'_>, name: &str) -> LoadError {
    let reason = format!("fixed `{name}`: there is no such input");
    LoadError::Malformed { file: files.label("model.toml"), reason }
}

/// The error that a file cannot be cut into its stages.
fn in_stages(file: &str, reason: &str) -> LoadError {
    LoadError::Stages { file: file.to_owned(), reason: reason.to_owned() }
}

/// Loads a whole file, which has this name.
fn load_graph(
    (file_name, file): (&str, OnnxFile),
    files: &Files<'_>,
    mut tables: Tables,
    max_length: usize,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    tables.notes.extend(file.notes.iter().cloned());
    tables.passed.clone_from(&file.passed);
    let mut registered = registry.clone();
    let (mut variants, mut names) = (Variants::default(), CellNames::default());
    let mut whole = analysed(&file, &options.stages);
    if let Err(reason) = whole.check_stages() {
        if matches!(options.stages, StageStarts::Named(_)) {
            return Err(in_stages(&file.name, &reason));
        }
        whole = analysed(&file, &StageStarts::default());
    }
    let WholeFile { variants: analysed, refused, stages } = whole;
    tables.stages = stages;
    if let Some((analysis, _)) = analysed.first() {
        tables.notes.extend(products_of_bytes(&file, analysis.dequantised.products()));
    }
    for (mut analysis, cut) in analysed {
        tables.notes.extend(fixed_lengths(&file, &analysis));
        let bound =
            |(name, view): &(String, View)| Some((name.clone(), id_bound(&analysis, view)?));
        tables.id_bounds.extend(analysis.outputs.iter().filter_map(bound));
        // Registered in a copy first: the tables may still refuse the model.
        let unfolding = plan(&analysis, &cut, options, max_length, &mut registered, &mut names);
        variants.add(unfolding, std::mem::take(&mut analysis.conditions));
    }
    let reason =
        refused.as_ref().and_then(|diagnostics| diagnostics.first()).map(ToString::to_string);
    let Some(unfolding) = variants.joined(reason.as_deref()) else {
        let (label, name) = (file.name.clone(), file_name);
        return Err(
            LoadError::refused(label, refused.unwrap_or_default()).advised(advice(file, name))
        );
    };
    if let Some(reason) = reason {
        tables.notes.push(format!("requests that take another branch are refused: {reason}"));
    }
    let model = Model::with_tables(unfolding, tables, files)?;
    *registry = registered;
    Ok(model)
}
