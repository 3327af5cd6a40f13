//! Products of matrices that both depend on the request.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::composed::composer::{Composer, number};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::file::attribute::ints_attribute;
use crate::file::node::Node;

/// `Gemm`: alpha A B + beta C, where A and B may be transposed.
pub(crate) fn gemm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut to = Composer { analysis, node };
    let mut factors = Vec::new();
    for (index, name) in [(0, "transA"), (1, "transB")] {
        let factor = input(inputs, index)?;
        factors.push(match node.int(name).unwrap_or(0) {
            0 => factor.clone(),
            _ => to.op_with("Transpose", vec![ints_attribute("perm", vec![1, 0])], &[factor])?,
        });
    }
    let mut product = to.op("MatMul", &[&factors[0], &factors[1]])?;
    let alpha = node.float("alpha").unwrap_or(1.0);
    if alpha != 1.0 {
        product = to.op("Mul", &[&product, &number(alpha)])?;
    }
    let Some(Some(bias)) = inputs.get(2) else { return Ok(vec![product]) };
    let beta = node.float("beta").unwrap_or(1.0);
    let bias = match beta == 1.0 {
        true => bias.clone(),
        false => to.op("Mul", &[bias, &number(beta)])?,
    };
    to.op("Add", &[&product, &bias]).map(|val| vec![val])
}
