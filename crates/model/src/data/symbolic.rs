//! Symbolic dimensions and the integers that are computed from them.
//!
//! A dimension is an ordered product of **factors**: fixed numbers and *atoms*, the lengths
//! that are known only when a request comes. One is [`BATCH`]; the others are *steps*: axes of inputs,
//! and what windows over them leave ([`Windows`]). While the roles of a file's input dimensions are
//! still being found, every input dimension is an atom of its own, and [`Axes`] records which turned
//! out to be equal.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A length that is not a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AtomId(pub(crate) u32);

/// The number of sequences.
pub(crate) const BATCH: AtomId = AtomId(0);

/// How many windows fit an axis: `floor((length + extra) / stride) + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// What padding adds and a window takes.
    pub(crate) extra: i64,
    pub(crate) stride: i64,
}

impl Windows {
    /// None: not one fits.
    pub(crate) fn count(self, length: usize) -> Option<usize> {
        let room = i64::try_from(length).ok()?.checked_add(self.extra)?;
        (room >= 0).then(|| (room / self.stride) as usize + 1)
    }
}

#[derive(Clone, Debug)]
struct Atom {
    parent: AtomId,
    label: String,
    length: Option<usize>,
    learned: bool,
    /// Whether a recurrent operator's steps go along it.
    is_time: bool,
    /// What it is the number of windows of.
    windows: Option<(AtomId, Windows)>,
}

/// All atoms, and which are equal.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    atoms: Vec<Atom>,
}

impl Axes {
    /// `batch`: its length, where the file fixes it.
    pub(crate) fn new(batch: Option<usize>) -> Self {
        let mut axes = Self { atoms: Vec::new() };
        axes.add("batch", batch);
        axes
    }

    /// The number of windows over `of`.
    pub(crate) fn windows(&mut self, of: AtomId, windows: Windows) -> AtomId {
        let of = self.find(of);
        let known = (0..self.atoms.len()).find(|&at| {
            self.atoms[at].windows.is_some_and(|(from, w)| self.find(from) == of && w == windows)
        });
        if let Some(at) = known {
            return self.find(AtomId(at as u32));
        }
        let label = format!("windows over {}", self.label(of));
        let length = self.length(of).and_then(|length| windows.count(length));
        let atom = self.add(&label, length);
        self.atoms[atom.0 as usize].windows = Some((of, windows));
        atom
    }

