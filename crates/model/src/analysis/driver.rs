//! Runs the analysis over a file, pass by pass, until the roles of all input dimensions are found.

use crate::analysis::limits::BUDGET;
use crate::analysis::roles::{Role, Roles};
use crate::analysis::state::{Analysis, BodyCompiler, Bound, Pass, Subject};
use crate::analysis::table::OPERATORS;
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// Finds out what every value of a file is, as [`Subject::Network`] or [`Subject::Cell`].
pub(crate) fn analyse(
    file: &OnnxFile,
    subject: Subject,
    bodies: &'static BodyCompiler,
) -> Analysis {
    let roles = find_roles(file, subject, bodies);
    let mut bound = Bound::default();
    loop {
        let analysis = pass(file, subject, Pass::Values, &roles, bound.clone(), bodies);
        if analysis.bound == bound || subject == Subject::Cell {
            return analysis;
        }
        bound = analysis.bound;
    }
}

/// The roles of all input dimensions: passes go on until they find nothing new.
fn find_roles(file: &OnnxFile, subject: Subject, bodies: &'static BodyCompiler) -> Roles {
    let known = match subject {
        Subject::Network => Roles::new(),
        _ => (0..file.inputs.len()).map(|input| ((input, 0), Role::Batch)).collect(),
    };
    let mut roles = known.clone();
    for _ in 0..4 {
        let analysis = pass(file, subject, Pass::Roles, &roles, Bound::default(), bodies);
        let mut found = analysis.roles();
        if !analysis.axes.has_time()
            && analysis.recurrents.is_empty()
            && subject == Subject::Network
            && !analysis.misses_recurrence
        {
            found.extend(first_axes(file));
        }
        found.extend(&known);
        if found == roles {
            break;
        }
        roles = found;
    }
    roles
}

/// One pass over the file.
fn pass(
    file: &OnnxFile,
    subject: Subject,
    pass: Pass,
    roles: &Roles,
    bound: Bound,
    bodies: &'static BodyCompiler,
) -> Analysis {
    let budget = BUDGET + 4 * file.elements();
    let mut analysis = Analysis::new(subject, pass, (&OPERATORS, bodies), file.opset, budget);
    analysis.diagnostics.clone_from(&file.diagnostics);
    analysis.bound = bound;
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
    analysis.add_checks();
    analysis.rename_symbols();
    if pass == Pass::Values {
        analysis.check_rows();
    }
    analysis
}

/// The roles of a file without a recurrent operator: the batch is the first input's first axis, if that is open,
/// and first axes of the same name.
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
