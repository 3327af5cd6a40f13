//! The weights of a recurrent cell, packed for the kernels.

use batchmaker_graph::{RecurrentCell, RecurrentKind, RnnActivation};
use batchmaker_kernels as kernels;
use batchmaker_kernels::{
    GruParameters, KernelError, LstmParameters, PackedGru, PackedLstm, PackedRnn, Packing,
    Recurrence, Reset, RnnParameters,
};

/// Packs the weights of a recurrent cell.
pub(crate) fn pack(
    packing: Packing,
    cell: &RecurrentCell,
) -> Result<Box<dyn Recurrence>, KernelError> {
    let RecurrentCell { input_size, hidden_size, .. } = *cell;
    let (w, r, b) = (&*cell.w, &*cell.r, cell.b.as_deref());
    Ok(match &cell.kind {
        RecurrentKind::Lstm { p, bytes } => {
            let bytes = bytes.as_ref().map(|bytes| kernels::LstmBytes {
                r_scale: &bytes.r_scale,
                w_scale: bytes.w_scale.as_deref(),
            });
            let p = p.as_deref();
            let parameters = LstmParameters { input_size, hidden_size, w, r, b, p, bytes };
            Box::new(PackedLstm::new(packing, parameters)?)
        }
        RecurrentKind::Gru { linear_before_reset } => {
            let reset = match linear_before_reset {
                false => Reset::BeforeProduct,
                true => Reset::AfterProduct,
            };
            let parameters = GruParameters { input_size, hidden_size, w, r, b, reset };
            Box::new(PackedGru::new(packing, parameters)?)
        }
        RecurrentKind::Rnn { activation } => {
            let activation = match activation {
                RnnActivation::Tanh => kernels::RnnActivation::Tanh,
                RnnActivation::Relu => kernels::RnnActivation::Relu,
            };
            let parameters = RnnParameters { input_size, hidden_size, w, r, b, activation };
            Box::new(PackedRnn::new(packing, parameters)?)
        }
    })
}
