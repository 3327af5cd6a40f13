//! The lengths of a request's axes, which its tensors must agree on.

use batchmaker_graph::{InvalidRequest, NamedTensor, TensorData};

use crate::analysis::recurrence::SequenceLengths;
use crate::analysis::value::Domain;
use crate::data::int::Int;
use crate::data::symbol::{BATCH, Symbol};
use crate::unfold::plan::{Extent, PlanAxis, PlanCell, UnfoldPlan};

/// A request's lengths.
pub(super) struct Lengths {
    pub(super) batch: usize,
    /// The numbers of steps, by the symbols' ids.
    pub(super) steps: Vec<usize>,
}

impl Lengths {
    pub(super) fn of(&self, extent: Extent) -> usize {
        match extent {
            Extent::Fixed(n) => n,
            Extent::Batch => self.batch,
            Extent::Steps(axis) => self.steps(Some(axis)),
            Extent::Both(axis) => self.batch * self.steps(Some(axis)),
        }
    }

    /// The value of an integer that is made of lengths; the nearest of 64 bits.
    pub(super) fn int(&self, int: &Int) -> i64 {
        let product = |(number, symbols): (i64, &[Symbol])| {
            symbols.iter().fold(number, |product, &symbol| {
                let length = if symbol == BATCH { self.batch } else { self.steps(Some(symbol)) };
                product.saturating_mul(length as i64)
            })
        };
        int.terms().map(product).fold(0, i64::saturating_add)
    }

    pub(super) fn steps(&self, axis: Option<Symbol>) -> usize {
        axis.map_or(1, |axis| self.steps[axis.0 as usize])
    }

    pub(super) fn rows(&self, domain: Domain) -> usize {
        let steps = self.steps(domain.time);
        if domain.batch { steps * self.batch } else { steps }
    }
}

/// The axes for messages, such as `[batch, time, 8]`.
fn show(axes: &[Extent]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|axis| match axis {
            Extent::Fixed(n) => n.to_string(),
            Extent::Batch => "batch".to_owned(),
            Extent::Steps(_) => "time".to_owned(),
            Extent::Both(_) => "batch*time".to_owned(),
        })
        .collect();
    format!("[{}]", axes.join(", "))
}

impl UnfoldPlan {
    /// The lengths of batch and steps, which all tensors must agree on. Windows wait for more steps where they
    /// `may_wait`: there may be none yet.
    pub(super) fn lengths(
        &self,
        tensors: &[NamedTensor],
        may_wait: bool,
    ) -> Result<Lengths, InvalidRequest> {
        // Each axis has its length and the name of the tensor that set it.
        let mut batch = self.batch.map(|n| (n, "the model"));
        let by_model = |axis: &PlanAxis| axis.length.map(|n| (n, "the model"));
        let mut steps: Vec<Option<(usize, &str)>> = self.axes.iter().map(by_model).collect();
        for (input, tensor) in self.inputs.iter().zip(tensors) {
            let found = tensor.tensor.shape();
            let refuse = |why: String| {
                let (name, expected) = (&input.name, show(&input.axes));
                let text = format!("tensor `{name}`: expected shape {expected}, got {found:?}");
                Err(InvalidRequest(if why.is_empty() { text } else { format!("{text}: {why}") }))
            };
            if found.len() != input.axes.len() {
                return refuse(String::new());
            }
            for (axis, &length) in input.axes.iter().zip(found) {
                let (known, name) = match axis {
                    Extent::Fixed(n) if *n == length => continue,
                    Extent::Fixed(_) | Extent::Both(_) => return refuse(String::new()),
                    Extent::Batch => (&mut batch, "batch"),
                    Extent::Steps(axis) => (&mut steps[axis.0 as usize], "time"),
                };
                match (length, *known) {
                    (0, _) if name == "time" => return refuse("an empty sequence".to_owned()),
                    (0, _) => return refuse("an empty batch".to_owned()),
                    (_, None) => *known = Some((length, &input.name)),
                    (_, Some((n, _))) if n == length => {}
                    (_, Some((n, by @ "the model"))) => {
                        return refuse(format!("{name} is {n} by {by}"));
                    }
                    (_, Some((n, by))) => {
                        return refuse(format!("{name} is {n} by tensor `{by}`"));
                    }
                }
            }
        }
        self.count_windows(&mut steps, may_wait)?;
        let batch_rows = batch.map_or(1, |(n, _)| n);
        // Lengths that the file fixes do not count: features are axes, too.
        let given = steps.iter().zip(&self.axes).filter(|(_, axis)| axis.length.is_none());
        let longest = given.filter_map(|(step, _)| *step).max_by_key(|(n, _)| *n);
        let by = longest.or(batch).map_or("", |(_, by)| by);
        match batch_rows.checked_mul(longest.map_or(1, |(n, _)| n)) {
            Some(rows) if rows <= self.max_length => {}
            rows => {
                let (rows, max) = (rows.unwrap_or(usize::MAX), self.max_length);
                let text = format!("tensor `{by}`: expected at most {max} rows, got {rows}");
                return Err(InvalidRequest(text));
            }
        }
        for (axis, found) in self.axes.iter().zip(&steps) {
            if let Some((found, by)) = found.filter(|(found, _)| *found < axis.min && !may_wait) {
                let min = axis.min;
                let text = format!("tensor `{by}`: expected at least {min} steps, got {found}");
                return Err(InvalidRequest(text));
            }
            if let Some((found, by)) = found.filter(|(found, _)| *found > axis.max) {
                let max = axis.max;
                let text = format!("tensor `{by}`: expected at most {max} steps, got {found}");
                return Err(InvalidRequest(text));
            }
        }
        let mut steps: Vec<usize> =
            steps.into_iter().map(|found| found.map_or(1, |(n, _)| n)).collect();
        for (at, axis) in self.axes.iter().enumerate().filter(|(_, axis)| !axis.factors.is_empty())
        {
            let factors = axis.factors.iter().map(|factor| steps[factor.0 as usize]);
            let product = factors.reduce(usize::saturating_mul);
            steps[at] = product.filter(|&n| u32::try_from(n).is_ok()).ok_or_else(|| {
                InvalidRequest(format!("tensor `{by}`: more rows than a request may have"))
            })?;
        }
        let lengths = Lengths { batch: batch_rows, steps };
        match self.not_negative.iter().any(|int| lengths.int(int) < 0) {
            true => Err(InvalidRequest(format!(
                "tensor `{by}`: the model takes more steps than there are"
            ))),
            false => Ok(lengths),
        }
    }

