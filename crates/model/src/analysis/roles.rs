//! The roles of input dimensions: batch, steps or a fixed length. Passes find them, and operators may bind
//! lengths.

use std::collections::{BTreeMap, HashMap};

use batchmaker_graph::ElementType;

use crate::analysis::state::{Analysis, StepKey, Subject};
use crate::analysis::value::{Source, Val, View};
use crate::data::axes::Axes;
use crate::data::dim::Dim;
use crate::data::symbol::{BATCH, Symbol};
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// The role of an input dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Batch,
    /// Time, or another open axis. Input dimensions of equal length share one key.
    Steps(StepKey),
    /// A length that weights decide.
    Fixed(usize),
}

pub(super) type Roles = HashMap<(usize, usize), Role>;

impl Analysis {
    /// Static dimensions with a role fix the length of batch and steps, before they are used.
    pub(super) fn bind_lengths(&mut self, file: &OnnxFile, roles: &Roles) {
        let (mut batch, mut steps) = (None, BTreeMap::new());
        let mut keys: Vec<_> = roles.iter().collect();
        keys.sort_by_key(|(key, _)| **key);
        for (&(input, axis), role) in keys {
            let shape = file.inputs[input].shape.as_deref().unwrap_or(&[]);
            let (length, label) = match shape.get(axis) {
                Some(DeclaredDimension::Static(n)) => (Some(*n), n.to_string()),
                Some(DeclaredDimension::Named(name)) => (None, name.clone()),
                _ => (None, format!("dimension {axis} of `{}`", file.inputs[input].name)),
            };
            match role {
                Role::Batch => batch = batch.or(length),
                Role::Steps(key) => {
                    let known: &mut (Option<usize>, String) =
                        steps.entry(*key).or_insert((None, label));
                    known.0 = known.0.or(length);
                }
                Role::Fixed(_) => {}
            }
        }
        let batch = batch.or(self.bound.batch);
        self.axes = Axes::new(batch);
        for (key, (length, label)) in steps {
            let length = length.or(self.bound.steps.get(&key).copied());
            let symbol = self.axes.add(&label, length);
            self.by_key.insert(key, symbol);
            if let Some(1) = length.filter(|_| self.has_roles()) {
                self.bound.steps.insert(key, 1);
            }
        }
        if batch == Some(1) && self.has_roles() {
            self.bound.batch = batch;
        }
    }

    pub(super) fn add_input(
        &mut self,
        index: usize,
        input: &GraphInput,
        roles: &Roles,
        subject: Subject,
    ) {
        let Some(shape) = &input.shape else {
            self.diagnose("input", &input.name, "the file does not declare its rank");
            return self.push_input(&input.name, ElementType::F32, Vec::new(), Val::Unknown);
        };
        let mut dims = Vec::new();
        let mut symbols = Vec::new();
        for (axis, declared) in shape.iter().enumerate() {
            let role = roles.get(&(index, axis));
            let label = match declared {
                DeclaredDimension::Named(name) => name.clone(),
                DeclaredDimension::Static(n) => n.to_string(),
                DeclaredDimension::Unnamed => format!("dimension {axis} of `{}`", input.name),
            };
            let length = match (declared, role) {
                (DeclaredDimension::Static(0), _) => {
                    let reason = format!("its dimension {axis} is 0: there is nothing in it");
                    self.diagnose("input", &input.name, &reason);
                    Some(1)
                }
                (DeclaredDimension::Static(n), _) => Some(*n),
                (_, Some(Role::Fixed(n))) => Some(*n),
                _ => None,
            };
            let symbol = match (role, declared) {
                (Some(Role::Batch), _) => BATCH,
                (Some(Role::Steps(key)), _) => self.by_key[key],
                (None, DeclaredDimension::Named(name)) if subject == Subject::Network => {
                    let axes = &mut self.axes;
                    *self.by_name.entry(name.clone()).or_insert_with(|| axes.add(&label, None))
                }
                _ => self.axes.add(&label, length),
            };
            symbols.push(symbol);
            let is_one = match role {
                Some(Role::Batch) => self.bound.batch_is_one(),
                Some(Role::Steps(key)) => self.bound.steps.get(key) == Some(&1),
                _ => false,
            };
            dims.push(match (role, length) {
                _ if is_one && self.has_roles() => Dim::fixed(1),
                (None | Some(Role::Fixed(_)), Some(n))
                    if self.has_roles() || subject == Subject::Cell =>
                {
                    Dim::fixed(n)
                }
                _ => Dim::symbol(symbol),
            });
        }
        self.symbols.push(symbols);
        let element = match &input.element {
            Ok(element) => *element,
            Err(reason) => {
                self.diagnose("input", &input.name, reason);
                ElementType::F32
            }
        };
        self.join_steps(&dims);
        let view = View { source: Source::Input(index), at: None, element, dims: dims.clone() };
        self.push_input(&input.name, element, dims, Val::View(view));
    }

