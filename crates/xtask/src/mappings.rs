//! `cargo xtask mappings`: how GRNN's cost model ranks the mappings of a persistent kernel.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use batchmaker_cuda::mapping::{Cost, CostModel, Limits, Mapping, Problem};
use clap::{Args, ValueEnum};

use crate::predictions::{self, MappingTime, Prediction};

pub(crate) const EXAMPLES: &str = "\
examples:
  cargo xtask mappings                                             the paper's Table 2: LSTM of 256 units, 20 rows, Titan V
  cargo xtask mappings --tile 32x2                                 only tiles of 32 units and 2 rows, as there
  cargo xtask mappings --cell gru --hidden 1024 --rows 10 --multiprocessors 132
  cargo xtask mappings --plot target/table-2.svg                   Table 2 with a plot of its times over the predicted costs
  cargo xtask mappings --multiprocessors 132 --measured target/gpu/evaluation.json --plot target/table-2.svg
                                                                   with the times that `cargo xtask gpu --only evaluation` measured";

/// What to rank.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The recurrent operator
    #[arg(long, value_enum, default_value = "lstm")]
    cell: Cell,
    /// Units of the hidden state
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=8192))]
    hidden: u16,
    /// Rows of a batch
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=4096))]
    rows: u16,
    /// Multiprocessors of the GPU
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..=1024))]
    multiprocessors: u16,
    /// Only mappings of this tile, units by rows
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = tile)]
    tile: Option<[usize; 2]>,
    /// The number of mappings to list
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Draw times over predicted costs into this SVG file: those of an LSTM's mappings that the paper's Table 2 has, or of `--measured`
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Put the times of this file beside the costs: what `cargo xtask gpu --only evaluation` wrote
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
}

/// A recurrent operator.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cell {
    Lstm,
    Gru,
    Rnn,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Rnn => 1,
        }
    }
}

fn tile(text: &str) -> Result<[usize; 2], &'static str> {
    let sides = text
        .split_once('x')
        .and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
    sides.filter(|sides| !sides.contains(&0)).ok_or("expected two numbers, such as 32x2")
}

/// Prints the best mappings with their costs.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { cell, hidden, rows, multiprocessors, tile, top, .. } = *arguments;
    let of = Problem { hidden: hidden.into(), gates: cell.gates(), rows: rows.into() };
    let multiprocessors = usize::from(multiprocessors);
    let mappings = Mapping::all(of, Limits::of(multiprocessors));
    ensure!(
        !mappings.is_empty(),
        "no mapping has its weights in the registers of {multiprocessors} multiprocessors: the cell runs step by step"
    );
    let model = CostModel { multiprocessors: multiprocessors as f64, ..CostModel::TITAN_V };
    let count = mappings.len();
    let ranked = model.rank(of, mappings);
    let is_wanted = |mapping: &Mapping| {
        tile.is_none_or(|tile| tile == [mapping.tile_width, mapping.tile_height])
    };
    println!(
        "{count} mappings fit; costs in multiply-adds of a thread, with the paper's constants (Titan V)\n"
    );
    println!(
        "| rank | tile | work groups | group size | weights a thread | loads | products | reduction | cost |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let wanted = ranked.iter().enumerate().filter(|(_, (mapping, _))| is_wanted(mapping));
    for (at, (mapping, cost)) in wanted.take(top) {
        let Mapping { tile_width, tile_height, groups, lanes } = mapping;
        let (weights, Cost { loads, products, reduction }) = (mapping.weights(of), cost);
        println!(
            "| {} | {tile_width} x {tile_height} | {groups} | {lanes} | {weights} | {loads:.1} | {products:.1} | {reduction:.1} | {:.1} |",
            at + 1,
            cost.total()
        );
    }
    if arguments.plot.is_none() && arguments.measured.is_none() {
        return Ok(());
    }
    ensure!(matches!(cell, Cell::Lstm), "times are those of LSTMs: leave out --cell");
    let times = match &arguments.measured {
        Some(path) => MappingTime::read(path)?,
        None => MappingTime::of_the_paper(),
    };
    let predictions = Prediction::of(&times, of, &model, &ranked);
    ensure!(!predictions.is_empty(), "there are no times of {hidden} units and {rows} rows");
    println!("\n{}", predictions::table_2(of, &predictions));
    match &arguments.plot {
        Some(path) => draw(path, of, arguments.measured.is_some(), predictions),
        None => Ok(()),
    }
}

/// Writes the plot of times over costs.
fn draw(
    path: &Path,
    of: Problem,
    is_measured: bool,
    predictions: Vec<Prediction>,
) -> anyhow::Result<()> {
    let source = if is_measured { "measured" } else { "the paper's Table 2" };
    let Problem { hidden, rows, .. } = of;
    let title = format!("Mappings of an LSTM of {hidden} units, {rows} rows");
    let svg = predictions::plot(&title, &[(source.to_owned(), predictions)])?;
    std::fs::write(path, svg).with_context(|| format!("cannot write '{}'", path.display()))?;
    println!("plotted {}", path.display());
    Ok(())
}
