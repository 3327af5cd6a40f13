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
use crate::partition::stage_starts::stage_starts;
use crate::unfold::interface::check_outputs;

/// The variants of a file.
pub(super) struct WholeFile {
    /// Those that can be served.
    pub(super) variants: Vec<(Analysis, Cut)>,
    /// The obstacles to serving the first of the others.
    pub(super) refused: Option<Vec<Diagnostic>>,
    /// The nodes that begin stages 1, 2, ….
    pub(super) stage_starts: Vec<String>,
}

/// Analyses and cuts a file.
pub(super) fn analysed(file: &OnnxFile, stages: &StageStarts) -> WholeFile {
    let variants = analyse_variants(file, &BODIES);
    let stage_starts = match (stages, &variants[..]) {
        (StageStarts::Named(named), _) => named.clone(),
        (StageStarts::All, [only]) if only.diagnostics.is_empty() => stage_starts(only),
        (StageStarts::All, _) => Vec::new(),
    };
    let mut found = WholeFile { variants: Vec::new(), refused: None, stage_starts };
    for mut analysis in variants {
        for (node, reason) in check_outputs(&analysis) {
            analysis.diagnostics.push(Diagnostic { operator: "output".to_owned(), node, reason });
        }
        let is_sound = analysis.diagnostics.is_empty();
        let cut = is_sound.then(|| cut(&mut analysis, Vec::new(), &found.stage_starts));
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
