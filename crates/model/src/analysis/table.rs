//! The table of operators: all that the compiler knows of each ONNX operator.
//!
//! To add an operator, write its rules under `operators` and its entry here, in the order of names; nothing
//! else names it. The fields of an entry are explained at [`Operator`], those of an operator that computes
//! element by element at [`Elementwise`]: such an operator needs no rule of its own. Most operators have a
//! rule on rows (`on_rows`). One that may go along steps has a rule over whole sequences (`on_sequences`)
//! too. One that is others put together, whatever axes its inputs have, has a rule on anything (`on_any`),
//! which applies these. `docs/onnx-node-tests.md` says which of the ONNX project's tests each passes.

use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::{
    Elementwise, ExecutorForm, Gives, OnRepeated, Operands, Operator, Operators,
};
use crate::analysis::operators::{
    casts, composed, constants, contract, elementwise, fold, layout, lengths, lists, narrow,
    reduce, rewrites, select, sequence_level,
};
use crate::analysis::state::Analysis;
use crate::analysis::{branch, loops, recurrent};
use crate::data::int::Int;
use crate::file::attribute::{float_attribute, int_attribute, string_attribute};
use crate::file::node::Node;

const fn named(name: &'static str) -> Operator<Analysis> {
    Operator::named(name)
}

/// An operator that computes element by element, on rows and over whole sequences.
const fn elementwise(
    name: &'static str,
    elementwise: &'static Elementwise<Analysis>,
) -> Operator<Analysis> {
    Operator {
        on_rows: Some(elementwise::on_rows),
        on_sequences: Some(sequence_level::elements::elementwise),
        elementwise: Some(elementwise),
        is_light: true,
        lengths_as_data: Some(lengths::as_data),
        on_repeated: OnRepeated::Broadcast,
        ..named(name)
    }
}

/// The attributes of these names, with their defaults.
fn floats(node: &Node, defaults: &[(&str, f32)]) -> Vec<AttributeProto> {
    let attribute =
        |&(name, default): &(&str, f32)| float_attribute(name, node.float(name).unwrap_or(default));
    defaults.iter().map(attribute).collect()
}

