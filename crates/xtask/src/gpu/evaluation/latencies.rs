//! Table 1, and its speedups over DeepCPU: Figures 11 and 12.

use super::figure::Figure;
use super::jobs::{Operator, of_table_1};
use super::peers::PEERS;
use super::statistics::geometric_mean;
use super::times::{OWN, Times};
use crate::grnn::{TABLE_1, Table1};
use crate::markdown::{number, table};
use crate::plot::{Words, bars};

/// What the paper has of an operator: a title, and the milliseconds of a row of Table 1.
type Published = (&'static str, fn(&Table1) -> f64);

const OF_LSTM: [Published; 4] = [
    ("GRNN, paper", |row| row.lstm_ms),
    ("cuDNN traditional, paper", |row| row.cudnn_traditional_ms),
    ("cuDNN persistent, paper", |row| row.cudnn_persistent_ms),
    ("DeepCPU, paper", |row| row.lstm_deepcpu_ms),
];
const OF_GRU: [Published; 2] =
    [("GRNN, paper", |row| row.gru_ms), ("DeepCPU, paper", |row| row.gru_deepcpu_ms)];

/// The paper's columns for an operator. Its GRU has the reset gate before the product.
fn published(operator: Operator) -> &'static [Published] {
    match operator {
        Operator::Lstm => &OF_LSTM,
        Operator::GruResetBefore => &OF_GRU,
        Operator::GruResetAfter => &[],
    }
}

/// The systems that have a time of an operator in any size of Table 1.
fn systems(times: &Times, operator: Operator) -> Vec<&'static str> {
    let has = |system: &&str| {
        TABLE_1.iter().any(|row| times.ms(system, of_table_1(operator, row)).is_some())
    };
    let peers = PEERS.iter().map(|peer| peer.title).filter(has);
    std::iter::once(OWN).chain(peers).collect()
}

/// Table 1: for each operator, the milliseconds of a sequence on each system that has any, with the paper's.
pub(super) fn table_1(times: &Times) -> String {
    let of = |operator: Operator| {
        let (systems, published) = (systems(times, operator), published(operator));
        let titles = published.iter().map(|of| of.0);
        let head: Vec<&str> =
            ["hidden", "batch"].into_iter().chain(systems.iter().copied()).chain(titles).collect();
        let rows = TABLE_1.iter().map(|row| {
            let job = of_table_1(operator, row);
            let measured = systems.iter().map(|system| number(times.ms(system, job)));
            let published = published.iter().map(|of| number(Some(of.1(row))));
            let sizes = [row.hidden, row.batch].map(|size| size.to_string());
            sizes.into_iter().chain(measured).chain(published).collect()
        });
        let text = table(&head, &rows.collect::<Vec<_>>());
        format!("{}, ms of 100 steps, with the products of x:\n\n{text}\n", operator.title())
    };
    Operator::ALL.map(of).concat()
}

/// The geometric mean of another system's time over this project's, over the sizes of Table 1 that both have.
pub(super) fn speedup_over(times: &Times, system: &str, operator: Operator) -> Option<f64> {
    geometric_mean(TABLE_1.iter().filter_map(|row| {
        let job = of_table_1(operator, row);
        Some(times.ms(system, job)? / times.ms(OWN, job)?)
    }))
}

/// A line for each other system: how many times its time this project's is faster, by operator.
pub(super) fn comparison(times: &Times) -> String {
    let row = |title: &'static str| {
        let ratios = [Operator::Lstm, Operator::GruResetAfter]
            .map(|operator| speedup_over(times, title, operator));
        let has_any = ratios.iter().any(Option::is_some);
        has_any.then(|| vec![title.to_owned(), number(ratios[0]), number(ratios[1])])
    };
    let rows: Vec<_> = PEERS.iter().filter_map(|peer| row(peer.title)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["its time over BatchMaker's, geometric mean", "LSTM", "GRU, reset after"];
    table(&head, &rows) + "\n"
}

/// A series of speedups, for each row of Table 1.
type Series = (String, Vec<Option<f64>>);

/// The speedups over DeepCPU of systems with an operator, and of the paper's.
fn speedups(times: &Times, operator: Operator, deepcpu_ms: fn(&Table1) -> f64) -> Vec<Series> {
    let is_gru = operator != Operator::Lstm;
    let measured = systems(times, operator).into_iter().map(|system| {
        let ratio = |row| Some(deepcpu_ms(row) / times.ms(system, of_table_1(operator, row))?);
        let name = match operator {
            Operator::GruResetBefore => format!("{system}, reset before"),
            _ if is_gru => format!("{system}, reset after"),
            _ => system.to_owned(),
        };
        (name, TABLE_1.iter().map(ratio).collect())
    });
    let published = published(operator).iter().filter(|of| !of.0.starts_with("DeepCPU"));
    let published = published.map(|of| {
        (of.0.to_owned(), TABLE_1.iter().map(|row| Some(deepcpu_ms(row) / of.1(row))).collect())
    });
    let all = measured.chain(published);
    all.filter(|(_, ratios): &Series| ratios.iter().any(Option::is_some)).collect()
}