    /// All atoms that are numbers of windows: of what, and how.
    pub(crate) fn all_windows(&self) -> impl Iterator<Item = (AtomId, AtomId, Windows)> + '_ {
        let atoms = (0..).map(AtomId).zip(&self.atoms);
        atoms.filter_map(|(atom, known)| {
            known.windows.map(|(of, windows)| (self.find(atom), self.find(of), windows))
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = AtomId> + use<> {
        (0..self.atoms.len() as u32).map(AtomId)
    }

    /// Learns that a recurrent operator's steps go along an axis, and along those that it is made of.
    pub(crate) fn mark_time(&mut self, atom: AtomId) {
        let mut open = vec![self.find(atom)];
        while let Some(atom) = open.pop() {
            if std::mem::replace(&mut self.atoms[atom.0 as usize].is_time, true) {
                continue;
            }
            let from: Vec<AtomId> = self
                .all_windows()
                .filter(|(made, ..)| *made == atom)
                .map(|(_, of, _)| of)
                .collect();
            open.extend(from);
        }
    }

    /// Whether requests choose the length, or steps go along it.
    pub(crate) fn is_open(&self, atom: AtomId) -> bool {
        self.is_time(atom) || self.length(atom).is_none()
    }

    /// Whether steps of anything go along any axis.
    pub(crate) fn has_time(&self) -> bool {
        self.atoms.iter().any(|atom| atom.is_time)
    }

    pub(crate) fn is_time(&self, atom: AtomId) -> bool {
        self.atoms[self.find(atom).0 as usize].is_time
    }

    pub(crate) fn add(&mut self, label: &str, length: Option<usize>) -> AtomId {
        let id = AtomId(self.atoms.len() as u32);
        let label = label.to_owned();
        let (learned, is_time, windows) = (false, false, None);
        self.atoms.push(Atom { parent: id, label, length, learned, is_time, windows });
        id
    }

    /// The representative of all atoms equal to `atom`; [`BATCH`] if it is that.
    pub(crate) fn find(&self, mut atom: AtomId) -> AtomId {
        while self.atoms[atom.0 as usize].parent != atom {
            atom = self.atoms[atom.0 as usize].parent;
        }
        atom
    }

    /// The length, where the file fixes it.
    pub(crate) fn length(&self, atom: AtomId) -> Option<usize> {
        self.atoms[self.find(atom).0 as usize].length
    }

    /// Learns the length of an atom that has none and is neither the batch's nor along steps.
    pub(crate) fn learn(&mut self, atom: AtomId, length: usize) {
        let atom = self.find(atom);
        let known = &mut self.atoms[atom.0 as usize];
        if atom != BATCH && !known.is_time && (known.length.is_none() || known.learned) {
            (known.length, known.learned) = (Some(length), true);
        }
    }

    pub(crate) fn learned(&self, atom: AtomId) -> bool {
        self.atoms[self.find(atom).0 as usize].learned
    }

    pub(crate) fn label(&self, atom: AtomId) -> &str {
        &self.atoms[self.find(atom).0 as usize].label
    }

    /// Learns that two lengths are one.
    pub(crate) fn unify(&mut self, a: AtomId, b: AtomId) -> Result<(), String> {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return Ok(());
        }
        let (root, child) = (a.min(b), a.max(b));
        if root == BATCH && self.is_time(child) {
            return Err("the axes of batch and time meet".to_owned());
        }
        match (self.length(root), self.length(child)) {
            (Some(one), Some(other)) if one != other => {
                return Err(format!("an axis of length {one} meets one of length {other}"));
            }
            (None, length) => self.atoms[root.0 as usize].length = length,
            _ => {}
        }
        self.atoms[child.0 as usize].parent = root;
        if self.atoms[child.0 as usize].is_time {
            self.mark_time(root);
        }
        Ok(())
    }

    pub(crate) fn same_dim(&self, a: &Dim, b: &Dim) -> bool {
        let same = |(a, b): (&Factor, &Factor)| match (a, b) {
            (Factor::Fixed(a), Factor::Fixed(b)) => a == b,
            (Factor::Atom(a), Factor::Atom(b)) => self.find(*a) == self.find(*b),
            _ => false,
        };
        a.0.len() == b.0.len() && a.0.iter().zip(&b.0).all(same)
    }

    /// `[time, batch, 8]`, for messages.
    pub(crate) fn show(&self, dims: &[Dim]) -> String {
        let show = |dim: &Dim| {
            let factors: Vec<String> = dim
                .0
                .iter()
                .map(|factor| match factor {
                    Factor::Fixed(n) => n.to_string(),
                    Factor::Atom(atom) => self.label(*atom).to_owned(),
                })
                .collect();
            if factors.is_empty() { "1".to_owned() } else { factors.join("*") }
        };
        format!("[{}]", dims.iter().map(show).collect::<Vec<_>>().join(", "))
    }

    /// A dimension as an integer in a program that runs for any number of sequences at once.
    pub(crate) fn open_int(&self, dim: &Dim) -> Int {
        dim.0.iter().fold(Int::number(1), |int, factor| {
            int.times(&match factor {
                Factor::Atom(BATCH) => Int::atom(BATCH),
                other => self.int(&Dim(vec![*other])),
            })
        })
    }

    /// A dimension as an integer.
    pub(crate) fn int(&self, dim: &Dim) -> Int {
        dim.0.iter().fold(Int::number(1), |int, factor| {
            int.times(&match factor {
                Factor::Fixed(n) => Int::number(*n as i64),
                Factor::Atom(atom) => match self.length(*atom) {
                    Some(n) => Int::number(n as i64),
                    None => Int::atom(self.find(*atom)),
                },
            })
        })
    }
}

/// A part of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Factor {
    Fixed(usize),
    Atom(AtomId),
}

