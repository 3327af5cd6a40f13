//! Recognises attention among the operators of a program.

use rten_onnx::onnx::NodeProto;
use rten_tensor::Tensor;

use crate::growth::Growth;
use crate::operator::operator;
use crate::probe::ShapeGrowth;
use crate::sections::attention::AttentionOf;
use crate::sections::constants::int;
use crate::sections::native_section::{NativeKind, NativeSection};
use crate::sections::sorter::Sorter;
use crate::sections::strided_view::{StridedView, ViewStep};

impl Sorter<'_> {
    /// Whether an operator is a softmax over the last axis.
    pub(super) fn is_softmax_of_rows(&self, node: &NodeProto) -> bool {
        let rank = node.input.first().and_then(|x| self.probe.shapes(x)).map(|s| s[0].len() as i64);
        let axis = int(node, "axis", -1);
        operator(node) == "Softmax"
            && rank.is_some_and(|rank| rank > 0 && (axis == -1 || axis == rank - 1))
    }

    /// The attention whose last operator is `node`, the product with the values.
    pub(super) fn attention(&self, node: &NodeProto) -> Option<AttentionOf> {
        let [weights, v] = &node.input[..] else { return None };
        let is_product = operator(node) == "MatMul";
        let softmax = self.read_once(weights).filter(|of| self.is_softmax_of_rows(of))?;
        let mut of = self.read_once(softmax.input.first()?).filter(|_| is_product)?;
        let (mut mask, mut constant_mask) = (None, None);
        if operator(of) == "Add" {
            let [a, b] = &of.input[..] else { return None };
            let is_score = |name: &String| {
                let is_product =
                    |name: &String| self.read_once(name).is_some_and(|of| operator(of) == "MatMul");
                let scaled = self.read_once(name);
                let scaled = scaled.filter(|of| ["Mul", "Div"].contains(&operator(of)));
                is_product(name) || scaled.is_some_and(|of| of.input.iter().any(is_product))
            };
            let (score, other) = if is_score(a) { (a, b) } else { (b, a) };
            match self.constants.has(other) {
                true => constant_mask = Some(self.constants.floats(other)?),
                false => mask = Some(other.clone()),
            }
            of = self.read_once(score)?;
        }
        let mut scale = 1.0;
        if let ("Mul" | "Div", [a, b]) = (operator(of), &of.input[..]) {
            let number = |name: &String| self.constants.number(name);
            let (score, number) = match (operator(of), number(a), number(b)) {
                ("Mul", Some(number), None) => (b, number),
                ("Mul", None, Some(number)) => (a, number),
                ("Div", None, Some(number)) => (a, 1.0 / number),
                _ => return None,
            };
            scale = number;
            of = self.read_once(score)?;
        }
        let [q, k] = &of.input[..] else { return None };
        let [(of_q, q), (of_k, k)] = [q, k].map(|name| self.unscaled(name));
        scale *= of_q * of_k;
        let reads: Vec<String> = [q, k, v].into_iter().cloned().chain(mask).collect();
        let dims = |name: &str| Some(&self.probe.growth(name)?.dims[..]);
        let (of_q, of_v, of_y) = (dims(q)?, dims(v)?, dims(node.output.first()?)?);
        let is_attention = operator(of) == "MatMul"
            && reads.iter().all(|name| !self.constants.has(name) && self.is_there(name))
            && self.fit(&reads, constant_mask.as_ref().map(|(dims, _)| &dims[..]))
            && of_y.len() == of_q.len()
            && of_y[..of_y.len() - 1] == of_q[..of_q.len() - 1]
            && of_y.last() == of_v.last();
        let constant_mask = constant_mask.map(|(dims, data)| Tensor::from_data(&dims[..], data));
        let (names, mask) = reads.split_at_checked(3).filter(|_| is_attention)?;
        let packed = [names[1].clone(), names[2].clone()];
        let mut of =
            AttentionOf { scale, constant_mask, packed, reads: Vec::new(), ..Default::default() };
        for (at, name) in names.iter().enumerate() {
            let (read, steps, operators) = self.seen(name, at == 1);
            of.reads.push(read.to_owned());
            of.views[at] = StridedView(steps.to_vec());
            of.operators.extend_from_slice(operators);
        }
        of.reads.extend_from_slice(mask);
        Some(of)
    }

    /// The tensor that the elements of another one are read from, with the steps and the operators of the view of it that the other one is: a
    /// view that needs no copy, as [`StridedView::lies_in_rows`] tells.
    fn seen<'b>(
        &'b self,
        name: &'b str,
        or_columns: bool,
    ) -> (&'b str, &'b [ViewStep], &'b [String]) {
        let section = self.native.iter().find(|section| section.output == name);
        if let Some(NativeSection { kind, reads, .. }) = section
            && let NativeKind::View { steps, operators, of_channels_last: false } = kind
            && let Some(shapes) = self.probe.shapes(&reads[0])
            // What rten gives may have gaps between its elements.
            && !self.producers.get(&reads[0][..]).is_some_and(|of| self.is_of_rten(of))
            && shapes.iter().all(|shape| StridedView::lies_in_rows(steps, shape, or_columns))
        {
            return (&reads[0], steps, operators);
        }
        (name, &[], &[])
    }

    /// The number that queries or keys are multiplied with, and the tensor.
    fn unscaled<'b>(&'b self, name: &'b String) -> (f32, &'b String) {
        let scaled = self.read_once(name).and_then(|of| self.factor(of));
        scaled.filter(|(_, of)| self.is_there(of)).unwrap_or((1.0, name))
    }

    /// The operator that produces a tensor that is read once.
    pub(super) fn read_once(&self, name: &str) -> Option<&NodeProto> {
        let is_read_once = self.readers.get(name) == Some(&1);
        self.producers.get(name).copied().filter(|_| is_read_once)
    }

    /// Whether an operator runs in rten.
    pub(super) fn is_of_rten(&self, node: &NodeProto) -> bool {
        self.fallback.values().flatten().any(|other| std::ptr::eq(*other, node))
    }

    /// Whether a tensor is still one by itself: a section that has taken in its reader produces another.
    pub(super) fn is_there(&self, name: &str) -> bool {
        let producer = self.producers.get(name);
        producer.is_none_or(|producer| self.is_of_rten(producer))
            || self.native.iter().any(|section| section.produces(name))
    }

    /// Whether queries, keys, values and perhaps a mask have shapes that fit at all lengths, with a head for each.
    fn fit(&self, reads: &[String], constant_mask: Option<&[usize]>) -> bool {
        let dims = |name: &String| Some(&self.probe.growth(name)?.dims[..]);
        let all: Option<Vec<&[Growth]>> = reads.iter().map(dims).collect();
        let Some(mut all) = all else { return false };
        let mut axes: Vec<_> = reads.iter().map(|name| self.probe.batch_axis(name)).collect();
        let constant_mask = constant_mask.map(ShapeGrowth::constant);
        if let Some(mask) = &constant_mask {
            all.push(&mask.dims);
            axes.push(None);
        }
        let [q, k, v, ..] = all[..] else { return false };
        let Some((heads, [queries, of_key])) = q.split_last_chunk::<2>() else { return false };
        let Some((of_k, [depth, keys])) = k.split_last_chunk::<2>() else { return false };
        let Some((of_v, [rows, _])) = v.split_last_chunk::<2>() else { return false };
        let is_batched = |at: usize| self.probe.is_batched(&reads[at]);
        let is_known = |at: usize| is_batched(at) == axes[at].is_some();
        let has_heads = of_k == heads && of_v == heads && of_key == depth && keys == rows;
        let is_by_head = axes[0].is_none_or(|axis| axis < heads.len())
            && axes[1] == axes[0]
            && axes[2] == axes[0]
            && (0..reads.len()).all(is_known);
        let fits = all.get(3).is_none_or(|mask| {
            let missing = q.len().checked_sub(mask.len());
            let Some((lead, [row, column])) = mask.split_last_chunk::<2>() else { return false };
            let Some(missing) = missing else { return false };
            let mut pairs = lead.iter().zip(&heads[missing..]);
            column == keys
                && (row == queries || row.is_one())
                && pairs.all(|(of_mask, of_heads)| of_mask.is_one() || of_mask == of_heads)
                && (axes[3].is_none() || axes[3].map(|axis| axis + missing) == axes[0])
        });
        has_heads && is_by_head && fits
    }
}
