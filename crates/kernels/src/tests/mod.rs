//! Every kernel against a plain f64 reference, against itself on every vector unit, and alone
//! against in any company.
//!
//! | file | idea |
//! |---|---|
//! | `random.rs` | numbers and splits from a seed |
//! | `cells.rs` | random weights of every kind |
//! | `kernels.rs` | one face for all kernels, and memory for their rows |
//! | `reference.rs` | the formulas in f64 |
//! | the rest | one property each |

mod agreement;
mod argmax;
mod arguments;
mod attention;
mod batches;
mod cells;
mod convolutions;
mod embeddings;
mod guards;
mod kernels;
mod layer_norm;
mod lstm_of_bytes;
mod order;
mod partial_accesses;
mod random;
mod reduced;
mod reference;
mod same_bits;
mod sizes;
mod special_values;
mod subnormals;
mod threads;