/// A dimension: the product of its factors, the first varying slowest. No factor: 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dim(pub(crate) Vec<Factor>);

impl Dim {
    pub(crate) fn fixed(n: usize) -> Self {
        Self(if n == 1 { Vec::new() } else { vec![Factor::Fixed(n)] })
    }

    pub(crate) fn atom(atom: AtomId) -> Self {
        Self(vec![Factor::Atom(atom)])
    }

    pub(crate) fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// The dimension's one atom, if it is nothing else.
    pub(crate) fn as_atom(&self) -> Option<AtomId> {
        match self.0[..] {
            [Factor::Atom(atom)] => Some(atom),
            _ => None,
        }
    }

    pub(crate) fn atoms(&self) -> impl Iterator<Item = AtomId> + '_ {
        self.0.iter().filter_map(|factor| match factor {
            Factor::Atom(atom) => Some(*atom),
            Factor::Fixed(_) => None,
        })
    }

    /// The product of the fixed factors.
    pub(crate) fn fixed_part(&self) -> usize {
        let fixed = self.0.iter().map(|factor| match factor {
            Factor::Fixed(n) => *n,
            Factor::Atom(_) => 1,
        });
        fixed.product()
    }

    /// Whether rows have an axis for it: it has a fixed factor, or is 1.
    pub(crate) fn in_row(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|factor| matches!(factor, Factor::Fixed(_)))
    }

    pub(crate) fn push(&mut self, factor: Factor) {
        match (self.0.last_mut(), factor) {
            (_, Factor::Fixed(1)) => {}
            (Some(Factor::Fixed(last)), Factor::Fixed(n)) => *last *= n,
            _ => self.0.push(factor),
        }
    }
}

/// The atoms of dimensions that are along steps, each as often as it occurs.
pub(crate) fn steps(dims: &[Dim]) -> Vec<AtomId> {
    dims.iter().flat_map(Dim::atoms).filter(|&atom| atom != BATCH).collect()
}

/// The axes of a row, given the dimensions of the whole: fixed parts in order.
pub(crate) fn row_shape(dims: &[Dim]) -> Vec<usize> {
    dims.iter().filter(|dim| dim.in_row()).map(Dim::fixed_part).collect()
}

/// The position in [`row_shape`] of dimension `axis`, which must be in the row.
pub(crate) fn row_axis(dims: &[Dim], axis: usize) -> usize {
    dims[..axis].iter().filter(|dim| dim.in_row()).count()
}

/// A sum of numbers times products of atoms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Int {
    /// The atoms of a product (in order of their ids) and its factor, which is not 0; each product once,
    /// in order.
    terms: Vec<(Vec<AtomId>, i64)>,
}

impl Int {
    pub(crate) fn number(number: i64) -> Self {
        Self::of([(Vec::new(), number)])
    }

    pub(crate) fn atom(atom: AtomId) -> Self {
        Self { terms: vec![(vec![atom], 1)] }
    }

    fn of(terms: impl IntoIterator<Item = (Vec<AtomId>, i64)>) -> Self {
        let mut sums: BTreeMap<Vec<AtomId>, i64> = BTreeMap::new();
        for (mut atoms, number) in terms {
            atoms.sort_unstable();
            let sum = sums.entry(atoms).or_insert(0);
            *sum = sum.wrapping_add(number);
        }
        sums.retain(|_, number| *number != 0);
        Self { terms: sums.into_iter().collect() }
    }

    /// The number, if it is one.
    pub(crate) fn as_number(&self) -> Option<i64> {
        match self.as_product()? {
            (number, []) => Some(number),
            _ => None,
        }
    }

