//! Runs the analysis over a file, pass by pass, until the roles of all input dimensions are found.

use std::collections::BTreeMap;

use crate::analysis::limits::BUDGET;
use crate::analysis::roles::{Role, Roles};
use crate::analysis::state::{Analysis, BodyCompiler, Bound, Pass, Subject};
use crate::analysis::table::OPERATORS;
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// The most variants of a file.
const VARIANTS_MAX: usize = 32;

/// Finds out what every value of a file is, as [`Subject::Network`] or [`Subject::Cell`], where its conditions of the
/// request hold.
pub(crate) fn analyse(
    file: &OnnxFile,
    subject: Subject,
    bodies: &'static BodyCompiler,
) -> Analysis {
    analyse_with(file, subject, bodies, &BTreeMap::new())
}

/// As [`analyse`], of every variant of a file: of each choice of the branches that its conditions of the request take.
pub(crate) fn analyse_variants(file: &OnnxFile, bodies: &'static BodyCompiler) -> Vec<Analysis> {
    let mut variants = Vec::new();
    let mut open = vec![BTreeMap::new()];
    while let Some(assumed) = open.pop() {
        let mut analysis = analyse_with(file, Subject::Network, bodies, &assumed);
        if variants.len() == VARIANTS_MAX {
            analysis.diagnose("graph", "graph", &format!("more than {VARIANTS_MAX} branches"));
            return vec![analysis];
        }
        let mut path: BTreeMap<String, bool> = BTreeMap::new();
        let forks = analysis.forks.iter().zip(&analysis.conditions);
        let mut others = Vec::new();
        for (name, &(_, is_true)) in forks {
            if !assumed.contains_key(name) {
                let mut other = path.clone();
                other.insert(name.clone(), !is_true);
                others.push(other);
            }
            path.insert(name.clone(), is_true);
        }
        // The last fork's other branch is next.
        open.extend(others);
        variants.push(analysis);
    }
    variants
}

fn analyse_with(
    file: &OnnxFile,
    subject: Subject,
    bodies: &'static BodyCompiler,
    assumed: &BTreeMap<String, bool>,
) -> Analysis {
    let mut known = assumed.clone();
    loop {
        let of = (subject, bodies, &known);
        let roles = find_roles(file, of);
        let mut bound = Bound::default();
        let analysis = loop {
            let analysis = pass(file, Pass::Values, &roles, bound.clone(), of);
            if analysis.bound == bound || subject == Subject::Cell {
                break analysis;
            }
            bound = analysis.bound;
        };
        // Branches that the search for roles did not know, and took the first of.
        let missed = analysis
            .branches
            .iter()
            .filter(|(name, is_true)| !known.contains_key(*name) && !**is_true);
        let missed: Vec<(String, bool)> =
            missed.map(|(n, &is_true)| (n.clone(), is_true)).collect();
        if missed.is_empty() {
            return analysis;
        }
        known.extend(missed);
    }
}

/// The subject of an analysis, the compiler of its loops, and the branches that are assumed.
type Of<'a> = (Subject, &'static BodyCompiler, &'a BTreeMap<String, bool>);

/// The roles of all input dimensions: passes go on until they find nothing new.
fn find_roles(file: &OnnxFile, of: Of<'_>) -> Roles {
    let (subject, ..) = of;
    let known = match subject {
        Subject::Network => Roles::new(),
        _ => (0..file.inputs.len()).map(|input| ((input, 0), Role::Batch)).collect(),
    };
    let mut roles = known.clone();
    for _ in 0..4 {
        let analysis = pass(file, Pass::Roles, &roles, Bound::default(), of);
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
    pass: Pass,
    roles: &Roles,
    bound: Bound,
    (subject, bodies, assumed): Of<'_>,
) -> Analysis {
    let budget = BUDGET + 4 * file.elements();
    let mut analysis = Analysis::new(subject, pass, (&OPERATORS, bodies), file.opset, budget);
    analysis.diagnostics.clone_from(&file.diagnostics);
    analysis.bound = bound;
    analysis.assumed.clone_from(assumed);
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
        analysis.check_constants();
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
