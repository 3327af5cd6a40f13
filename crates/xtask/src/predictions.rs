//! Predicted costs of an LSTM's mappings beside their measured times, as in GRNN's Table 2, and the file of times that
//! `cargo xtask gpu --only evaluation` writes.

use std::path::Path;

use anyhow::{Context, ensure};
use batchmaker_cuda::mapping::{Cost, CostModel, Mapping, Problem};
use serde_json::{Value, json};

use crate::grnn;
use crate::markdown::{number, table};
use crate::plot::{Point, Scale, Words, points};

/// The key of the list of [`MappingTime`]s in a file of an evaluation.
pub(crate) const KEY: &str = "mappings";

/// The measured time of a mapping of an LSTM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MappingTime {
    pub(crate) hidden: usize,
    /// Rows of the batch.
    pub(crate) rows: usize,
    pub(crate) mapping: Mapping,
    /// Microseconds of a step.
    pub(crate) step_us: f64,
}

impl MappingTime {
    /// Those of the paper's Table 2.
    pub(crate) fn of_the_paper() -> Vec<Self> {
        let Problem { hidden, rows, .. } = grnn::TABLE_2_PROBLEM;
        let new = |row: grnn::Table2| {
            let step_us = row.ms * 1e3 / f64::from(grnn::STEPS);
            Self { hidden, rows, mapping: row.mapping(), step_us }
        };
        grnn::TABLE_2.map(new).to_vec()
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let Self { hidden, rows, mapping, step_us } = *self;
        let Mapping { tile_width, tile_height, groups, lanes } = mapping;
        json!({
            "cell": "lstm",
            "hidden": hidden,
            "rows": rows,
            "tile_width": tile_width,
            "tile_height": tile_height,
            "groups": groups,
            "lanes": lanes,
            "step_us": step_us,
        })
    }

    /// From JSON; none of a mapping that has no time.
    fn parse(of: &Value) -> Option<Self> {
        let size = |key: &str| Some(of.get(key)?.as_u64()? as usize);
        let mapping = Mapping {
            tile_width: size("tile_width")?,
            tile_height: size("tile_height")?,
            groups: size("groups")?,
            lanes: size("lanes")?,
        };
        let step_us = of.get("step_us")?.as_f64()?;
        Some(Self { hidden: size("hidden")?, rows: size("rows")?, mapping, step_us })
    }

    /// Those of a file of an evaluation.
    ///
    /// # Errors
    /// The file cannot be read, is of another form, or has no time.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Self>> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read '{}'", path.display()))?;
        let file: Value = serde_json::from_str(&text)
            .with_context(|| format!("'{}' is no JSON", path.display()))?;
        let times = file.get(KEY).and_then(Value::as_array);
        let times: Vec<Self> = times.into_iter().flatten().filter_map(Self::parse).collect();
        ensure!(!times.is_empty(), "'{}' has no times of mappings", path.display());
        Ok(times)
    }
}

/// A mapping's predicted cost and its measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prediction {
    pub(crate) mapping: Mapping,
    /// The rank of its cost among all mappings that fit, from 1; none if it does not fit.
    pub(crate) rank: Option<usize>,
    pub(crate) cost: Cost,
    /// Microseconds of a step; none where none is measured.
    pub(crate) step_us: Option<f64>,
}

impl Prediction {
    /// The predictions for mappings whose times are known; `ranked` are all mappings that fit, in the order of their costs.
    pub(crate) fn of(
        times: &[MappingTime],
        of: Problem,
        model: &CostModel,
        ranked: &[(Mapping, Cost)],
    ) -> Vec<Self> {
        let are_of_it =
            times.iter().filter(|time| (time.hidden, time.rows) == (of.hidden, of.rows));
        let predict = |time: &MappingTime| {
            let MappingTime { mapping, step_us, .. } = *time;
            let place = ranked.iter().position(|(other, _)| *other == mapping);
            let (rank, cost) = (place.map(|place| place + 1), model.cost(of, mapping));
            Self { mapping, rank, cost, step_us: Some(step_us) }
        };
        are_of_it.map(predict).collect()
    }
}

