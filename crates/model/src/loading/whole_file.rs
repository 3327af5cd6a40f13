//! A whole ONNX file, analysed and cut.

use crate::analysis::driver::analyse_variants;
use crate::analysis::state::Analysis;
use crate::emit::bodies::BODIES;
use crate::emit::registration::StageStarts;
use crate::emit::sequence_segment::unbuilt;
use crate::error::Diagnostic;
use crate::file::onnx_file::OnnxFile;
use crate::partition::cut::cut;
use crate::partition::segment::Cut;
use crate::partition::stage_starts::{StageNodes, stage_nodes};
use crate::unfold::interface::check_outputs;

/// The variants of a file.
pub(super) struct WholeFile {
    /// Those that can be served.
    pub(super) variants: Vec<(Analysis, Cut)>,
    /// The obstacles to serving the first of the others.
    pub(super) refused: Option<Vec<Diagnostic>>,
    /// The nodes that begin stages 1, 2, …, and those of them before which a decision falls, where all that may are asked for.
    pub(super) stages: StageNodes,
}

impl WholeFile {
    /// Checks that the file is cut into its stages, each of which has cells.
    ///
    /// # Errors
    /// The reason why it is not.
    pub(super) fn check_stages(&self) -> Result<(), String> {
        if self.stages.starts.is_empty() {
            return Ok(());
        }
        self.variants
            .iter()
            .try_for_each(|(analysis, cut)| check(analysis, cut, &self.stages.starts))
    }
}

fn check(analysis: &Analysis, cut: &Cut, starts: &[String]) -> Result<(), String> {
    if !analysis.recurrents.is_empty() {
        return Err("it has recurrent operators, whose steps are its cells".to_owned());
    }
    let is_missing = |start: &&String| !analysis.ops.iter().any(|op| op.label == **start);
    if let Some(start) = starts.iter().find(is_missing) {
        return Err(format!("no operator `{start}` is computed for a request"));
    }
    let has_cells = |stage: usize| cut.segments.iter().any(|segment| segment.stage == stage);
    match (0..=starts.len()).find(|&stage| !has_cells(stage)) {
        Some(stage) if stage < starts.len() => Err(format!(
            "no cell lies before `{}`, in the stage that it ends; stages begin in the order of the file",
            starts[stage]
        )),
        Some(stage) => Err(format!("nothing is computed from `{}` on", starts[stage - 1])),
        None => Ok(()),
    }
}

/// Analyses and cuts a file.
pub(super) fn analysed(file: &OnnxFile, stages: &StageStarts) -> WholeFile {
    let variants = analyse_variants(file, &BODIES);
    let found = || match &variants[..] {
        [only] if only.diagnostics.is_empty() => stage_nodes(only),
        _ => StageNodes::default(),
    };
    let stages = match stages {
        StageStarts::Named(named) => StageNodes { starts: named.clone(), decided: Vec::new() },
        StageStarts::Decided => {
            let StageNodes { decided, .. } = found();
            StageNodes { starts: decided.clone(), decided }
        }
        StageStarts::All => found(),
    };
    let mut found = WholeFile { variants: Vec::new(), refused: None, stages };
    for mut analysis in variants {
        for (node, reason) in check_outputs(&analysis) {
            analysis.diagnostics.push(Diagnostic { operator: "output".to_owned(), node, reason });
        }
        let is_sound = analysis.diagnostics.is_empty();
        let cut = is_sound.then(|| cut(&mut analysis, Vec::new(), &found.stages.starts));
        if let Some(cut) = &cut {
            let unbuilt = unbuilt(cut, &analysis);
            analysis.diagnostics.extend(unbuilt);
        }
        match cut {
            Some(cut) if analysis.diagnostics.is_empty() => found.variants.push((analysis, cut)),
            _ => {
                found.refused.get_or_insert(analysis.diagnostics);
            }
        }
    }
    found
}
