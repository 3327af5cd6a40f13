//! The shares of models in the time of the workers: weighted fair queueing.
//!
//! Each model has a *virtual time*, which grows by the worker time that its nodes take, divided by
//! the model's weight. Whoever forms a batch takes the model with the least virtual time of those
//! that can run. So models that always have work get worker time in proportion to their weights,
//! and what a model leaves goes to the others.
//!
//! A task is charged when it is submitted, by an estimate, so that other workers see it; when it is
//! complete, the charge is corrected by the time that it took. A task that is lost with its worker
//! stays charged by its estimate.
//!
//! A batch of a cell type that several models share has seats for all of them: they are dealt one by
//! one, each to the model that has the fewest for its weight ([`Shares::deal`]).
//!
//! A model without requests keeps its virtual time, but when it has requests again it starts at most
//! a bounded credit before the others: a model that needs less than its share is served at once, and
//! none can save up more than that.

use batchmaker_graph::ModelId;

use crate::fairness::Fairness;

/// The virtual times of all models.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The weights by model; 1 for those past the end.
    weights: Vec<u32>,
    models: Vec<ModelShare>,
    /// See [`crate::Fairness::credit_ns`].
    credit_ns: u64,
    /// Empty lists of charged models, to be used again.
    spare: Vec<Vec<(ModelId, u32)>>,
}

#[derive(Clone, Debug, Default)]
struct ModelShare {
    /// In units of a nanosecond at weight 2^32.
    virtual_time: i128,
    /// The worker time that it had, in nanoseconds.
    worker_ns: u64,
    /// The number of its requests that have begun and not ended. It is active while there are any.
    requests: usize,
}

/// The charge of a task in flight.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    /// The worker time that was charged, in nanoseconds.
    estimate_ns: u64,
    payers: Payers,
}

/// The models that a task has nodes of.
#[derive(Debug, Default)]
enum Payers {
    /// Nothing is charged.
    #[default]
    Nobody,
    One(ModelId),
    /// Each with its rows.
    Several(Vec<(ModelId, u32)>),
}

impl Shares {
    /// The shares that `fairness` says models have, if any.
    pub(crate) fn of(fairness: &Fairness) -> Option<Self> {
        fairness.shares.as_deref().map(|weights| Self::new(weights, fairness.credit_ns))
    }

    /// Shares by `weights`, with all models idle, which may have a credit of `credit_ns`.
    ///
    /// # Panics
    /// If a weight is 0.
    fn new(weights: &[u32], credit_ns: u64) -> Self {
        assert!(weights.iter().all(|&weight| weight > 0), "a model without a share never runs");
        let (weights, models, spare) = (weights.to_vec(), Vec::new(), Vec::new());
        Self { weights, models, credit_ns, spare }
    }

    /// Notes that a request of `model` begins.
    pub(crate) fn begin(&mut self, model: ModelId) {
        if self.models.len() <= model.index() {
            self.models.resize_with(model.index() + 1, ModelShare::default);
        }
        if self.models[model.index()].requests == 0 {
            let active = self.models.iter().filter(|model| model.requests > 0);
            let least = active.map(|model| model.virtual_time).min();
            // Where all were idle, all begin anew.
            let latest = self.models.iter().map(|model| model.virtual_time).max();
            let start = least.or(latest).unwrap_or(0);
            let credit = (i128::from(self.credit_ns) << 32) / i128::from(self.weight(model));
            let own = &mut self.models[model.index()].virtual_time;
            *own = (start - credit).max(*own);
        }
        self.models[model.index()].requests += 1;
    }

    /// Notes that a request of `model` ends.
    pub(crate) fn end(&mut self, model: ModelId) {
        self.models[model.index()].requests -= 1;
    }

    /// The model of `models`, all of which are active, with the least virtual time; of several, the
    /// one with the lowest id.
    pub(crate) fn first(&self, models: impl Iterator<Item = ModelId>) -> Option<ModelId> {
        models.min_by_key(|&model| (self.models[model.index()].virtual_time, model))
    }

    /// Deals the `seats` of a batch among models that have `ready` nodes each: one by one, each to the
    /// model that has the fewest for its weight of those with nodes left; of several, to `first`, else to
    /// the one that is listed first. Returns the seats of each.
    pub(crate) fn deal(
        &self,
        seats: u32,
        first: Option<ModelId>,
        ready: &[(ModelId, u64)],
    ) -> Vec<u32> {
        let mut dealt = vec![0; ready.len()];
        for _ in 0..seats {
            let has_nodes_left =
                |position: &usize| u64::from(dealt[*position]) < ready[*position].1;
            let place = |&position: &usize| {
                let model = ready[position].0;
                let virtual_seats =
                    (u64::from(dealt[position]) << 32) / u64::from(self.weight(model));
                (virtual_seats, Some(model) != first, position)
            };
            let positions = (0..ready.len()).filter(has_nodes_left);
            let Some(position) = positions.min_by_key(place) else { break };
            dealt[position] += 1;
        }
        dealt
    }

    /// The worker time, in nanoseconds, that tasks of `model` took which are complete: of a task with nodes of
    /// several models, by their rows.
    pub(crate) fn worker_ns(&self, model: ModelId) -> u64 {
        self.models.get(model.index()).map_or(0, |model| model.worker_ns)
    }