    /// The roles of all input dimensions, as found so far.
    pub(super) fn roles(&self) -> Roles {
        let mut roles = Roles::new();
        let mut keys: HashMap<Symbol, StepKey> = HashMap::new();
        for (input, symbols) in self.symbols.iter().enumerate() {
            for (axis, &symbol) in symbols.iter().enumerate() {
                match self.axes.find(symbol) {
                    BATCH => roles.insert((input, axis), Role::Batch),
                    symbol if self.axes.is_open(symbol) && !self.is_cell() => {
                        let key = *keys.entry(symbol).or_insert((input, axis));
                        roles.insert((input, axis), Role::Steps(key))
                    }
                    symbol => match self.axes.length(symbol) {
                        Some(n) if self.axes.learned(symbol) => {
                            roles.insert((input, axis), Role::Fixed(n))
                        }
                        _ => None,
                    },
                };
            }
        }
        roles
    }

    /// Whether steps of a recurrence go along an axis of an input whose length the file fixes. (Of axes of fixed
    /// length, only these have a role of steps.)
    pub(crate) fn is_fixed_time(&self, file: &OnnxFile, input: usize, axis: usize) -> bool {
        let declared = file.inputs[input].shape.as_ref().and_then(|shape| shape.get(axis));
        let symbol = self.axes.find(self.symbols[input][axis]);
        matches!(declared, Some(DeclaredDimension::Static(_)))
            && self.by_key.values().any(|steps| self.axes.find(*steps) == symbol)
    }

    /// Whether an axis of an input is the batch.
    pub(crate) fn is_batch(&self, input: usize, axis: usize) -> bool {
        self.axes.find(self.symbols[input][axis]) == BATCH
    }

    /// Binds an axis of inputs to a length from the next pass on; false if `symbol` is no axis of inputs.
    pub(crate) fn bind(&mut self, symbol: Symbol, length: usize) -> bool {
        if symbol == BATCH {
            self.bound.batch = Some(length);
            return true;
        }
        self.key_of(symbol).is_some_and(|key| {
            self.bound.steps.insert(key, length);
            true
        })
    }

    /// Binds the number of windows over an axis of inputs from the next pass on.
    pub(crate) fn bind_windows(&mut self, symbol: Symbol, length: usize) {
        if let Some((of, windows)) = self.axes.windows_of(symbol)
            && let Some(key) = self.key_of(of)
        {
            self.bound.windows.insert((key, windows), length);
        }
    }

    /// The number of windows over an axis, where it is bound.
    pub(crate) fn bound_windows(&self, symbol: Symbol) -> Option<usize> {
        let (of, windows) = self.axes.windows_of(symbol)?;
        self.bound.windows.get(&(self.key_of(of)?, windows)).copied()
    }

    fn key_of(&self, symbol: Symbol) -> Option<StepKey> {
        let symbol = self.axes.find(symbol);
        let of = |(_, known): &(&StepKey, &Symbol)| self.axes.find(**known) == symbol;
        self.by_key.iter().find(of).map(|(key, _)| *key)
    }
}
