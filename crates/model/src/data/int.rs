//! Integers that are computed from symbolic dimensions.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::data::symbol::Symbol;

/// The most terms of a sum.
const TERMS_MAX: usize = 16;

/// A sum of numbers times products of symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Int {
    /// Each entry holds the symbols of a product (in order of their ids) and its factor, which is not 0. Each
    /// product occurs once; the entries are in order.
    terms: Vec<(Vec<Symbol>, i64)>,
}

impl Int {
    pub(crate) fn number(number: i64) -> Self {
        Self::of([(Vec::new(), number)])
    }

    pub(crate) fn symbol(symbol: Symbol) -> Self {
        Self { terms: vec![(vec![symbol], 1)] }
    }

    fn of(terms: impl IntoIterator<Item = (Vec<Symbol>, i64)>) -> Self {
        let mut sums: BTreeMap<Vec<Symbol>, i64> = BTreeMap::new();
        for (mut symbols, number) in terms {
            symbols.sort_unstable();
            let sum = sums.entry(symbols).or_insert(0);
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

    /// The factor and the symbols, where it is one product.
    pub(crate) fn as_product(&self) -> Option<(i64, &[Symbol])> {
        match &self.terms[..] {
            [] => Some((0, &[])),
            [(symbols, number)] => Some((*number, symbols)),
            _ => None,
        }
    }

    /// Its products: their factors and symbols.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (i64, &[Symbol])> {
        self.terms.iter().map(|(symbols, number)| (*number, &symbols[..]))
    }

    /// Its symbols, each as often as it occurs.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.terms.iter().flat_map(|(symbols, _)| symbols.iter().copied())
    }

    /// The integer with each symbol replaced by `name(symbol)`.
    pub(crate) fn renamed(&self, name: impl Fn(Symbol) -> Symbol) -> Self {
        let rename = |(symbols, number): &(Vec<Symbol>, i64)| {
            (symbols.iter().map(|&symbol| name(symbol)).collect(), *number)
        };
        Self::of(self.terms.iter().map(rename))
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let products = self.terms.iter().flat_map(|(symbols, number)| {
            let product = move |(others, factor): &(Vec<Symbol>, i64)| {
                ([&symbols[..], others].concat(), number.wrapping_mul(*factor))
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
        (self.terms.len() * other.terms.len() <= TERMS_MAX).then(|| self.times(other))
    }

    /// The sum; none where a factor overflows or it has more terms than any length.
    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        for (symbols, number) in &self.terms {
            let same = other.terms.iter().find(|(others, _)| others == symbols);
            number.checked_add(same.map_or(0, |(_, other)| *other))?;
        }
        let sum = Self::of(self.terms.iter().chain(&other.terms).cloned());
        (sum.terms.len() <= TERMS_MAX).then_some(sum)
    }

    pub(crate) fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.checked_times(&Self::number(-1))?)
    }

    /// The quotient, where it is exact or both are numbers (then rounded to zero).
    pub(crate) fn over(&self, other: &Self) -> Option<Self> {
        if let (Some(a), Some(b)) = (self.as_number(), other.as_number()) {
            return a.checked_div(b).map(Self::number);
        }
        // Term by term, the highest first.
        let (lead, _) = other.highest()?;
        let mut rest = self.clone();
        let mut quotient = Vec::new();
        while let Some((number, symbols)) = rest.highest() {
            if quotient.len() == TERMS_MAX {
                return None;
            }
            let (divisor, divided) = (lead, other.highest()?.1);
            let mut symbols = symbols.to_vec();
            for symbol in divided {
                let at = symbols.iter().position(|known| known == symbol)?;
                symbols.remove(at);
            }
            let number = (number.checked_rem(divisor)? == 0).then(|| number / divisor)?;
            let term = Self::of([(symbols.clone(), number)]);
            rest = rest.minus(&term.checked_times(other)?)?;
            quotient.push((symbols, number));
        }
        Some(Self::of(quotient))
    }

    /// The term of the most symbols; of several such, the last.
    fn highest(&self) -> Option<(i64, &[Symbol])> {
        self.terms().max_by_key(|(_, symbols)| (symbols.len(), symbols.to_vec()))
    }

    /// Compares two integers, if the result does not depend on a symbol. Symbols are at least 1.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        let difference = self.minus(other)?;
        let with_symbols = || difference.terms().filter(|(_, symbols)| !symbols.is_empty());
        // Where all symbols are 1.
        let sum = difference.terms().try_fold(0i64, |sum, (number, _)| sum.checked_add(number))?;
        match sum.cmp(&0) {
            Ordering::Greater => with_symbols().all(|(n, _)| n > 0).then_some(Ordering::Greater),
            Ordering::Less => with_symbols().all(|(n, _)| n < 0).then_some(Ordering::Less),
            Ordering::Equal => difference.terms.is_empty().then_some(Ordering::Equal),
        }
    }

    /// Whether two integers are equal, where that does not depend on a symbol.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        self.compare(other).map(Ordering::is_eq)
    }

    /// Whether it is less than `other`, where that does not depend on a symbol.
    pub(crate) fn is_less(&self, other: &Self) -> Option<bool> {
        self.compare(other).map(Ordering::is_lt)
    }
}
