//! All symbolic dimensions of a file, and which of them turned out to be equal.
//!
//! One is [`BATCH`]; the others are *steps*: axes of inputs, and what windows over them leave ([`Windows`]).
//! While the roles of a file's input dimensions are still being found, every input dimension is a symbol of its
//! own.

use crate::data::dim::{Dim, Factor, steps};
use crate::data::int::Int;
use crate::data::symbol::{BATCH, Symbol, Windows};

#[derive(Clone, Debug)]
struct SymbolFacts {
    parent: Symbol,
    label: String,
    length: Option<usize>,
    learned: bool,
    /// Whether a recurrent operator's steps go along it.
    is_time: bool,
    /// The axis whose windows this symbol counts, where it counts windows.
    windows: Option<(Symbol, Windows)>,
    /// The axes whose lengths' product this symbol is, in the order of their ids; else none.
    factors: Vec<Symbol>,
}

/// All symbols of a file, with the equal ones unified.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    symbols: Vec<SymbolFacts>,
}

impl Axes {
    /// `batch`: the number of sequences, where the file fixes it.
    pub(crate) fn new(batch: Option<usize>) -> Self {
        let mut axes = Self { symbols: Vec::new() };
        axes.add("batch", batch);
        axes
    }

    /// The number of windows over `of`.
    pub(crate) fn windows(&mut self, of: Symbol, windows: Windows) -> Symbol {
        let of = self.find(of);
        if let Some((base, inner)) = self.symbols[of.0 as usize].windows
            && let Some(windows) = windows.over(inner)
        {
            return self.windows(base, windows);
        }
        let known = (0..self.symbols.len()).find(|&at| {
            self.symbols[at].windows.is_some_and(|(from, w)| self.find(from) == of && w == windows)
        });
        if let Some(at) = known {
            return self.find(Symbol(at as u32));
        }
        let label = format!("windows over {}", self.label(of));
        let length = self.length(of).and_then(|length| windows.count(length));
        let symbol = self.add(&label, length);
        self.symbols[symbol.0 as usize].windows = Some((of, windows));
        symbol
    }

    /// The axis that a symbol counts windows over, with their geometry.
    pub(crate) fn windows_of(&self, symbol: Symbol) -> Option<(Symbol, Windows)> {
        let (of, windows) = self.symbols[self.find(symbol).0 as usize].windows?;
        Some((self.find(of), windows))
    }

    /// The axis whose length tells that of a symbol.
    pub(crate) fn base(&self, symbol: Symbol) -> Symbol {
        self.windows_of(symbol).map_or_else(|| self.find(symbol), |(of, _)| of)
    }

    /// Fixes the length of a symbol.
    pub(crate) fn fix(&mut self, symbol: Symbol, length: usize) {
        let symbol = self.find(symbol);
        self.symbols[symbol.0 as usize].length = Some(length);
    }

    /// The symbol whose length is the product of the lengths of some axes; of one, that axis.
    pub(crate) fn product(&mut self, of: &[Symbol]) -> Symbol {
        if let Some(known) = self.known_product(of) {
            return known;
        }
        let factors = self.sorted(of);
        let labels: Vec<&str> = factors.iter().map(|&factor| self.label(factor)).collect();
        let label = labels.join("*");
        let mut lengths = factors.iter().map(|&factor| self.length(factor));
        let length = lengths.try_fold(1, |all, one| Some(usize::saturating_mul(all, one?)));
        let symbol = self.add(&label, length);
        self.symbols[symbol.0 as usize].factors = factors;
        symbol
    }

    fn known_product(&self, of: &[Symbol]) -> Option<Symbol> {
        if let [one] = of {
            return Some(self.find(*one));
        }
        let of = self.sorted(of);
        let is_product = |&at: &usize| {
            let factors = &self.symbols[at].factors;
            !factors.is_empty() && self.sorted(factors) == of
        };
        (0..self.symbols.len()).find(is_product).map(|at| Symbol(at as u32))
    }

    fn sorted(&self, symbols: &[Symbol]) -> Vec<Symbol> {
        let mut sorted: Vec<Symbol> = symbols.iter().map(|&symbol| self.find(symbol)).collect();
        sorted.sort_unstable();
        sorted
    }

    /// The axes that a symbol is the product of, in the order in which rows stand; of no product, the symbol itself.
    pub(crate) fn factors(&self, symbol: Symbol) -> Vec<Symbol> {
        let symbol = self.find(symbol);
        match &self.symbols[symbol.0 as usize].factors[..] {
            [] => vec![symbol],
            factors => self.sorted(factors),
        }
    }

    /// The axis of steps that rows of a tensor run along: of several, the product of their lengths; none if there is
    /// none, or no product of them yet.
    pub(crate) fn steps_of(&self, dims: &[Dim]) -> Option<Symbol> {
        match &steps(dims)[..] {
            [] => None,
            [one] => Some(*one),
            several => Some(self.known_product(several).unwrap_or(several[0])),
        }
    }

