//! Pools.

use batchmaker_kernels::{Images, Isa, Pooling, Window, pool};
use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::operator::operator;
use crate::steps::held::Pixels;
use crate::steps::weights::{int, ints};
use crate::steps::windows::{resized, size, windows};

/// How a number of windows is rounded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Down,
    /// `ceil_mode`.
    Up,
    /// As an integer division: the only window of a short axis may pass its end.
    ToZero,
}

/// A `MaxPool` or `AveragePool`.
pub(super) struct Pool {
    pooling: Pooling,
    windows: [Window; 2],
    rounding: Rounding,
}

impl Pool {
    /// The pool that a node is; none if it is over more axes than two, or has windows of another kind.
    pub(super) fn of(node: &NodeProto) -> Option<Self> {
        let is_padded = int(node, "count_include_pad", 0) != 0;
        let pooling = match (operator(node), is_padded) {
            ("MaxPool", _) => Pooling::Max,
            ("AveragePool", false) => Pooling::Mean,
            ("AveragePool", true) => Pooling::MeanOfPadded,
            _ => return None,
        };
        let axes = (1..=2).find(|&axes| ints(node, "kernel_shape", 1, axes).is_some())?;
        let kernel = ints(node, "kernel_shape", 1, axes)?;
        let rounding = match int(node, "ceil_mode", 0) {
            0 => Rounding::Down,
            _ => Rounding::Up,
        };
        let is_odd = is_padded && rounding == Rounding::Up;
        let windows = windows(node, &kernel).filter(|_| !is_odd)?;
        let is_plain = windows.iter().all(|window| window.dilation == 1);
        is_plain.then_some(Self { pooling, windows, rounding })
    }

    /// Rounds the number of windows to zero from here on.
    pub(super) fn round_to_zero(&mut self) {
        self.rounding = Rounding::ToZero;
    }

    /// The pool of `x`.
    pub(super) fn run(&self, x: &Pixels) -> Result<Pixels, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a pool: {reason}"));
        let size = size(&x.shape).ok_or_else(|| fails(format!("of {:?}", x.shape)))?;
        let count = |axis: usize| self.count(self.windows[axis], size[axis]);
        let out = count(0).zip(count(1)).map(|(height, width)| [height, width]);
        let out = out.ok_or_else(|| fails("windows wider than x".to_owned()))?;
        let (count, channels) = (x.shape[0], x.shape[1]);
        let shape = resized(&x.shape, channels, out);
        let mut data = vec![0.0; shape.iter().product()];
        let images = Images { count, size, x: &x.data };
        pool(Isa::best(), self.pooling, self.windows, images, (channels, out), &mut data)
            .map_err(|error| fails(error.to_string()))?;
        Ok(Pixels { shape, data })
    }

    /// The number of windows over `length` elements.
    fn count(&self, window: Window, length: usize) -> Option<usize> {
        let padded = (length + window.before + window.after) as i64;
        let (room, stride) = (padded - window.kernel as i64, window.stride as i64);
        let count = match self.rounding {
            Rounding::Down if room < 0 => 0,
            Rounding::ToZero if room <= -stride => 0,
            Rounding::Down | Rounding::ToZero => room / stride + 1,
            Rounding::Up => {
                let count = room.div_euclid(stride) + i64::from(room.rem_euclid(stride) > 0) + 1;
                // A window that begins behind the end is left out.
                count - i64::from((count - 1) * stride >= (length + window.before) as i64)
            }
        };
        usize::try_from(count).ok().filter(|&count| count > 0)
    }
}