    fn weight(&self, model: ModelId) -> u32 {
        self.weights.get(model.index()).copied().unwrap_or(1)
    }

    /// Charges a task that is estimated to take `estimate_ns` to the models that have `rows` in it.
    pub(crate) fn charge(&mut self, estimate_ns: u64, rows: &[(ModelId, u32)]) -> Charge {
        self.add(i128::from(estimate_ns), rows);
        let payers = match rows {
            [] => Payers::Nobody,
            [(model, _)] => Payers::One(*model),
            several => {
                let mut list = self.spare.pop().unwrap_or_default();
                list.extend_from_slice(several);
                Payers::Several(list)
            }
        };
        Charge { estimate_ns, payers }
    }

    /// Corrects the charge of a task that took `took_ns`.
    pub(crate) fn correct(&mut self, charge: Charge, took_ns: u64) {
        let estimate_ns = charge.estimate_ns;
        let mut correct = |rows: &[(ModelId, u32)]| {
            self.add(-i128::from(estimate_ns), rows);
            self.add(i128::from(took_ns), rows);
            let all: u64 = rows.iter().map(|&(_, rows)| u64::from(rows)).sum();
            for &(model, rows) in rows {
                self.models[model.index()].worker_ns += took_ns * u64::from(rows) / all;
            }
        };
        match charge.payers {
            Payers::Nobody => {}
            Payers::One(model) => correct(&[(model, 1)]),
            Payers::Several(mut rows) => {
                correct(&rows);
                rows.clear();
                self.spare.push(rows);
            }
        }
    }

    fn add(&mut self, ns: i128, rows: &[(ModelId, u32)]) {
        let all: i128 = rows.iter().map(|&(_, rows)| i128::from(rows)).sum();
        for &(model, rows) in rows {
            let weight = i128::from(self.weight(model));
            let virtual_time = ((ns * i128::from(rows)) << 32) / (all * weight);
            self.models[model.index()].virtual_time += virtual_time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ModelId = ModelId(0);
    const B: ModelId = ModelId(1);

    fn take(shares: &mut Shares, models: &[ModelId], took_ns: u64) -> ModelId {
        let model = shares.first(models.iter().copied()).unwrap();
        let charge = shares.charge(0, &[(model, 1)]);
        shares.correct(charge, took_ns);
        model
    }

    #[test]
    fn models_take_turns_by_weight() {
        let mut shares = Shares::new(&[1, 2], 0);
        [A, B].into_iter().for_each(|model| shares.begin(model));
        let turns: Vec<u32> = (0..6).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 1, 1, 0, 1, 1]);
    }

    #[test]
    fn an_estimate_counts_until_it_is_corrected() {
        let mut shares = Shares::new(&[], 0);
        [A, B].into_iter().for_each(|model| shares.begin(model));
        let charge = shares.charge(10, &[(A, 1)]);
        assert_eq!(shares.first([A, B].into_iter()), Some(B));
        shares.correct(charge, 0);
        assert_eq!(shares.first([A, B].into_iter()), Some(A));
    }

    #[test]
    fn models_pay_for_their_rows_of_a_batch() {
        let mut shares = Shares::new(&[1, 1], 0);
        [A, B].into_iter().for_each(|model| shares.begin(model));
        let charge = shares.charge(0, &[(A, 3), (B, 1)]);
        shares.correct(charge, 40);
        assert_eq!([A, B].map(|model| shares.worker_ns(model)), [30, 10]);
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 0, 1], "B is 20 ns behind");
    }

    #[test]
    fn seats_are_dealt_by_weight() {
        let shares = Shares::new(&[1, 3], 0);
        let deal = |seats, first, ready: [u64; 2]| {
            shares.deal(seats, first, &[(A, ready[0]), (B, ready[1])])
        };
        assert_eq!(deal(8, None, [9, 9]), [2, 6]);
        assert_eq!(deal(8, None, [9, 1]), [7, 1], "what one leaves goes to the other");
        assert_eq!(deal(8, None, [3, 4]), [3, 4], "all fit");
        assert_eq!(deal(1, None, [1, 1]), [1, 0]);
        assert_eq!(deal(1, Some(B), [1, 1]), [0, 1], "whose turn it is has a seat");
    }

    #[test]
    fn idle_models_save_a_bounded_credit() {
        let mut shares = Shares::new(&[1, 2], 20);
        shares.begin(A);
        take(&mut shares, &[A], 1_000);
        shares.begin(B);
        let turns: Vec<u32> = (0..7).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 0, 1, 1, 0, 1], "B is 20 ns of its own time before A");
        // What it used of the credit comes back as others are served alone.
        shares.end(B);
        take(&mut shares, &[A], 5);
        shares.begin(B);
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 0, 1]);
    }

    #[test]
    fn idle_models_save_no_credit() {
        let mut shares = Shares::new(&[], 0);
        shares.begin(A);
        take(&mut shares, &[A], 1_000);
        shares.begin(B);
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 1, 0, 1], "B starts where A is");
        // Neither does one that begins while no other is active.
        [A, B].into_iter().for_each(|model| shares.end(model));
        shares.begin(A);
        take(&mut shares, &[A], 1_000);
        shares.end(A);
        shares.begin(B);
        shares.begin(A);
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 1, 0, 1], "B starts where A ended");
    }
}
