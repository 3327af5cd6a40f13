//! Which input dimensions are batch and steps: found by draft passes, or bound by operators.

use std::collections::{BTreeMap, HashMap};

use batchmaker_graph::ElementType;

use crate::analysis::{Analysis, Source, Val, View};
use crate::data::symbolic::{AtomId, Axes, BATCH, Dim};
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// What an input dimension turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Batch,
    /// Time, or open; input dimensions of equal length have one key.
    Steps(StepKey),
    /// A length that weights decide.
    Fixed(usize),
}

/// The input and the axis of it that stands for all axes of that length.
pub(crate) type StepKey = (usize, usize);

/// Lengths that operators bind, whatever the file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) batch: Option<usize>,
    steps: BTreeMap<StepKey, usize>,
}

impl Bound {
    pub(crate) fn batch_is_one(&self) -> bool {
        self.batch == Some(1)
    }
}

pub(super) type Roles = HashMap<(usize, usize), Role>;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A whole network: batch and time are where its recurrent operators have them.
    Network,
    /// A cell: dimension 0 of every input is the batch.
    Cell,
}

/// Finds out what every value of a file is.
pub(crate) fn analyse(file: &OnnxFile, kind: FileKind) -> Analysis {
    let known = match kind {
        FileKind::Network => Roles::new(),
        FileKind::Cell => (0..file.inputs.len()).map(|input| ((input, 0), Role::Batch)).collect(),
    };
    let mut roles = known.clone();
    for _ in 0..4 {
        let draft = Analysis::pass(file, kind, &roles, true, Bound::default());
        let mut found = draft.roles();
        if !draft.axes.has_time()
            && draft.recurrents.is_empty()
            && kind == FileKind::Network
            && !draft.hidden
        {
            found.extend(first_axes(file));
        }
        found.extend(&known);
        if found == roles {
            break;
        }
        roles = found;
    }
    let mut bound = Bound::default();
    loop {
        let analysis = Analysis::pass(file, kind, &roles, false, bound.clone());
        if analysis.bound == bound || kind == FileKind::Cell {
            return analysis;
        }
        bound = analysis.bound;
    }
}

/// Where there is no recurrent operator, the batch is the first input's first axis, if that is open, and
/// those that are called like it.
fn first_axes(file: &OnnxFile) -> Roles {
    let first = |input: &GraphInput| input.shape.as_ref()?.first().cloned();
    let Some(batch) = file.inputs.first().and_then(first) else { return Roles::new() };
    if matches!(batch, DeclaredDimension::Static(_)) {
        return Roles::new();
    }
    let inputs = file.inputs.iter().enumerate();
    let of = inputs.filter(|(_, input)| first(input).as_ref() == Some(&batch));
    of.map(|(index, _)| ((index, 0), Role::Batch)).collect()
}

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
            let atom = self.axes.add(&label, length);
            self.by_key.insert(key, atom);
            if let Some(1) = length.filter(|_| !self.draft) {
                self.bound.steps.insert(key, 1);
            }
        }
        if batch == Some(1) && !self.draft {
            self.bound.batch = batch;
        }
    }

    pub(super) fn add_input(
        &mut self,
        index: usize,
        input: &GraphInput,
        roles: &Roles,
        kind: FileKind,
    ) {
        let Some(shape) = &input.shape else {
            self.block("input", &input.name, "the file does not declare its rank");
            return self.push_input(&input.name, ElementType::F32, Vec::new(), Val::Unknown);
        };
        let mut dims = Vec::new();
        let mut atoms = Vec::new();
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
                    self.block("input", &input.name, &reason);
                    Some(1)
                }
                (DeclaredDimension::Static(n), _) => Some(*n),
                (_, Some(Role::Fixed(n))) => Some(*n),
                _ => None,
            };
            let atom = match (role, declared) {
                (Some(Role::Batch), _) => BATCH,
                (Some(Role::Steps(key)), _) => self.by_key[key],
                (None, DeclaredDimension::Named(name)) if kind == FileKind::Network => {
                    let axes = &mut self.axes;
                    *self.by_name.entry(name.clone()).or_insert_with(|| axes.add(&label, None))
                }
                _ => self.axes.add(&label, length),
            };
            atoms.push(atom);
            let is_one = match role {
                Some(Role::Batch) => self.bound.batch_is_one(),
                Some(Role::Steps(key)) => self.bound.steps.get(key) == Some(&1),
                _ => false,
            };
            dims.push(match (role, length) {
                _ if is_one && !self.draft => Dim::fixed(1),
                (None | Some(Role::Fixed(_)), Some(n)) if !self.draft || kind == FileKind::Cell => {
                    Dim::fixed(n)
                }
                _ => Dim::atom(atom),
            });
        }
        self.atoms.push(atoms);
        let element = match &input.element {
            Ok(element) => *element,
            Err(reason) => {
                self.block("input", &input.name, reason);
                ElementType::F32
            }
        };
        let view = View { source: Source::Input(index), at: None, element, dims: dims.clone() };
        self.push_input(&input.name, element, dims, Val::View(view));
    }

    /// The roles of all input dimensions, as found so far.
    pub(super) fn roles(&self) -> Roles {
        let mut roles = Roles::new();
        let mut keys: HashMap<AtomId, StepKey> = HashMap::new();
        for (input, atoms) in self.atoms.iter().enumerate() {
            for (axis, &atom) in atoms.iter().enumerate() {
                match self.axes.find(atom) {
                    BATCH => roles.insert((input, axis), Role::Batch),
                    atom if self.axes.is_open(atom) && !self.is_cell => {
                        let key = *keys.entry(atom).or_insert((input, axis));
                        roles.insert((input, axis), Role::Steps(key))
                    }
                    atom => match self.axes.length(atom) {
                        Some(n) if self.axes.learned(atom) => {
                            roles.insert((input, axis), Role::Fixed(n))
                        }
                        _ => None,
                    },
                };
            }
        }
        roles
    }

    /// Binds an axis of inputs to a length, in the next pass; whether it is one.
    pub(crate) fn bind(&mut self, atom: AtomId, length: usize) -> bool {
        if atom == BATCH {
            self.bound.batch = Some(length);
            return true;
        }
        let of = |(_, known): &(&StepKey, &AtomId)| self.axes.find(**known) == atom;
        let key = self.by_key.iter().find(of).map(|(key, _)| *key);
        key.is_some_and(|key| {
            self.bound.steps.insert(key, length);
            true
        })
    }
}