/// All operators that are served.
pub(crate) static OPERATORS: Operators<Analysis> = Operators(&[
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise(
            "Abs",
            &Elementwise { fold: |_, of| fold::float(of, f32::abs), ..Elementwise::PLAIN },
        )
    },
    elementwise("Acos", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise("Acosh", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    Operator {
        on_narrow: Some(narrow::arithmetic),
        executor: ExecutorForm::MultipliedOut,
        ..elementwise(
            "Add",
            &Elementwise {
                fold: |_, of| fold::arithmetic(of, Some(|a, b| a + b), |a, b, _| a.plus(b)),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        executor: ExecutorForm::MultipliedOut,
        ..elementwise(
            "And",
            &Elementwise { fold: |_, of| fold::logic(of, |a, b| a && b), ..Elementwise::PLAIN },
        )
    },
    Operator {
        on_rows: Some(reduce::arg),
        on_sequences: Some(sequence_level::along::arg),
        executor: ExecutorForm::LastOfEquals,
        ..named("ArgMax")
    },
    Operator {
        on_rows: Some(reduce::arg),
        on_sequences: Some(sequence_level::along::arg),
        executor: ExecutorForm::LastOfEquals,
        ..named("ArgMin")
    },
    elementwise("Asin", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise("Asinh", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise("Atan", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise("Atanh", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    Operator { on_sequences: Some(sequence_level::windows::pool), ..named("AveragePool") },
    Operator {
        on_rows: Some(contract::batch_normalization),
        on_sequences: Some(contract::batch_normalization),
        takes_weights: true,
        is_light: true,
        ..named("BatchNormalization")
    },
    Operator {
        on_any: Some(casts::cast),
        on_repeated: OnRepeated::AsItStands,
        keeps_ids: true,
        ..named("Cast")
    },
    Operator {
        on_any: Some(casts::cast_like),
        on_repeated: OnRepeated::AsItStands,
        ..named("CastLike")
    },
    elementwise(
        "Ceil",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::rounded(of, f32::ceil),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_sequences: None,
        ..elementwise(
            "Celu",
            &Elementwise {
                check: elementwise::check_floats,
                rewrite: Some(rewrites::celu),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_sequences: Some(sequence_level::elements::clip),
        ..elementwise(
            "Clip",
            &Elementwise {
                operands: Operands::First(elementwise::clip_bounds),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_rows: Some(select::concat),
        on_sequences: Some(sequence_level::layout::concat),
        is_light: true,
        ..named("Concat")
    },
    Operator { on_any: Some(lists::concat_list), takes_lists: true, ..named("ConcatFromSequence") },
    Operator { on_rows: Some(constants::constant), ..named("Constant") },
    Operator { on_rows: Some(constants::constant_of_shape), ..named("ConstantOfShape") },
    Operator {
        on_dequantised: Some(composed::dequantised::product),
        on_sequences: Some(sequence_level::windows::convolution),
        takes_weights: true,
        ..named("Conv")
    },
    Operator {
        on_any: Some(composed::quantised::conv_integer),
        takes_per_sequence: true,
        ..named("ConvInteger")
    },
    Operator {
        on_sequences: Some(sequence_level::windows::transposed_convolution),
        takes_weights: true,
        ..named("ConvTranspose")
    },
    elementwise(
        "Cos",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::cos),
            ..Elementwise::PLAIN
        },
    ),
    elementwise("Cosh", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    Operator { on_sequences: Some(sequence_level::along::cumulative_sum), ..named("CumSum") },
    Operator {
        on_any: Some(composed::quantised::dequantize_linear),
        takes_per_sequence: true,
        ..named("DequantizeLinear")
    },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise(
            "Div",
            &Elementwise {
                check: elementwise::check_division,
                fold: |_, of| fold::arithmetic(of, Some(|a, b| a / b), fold::quotient),
                fold_lengths: Some(lengths::windows_of_length),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_rows: Some(layout::dropout),
        on_sequences: Some(layout::dropout),
        ..named("Dropout")
    },
    Operator {
        on_any: Some(composed::quantised::dynamic_quantize_linear),
        ..named("DynamicQuantizeLinear")
    },
    Operator {
        on_any: Some(composed::einsum::einsum),
        on_repeated: OnRepeated::AsItStands,
        ..named("Einsum")
    },
    elementwise(
        "Elu",
        &Elementwise {
            check: elementwise::check_floats,
            attributes: |node| floats(node, &[("alpha", 1.0)]),
            is_activation: true,
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "Equal",
        &Elementwise { gives: Gives::Truth, fold: |_, of| fold::equal(of), ..Elementwise::PLAIN },
    ),
    elementwise("Erf", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise(
        "Exp",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::exp),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_rows: Some(layout::expand),
        on_sequences: Some(sequence_level::layout::expand),
        on_repeated: OnRepeated::AsItStands,
        ..named("Expand")
    },
    Operator {
        on_rows: Some(layout::flatten),
        on_sequences: Some(sequence_level::layout::flatten),
        ..named("Flatten")
    },
    elementwise(
        "Floor",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::rounded(of, f32::floor),
            ..Elementwise::PLAIN
        },
    ),
    Operator { in_graph: Some(recurrent::rules::gru), ..named("GRU") },
    Operator {
        on_rows: Some(select::gather),
        on_sequences: Some(sequence_level::select::gather),
        on_repeated: OnRepeated::KeepAxes,
        ..named("Gather")
    },
    Operator {
        on_sequences: Some(sequence_level::select::gather_elements),
        ..named("GatherElements")
    },
    Operator { on_sequences: Some(sequence_level::select::gather_nd), ..named("GatherND") },
    elementwise(
        "Gelu",
        &Elementwise {
            check: elementwise::check_floats,
            attributes: |node| {
                let approximate = node.string("approximate").unwrap_or("none");
                vec![string_attribute("approximate", approximate)]
            },
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_dequantised: Some(composed::dequantised::product),
        on_rows: Some(contract::gemm),
        on_sequences: Some(composed::products::gemm),
        on_repeated: OnRepeated::AsItStands,
        takes_weights: true,
        ..named("Gemm")
    },
    Operator {
        on_sequences: Some(sequence_level::windows::global_pool),
        ..named("GlobalAveragePool")
    },
    Operator { on_sequences: Some(sequence_level::windows::global_pool), ..named("GlobalMaxPool") },
    elementwise(
        "Greater",
        &Elementwise {
            gives: Gives::Truth,
            fold: |_, of| fold::comparison(of, Some(|a, b| a > b), |a, b| b.is_less(a)),
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "GreaterOrEqual",
        &Elementwise {
            gives: Gives::Truth,
            fold: |_, of| fold::comparison(of, None, |a, b| Some(!a.is_less(b)?)),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_any: Some(composed::normalisations::group_normalization),
        ..named("GroupNormalization")
    },
    elementwise(
        "HardSigmoid",
        &Elementwise {
            check: elementwise::check_floats,
            attributes: |node| floats(node, &[("alpha", 0.2), ("beta", 0.5)]),
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "HardSwish",
        &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN },
    ),
    Operator { on_any: Some(composed::activations::hardmax), ..named("Hardmax") },
    Operator {
        on_rows: Some(layout::identity),
        on_sequences: Some(layout::identity),
        on_repeated: OnRepeated::KeepAxes,
        takes_lists: true,
        ..named("Identity")
    },
    Operator { in_graph: Some(branch::branch), ..named("If") },
    Operator {
        on_any: Some(composed::normalisations::instance_normalization),
        ..named("InstanceNormalization")
    },
    Operator { on_any: Some(composed::activations::is_infinite), ..named("IsInf") },
    elementwise(
        "IsNaN",
        &Elementwise {
            gives: Gives::Truth,
            check: elementwise::check_floats,
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_any: Some(composed::normalisations::local_response_normalization),
        ..named("LRN")
    },
    Operator { in_graph: Some(recurrent::rules::lstm), ..named("LSTM") },
    Operator {
        on_rows: Some(reduce::layer_normalization),
        on_sequences: Some(sequence_level::along::layer_normalization),
        with_more_outputs: Some(composed::normalisations::layer_normalization),
        ..named("LayerNormalization")
    },
    elementwise(
        "LeakyRelu",
        &Elementwise {
            check: elementwise::check_floats,
            attributes: |node| floats(node, &[("alpha", 0.01)]),
            is_activation: true,
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "Less",
        &Elementwise {
            gives: Gives::Truth,
            fold: |_, of| fold::comparison(of, Some(|a, b| a < b), Int::is_less),
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "LessOrEqual",
        &Elementwise {
            gives: Gives::Truth,
            fold: |_, of| fold::comparison(of, None, |a, b| Some(!b.is_less(a)?)),
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "Log",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::ln),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_rows: Some(reduce::softmax),
        on_sequences: Some(sequence_level::along::softmax),
        ..named("LogSoftmax")
    },
    Operator { in_graph: Some(loops::rules::a_loop), ..named("Loop") },
    Operator { on_rows: Some(reduce::lp_normalization), ..named("LpNormalization") },
    Operator {
        on_dequantised: Some(composed::dequantised::product),
        on_rows: Some(contract::matmul),
        on_sequences: Some(sequence_level::elements::matmul),
        on_repeated: OnRepeated::AsItStands,
        takes_weights: true,
        ..named("MatMul")
    },
    Operator {
        on_any: Some(composed::quantised::matmul_integer),
        takes_per_sequence: true,
        ..named("MatMulInteger")
    },
    elementwise(
        "Max",
        &Elementwise {
            fold: |_, of| fold::arithmetic(of, Some(f32::max), |a, b, _| fold::greater(a, b)),
            ..Elementwise::PLAIN
        },
    ),
    Operator { on_sequences: Some(sequence_level::windows::pool), ..named("MaxPool") },
    Operator { on_any: Some(composed::activations::mean), ..named("Mean") },
    Operator {
        on_any: Some(composed::normalisations::mean_variance_normalization),
        ..named("MeanVarianceNormalization")
    },
    elementwise(
        "Min",
        &Elementwise {
            fold: |_, of| fold::arithmetic(of, Some(f32::min), |a, b, _| fold::lesser(a, b)),
            ..Elementwise::PLAIN
        },
    ),
    Operator { on_any: Some(composed::activations::mish), ..named("Mish") },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise(
            "Mod",
            &Elementwise {
                check: elementwise::check_division,
                attributes: |node| vec![int_attribute("fmod", node.int("fmod").unwrap_or(0))],
                fold: fold::remainder,
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        executor: ExecutorForm::MultipliedOut,
        ..elementwise(
            "Mul",
            &Elementwise {
                fold: |_, of| {
                    fold::arithmetic(of, Some(|a, b| a * b), |a, b, _| a.checked_times(b))
                },
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise("Neg", &Elementwise { fold: |_, of| fold::negated(of), ..Elementwise::PLAIN })
    },
    Operator { on_any: Some(sequence_level::select::non_zero), ..named("NonZero") },
    elementwise("Not", &Elementwise { fold: |_, of| fold::not(of), ..Elementwise::PLAIN }),
    Operator { on_rows: Some(reduce::one_hot), ..named("OneHot") },
    Operator {
        executor: ExecutorForm::MultipliedOut,
        ..elementwise(
            "Or",
            &Elementwise { fold: |_, of| fold::logic(of, |a, b| a || b), ..Elementwise::PLAIN },
        )
    },
    Operator {
        on_sequences: None,
        ..elementwise(
            "PRelu",
            &Elementwise { rewrite: Some(rewrites::p_relu), ..Elementwise::PLAIN },
        )
    },
    Operator {
        on_rows: Some(sequence_level::windows::pad_rows),
        on_sequences: Some(sequence_level::windows::pad),
        ..named("Pad")
    },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise(
            "Pow",
            &Elementwise {
                check: elementwise::check_power,
                fold: |_, of| fold::arithmetic(of, Some(f32::powf), |_, _, _| None),
                rewrite: Some(rewrites::power),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator {
        on_any: Some(composed::quantised::q_linear_conv),
        takes_per_sequence: true,
        ..named("QLinearConv")
    },
    Operator {
        on_any: Some(composed::quantised::q_linear_matmul),
        takes_per_sequence: true,
        ..named("QLinearMatMul")
    },
    Operator {
        on_any: Some(composed::quantised::quantize_linear),
        takes_per_sequence: true,
        ..named("QuantizeLinear")
    },
    Operator {
        on_any: Some(composed::normalisations::rms_normalization),
        ..named("RMSNormalization")
    },
    Operator { in_graph: Some(recurrent::rules::rnn), ..named("RNN") },
    Operator { on_rows: Some(constants::range), ..named("Range") },
    elementwise(
        "Reciprocal",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, |x| 1.0 / x),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceL1")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceL2")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceLogSum")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceLogSumExp")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        is_light: true,
        ..named("ReduceMax")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        is_light: true,
        ..named("ReduceMean")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        is_light: true,
        ..named("ReduceMin")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceProd")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceSum")
    },
    Operator {
        on_rows: Some(reduce::reduce),
        on_sequences: Some(sequence_level::along::reduce),
        ..named("ReduceSumSquare")
    },
    elementwise(
        "Relu",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, |x| x.max(0.0)),
            is_activation: true,
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_rows: Some(layout::reshape),
        on_sequences: Some(sequence_level::layout::reshape),
        on_repeated: OnRepeated::AsItStands,
        ..named("Reshape")
    },
    Operator { on_sequences: Some(sequence_level::resize::resize), ..named("Resize") },
    Operator { on_any: Some(composed::reversal::reverse_sequence), ..named("ReverseSequence") },
    elementwise("Round", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    Operator { in_graph: Some(loops::rules::scan), ..named("Scan") },
    Operator { on_sequences: Some(sequence_level::select::scatter_elements), ..named("Scatter") },
    Operator {
        on_sequences: Some(sequence_level::select::scatter_elements),
        on_constants: Some(constants::scattered),
        ..named("ScatterElements")
    },
    Operator { on_sequences: Some(sequence_level::select::scatter_nd), ..named("ScatterND") },
    Operator {
        on_sequences: None,
        ..elementwise(
            "Selu",
            &Elementwise {
                check: elementwise::check_floats,
                rewrite: Some(rewrites::selu),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator { on_any: Some(lists::element_of_list), takes_lists: true, ..named("SequenceAt") },
    Operator { on_any: Some(lists::construct), takes_lists: true, ..named("SequenceConstruct") },
    Operator { on_any: Some(lists::construct), takes_lists: true, ..named("SequenceEmpty") },
    Operator {
        on_any: Some(lists::insert_into_list),
        takes_lists: true,
        ..named("SequenceInsert")
    },
    Operator { on_any: Some(lists::length_of_list), takes_lists: true, ..named("SequenceLength") },
    Operator {
        on_any: Some(constants::shape),
        on_repeated: OnRepeated::AsItStands,
        ..named("Shape")
    },
    Operator { on_any: Some(composed::activations::shrink), ..named("Shrink") },
    elementwise(
        "Sigmoid",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, |x| 1.0 / (1.0 + (-x).exp())),
            is_activation: true,
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_sequences: None,
        ..elementwise("Sign", &Elementwise { rewrite: Some(rewrites::sign), ..Elementwise::PLAIN })
    },
    elementwise(
        "Sin",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::sin),
            ..Elementwise::PLAIN
        },
    ),
    elementwise("Sinh", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    Operator {
        on_any: Some(constants::size),
        on_repeated: OnRepeated::AsItStands,
        ..named("Size")
    },
    Operator {
        on_rows: Some(select::slice),
        on_sequences: Some(sequence_level::layout::slice),
        on_repeated: OnRepeated::KeepAxes,
        ..named("Slice")
    },
    Operator {
        on_rows: Some(reduce::softmax),
        on_sequences: Some(sequence_level::along::softmax),
        ..named("Softmax")
    },
    Operator {
        on_sequences: None,
        ..elementwise(
            "Softplus",
            &Elementwise {
                check: elementwise::check_floats,
                rewrite: Some(rewrites::softplus),
                ..Elementwise::PLAIN
            },
        )
    },
    elementwise(
        "Softsign",
        &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN },
    ),
    Operator {
        on_rows: Some(select::split),
        on_sequences: Some(sequence_level::select::split),
        on_repeated: OnRepeated::KeepAxes,
        ..named("Split")
    },
    Operator { on_any: Some(lists::split_to_list), takes_lists: true, ..named("SplitToSequence") },
    elementwise(
        "Sqrt",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::sqrt),
            ..Elementwise::PLAIN
        },
    ),
    Operator {
        on_rows: Some(layout::squeeze),
        on_sequences: Some(sequence_level::layout::squeeze),
        on_repeated: OnRepeated::MoveAxes,
        ..named("Squeeze")
    },
    Operator {
        on_narrow: Some(narrow::arithmetic),
        ..elementwise(
            "Sub",
            &Elementwise {
                fold: |_, of| fold::arithmetic(of, Some(|a, b| a - b), |a, b, _| a.minus(b)),
                ..Elementwise::PLAIN
            },
        )
    },
    Operator { on_narrow: Some(narrow::arithmetic), ..elementwise("Sum", &Elementwise::PLAIN) },
    Operator { on_any: Some(composed::activations::swish), ..named("Swish") },
    elementwise("Tan", &Elementwise { check: elementwise::check_floats, ..Elementwise::PLAIN }),
    elementwise(
        "Tanh",
        &Elementwise {
            check: elementwise::check_floats,
            fold: |_, of| fold::float(of, f32::tanh),
            is_activation: true,
            ..Elementwise::PLAIN
        },
    ),
    Operator { on_any: Some(composed::activations::thresholded_relu), ..named("ThresholdedRelu") },
    Operator { on_any: Some(composed::repetition::tile), ..named("Tile") },
    Operator {
        on_rows: Some(reduce::top_k),
        on_sequences: Some(sequence_level::select::top_k),
        ..named("TopK")
    },
    Operator {
        on_rows: Some(layout::transpose),
        on_sequences: Some(sequence_level::layout::transpose),
        on_repeated: OnRepeated::MoveAxes,
        keeps_ids: true,
        ..named("Transpose")
    },
    Operator {
        on_sequences: Some(sequence_level::along::trilu),
        on_constants: Some(constants::triangle),
        ..named("Trilu")
    },
    Operator {
        on_rows: Some(layout::unsqueeze),
        on_sequences: Some(sequence_level::layout::unsqueeze),
        on_repeated: OnRepeated::MoveAxes,
        ..named("Unsqueeze")
    },
    Operator { on_sequences: Some(sequence_level::resize::upsample), ..named("Upsample") },
    elementwise(
        "Where",
        &Elementwise {
            gives: Gives::TypeOf(1),
            fold: |_, of| fold::chosen(of),
            ..Elementwise::PLAIN
        },
    ),
    elementwise(
        "Xor",
        &Elementwise { fold: |_, of| fold::logic(of, |a, b| a != b), ..Elementwise::PLAIN },
    ),
    Operator {
        in_graph: Some(recurrent::rules::dynamic_quantize_lstm),
        ..named("com.microsoft.DynamicQuantizeLSTM")
    },
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_entry_has_a_rule() {
        let entries = OPERATORS.0;
        let names: Vec<&str> = entries.iter().map(|operator| operator.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        for operator in entries.iter() {
            let name = operator.name;
            assert!(OPERATORS.find(name).is_some_and(|found| found.name == name), "{name}");
            let ordinary = [operator.on_any, operator.on_rows, operator.on_sequences];
            let has_rule = operator.in_graph.is_some() || ordinary.iter().any(Option::is_some);
            assert!(has_rule, "{name} has no rule");
            let has_more = [operator.with_more_outputs, operator.on_constants];
            assert!(
                operator.in_graph.is_none()
                    || ordinary.iter().chain(&has_more).all(Option::is_none),
                "{name} reads the graph around it: its other rules would never apply"
            );
            assert!(
                operator.on_constants.is_none() || operator.on_rows.is_none(),
                "{name} has a rule on rows, which folds constants"
            );
            let moves = matches!(
                operator.on_repeated,
                OnRepeated::Broadcast | OnRepeated::KeepAxes | OnRepeated::MoveAxes
            );
            assert!(!moves || operator.on_rows.is_some(), "{name} does nothing to rows");
        }
        assert!(OPERATORS.find("ReduceNothing").is_none());
    }
}