/// A table as the paper's Table 2: milliseconds of [`grnn::STEPS`] steps, costs in multiply-adds of a thread, with the paper's own where it has them.
pub(crate) fn table_2(of: Problem, predictions: &[Prediction]) -> String {
    let row = |prediction: &Prediction| {
        let Prediction { mapping, rank, cost, step_us } = *prediction;
        let Mapping { tile_width, tile_height, groups, lanes } = mapping;
        let paper = grnn::TABLE_2.iter().find(|row| row.mapping() == mapping);
        let paper = paper.filter(|_| of == grnn::TABLE_2_PROBLEM);
        vec![
            format!("{tile_width} x {tile_height}"),
            groups.to_string(),
            lanes.to_string(),
            number(step_us.map(sequence_ms)),
            format!("{:.0}", cost.total()),
            rank.map_or("-".to_owned(), |rank| rank.to_string()),
            paper.map_or("-".to_owned(), |paper| {
                format!("{} ({})", number(Some(paper.ms)), paper.rank)
            }),
        ]
    };
    let head = [
        "tile",
        "work groups",
        "group size",
        "ms of 100 steps",
        "cost",
        "rank",
        "the paper's ms (rank)",
    ];
    table(&head, &predictions.iter().map(row).collect::<Vec<_>>())
}

/// The milliseconds of a sequence whose steps take so many microseconds.
pub(crate) fn sequence_ms(step_us: f64) -> f64 {
    step_us * f64::from(grnn::STEPS) / 1e3
}

/// A plot of measured times over predicted costs, a point a mapping, for each of some named sets. Points of sets of a few mappings are named by their work
/// groups and the size of these.
pub(crate) fn plot(title: &str, sets: &[(String, Vec<Prediction>)]) -> anyhow::Result<String> {
    let point = |prediction: &Prediction, is_named: bool| {
        let Mapping { groups, lanes, .. } = prediction.mapping;
        let label = if is_named { format!("{groups} x {lanes}") } else { String::new() };
        let (x, y) = (prediction.cost.total(), sequence_ms(prediction.step_us?));
        Some(Point { x, y, label })
    };
    let series = sets.iter().map(|(name, of)| {
        let are_named = of.len() <= 8 && sets.len() <= 2;
        (name.clone(), of.iter().filter_map(|of| point(of, are_named)).collect())
    });
    let words = Words {
        title,
        x: "predicted cost of a step, multiply-adds of a thread",
        y: "measured, ms of 100 steps",
    };
    points(words, Scale::Logarithmic, &series.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use batchmaker_cuda::mapping::Limits;

    use super::*;

    fn of_the_paper() -> Vec<Prediction> {
        let (of, model) = (grnn::TABLE_2_PROBLEM, CostModel::TITAN_V);
        let ranked = model.rank(of, Mapping::all(of, Limits::of(80)));
        Prediction::of(&MappingTime::of_the_paper(), of, &model, &ranked)
    }

    #[test]
    fn the_papers_table_has_its_costs_and_times() {
        let text = table_2(grnn::TABLE_2_PROBLEM, &of_the_paper());
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 5);
        let costs = [449, 323, 252, 443, 561].map(|cost| format!(" | {cost} | "));
        for ((line, row), cost) in lines.iter().zip(grnn::TABLE_2).zip(costs) {
            let begin = format!("| 32 x 2 | {} | {} | {:.3} | ", row.groups, row.lanes, row.ms);
            let end = format!("| {:.3} ({}) |", row.ms, row.rank);
            assert!(line.starts_with(&begin) && line.ends_with(&end), "{line}");
            assert!(line.contains(&cost), "{line}");
        }
    }

    #[test]
    fn the_papers_plot_names_its_mappings() {
        let svg = plot("Table 2", &[("the paper".to_owned(), of_the_paper())]).unwrap();
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("\n32 x 8\n</text>"));
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let times = MappingTime::of_the_paper();
        let mut written: Vec<_> = times.iter().map(MappingTime::json).collect();
        written.push(json!({ "hidden": 64, "rows": 1, "left_out": "the GPU cannot run it" }));
        let path = std::env::temp_dir().join(format!("evaluation-{}.json", std::process::id()));
        std::fs::write(&path, json!({ KEY: written }).to_string()).unwrap();
        let read = MappingTime::read(&path);
        std::fs::write(&path, "{}").unwrap();
        let of_nothing = MappingTime::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), times);
        assert!(of_nothing.unwrap_err().to_string().contains("no times"));
        assert!(MappingTime::read(&path).is_err());
    }
}
