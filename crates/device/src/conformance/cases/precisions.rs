//! Fused cells in bfloat16 and int8: each node against the equations over rounded numbers, and bits
//! that do not depend on the batch.

use batchmaker_graph::{Cell, CellBody, Precision, RecurrentKind};

use crate::conformance::case::{Case, Check, Outcome};
use crate::conformance::cases::chains::{chains, play};
use crate::conformance::cases::{row_wise, trees};
use crate::conformance::cells::{self, ChainCell, TREE_SIZES, tree};
use crate::conformance::compare::{TOLERANCE, same_bits};
use crate::conformance::graphs::{Request, Sinks};
use crate::conformance::harness::Harness;
use crate::conformance::oracle::check_each_node;
use crate::conformance::schedule::{Form, Schedule};
use crate::conformance::subject::Subject;

/// The tolerance of cells whose matrix is multiplied with the reset h, which a node computes
/// itself. Where an element of it is within an f32's error of the middle between two numbers of the
/// precision, the reference may round it to the other: one of a few dozen terms, each below 1, is
/// off by up to 2^-8 of it in bfloat16, by 1/127 in int8, times a weight of up to 0.3.
const TOLERANCE_OF_RESET_BEFORE: f64 = 3e-3;

type Body = Box<dyn Fn(&dyn Subject) -> Check + Send + Sync>;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for cell in ChainCell::of_bytes() {
        let name = format!("precisions/{}", cell.name);
        let of_bytes = move |subject: &dyn Subject| match subject.runs_lstms_of_bytes() {
            true => chain(subject, &cell.cell()).map(|()| Outcome::Passed),
            false => Ok(Outcome::Skipped("runs no LSTM of bytes".to_owned())),
        };
        cases.push(Case::skippable(name, of_bytes));
    }
    for precision in [Precision::Bf16, Precision::Int8] {
        let case = |what: &str, body: Body| {
            let name = format!("precisions/{precision}: {what}");
            Case::skippable(name, move |subject| match subject.precisions().contains(&precision) {
                true => body(subject).map(|()| Outcome::Passed),
                false => Ok(Outcome::Skipped(format!("not in {precision}"))),
            })
        };
        for cell in ChainCell::all() {
            let of_cell =
                move |subject: &dyn Subject| chain(subject, &cell.cell().in_precision(precision));
            let has_equations = matches!(cell.cell().body, CellBody::Recurrent(_));
            // No output shows the values between the operators of a composite cell: only bits are
            // compared.
            if !cell.cell().has_precisions() {
                continue;
            }
            let what = if has_equations { "" } else { ", bits" };
            let case = case(&format!("{}{what}", cell.name), Box::new(of_cell));
            cases.push(if cell.has_programs { case.with_programs() } else { case });
        }
        for (size, name) in TREE_SIZES.into_iter().zip(["trees", "trees, wide"]) {
            for (is_over_embedding, leaves) in [(false, "rows"), (true, "ids")] {
                let of_cells = move |subject: &dyn Subject| {
                    let cells = tree(is_over_embedding, size);
                    trees(subject, &cells.map(|cell| cell.in_precision(precision)))
                };
                cases.push(case(&format!("{name}, leaves with {leaves}"), Box::new(of_cells)));
            }
        }
        let of_arg_max = move |subject: &dyn Subject| {
            arg_max(subject, &cells::arg_max(cells::random_linear()).in_precision(precision))?;
            arg_max(
                subject,
                &cells::arg_max(cells::linear_with_equal_sums()).in_precision(precision),
            )
        };
        cases.push(case("linear layer with arg-max", Box::new(of_arg_max)));
    }
    cases
}

fn chain(subject: &dyn Subject, cell: &Cell) -> Check {
    let requests: Vec<Request> =
        chains(cell, Sinks::All).iter().map(|chain| chain.request(cell)).collect();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let (together, _) = play(&mut harness, &requests, Schedule::of(Form::Roster))?;
    if let CellBody::Recurrent(recurrent) = &cell.body {
        let tolerance = match recurrent.kind {
            RecurrentKind::Gru { linear_before_reset: false } => TOLERANCE_OF_RESET_BEFORE,
            _ => TOLERANCE,
        };
        for (at, (request, outputs)) in requests.iter().zip(&together).enumerate() {
            let checked = check_each_node(&harness.cells, request, outputs, tolerance);
            checked.map_err(|reason| format!("chain {at}: {reason}"))?;
        }
    }
    let (rows, _) = play(&mut harness, &requests, Schedule::of(Form::Rows))?;
    for (at, request) in requests.iter().enumerate() {
        same_bits(&format!("chain {at} as explicit rows"), &rows[at], &together[at])?;
        let one = std::slice::from_ref(request);
        let (alone, _) = play(&mut harness, one, Schedule::of(Form::Roster))?;
        same_bits(&format!("chain {at} alone"), &alone[0], &together[at])?;
    }
    // Without sinks that would split a task into steps.
    let first: Vec<Request> =
        chains(cell, Sinks::First).iter().map(|chain| chain.request(cell)).collect();
    let many: Vec<Request> = (0..5).flat_map(|_| first.clone()).collect();
    let (many, _) = play(&mut harness, &many, Schedule::of(Form::Roster))?;
    for (at, outputs) in many.iter().enumerate() {
        let expected = &together[at % together.len()];
        same_bits(&format!("chain {at} of many"), &outputs[..1], &expected[..1])?;
    }
    Ok(())
}

fn trees(subject: &dyn Subject, cells: &[Cell]) -> Check {
    let mut harness = Harness::new(subject, cells.to_vec())?;
    let requests = trees::requests(cells);
    let together = trees::play(&mut harness, &requests)?;
    for (at, (request, outputs)) in requests.iter().zip(&together).enumerate() {
        let checked = check_each_node(cells, request, outputs, TOLERANCE);
        checked.map_err(|reason| format!("tree {at}: {reason}"))?;
        let alone = trees::play(&mut harness, std::slice::from_ref(request))?;
        same_bits(&format!("tree {at} alone"), &alone[0], outputs)?;
    }
    Ok(())
}

fn arg_max(subject: &dyn Subject, cell: &Cell) -> Check {
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = row_wise::requests(cell);
    let together = row_wise::play(&mut harness, &requests)?;
    for (request, outputs) in requests.iter().zip(&together) {
        harness.check(request, outputs)?;
    }
    row_wise::row_by_row(&mut harness, &requests, &together)
}
