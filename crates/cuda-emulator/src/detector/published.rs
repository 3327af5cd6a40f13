//! What an atomic variable's value publishes to those who acquire it.

use std::collections::HashMap;
use std::rc::Rc;

use super::clock::{Known, join};

/// What was released through a variable.
#[derive(Default)]
pub(super) struct Published {
    /// To all threads of the GPU.
    anywhere: Option<Rc<Known>>,
    /// To the threads of the releasing block.
    in_block: HashMap<usize, Rc<Known>>,
}

impl Published {
    pub(super) fn anywhere(&self) -> Option<&Rc<Known>> {
        self.anywhere.as_ref()
    }

    pub(super) fn in_block(&self, block: usize) -> Option<&Rc<Known>> {
        self.in_block.get(&block)
    }

    pub(super) fn add(&mut self, known: &Rc<Known>) {
        match &mut self.anywhere {
            Some(to) => join(to, known),
            none => *none = Some(known.clone()),
        }
    }

    pub(super) fn add_in_block(&mut self, block: usize, known: &Rc<Known>) {
        self.in_block
            .entry(block)
            .and_modify(|to| join(to, known))
            .or_insert_with(|| known.clone());
    }

    pub(super) fn clear(&mut self) {
        self.anywhere = None;
        self.in_block.clear();
    }
}
