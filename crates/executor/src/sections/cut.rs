//! Cuts a program into native and fallback sections.
//!
//! A *native section* runs in kernels of this project: for example a convolution or a product with constant weights, together with
//! its epilogue, attention, or a layer norm. A *fallback section* runs in rten: the operators between native sections. The *depth* of an operator is the
//! greatest number of native sections on a path that leads to it. All fallback operators of one depth are one section.

use std::collections::BTreeSet;

use batchmaker_graph::BYTE_PRODUCTS;
use batchmaker_kernels::Packing;
use rten_onnx::onnx::ModelProto;

use crate::operator::operator;
use crate::probe::Probe;
use crate::program_file::OPERATORS_OF_THREAD;
use crate::row_count::{has_unknown_products, is_never_sensitive, is_suspect};
use crate::sections::constants::Constants;
use crate::sections::native_section::NativeKind;
use crate::sections::section_writer::{Cut, Fallbacks, SectionWriter};
use crate::sections::sorter::{Sorted, Sorter};

/// Cuts the program in `file` and packs its constant matrices by `packing`. Returns none if the program has neither a convolution, nor
/// attention, nor a product with a constant matrix; a sum or a mean is enough if all sections are native. Returns none, too, if a fallback
/// section would have an operator that may compute one row otherwise than several, or more operators than rten runs on the stack of a thread.
pub(crate) fn cut(file: &ModelProto, probe: &Probe, packing: Packing) -> Option<Cut> {
    let graph = file.graph.as_ref()?;
    let constants = Constants::of(graph);
    // Looked at first: sorting packs the weights of convolutions.
    let is_worth_sorting =
        |node| matches!(operator(node), "Conv" | "MatMul" | "ReduceMean" | "ReduceSum");
    let is_worth_sorting = graph.node.iter().any(is_worth_sorting);
    let is_suspect = |node| {
        is_suspect(node, |name| constants.has(name)) && !is_never_sensitive(graph, node, probe)
    };
    let is_in_the_way = |node| is_suspect(node) && has_unknown_products(node);
    let byte_products = byte_products(file);
    if (!is_worth_sorting && byte_products.is_empty()) || graph.node.iter().any(is_in_the_way) {
        return None;
    }
    let mut sorter = Sorter::new(graph, &constants, probe, &byte_products);
    graph.node.iter().try_for_each(|node| sorter.add(node, is_suspect(node)))?;
    let Sorted { native, fallback } = sorter.finish(graph);
    let is_worth_it = |kind: &NativeKind| {
        use NativeKind::{Attention, Convolution, Product, Reduce};
        matches!(kind, Convolution(_) | Attention(_) | Product { .. })
            || matches!(kind, Reduce { .. } if fallback.is_empty())
    };
    if !native.iter().any(|section| is_worth_it(&section.kind))
        || fallback.values().flatten().any(|&node| is_suspect(node))
        || fallback.values().any(|nodes| nodes.len() > OPERATORS_OF_THREAD)
    {
        return None;
    }
    SectionWriter::new(file, &constants, packing).write(graph, native, &fallback, Fallbacks::Whole)
}

/// Cuts the program in `file` so that each operator that rten runs is a section of its own, whatever the bits of a single row.
pub(crate) fn cut_by_operators(file: &ModelProto, probe: &Probe, packing: Packing) -> Option<Cut> {
    let graph = file.graph.as_ref()?;
    let (constants, byte_products) = (Constants::of(graph), byte_products(file));
    let mut sorter = Sorter::new(graph, &constants, probe, &byte_products);
    graph.node.iter().try_for_each(|node| sorter.add(node, false))?;
    let Sorted { native, fallback } = sorter.finish(graph);
    SectionWriter::new(file, &constants, packing).write(
        graph,
        native,
        &fallback,
        Fallbacks::OneOperator,
    )
}

/// Whether a program has products whose factors are bytes.
pub(crate) fn has_byte_products(file: &ModelProto) -> bool {
    !byte_products(file).is_empty()
}

/// The outputs of the program's products whose factors are bytes.
fn byte_products(file: &ModelProto) -> BTreeSet<&str> {
    let is_list = |key: &Option<String>| key.as_deref() == Some(BYTE_PRODUCTS);
    let lists = file.metadata_props.iter().filter(|entry| is_list(&entry.key));
    lists.filter_map(|entry| entry.value.as_deref()).flat_map(|names| names.split(' ')).collect()
}
