//! Values that stand for whole numbers of 8 bits, by a scale and a zero point: what `DequantizeLinear` gave.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::value::{Source, Val, View};
use crate::data::literal::Literal;

/// Whole numbers of 8 bits, less their zero point, and what each counts for.
#[derive(Clone, Debug)]
pub(crate) struct Dequantised {
    pub(crate) whole: Val,
    /// One number, or one for each index along `axis`.
    scale: Rc<Literal>,
    axis: i64,
}

/// The values of a file that were dequantised.
#[derive(Default)]
pub(crate) struct DequantisedValues {
    views: HashMap<Source, (View, Dequantised)>,
    constants: Vec<(Rc<Literal>, Dequantised)>,
    /// How many products there are of them, by operator.
    products: BTreeMap<String, usize>,
}

impl DequantisedValues {
    /// Notes that `val` is `whole`, numbers of type `element` less their zero point, times `scale`.
    pub(crate) fn add(
        &mut self,
        val: &Val,
        (whole, element): (&Val, ElementType),
        scale: &Val,
        axis: i64,
    ) {
        let Val::Literal(scale) = scale else { return };
        if !matches!(element, ElementType::I8 | ElementType::U8) || scale.as_f32().is_none() {
            return;
        }
        let known = Dequantised { whole: whole.clone(), scale: scale.clone(), axis };
        // Products of `whole` are not to be taken for products of dequantised numbers again.
        if self.find(whole).is_some() {
            return;
        }
        match val {
            Val::View(view) => _ = self.views.insert(view.source, (view.clone(), known)),
            Val::Literal(literal) => self.constants.push((literal.clone(), known)),
            _ => {}
        }
    }

    /// Counts a product of dequantised numbers.
    pub(crate) fn count(&mut self, operator: &str) {
        *self.products.entry(operator.to_owned()).or_default() += 1;
    }

    /// How many products there are of dequantised numbers, by operator.
    pub(crate) fn products(&self) -> &BTreeMap<String, usize> {
        &self.products
    }

    pub(crate) fn find(&self, val: &Val) -> Option<Dequantised> {
        match val {
            Val::View(view) => {
                let (known, dequantised) = self.views.get(&view.source)?;
                (known.at == view.at && known.dims == view.dims).then(|| dequantised.clone())
            }
            Val::Literal(literal) => {
                let mut constants = self.constants.iter();
                let known = constants.find(|(known, _)| Rc::ptr_eq(known, literal));
                known.map(|(_, dequantised)| dequantised.clone())
            }
            _ => None,
        }
    }
}

impl Dequantised {
    pub(crate) fn has_one_scale(&self) -> bool {
        self.scale.shape().iter().product::<usize>() == 1
    }

    /// The scale as one number, or as one for each index along `axis`; none if it is one along another axis.
    pub(crate) fn scale_along(&self, axis: usize) -> Option<&[f32]> {
        let rank = self.whole.dims().len() as i64;
        let own = if self.axis < 0 { self.axis + rank } else { self.axis };
        let fits = self.has_one_scale() || (self.scale.shape().len() == 1 && own == axis as i64);
        self.scale.as_f32().filter(|_| fits).map(|scale| &scale.data[..])
    }
}
