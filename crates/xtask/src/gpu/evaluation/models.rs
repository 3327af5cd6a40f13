//! Figure 15: the paper's two models of several layers, by the batch.

use super::figure::Figure;
use super::jobs::{BATCHES, MODELS, Model};
use super::peers::PEERS;
use super::times::{OWN, Times};
use crate::markdown::{number, table};
use crate::plot::{Point, Scale, Words, points};

/// The systems that have a time of a model with any batch.
fn systems(times: &Times, model: &Model) -> Vec<&'static str> {
    let has =
        |system: &&str| BATCHES.iter().any(|&batch| times.ms(system, model.job(batch)).is_some());
    let peers = PEERS.iter().map(|peer| peer.title);
    std::iter::once(OWN).chain(peers).filter(has).collect()
}

/// The milliseconds of a batch of each model.
pub(super) fn figure_15_tables(times: &Times) -> String {
    let of = |model: Model| {
        let Model { name, layers, hidden, steps } = model;
        let systems = systems(times, &model);
        let head: Vec<&str> = ["batch"].into_iter().chain(systems.iter().copied()).collect();
        let rows = BATCHES.map(|batch| {
            let numbers = systems.iter().map(|system| number(times.ms(system, model.job(batch))));
            std::iter::once(batch.to_string()).chain(numbers).collect()
        });
        let what = format!("{name}: {layers} layers of LSTM, {hidden} units, {steps} steps; ms");
        format!("{what}:\n\n{}\n", table(&head, &rows))
    };
    let note =
        "BatchMaker's layers run one after the other: its time is the sum of their times.\n\n";
    MODELS.map(of).concat() + note
}

/// A figure for each model.
pub(super) fn figure_15(times: &Times) -> Vec<Figure> {
    let names = ["figure-15a", "figure-15b"];
    let figures = names.into_iter().zip(MODELS).map(|(name, model)| {
        let series = systems(times, &model).into_iter().map(|system| {
            let point = |batch: usize| {
                let y = times.ms(system, model.job(batch))?;
                Some(Point { x: batch as f64, y, label: String::new() })
            };
            (system.to_owned(), BATCHES.into_iter().filter_map(point).collect())
        });
        let title = format!("{}, {} layers of LSTM", model.name, model.layers);
        let words = Words { title: &title, x: "batch", y: "ms" };
        let series: Vec<_> = series.collect();
        Figure::new(name, points(words, Scale::LinearJoined, &series))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::super::times::Outcome;
    use super::*;

    #[test]
    fn models_have_a_row_for_each_batch() {
        let mut times = Times::default();
        for batch in BATCHES {
            times.add(OWN, MODELS[1].job(batch), Outcome::Time(batch as f64));
        }
        let text = figure_15_tables(&times);
        assert!(text.contains("CharRNN: 3 layers of LSTM, 128 units, 100 steps; ms:"));
        assert!(text.contains("| batch | BatchMaker |\n|---|---|\n| 1 | 1.00 |\n| 2 | 2.00 |\n"));
        let [classifier, char_rnn] = &figure_15(&times)[..] else { panic!("a figure for each") };
        assert!(classifier.svg.is_err() && char_rnn.svg.is_ok());
    }
}
