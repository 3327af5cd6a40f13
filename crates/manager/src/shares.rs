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
//! # Credit
//! The *system's virtual time* is the greatest at which a model was chosen (start-time fair queueing; Goyal,
//! Vin and Cheng, 1996). A model that is ready again after a choice at which it was not starts at most a
//! bounded credit before it. So a model that needs less than its share is served at once, and none saves up
//! more than that: neither while it has no requests, nor while those that it has keep fewer workers busy than
//! its share would. A model that was ready at every choice keeps its virtual time: it may be behind because
//! its tasks took less than was estimated.

use batchmaker_graph::ModelId;

use crate::fairness::Fairness;

/// The virtual times of all models.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The weights by model; 1 for those past the end.
    weights: Vec<u32>,
    models: Vec<ModelShare>,
    /// The greatest virtual time at which a model was chosen.
    system_time: i128,
    /// The number of choices so far.
    choices: u64,
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
    /// The number of the last choice at which it was ready; 0 before the first.
    ready_at: u64,
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

    /// Shares by `weights`, where models may have a credit of `credit_ns`.
    ///
    /// # Panics
    /// If a weight is 0.
    fn new(weights: &[u32], credit_ns: u64) -> Self {
        assert!(weights.iter().all(|&weight| weight > 0), "a model without a share never runs");
        let (weights, models, spare) = (weights.to_vec(), Vec::new(), Vec::new());
        Self { weights, models, system_time: 0, choices: 0, credit_ns, spare }
    }

    /// Equal shares of a number of models, all of which may have requests.
    pub(crate) fn equal(models: usize, credit_ns: u64) -> Self {
        let mut shares = Self::new(&vec![1; models], credit_ns);
        shares.models.resize_with(models, ModelShare::default);
        shares
    }

    /// Makes room for `model`, which has a request.
    pub(crate) fn note_model(&mut self, model: ModelId) {
        if self.models.len() <= model.index() {
            self.models.resize_with(model.index() + 1, ModelShare::default);
        }
    }

    /// Chooses the model with the least virtual time of the `ready` ones, which may be listed several times;
    /// of several, the one with the lowest id.
    pub(crate) fn choose(&mut self, ready: impl Iterator<Item = ModelId>) -> Option<ModelId> {
        let mut chosen: Option<(i128, ModelId)> = None;
        for model in ready {
            let credit = (i128::from(self.credit_ns) << 32) / i128::from(self.weight(model));
            let share = &mut self.models[model.index()];
            if share.ready_at < self.choices {
                share.virtual_time = share.virtual_time.max(self.system_time - credit);
            }
            share.ready_at = self.choices + 1;
            let candidate = (share.virtual_time, model);
            chosen = Some(chosen.map_or(candidate, |chosen| chosen.min(candidate)));
        }
        let (virtual_time, model) = chosen?;
        self.choices += 1;
        self.system_time = self.system_time.max(virtual_time);
        Some(model)
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

    fn shares(weights: &[u32], credit_ns: u64) -> Shares {
        let mut shares = Shares::new(weights, credit_ns);
        shares.note_model(B);
        shares
    }

    /// A turn of one of the `models`, which takes `took_ns`.
    fn take(shares: &mut Shares, models: &[ModelId], took_ns: u64) -> ModelId {
        let model = shares.choose(models.iter().copied()).unwrap();
        let charge = shares.charge(0, &[(model, 1)]);
        shares.correct(charge, took_ns);
        model
    }

    #[test]
    fn models_take_turns_by_weight() {
        let mut shares = shares(&[1, 2], 0);
        let turns: Vec<u32> = (0..6).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 1, 1, 0, 1, 1]);
    }

    #[test]
    fn an_estimate_counts_until_it_is_corrected() {
        let mut shares = shares(&[], 0);
        let charge = shares.charge(10, &[(A, 1)]);
        assert_eq!(shares.choose([A, B].into_iter()), Some(B));
        shares.correct(charge, 0);
        assert_eq!(shares.choose([A, B].into_iter()), Some(A));
    }

    #[test]
    fn models_pay_for_their_rows_of_a_batch() {
        let mut shares = shares(&[1, 1], 0);
        let charge = shares.charge(0, &[(A, 3), (B, 1)]);
        shares.correct(charge, 40);
        assert_eq!([A, B].map(|model| shares.worker_ns(model)), [30, 10]);
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 0, 1], "B is 20 ns behind");
    }

    #[test]
    fn seats_are_dealt_by_weight() {
        let shares = shares(&[1, 3], 0);
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
    fn models_that_are_not_ready_save_a_bounded_credit() {
        let mut shares = shares(&[1, 2], 20);
        (0..100).for_each(|_| assert_eq!(take(&mut shares, &[A], 10), A));
        let turns: Vec<u32> = (0..7).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 1, 1, 0, 1, 1], "B is 20 ns of its own time before A's last turn");
        // What it used of the credit comes back as others are served alone.
        (0..2).for_each(|_| assert_eq!(take(&mut shares, &[A], 10), A));
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 1, 1, 1]);
    }

    /// A model whose one request is ready now and then, since it runs in between, saves up no more.
    #[test]
    fn models_that_keep_few_workers_busy_save_a_bounded_credit() {
        let mut shares = shares(&[], 20);
        for _ in 0..1_000 {
            assert_eq!(take(&mut shares, &[A, B], 1), A);
            (0..3).for_each(|_| assert_eq!(take(&mut shares, &[B], 10), B));
        }
        let turns: Vec<u32> = (0..10).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 0, 0, 0, 1, 0, 1, 0, 1, 0], "A is 20 ns before B's last turn");
    }

    #[test]
    fn a_model_that_is_always_ready_keeps_what_it_is_behind() {
        let mut shares = shares(&[], 0);
        // Two workers: A's first task is estimated to take 100 ns, and B has a turn that is.
        assert_eq!(shares.choose([A, B].into_iter()), Some(A));
        let charge = shares.charge(100, &[(A, 1)]);
        (0..5).for_each(|_| assert_eq!(take(&mut shares, &[A, B], 20), B));
        assert_eq!(take(&mut shares, &[A, B], 10), A);
        shares.correct(charge, 10);
        let turns: Vec<u32> = (0..9).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [0, 0, 0, 0, 0, 0, 0, 0, 0], "it has 80 ns less than B");
    }

    #[test]
    fn without_credit_a_model_starts_where_the_last_turn_did() {
        let mut shares = shares(&[], 0);
        (0..100).for_each(|_| assert_eq!(take(&mut shares, &[A], 10), A));
        let turns: Vec<u32> = (0..4).map(|_| take(&mut shares, &[A, B], 10).0).collect();
        assert_eq!(turns, [1, 0, 1, 0]);
    }
}
