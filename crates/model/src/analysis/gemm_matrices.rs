//! Matrices of weights in the form in which `Gemm` multiplies by them.

use std::rc::Rc;

use crate::data::literal::Literal;

/// Whether a matrix is transposed, and the bits of the number that it is multiplied by.
type Form = (bool, u32);

/// Matrices that were brought into a form. Nodes that read one matrix in one form share it: unrolled steps do.
#[derive(Default)]
pub(crate) struct GemmMatrices(Vec<(Rc<Literal>, Form, Rc<Literal>)>);

impl GemmMatrices {
    /// The matrix in a form, which `make` brings it into.
    pub(crate) fn get(
        &mut self,
        matrix: &Rc<Literal>,
        form: Form,
        make: impl FnOnce() -> Literal,
    ) -> Rc<Literal> {
        let mut known = self.0.iter();
        if let Some((.., made)) =
            known.find(|(of, in_form, _)| Rc::ptr_eq(of, matrix) && *in_form == form)
        {
            return made.clone();
        }
        let made = Rc::new(make());
        self.0.push((matrix.clone(), form, made.clone()));
        made
    }
}
