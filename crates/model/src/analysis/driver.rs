//! Runs the analysis over a file, pass by pass, until the roles of all input dimensions are found.

use crate::analysis::limits::BUDGET;
use crate::analysis::roles::{Role, Roles};
use crate::analysis::state::{Analysis, BodyCompiler, Bound, Subject};
use crate::analysis::table::OPERATORS;
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// Finds out what every value of a file is, as [`Subject::Network`] or [`Subject::Cell`].
pub(crate) fn analyse(
    file: &OnnxFile,
    subject: Subject,
    bodies: &'static BodyCompiler,
) -> Analysis {
    let known = match subject {
        Subject::Network => Roles::new(),
        _ => (0..file.inputs.len()).map(|input| ((input, 0), Role::Batch)).collect(),
    };
    let mut roles = known.clone();
    for _ in 0..4 {
        let draft = pass(file, subject, &roles, true, Bound::default(), bodies);
        let mut found = draft.roles();
        if !draft.axes.has_time()
            && draft.recurrents.is_empty()
            && subject == Subject::Network
            && !draft.hidden
        {
            found.extend(first_axes(file));
        }
        found.extend(&known);
        if found == roles {
            break;
        }
        roles = found;
    }
    let mut bound = Bound::default();
    loop {
        let analysis = pass(file, subject, &roles, false, bound.clone(), bodies);
        if analysis.bound == bound || subject == Subject::Cell {
            return analysis;
        }
        bound = analysis.bound;
    }
}

fn pass(
    file: &OnnxFile,
    subject: Subject,
    roles: &Roles,
    draft: bool,
    bound: Bound,
    bodies: &'static BodyCompiler,
) -> Analysis {
    let budget = BUDGET + 4 * file.elements();
    let mut analysis = Analysis::new(subject, (&OPERATORS, bodies), file.opset, budget);
    analysis.diagnostics.clone_from(&file.diagnostics);
    (analysis.draft, analysis.bound) = (draft, bound);
    if subject == Subject::Network {
        analysis.bind_lengths(file, roles);
    }
    for (index, input) in file.inputs.iter().enumerate() {
        analysis.add_input(index, input, roles, subject);
    }
    for node in &file.nodes {
        analysis.add_node(node, file);
    }
    for name in &file.outputs {
        analysis.add_output(name, file);
    }
    analysis.rename_atoms();
    analysis.check_rows();
    analysis
}

/// Where there is no recurrent operator, the batch is the first input's first axis, if that is open, and
/// those that are called like it.
fn first_axes(file: &OnnxFile) -> Roles {
    let first = |input: &GraphInput| input.shape.as_ref()?.first().cloned();
    let Some(batch) = file.inputs.first().and_then(first) else { return Roles::new() };
    if matches!(batch, DeclaredDimension::Static(_)) {
        return Roles::new();
    }
    let inputs = file.inputs.iter().enumerate();
    let of = inputs.filter(|(_, input)| first(input).as_ref() == Some(&batch));
    of.map(|(index, _)| ((index, 0), Role::Batch)).collect()
}
