//! A whole ONNX file, analysed and cut.

use crate::analysis::driver::analyse_variants;
use crate::analysis::state::Analysis;
use crate::emit::bodies::BODIES;
use crate::emit::sequence_segment::unbuilt;
use crate::error::Diagnostic;
use crate::file::onnx_file::OnnxFile;
use crate::partition::cut::cut;
use crate::partition::segment::Cut;
use crate::unfold::interface::check_outputs;

/// The variants of a file.
pub(super) struct WholeFile {
    /// Those that can be served.
    pub(super) variants: Vec<(Analysis, Cut)>,
    /// The obstacles to serving the first of the others.
    pub(super) refused: Option<Vec<Diagnostic>>,
}

/// Analyses and cuts a file; each node of `stage_starts` begins a stage.
pub(super) fn analysed(file: &OnnxFile, stage_starts: &[String]) -> WholeFile {
    let mut found = WholeFile { variants: Vec::new(), refused: None };
    for mut analysis in analyse_variants(file, &BODIES) {
        for (node, reason) in check_outputs(&analysis) {
            analysis.diagnostics.push(Diagnostic { operator: "output".to_owned(), node, reason });
        }
        let cut =
            analysis.diagnostics.is_empty().then(|| cut(&mut analysis, Vec::new(), stage_starts));
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
