//! The operators that decide how long a network takes.

/// The operators that take most of a network's time. What follows one of them up to the next is run with it, so no cut lies between
/// operators that an executor joins.
const HEAVY: [&str; 8] = [
    "AveragePool",
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "MatMulInteger",
    "MaxPool",
    "QLinearConv",
];

/// Whether an operator takes much of a network's time.
pub(super) fn is_heavy(operator: &str) -> bool {
    HEAVY.contains(&operator)
}
