//! Integers of 8 and 16 bits. They are stored as FLOAT; arithmetic on them is one of INT32, whose results wrap.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::dispatch::{apply, evaluate};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// The least and the greatest integer of a narrow type.
pub(crate) fn range_of_type(element: ElementType) -> Option<(i64, i64)> {
    match element {
        ElementType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
        ElementType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
        ElementType::U8 => Some((0, u8::MAX.into())),
        ElementType::U16 => Some((0, u16::MAX.into())),
        _ => None,
    }
}

/// Arithmetic on integers of a narrow type.
pub(crate) fn arithmetic(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let first = inputs.iter().flatten().find_map(Val::element);
    let element = first.ok_or("it has no inputs")?;
    // Quotients and powers of integers of 16 bits are exact enough as FLOAT to be cut off.
    let by_floats = matches!(&*node.operator, "Div" | "Pow" | "Mod");
    let computed = if by_floats { DataType::FLOAT } else { DataType::INT32 };
    let to = |data_type: DataType| vec![int_attribute("to", data_type.0.into())];
    let mut wide = Vec::new();
    for val in inputs.iter().flatten() {
        wide.push(Some(apply(analysis, node, "Cast", to(computed), vec![val.clone()])?));
    }
    let result = match &*node.operator {
        "Mod" if node.int("fmod").unwrap_or(0) == 0 => {
            let [Some(a), Some(b)] = &wide[..] else { return Err("its inputs".to_owned()) };
            let quotient = apply(analysis, node, "Div", vec![], vec![a.clone(), b.clone()])?;
            let whole = apply(analysis, node, "Floor", vec![], vec![quotient])?;
            let taken = apply(analysis, node, "Mul", vec![], vec![whole, b.clone()])?;
            apply(analysis, node, "Sub", vec![], vec![a.clone(), taken])?
        }
        _ => evaluate(analysis, node, &wide)?.pop().ok_or("it gives nothing")?,
    };
    if !element.is_narrow() {
        return Ok(vec![result]);
    }
    apply(analysis, node, "Cast", to(data_type_of(element)), vec![result]).map(|val| vec![val])
}

/// The ONNX data type of an element type.
pub(crate) fn data_type_of(element: ElementType) -> DataType {
    match element {
        ElementType::F32 => DataType::FLOAT,
        ElementType::I64 => DataType::INT64,
        ElementType::I32 => DataType::INT32,
        ElementType::Bool => DataType::BOOL,
        ElementType::Bytes => DataType::STRING,
        ElementType::F16 => DataType::FLOAT16,
        ElementType::Bf16 => DataType::BFLOAT16,
        ElementType::F64 => DataType::DOUBLE,
        ElementType::I8 => DataType::INT8,
        ElementType::I16 => DataType::INT16,
        ElementType::U8 => DataType::UINT8,
        ElementType::U16 => DataType::UINT16,
        ElementType::U32 => DataType::UINT32,
        ElementType::U64 => DataType::UINT64,
    }
}

/// INT32 integers wrapped to a narrow type's range.
pub(crate) fn wrapped(
    analysis: &mut Analysis,
    node: &Node,
    val: Val,
    element: ElementType,
) -> Result<Val, String> {
    let (low, high) = range_of_type(element).ok_or("a type that does not wrap")?;
    if let Val::View(view) = &val {
        let range = analysis.range(view.source);
        if low <= range.low && range.high <= high {
            return Ok(val);
        }
    }
    let number =
        |n: i64| Val::literal(Literal::Int(Array::scalar(Int::number(n)), ElementType::I32));
    let moved = match low {
        0 => val,
        _ => apply(analysis, node, "Sub", vec![], vec![val, number(low)])?,
    };
    let rest = apply(analysis, node, "Mod", vec![], vec![moved, number(high - low + 1)])?;
    match low {
        0 => Ok(rest),
        _ => apply(analysis, node, "Add", vec![], vec![rest, number(low)]),
    }
}