    /// Every symbol that counts windows, with the axis that they lie on and their geometry.
    pub(crate) fn all_windows(&self) -> impl Iterator<Item = (Symbol, Symbol, Windows)> + '_ {
        let symbols = (0..).map(Symbol).zip(&self.symbols);
        symbols.filter_map(|(symbol, known)| {
            known.windows.map(|(of, windows)| (self.find(symbol), self.find(of), windows))
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Symbol> + use<> {
        (0..self.symbols.len() as u32).map(Symbol)
    }

    /// Learns that a recurrent operator's steps go along an axis, and along those that it is made of.
    pub(crate) fn mark_time(&mut self, symbol: Symbol) {
        let mut open = vec![self.find(symbol)];
        while let Some(symbol) = open.pop() {
            if std::mem::replace(&mut self.symbols[symbol.0 as usize].is_time, true) {
                continue;
            }
            let from: Vec<Symbol> = self
                .all_windows()
                .filter(|(produced, ..)| *produced == symbol)
                .map(|(_, of, _)| of)
                .collect();
            open.extend(from);
        }
    }

    /// Whether requests choose the length, or steps go along it.
    pub(crate) fn is_open(&self, symbol: Symbol) -> bool {
        self.is_time(symbol) || self.length(symbol).is_none()
    }

    /// Whether steps of anything go along any axis.
    pub(crate) fn has_time(&self) -> bool {
        self.symbols.iter().any(|symbol| symbol.is_time)
    }

    pub(crate) fn is_time(&self, symbol: Symbol) -> bool {
        self.symbols[self.find(symbol).0 as usize].is_time
    }

    pub(crate) fn add(&mut self, label: &str, length: Option<usize>) -> Symbol {
        let id = Symbol(self.symbols.len() as u32);
        let label = label.to_owned();
        self.symbols.push(SymbolFacts {
            parent: id,
            label,
            length,
            learned: false,
            is_time: false,
            windows: None,
            factors: Vec::new(),
        });
        id
    }

    /// The representative of all symbols equal to `symbol`; [`BATCH`] if it is that.
    pub(crate) fn find(&self, mut symbol: Symbol) -> Symbol {
        while self.symbols[symbol.0 as usize].parent != symbol {
            symbol = self.symbols[symbol.0 as usize].parent;
        }
        symbol
    }

    /// The length, where the file fixes it.
    pub(crate) fn length(&self, symbol: Symbol) -> Option<usize> {
        self.symbols[self.find(symbol).0 as usize].length
    }

    /// Learns the length of a symbol that has none and is neither the batch's nor along steps.
    pub(crate) fn learn(&mut self, symbol: Symbol, length: usize) {
        let symbol = self.find(symbol);
        let known = &mut self.symbols[symbol.0 as usize];
        if symbol != BATCH && !known.is_time && (known.length.is_none() || known.learned) {
            (known.length, known.learned) = (Some(length), true);
        }
    }

    pub(crate) fn learned(&self, symbol: Symbol) -> bool {
        self.symbols[self.find(symbol).0 as usize].learned
    }

    pub(crate) fn label(&self, symbol: Symbol) -> &str {
        &self.symbols[self.find(symbol).0 as usize].label
    }

    /// Learns that two lengths are one.
    pub(crate) fn unify(&mut self, a: Symbol, b: Symbol) -> Result<(), String> {
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
            (None, length) => self.symbols[root.0 as usize].length = length,
            _ => {}
        }
        self.symbols[child.0 as usize].parent = root;
        if self.symbols[child.0 as usize].is_time {
            self.mark_time(root);
        }
        Ok(())
    }

    pub(crate) fn same_dim(&self, a: &Dim, b: &Dim) -> bool {
        let same = |(a, b): (&Factor, &Factor)| match (a, b) {
            (Factor::Fixed(a), Factor::Fixed(b)) => a == b,
            (Factor::Symbol(a), Factor::Symbol(b)) => self.find(*a) == self.find(*b),
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
                    Factor::Symbol(symbol) => self.label(*symbol).to_owned(),
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
                Factor::Symbol(symbol) => match self.length(*symbol) {
                    Some(n) if *symbol != BATCH => Int::number(n as i64),
                    _ => Int::symbol(self.find(*symbol)),
                },
                Factor::Fixed(n) => Int::number(*n as i64),
            })
        })
    }

    /// A dimension as an integer.
    pub(crate) fn int(&self, dim: &Dim) -> Int {
        dim.0.iter().fold(Int::number(1), |int, factor| {
            int.times(&match factor {
                Factor::Fixed(n) => Int::number(*n as i64),
                Factor::Symbol(symbol) => self.length_as_int(*symbol),
            })
        })
    }

    /// The length of an axis as an integer. Windows at every element are as many as the axis has elements, a few more
    /// or less.
    fn length_as_int(&self, symbol: Symbol) -> Int {
        let symbol = self.find(symbol);
        match (self.length(symbol), self.windows_of(symbol)) {
            (Some(n), _) => Int::number(n as i64),
            (None, Some((of, Windows { multiple, extra, stride: 1, .. }))) if of != symbol => {
                let all = self.length_as_int(of).times(&Int::number(multiple));
                all.plus(&Int::number(extra + 1)).unwrap_or_else(|| Int::symbol(symbol))
            }
            _ => Int::symbol(symbol),
        }
    }
}
