//! Table 2 and Figure 14: how well predicted costs order mappings by their times.

use super::figure::Figure;
use super::ranking::{Ranking, Summary};
use super::statistics::mean;
use crate::grnn::{TABLE_2, TABLE_2_PROBLEM};
use crate::markdown::{number, table};
use crate::plot::{Words, bars};
use crate::predictions::{Prediction, plot, table_2};

/// Times over that of the fastest mapping: the one ranked first, the best of the first five, the middle of the sample.
fn over_oracle(summary: &Summary) -> [Option<f64>; 3] {
    let Summary { top_1, top_5, median, oracle, .. } = *summary;
    [top_1, top_5, median].map(|time| Some(time? / oracle?))
}

/// The mean over sizes of one of these ratios.
fn mean_over_oracle(rankings: &[Ranking], at: usize) -> Option<f64> {
    mean(rankings.iter().filter_map(|of| over_oracle(&of.summary())[at]))
}

/// Means over sizes: the time of the mapping that is ranked first, and of the best of the first five, over that of the fastest.
pub(super) fn means_over_oracle(rankings: &[Ranking]) -> [Option<f64>; 2] {
    [0, 1].map(|at| mean_over_oracle(rankings, at))
}

/// Table 2's mappings, by the ranking of their size.
fn of_table_2(rankings: &[Ranking]) -> Vec<Prediction> {
    let ranking = rankings.iter().find(|ranking| ranking.of == TABLE_2_PROBLEM);
    let all = ranking.map(Ranking::predictions).unwrap_or_default();
    let find = |row| all.iter().find(|of: &&Prediction| of.mapping == row).copied();
    TABLE_2.iter().filter_map(|row| find(row.mapping())).collect()
}

/// Both tables. `model` says which constants the costs have.
pub(super) fn tables(rankings: &[Ranking], model: &str) -> String {
    let table_2 = table_2(TABLE_2_PROBLEM, &of_table_2(rankings));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for ranking in rankings {
        let summary = ranking.summary();
        let [top_1, top_5, median] = over_oracle(&summary);
        let sizes = [ranking.of.hidden, ranking.of.rows, ranking.count, ranking.measured.len()];
        let numbers = [
            summary.oracle,
            top_1,
            top_5,
            median,
            summary.correlation,
            summary.titan_v_correlation,
        ];
        let sizes = sizes.iter().map(|size| size.to_string());
        rows.push(sizes.chain(numbers.map(number)).collect());
    }
    let blanks = std::iter::repeat_n(String::new(), 4);
    let means = [0, 1, 2].map(|at| number(mean_over_oracle(rankings, at)));
    let means = ["mean".to_owned()].into_iter().chain(blanks).chain(means);
    rows.push(means.chain([String::new(), String::new()]).collect());
    let head = [
        "hidden",
        "batch",
        "mappings that fit",
        "measured",
        "fastest, us a step",
        "top-1 over it",
        "top-5",
        "median",
        "rank correlation",
        "with the paper's constants",
    ];
    let figure_14 = table(&head, &rows);
    format!(
        "Table 2: LSTM of 256 units, 20 rows, without the products of x; costs with {model}:\n\n{table_2}\n\
         Figure 14: LSTM, times over that of the fastest mapping that was measured; the paper's means: top-1 1.03, top-5 1.02:\n\n{figure_14}\n"
    )
}

/// Figure 14, and plots of times over predicted costs: of Table 2's size, and of all.
pub(super) fn figures(rankings: &[Ranking]) -> Vec<Figure> {
    let names: Vec<String> = rankings
        .iter()
        .map(|ranking| format!("{}, {}", ranking.of.hidden, ranking.of.rows))
        .collect();
    let ratios: Vec<_> = rankings.iter().map(|of| over_oracle(&of.summary())).collect();
    let series = ["top-1", "best of top-5", "median of the sample"].into_iter().enumerate();
    let series = series.map(|(at, name)| {
        (name.to_owned(), ratios.iter().map(|ratios| ratios[at]).collect::<Vec<_>>())
    });
    let title = "LSTM: time over that of the fastest mapping";
    let words = Words { title, x: "hidden size, batch", y: "ratio" };
    let figure_14 = bars(words, &names, &series.collect::<Vec<_>>());

    let named = of_table_2(rankings);
    let others = rankings.iter().filter(|ranking| ranking.of == TABLE_2_PROBLEM);
    let mut others: Vec<_> = others.flat_map(Ranking::predictions).collect();
    others.retain(|other| named.iter().all(|of| of.mapping != other.mapping));
    let sets = [("Table 2's".to_owned(), named), ("others".to_owned(), others)];
    let of_one_size = plot("Mappings of an LSTM of 256 units, 20 rows", &sets);

    let mut sizes: Vec<usize> = rankings.iter().map(|ranking| ranking.of.hidden).collect();
    sizes.dedup();
    let sets = sizes.into_iter().map(|hidden| {
        let of_it = rankings.iter().filter(|ranking| ranking.of.hidden == hidden);
        (format!("{hidden} units"), of_it.flat_map(Ranking::predictions).collect())
    });
    let of_all = plot("Mappings of LSTMs of all sizes", &sets.collect::<Vec<_>>());
    vec![
        Figure::new("figure-14", figure_14),
        Figure::new("table-2", of_one_size),
        Figure::new("predictions", of_all),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::ranking::Sample;
    use super::super::ranking::tests::{gpu, of_table_2 as ranking_of_table_2};
    use super::super::times::Outcome;
    use super::*;

    #[test]
    fn tables_have_a_row_for_each_size_and_for_each_mapping_of_table_2() {
        let sample = Sample { count: 4, seed: 1 };
        let small = Ranking::measure((64, 1), gpu(), sample, &mut |_, _| Outcome::Time(2.0));
        let rankings = [small, ranking_of_table_2()];
        let text = tables(&rankings, "the paper's constants");
        assert_eq!(text.matches("| 32 x 2 |").count(), 5, "{text}");
        assert!(text.contains("\n| 64 | 1 |"));
        let fields: Vec<&str> =
            text.lines().find(|of| of.starts_with("| 64")).unwrap().split(" | ").collect();
        assert_eq!(fields[4..8], ["2.00", "1.00", "1.00", "1.00"]);
        assert!(text.contains("\n| mean |  |  |  |  | 1.00 | 1.00 | "), "{text}");
        assert!(figures(&rankings).iter().all(|figure| figure.svg.is_ok()));
    }

    #[test]
    fn without_times_there_are_tables_and_no_figures() {
        let sample = Sample { count: 2, seed: 1 };
        let no = |_, _| Outcome::LeftOut("no GPU".to_owned());
        let rankings = [Ranking::measure((256, 20), gpu(), sample, &mut { no })];
        assert!(tables(&rankings, "").contains("| 32 x 2 | 32 | 8 | - |"));
        assert!(figures(&rankings).iter().all(|figure| figure.svg.is_err()));
    }
}
