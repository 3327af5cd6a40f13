//! Numbers from a seed.

use std::sync::Arc;

use batchmaker_graph::{ElementType, RowSpec, TensorData};

/// A small generator, xorshift.
#[derive(Clone, Debug)]
pub(super) struct Numbers(u32);

impl Numbers {
    pub(super) fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(2_654_435_761) | 1)
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 >> 8
    }

    /// A number in `0..bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }

    /// `count` numbers in `-scale..scale`.
    pub(super) fn floats(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (self.next() as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
    }

    /// Weights, as [`Self::floats`].
    pub(super) fn weights(&mut self, count: usize, scale: f32) -> Arc<[f32]> {
        self.floats(count, scale).into()
    }

    /// `rows` rows of a value: floats in -1..1, integers in `0..ids`.
    pub(super) fn rows(&mut self, spec: &RowSpec, rows: u32, ids: u32) -> TensorData {
        let count = rows as usize * spec.elements();
        let mut id = || self.below(ids);
        match spec.element {
            ElementType::F32 => TensorData::F32(self.floats(count, 1.0)),
            ElementType::I64 => TensorData::I64((0..count).map(|_| id().into()).collect()),
            ElementType::I32 => TensorData::I32((0..count).map(|_| id() as i32).collect()),
            ElementType::Bool => TensorData::Bool((0..count).map(|_| id() % 2 == 1).collect()),
            _ => unreachable!("cells hold stored types"),
        }
    }
}