    /// Adds the lengths that follow from others.
    fn count_windows(
        &self,
        steps: &mut [Option<(usize, &str)>],
        may_wait: bool,
    ) -> Result<(), InvalidRequest> {
        // Windows over windows: as often as there are axes, all are known.
        for _ in 0..self.axes.len() {
            let all = self.axes.iter().enumerate();
            let all = all.flat_map(|(at, axis)| axis.windows.iter().map(move |w| (at, *w)));
            for (at, (of, windows)) in all {
                let Some((length, by)) = steps[of.0 as usize] else { continue };
                let count = match may_wait {
                    true => windows.count_whole(length),
                    false => windows.count(length),
                };
                let count = count.filter(|&count| count > 0 && length > 0);
                let Some(count) = count.or(may_wait.then_some(0)) else {
                    let text = format!("tensor `{by}`: {length} steps are too few for the model");
                    return Err(InvalidRequest(text));
                };
                match steps[at] {
                    None => steps[at] = Some((count, by)),
                    Some((known, _)) if known == count => {}
                    Some((known, other)) => {
                        let text = format!(
                            "tensor `{by}`: of its {length} steps the model makes {count}, where \
                             tensor `{other}` has {known}"
                        );
                        return Err(InvalidRequest(text));
                    }
                }
            }
        }
        Ok(())
    }

    /// The lengths of all axes that follow from one, by their symbols' ids; 0 for windows that wait for more steps,
    /// and for other axes.
    pub(super) fn counts(&self, axis: Symbol, length: usize) -> Vec<usize> {
        let mut steps = vec![None; self.axes.len()];
        steps[axis.0 as usize] = Some((length, ""));
        // Axes that disagree are refused with the request's own lengths.
        let _ = self.count_windows(&mut steps, true);
        steps.into_iter().map(|found| found.map_or(0, |(n, _)| n)).collect()
    }

    /// The steps of each sequence's chain, where they are not all there are.
    pub(super) fn chain_lengths(
        &self,
        cell: &PlanCell,
        tensors: &[NamedTensor],
        lengths: &Lengths,
    ) -> Result<Vec<u32>, InvalidRequest> {
        let (name, given): (_, Vec<i64>) = match cell.chain.as_ref().map(|order| &order.lengths) {
            None | Some(SequenceLengths::All) => return Ok(Vec::new()),
            Some(SequenceLengths::Constant(lengths)) => {
                ("the model's lengths", lengths.iter().map(|&length| length as i64).collect())
            }
            Some(SequenceLengths::Input(input)) => match tensors[*input].tensor.data() {
                TensorData::I64(data) => (&*self.inputs[*input].name, data.clone()),
                TensorData::I32(data) => {
                    (&*self.inputs[*input].name, data.iter().map(|&n| n.into()).collect())
                }
                _ => unreachable!("lengths are integers"),
            },
        };
        let max = lengths.steps(cell.domain.time);
        let length = |&length: &i64| {
            let fits = usize::try_from(length).is_ok_and(|length| length <= max);
            fits.then_some(length as u32).ok_or_else(|| {
                let text = format!("tensor `{name}`: expected lengths of 0 to {max}, got {length}");
                InvalidRequest(text)
            })
        };
        given.iter().map(length).collect()
    }
}
