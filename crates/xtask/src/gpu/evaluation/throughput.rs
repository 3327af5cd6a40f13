//! Figure 13: the share of the GPU's peak throughput in f32 that products of x and h reach.

use super::figure::Figure;
use super::jobs::{Operator, of_table_1};
use super::latencies::groups;
use super::peak::Peak;
use super::peers::PYTORCH;
use super::statistics::mean;
use super::times::{OWN, Times};
use crate::grnn::{TABLE_1, TITAN_V_FLOPS, Table1};
use crate::markdown::{number, table};
use crate::plot::{Words, bars};

/// The shares of LSTMs in percent, for each row of Table 1: this project's, PyTorch's, and the paper's by its Table 1 and its Titan V.
fn shares(times: &Times, peak: &Peak) -> [(&'static str, Vec<Option<f64>>); 3] {
    let share = |system: Option<&str>, row: &Table1| {
        let job = of_table_1(Operator::Lstm, row);
        let (ms, flops) = match system {
            Some(system) => (times.ms(system, job)?, peak.flops),
            None => (row.lstm_ms, TITAN_V_FLOPS),
        };
        Some(100.0 * job.flops() / (ms / 1e3) / flops)
    };
    let shares = |system| TABLE_1.iter().map(|row| share(system, row)).collect();
    [(OWN, Some(OWN)), (PYTORCH, Some(PYTORCH)), ("GRNN, paper", None)]
        .map(|(title, system)| (title, shares(system)))
}

/// The figure's numbers, with their means in the last row.
pub(super) fn figure_13_table(times: &Times, peak: &Peak) -> String {
    let shares = shares(times, peak);
    let head: Vec<&str> =
        ["hidden, batch"].into_iter().chain(shares.iter().map(|of| of.0)).collect();
    let row = |name: String, number_of: &dyn Fn(&[Option<f64>]) -> Option<f64>| {
        let numbers = shares.iter().map(|of| number(number_of(&of.1)));
        std::iter::once(name).chain(numbers).collect()
    };
    let of_sizes = groups().into_iter().enumerate().map(|(at, name)| row(name, &|of| of[at]));
    let mut rows: Vec<Vec<String>> = of_sizes.collect();
    rows.push(row("mean".to_owned(), &|of| mean(of.iter().flatten().copied())));
    let text = table(&head, &rows);
    format!(
        "LSTM, percent of the peak in f32, {:.1} TFLOP/s ({}):\n\n{text}\n",
        peak.flops / 1e12,
        peak.source
    )
}

/// The figure.
pub(super) fn figure_13(times: &Times, peak: &Peak) -> Figure {
    let series = shares(times, peak).map(|(title, shares)| (title.to_owned(), shares));
    let title = "LSTM: share of the peak throughput in f32";
    let words = Words { title, x: "hidden size, batch", y: "percent" };
    Figure::new("figure-13", bars(words, &groups(), &series))
}

#[cfg(test)]
mod tests {
    use super::super::times::Outcome;
    use super::*;

    fn peak() -> Peak {
        Peak { flops: TITAN_V_FLOPS, source: "the paper".to_owned() }
    }

    /// "GRNN on average achieves 15.7% of the GPU's theoretical throughput" (section 8.2): operations are counted as there.
    #[test]
    fn the_papers_times_give_its_share() {
        let [.., (_, shares)] = shares(&Times::default(), &peak());
        let mean = mean(shares.into_iter().flatten()).unwrap();
        assert!((mean - 15.7).abs() < 0.4, "{mean}");
    }

    #[test]
    fn own_shares_follow_from_times() {
        let mut times = Times::default();
        for row in &TABLE_1 {
            times.add(OWN, of_table_1(Operator::Lstm, row), Outcome::Time(row.lstm_ms / 2.0));
        }
        let [(_, own), (_, pytorch), (_, paper)] = shares(&times, &peak());
        assert_eq!(own[4], paper[4].map(|paper| 2.0 * paper));
        assert!(pytorch.iter().all(Option::is_none));
        let text = figure_13_table(&times, &peak());
        assert!(text.starts_with("LSTM, percent of the peak in f32, 13.7 TFLOP/s (the paper):"));
        assert_eq!(text.trim_end().lines().last().unwrap().matches(" | ").count(), 3, "{text}");
        assert!(figure_13(&times, &peak()).svg.is_ok());
    }
}