    /// The factor and the atoms, where it is one product.
    pub(crate) fn as_product(&self) -> Option<(i64, &[AtomId])> {
        match &self.terms[..] {
            [] => Some((0, &[])),
            [(atoms, number)] => Some((*number, atoms)),
            _ => None,
        }
    }

    /// Its products: their factors and atoms.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (i64, &[AtomId])> {
        self.terms.iter().map(|(atoms, number)| (*number, &atoms[..]))
    }

    /// The same of other atoms.
    pub(crate) fn renamed(&self, name: impl Fn(AtomId) -> AtomId) -> Self {
        let rename = |(atoms, number): &(Vec<AtomId>, i64)| {
            (atoms.iter().map(|&atom| name(atom)).collect(), *number)
        };
        Self::of(self.terms.iter().map(rename))
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let products = self.terms.iter().flat_map(|(atoms, number)| {
            let product = move |(others, factor): &(Vec<AtomId>, i64)| {
                ([&atoms[..], others].concat(), number.wrapping_mul(*factor))
            };
            other.terms.iter().map(product)
        });
        Self::of(products)
    }

    /// The product; none where a factor overflows or it is longer than that of any shape.
    pub(crate) fn checked_times(&self, other: &Self) -> Option<Self> {
        for (a, of_a) in &self.terms {
            for (b, of_b) in &other.terms {
                of_a.checked_mul(*of_b)?;
                if a.len() + b.len() > 16 {
                    return None;
                }
            }
        }
        (self.terms.len() * other.terms.len() <= 16).then(|| self.times(other))
    }

    /// The sum; none where a factor overflows or it has more terms than any length.
    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        for (atoms, number) in &self.terms {
            let same = other.terms.iter().find(|(others, _)| others == atoms);
            number.checked_add(same.map_or(0, |(_, other)| *other))?;
        }
        let sum = Self::of(self.terms.iter().chain(&other.terms).cloned());
        (sum.terms.len() <= 16).then_some(sum)
    }

    pub(crate) fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.checked_times(&Self::number(-1))?)
    }

    /// The quotient, where it is exact or both are numbers (then rounded to zero).
    pub(crate) fn over(&self, other: &Self) -> Option<Self> {
        if let (Some(a), Some(b)) = (self.as_number(), other.as_number()) {
            return a.checked_div(b).map(Self::number);
        }
        let (divisor, divided) = other.as_product()?;
        let quotient = |(atoms, number): &(Vec<AtomId>, i64)| {
            let mut atoms = atoms.clone();
            for atom in divided {
                let at = atoms.iter().position(|known| known == atom)?;
                atoms.remove(at);
            }
            (number.checked_rem(divisor)? == 0).then(|| (atoms, number / divisor))
        };
        self.terms.iter().map(quotient).collect::<Option<Vec<_>>>().map(Self::of)
    }

    /// How two integers compare, where that does not depend on an atom. Atoms are at least 1.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        let difference = self.minus(other)?;
        let with_atoms = || difference.terms().filter(|(_, atoms)| !atoms.is_empty());
        // Where all atoms are 1.
        let sum = difference.terms().try_fold(0i64, |sum, (number, _)| sum.checked_add(number))?;
        match sum.cmp(&0) {
            Ordering::Greater => with_atoms().all(|(n, _)| n > 0).then_some(Ordering::Greater),
            Ordering::Less => with_atoms().all(|(n, _)| n < 0).then_some(Ordering::Less),
            Ordering::Equal => difference.terms.is_empty().then_some(Ordering::Equal),
        }
    }

    /// Whether two integers are equal, where that does not depend on an atom.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        self.compare(other).map(Ordering::is_eq)
    }

    /// Whether it is less than `other`, where that does not depend on an atom.
    pub(crate) fn is_less(&self, other: &Self) -> Option<bool> {
        self.compare(other).map(Ordering::is_lt)
    }
}
