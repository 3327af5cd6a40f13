//! The bodies of loops, which are compiled while the file around them is still analysed: whether they can be
//! decides how a loop is served.

use std::collections::BTreeMap;

use crate::analysis::state::{Analysis, BodyCompiler};
use crate::data::named_cell::NamedCell;
use crate::emit::cell::compile;
use crate::emit::loop_body;
use crate::emit::states::with_states;
use crate::error::{Diagnostic, LoadError};
use crate::file::node::Node;

/// Compiles the bodies of loops.
pub(crate) static BODIES: BodyCompiler = BodyCompiler { step, graph: loop_body::graph };

/// The step of a chain; see [`BodyCompiler`].
fn step(
    node: &Node,
    body: &mut Analysis,
    states: &BTreeMap<String, String>,
) -> Result<NamedCell, Vec<Diagnostic>> {
    let named = compile(&node.label, body).map_err(|error| match error {
        LoadError::Refused { diagnostics, .. } => diagnostics,
        other => vec![node.diagnostic(other.to_string())],
    })?;
    with_states(named, states).map_err(|reason| vec![node.diagnostic(reason)])
}
