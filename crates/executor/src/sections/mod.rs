//! Programs that are cut into native sections, which run in kernels of this project, and fallback sections, which run in rten:
//! see [`SectionedProgram`].
//!
//! | file | idea |
//! |---|---|
//! | `tensor.rs` | a tensor between sections, in one of two layouts |
//! | `buffers.rs` | the memory of tensors that nobody reads any more |
//! | `constants.rs`, `windows.rs` | reads constants, attributes and windows of a program's file |
//! | `convolution.rs`, `product.rs`, `pooling.rs`, `gates.rs` | native sections |
//! | `attention.rs` | attention without all of its scores at once; softmax |
//! | `layer_norm.rs` | layer normalisation |
//! | `attention_pattern.rs`, `transformer_patterns.rs` | attention; layer norms and GELU, recognised among operators |
//! | `element_chain.rs`, `reducing.rs`, `element_pattern.rs` | elementwise operators in one pass; reductions; both, recognised |
//! | `scalars.rs`, `scalar_pattern.rs` | operators on one number for each row or sequence, run one after the other; recognised |
//! | `element_types.rs`, `known_scalars.rs` | which tensors hold floats; which are scalars |
//! | `taking.rs`, `taking_pattern.rs` | windows and edges that are copied; their operators, recognised |
//! | `strided_view.rs`, `view_pattern.rs` | other shapes and orders of elements, joined into one copy; their operators, recognised |
//! | `joining.rs` | tensors one behind the other |
//! | `rearranging.rs` | pixels that are repeated, channels that change places |
//! | `guards.rs` | operators that rten computes for one row otherwise than for several |
//! | `parts.rs` | divides tensors into parts for several threads |
//! | `fallback.rs` | operators that run in rten |
//! | `sectioned_program.rs` | runs the sections of a program |
//! | `self_gates.rs` | activations that a file writes as products |
//! | `native_section.rs` | the kinds of native sections |
//! | `sorter.rs` | sorts operators into native sections and fallback operators |
//! | `section_writer.rs` | writes the sections in the order in which they run |
//! | `cut.rs` | cuts a program: sorts its operators, then writes the sections |

mod attention;
mod attention_pattern;
mod buffers;
mod constants;
mod convolution;
mod cut;
mod element_chain;
mod element_pattern;
mod element_types;
mod fallback;
mod gates;
mod guards;
mod joining;
mod known_scalars;
mod layer_norm;
mod native_section;
mod parts;
mod pooling;
mod product;
mod rearranging;
mod reducing;
mod scalar_pattern;
mod scalars;
mod section_writer;
mod sectioned_program;
mod self_gates;
mod sorter;
mod strided_view;
mod taking;
mod taking_pattern;
mod tensor;
mod transformer_patterns;
mod view_pattern;
mod windows;

pub(crate) use cut::{cut, cut_by_operators, has_byte_products};
pub(crate) use section_writer::Cut;
pub(crate) use sectioned_program::{SectionTime, SectionedProgram};