/// Figures 11 and 12: speedups over the DeepCPU of the paper, which nobody has run here. Systems whose GRU has the reset gate after the product compute
/// another function than DeepCPU's GRU of Figure 12.
pub(super) fn figures_11_and_12(times: &Times) -> Vec<Figure> {
    let lstm = speedups(times, Operator::Lstm, |row| row.lstm_deepcpu_ms);
    let [before, after] = [Operator::GruResetBefore, Operator::GruResetAfter]
        .map(|operator| speedups(times, operator, |row| row.gru_deepcpu_ms));
    let gru = [before, after].concat();
    [("figure-11", "LSTM", lstm), ("figure-12", "GRU", gru)]
        .into_iter()
        .map(|(name, operator, series)| {
            let title = format!("{operator}: speedup over DeepCPU (the paper's times of it)");
            let words = Words { title: &title, x: "hidden size, batch", y: "times as fast" };
            Figure::new(name, bars(words, &groups(), &series))
        })
        .collect()
}

/// The names of the sizes of Table 1.
pub(super) fn groups() -> Vec<String> {
    TABLE_1.iter().map(|row| format!("{}, {}", row.hidden, row.batch)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::peers::PYTORCH;
    use super::super::times::Outcome;
    use super::*;

    /// Own LSTMs take half of the time of DeepCPU, PyTorch's a quarter; own GRUs a tenth.
    fn times() -> Times {
        let mut times = Times::default();
        for row in &TABLE_1 {
            let ms = row.lstm_deepcpu_ms;
            let lstm = of_table_1(Operator::Lstm, row);
            times.add(OWN, lstm, Outcome::Time(ms / 2.0));
            times.add(PYTORCH, lstm, Outcome::Time(ms / 4.0));
            let gru = of_table_1(Operator::GruResetBefore, row);
            times.add(OWN, gru, Outcome::Time(row.gru_deepcpu_ms / 10.0));
        }
        times
    }

    #[test]
    fn table_1_has_systems_that_have_times_and_the_papers() {
        let text = table_1(&times());
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("| hidden")).collect();
        let paper =
            "GRNN, paper | cuDNN traditional, paper | cuDNN persistent, paper | DeepCPU, paper";
        let lstm = format!("| hidden | batch | BatchMaker | PyTorch | {paper} |");
        let before = "| hidden | batch | BatchMaker | GRNN, paper | DeepCPU, paper |";
        assert_eq!(heads, [&lstm, "| hidden | batch | BatchMaker |", before]);
        assert!(text.contains("\n| 1024 | 20 | 34.0 | 17.0 | 8.01 | 8.51 | 18.4 | 68.0 |\n"));
        assert!(text.contains("\n| 64 | 1 | - |\n"), "{text}");
    }

    #[test]
    fn speedups_are_over_the_papers_deepcpu() {
        let series = speedups(&times(), Operator::Lstm, |row| row.lstm_deepcpu_ms);
        let names: Vec<_> = series.iter().map(|(name, _)| name.as_str()).collect();
        let paper = ["GRNN, paper", "cuDNN traditional, paper", "cuDNN persistent, paper"];
        assert_eq!(names, [&[OWN, PYTORCH][..], &paper].concat());
        assert_eq!((series[0].1[3], series[1].1[8]), (Some(2.0), Some(4.0)));
        // Section 8.2: up to 17.5 times as fast as DeepCPU, by times that are less rounded.
        let best = series[2].1.iter().flatten().fold(0.0, |best: f64, of| best.max(*of));
        assert!((best - 17.5).abs() < 0.1, "{best}");
        assert_eq!(speedup_over(&times(), PYTORCH, Operator::Lstm), Some(0.5));
        assert!(comparison(&times()).contains("\n| PyTorch | 0.500 | - |\n"));
        assert_eq!(comparison(&Times::default()), "");
    }

    #[test]
    fn figures_are_drawn() {
        let figures = figures_11_and_12(&times());
        assert!(figures.iter().all(|figure| figure.svg.is_ok()));
        assert!(figures[1].svg.as_ref().unwrap().contains("BatchMaker, reset before"));
    }
}
