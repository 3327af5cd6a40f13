//! Products of x ahead of several steps, and steps that begin with them.

use batchmaker_cuda::kernels::batch::{Lookup, Operand};
use batchmaker_cuda::kernels::recurrent::PackedLaunch;
use batchmaker_cuda::kernels::weights::bf16;
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_graph::{Precision, RecurrentCell, RecurrentKind, RnnActivation};

use crate::chains::{Chains, Places, SHAPES, cell, cells};
use crate::harness::{Embedding, Found, SEEDS, bits, bugs, known_id, library, node_of};
use crate::{lstm_of_bytes, recurrent};

const FILE: &str = "project_inputs.cu";

/// The steps that are multiplied at once at each of [`SHAPES`]: rows of one block, and of two.
const STEPS: [usize; 2] = [3, 4];

/// Cells with x in ports, and with ids of an embedding.
const PLACES: [Places; 2] = [Places::Slots, Places::Ids];

/// Weights as a kernel multiplies with them.
fn stored(of: &PackedLaunch, precision: Precision) -> Vec<f32> {
    match precision {
        // Two rows of the matrix lie side by side.
        Precision::Bf16 => {
            let words: Vec<u32> = of.w.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
            let rows = words.chunks(of.projection.unwrap().columns);
            let of_row = |shift| move |word: &u32| f32::from_bits(word << shift >> 16 << 16);
            rows.flat_map(|row| row.iter().map(of_row(16)).chain(row.iter().map(of_row(0))))
                .collect()
        }
        _ => of.w.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect(),
    }
}

/// The sums of a kernel, `[steps, rows, columns]`: one fused multiply-add a term, in order of k.
fn right(chains: &Chains<'_>, of: &PackedLaunch, steps: usize, precision: Precision) -> Vec<f32> {
    let (projection, w) = (of.projection.unwrap(), stored(of, precision));
    let factor = |x: f32| match precision {
        Precision::Bf16 => f32::from_bits(u32::from(bf16(x)) << 16),
        _ => x,
    };
    let sum = |x: &[f32], column: usize| {
        let (unit, gate) = (column / projection.gates, column % projection.gates);
        let bias = of.b[unit * projection.sums_of_unit + gate];
        let terms = x.iter().zip(w[column..].iter().step_by(projection.columns));
        terms.fold(bias, |sum, (&x, &w)| factor(x).mul_add(w, sum))
    };
    let all = (0..steps).flat_map(|step| (0..chains.rows.len()).map(move |row| (step, row)));
    all.flat_map(|(step, row)| {
        let x = chains.x(row, step);
        (0..projection.columns).map(move |column| sum(x, column)).collect::<Vec<_>>()
    })
    .collect()
}

/// Multiplies ahead of some steps. Returns reports, and whether a sum has other bits than it should have.
fn project(
    library: &KernelLibrary,
    chains: &Chains<'_>,
    (steps, precision): (usize, Precision),
    seed: u64,
) -> (Vec<Report>, bool) {
    let (sums, reports) = chains.project(library, &chains.rows, steps, seed);
    let is_wrong = |(of, &at): (&PackedLaunch, &u64)| {
        let right = right(chains, of, steps, precision);
        bits(&[chains.gpu.read(at, right.len())]) != bits(&[right])
    };
    let is_wrong = chains.packed.launches.iter().zip(&sums).any(is_wrong);
    (reports, is_wrong)
}

#[test]
fn products_have_the_bits_of_their_sums() {
    let library = library("right", FILE, None);
    for ([rows, input, hidden], steps) in SHAPES.into_iter().zip(STEPS) {
        for (cell, precision) in cells(recurrent::kinds(hidden), [input, hidden]) {
            for (seed, places) in (0..SEEDS).zip(PLACES.into_iter().cycle()) {
                let chains = Chains::new((&cell, precision), places, rows);
                let (reports, is_wrong) = project(&library, &chains, (steps, precision), seed);
                let of = format!("{precision}, {places:?}, {rows} rows, seed {seed}");
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                assert!(!is_wrong, "{of}");
                assert!(!chains.embedding.has_failed(&chains.gpu), "{of}");
            }
        }
    }
}

/// Steps that begin with products of x: what is reported, and whether states have other bits than those of steps that multiply x themselves.
fn steps_after(
    [project, step]: [&KernelLibrary; 2],
    (cell, precision): (&RecurrentCell, Precision),
    (rows, places): (usize, Places),
) -> (Vec<Report>, bool) {
    let new = || Chains::new((cell, precision), places, rows);
    let (own, mut after) = (new(), new());
    let mut reports = own.run(step, 0);
    let (sums, of_project) = after.project(project, &after.rows, 1, 0);
    reports.extend(of_project);
    // The products are all that the step has of x.
    (after.arguments.x, after.arguments.lookup) = (Operand::NOWHERE, Lookup::NONE);
    reports.extend(after.run_after(step, &after.rows, &sums, 0));
    let is_wrong = (0..rows).any(|row| bits(&after.after(row)) != bits(&own.after(row)));
    (reports, is_wrong || after.is_wrong())
}

/// The files of steps, and the cells whose x may be multiplied ahead.
fn files(hidden: usize) -> [(&'static str, Vec<RecurrentKind>); 2] {
    let of_bytes = lstm_of_bytes::kinds(hidden).into_iter().take(1).collect();
    [(recurrent::FILE, recurrent::kinds(hidden)), (lstm_of_bytes::FILE, of_bytes)]
}

#[test]
fn steps_after_products_have_the_bits_of_their_own() {
    let project = library("before-steps", FILE, None);
    for [rows, input, hidden] in SHAPES {
        for (file, kinds) in files(hidden) {
            let step = library("after-products", file, None);
            for (cell, precision) in cells(kinds, [input, hidden]) {
                for places in PLACES {
                    let of = (&cell, precision);
                    let (reports, is_wrong) = steps_after([&project, &step], of, (rows, places));
                    assert!(reports.is_empty(), "{}", reports[0]);
                    assert!(!is_wrong, "{file}, {precision}, {places:?}");
                }
            }
        }
    }
}

#[test]
fn lanes_that_exchange_numbers_have_the_sums_of_one_instruction() {
    let by_lanes = [
        "mma_bf16(sums, weights.of, vectors);",
        "add_product_by_lanes(sums, weights.of, vectors);",
    ];
    let library = library("by-lanes", FILE, Some(by_lanes));
    let precision = Precision::Bf16;
    for ([rows, input, hidden], steps) in SHAPES.into_iter().zip(STEPS) {
        let cell = cell(RecurrentKind::Rnn { activation: RnnActivation::Tanh }, input, hidden);
        let chains = Chains::new((&cell, precision), Places::Slots, rows);
        let (reports, is_wrong) = project(&library, &chains, (steps, precision), 0);
        assert!(reports.is_empty(), "{}", reports[0]);
        assert!(!is_wrong, "{rows} rows");
    }
}

/// Some steps, of which one of one row has an id that its embedding lacks.
#[derive(Clone, Copy, Debug)]
struct Unknown {
    row: usize,
    node: usize,
}

impl Unknown {
    const STEPS: usize = 3;

    fn all() -> impl Iterator<Item = Self> {
        (0..SHAPES[0][0]).flat_map(|row| (0..5).map(move |node| Self { row, node }))
    }

    /// Whether the node is one of the steps.
    fn is_reached(self, chains: &Chains<'_>) -> bool {
        let row = &chains.rows[self.row];
        let nodes = node_of(row)..(node_of(row) + Self::STEPS).min(row.length as usize);
        nodes.contains(&self.node)
    }

    /// Returns reports, and whether x of the node is other than zeros, or the product fails where it should not, or the other way round.
    fn run(self, library: &KernelLibrary) -> (Vec<Report>, bool) {
        let [rows, input, hidden] = SHAPES[0];
        let kind = RecurrentKind::Rnn { activation: RnnActivation::Tanh };
        let cell = cell(kind, input, hidden);
        let id_of = |row, node| match (row, node) == (self.row, self.node) {
            true => Embedding::ROWS as i64,
            false => known_id(row, node),
        };
        let of = (&cell, Precision::F32);
        let chains = Chains::with_ids(of, Places::Ids, rows, &id_of);
        let (reports, is_wrong) = project(library, &chains, (Self::STEPS, Precision::F32), 0);
        let has_failed = chains.embedding.has_failed(&chains.gpu);
        (reports, is_wrong || has_failed != self.is_reached(&chains))
    }
}

#[test]
fn an_unknown_id_fails_where_it_is_reached() {
    let library = library("unknown", FILE, None);
    for unknown in Unknown::all() {
        let (reports, is_wrong) = unknown.run(&library);
        assert!(reports.is_empty(), "{unknown:?}: {}", reports[0]);
        assert!(!is_wrong, "{unknown:?}");
    }
}

/// Whether a product shows a bug.
fn shows(library: &KernelLibrary, found: Found) -> bool {
    let shapes = || SHAPES.into_iter().zip(STEPS);
    let seeds = (0..5).flat_map(|seed| shapes().map(move |of| (of, seed)));
    let is_shown = |(([rows, input, hidden], steps), seed): (([usize; 3], usize), u64)| {
        cells(recurrent::kinds(hidden), [input, hidden]).into_iter().any(|(cell, precision)| {
            let chains = Chains::new((&cell, precision), Places::Slots, rows);
            let (reports, is_wrong) = project(library, &chains, (steps, precision), seed);
            found.is_by(&reports, || is_wrong)
        })
    };
    let is_unknown = |of: Unknown| {
        let (reports, is_wrong) = of.run(library);
        found.is_by(&reports, || is_wrong)
    };
    seeds.into_iter().any(is_shown) || Unknown::all().any(is_unknown)
}

/// Whether a bug of steps that begin with products is found.
fn is_found_after(name: &str, replaced: [&str; 2], found: Found) {
    let project = library(&format!("before-{name}"), FILE, None);
    let step = library(name, recurrent::FILE, Some(replaced));
    let [rows, input, hidden] = SHAPES[1];
    let is_found =
        cells(recurrent::kinds(hidden), [input, hidden]).into_iter().any(|(cell, of)| {
            let batch = (rows, Places::Slots);
            let (reports, is_wrong) = steps_after([&project, &step], (&cell, of), batch);
            found.is_by(&reports, || is_wrong)
        });
    assert!(is_found, "{name} is not found");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    assert!(shows(&library(name, FILE, Some(replaced)), found), "{name} is not found");
}

bugs! {
    super::is_found;
    no_barrier_before_filling: "start += DEPTH) {\n    __syncthreads();" => "start += DEPTH) {", Found::By(Fault::DataRace);
    no_barrier_after_filling: "    __syncthreads();\n    const int depth" => "    const int depth", Found::By(Fault::DataRace);
    x_beyond_its_end: "x && start + k < of.input ?" => "x ?", Found::By(Fault::OutOfBounds);
    no_check_of_x: "x && start + k < of.input ?" => "start + k < of.input ?", Found::By(Fault::OutOfBounds);
    rows_beyond_the_steps: "is_there ? look_up(at_step, of.x, of.lookup, row % rows) : nullptr" => "look_up(at_step, of.x, of.lookup, row % rows)", Found::ByAnything;
    rows_not_found: "if (thread >= SIDE) return;" => "if (thread >= SIDE / 2) return;", Found::By(Fault::UninitialisedRead);
    weights_beyond_the_last_row: "k < of.input && own < of.columns;\n      tile_of_w" => "own < of.columns;\n      tile_of_w", Found::By(Fault::OutOfBounds);
    weights_of_columns_beyond: "k < of.input && own < of.columns;\n      tile_of_w" => "k < of.input;\n      tile_of_w", Found::By(Fault::OutOfBounds);
    bias_of_columns_beyond: "column < of.columns ? of.b[column / of.gates * of.sums_of_unit + column % of.gates] : 0.f" => "of.b[column / of.gates * of.sums_of_unit + column % of.gates]", Found::By(Fault::OutOfBounds);
    biases_side_by_side: "column / of.gates * of.sums_of_unit + column % of.gates" => "column", Found::ByValues;
    all_at_the_first_step: "  at_step.time += row / rows;\n" => "", Found::ByValues;
    all_of_one_step: "of.lookup, row % rows)" => "of.lookup, row)", Found::By(Fault::OutOfBounds);
    sums_of_rows_beyond: "row < of.steps * of.batch.count && column" => "column", Found::By(Fault::OutOfBounds);
    sums_of_columns_beyond: " && column < of.columns) of.sums" => ") of.sums", Found::By(Fault::DataRace);
    threads_share_rows: "(SIDE / COLUMNS_EACH) * ROWS_EACH, column" => "(SIDE / COLUMNS_EACH) * (ROWS_EACH - 1), column", Found::By(Fault::DataRace);
    x_not_rounded: "rounded_to_bf16(high)" => "high", Found::ByValues;
    fragments_filled_too_early: "start += Product::CHUNK) {\n    __syncthreads();\n    for (int at = thread" => "start += Product::CHUNK) {\n    for (int at = thread", Found::By(Fault::DataRace);
    fragments_read_too_early: "    __syncthreads();\n    const int elements = least(Product::CHUNK, of.input" => "    const int elements = least(Product::CHUNK, of.input", Found::By(Fault::DataRace);
    fragments_of_columns_beyond: "k < of.input && own < of.columns;\n          weights" => "k < of.input;\n          weights", Found::By(Fault::OutOfBounds);
    fragments_of_elements_beyond: "k < of.input && own < of.columns;\n          weights" => "own < of.columns;\n          weights", Found::By(Fault::OutOfBounds);
    fragments_of_the_first_elements: "k = start + first + Fragment::element(at), own" => "k = first + Fragment::element(at), own", Found::ByValues;
    warps_share_columns: "threadIdx.y % 2 * HALF" => "0", Found::By(Fault::DataRace);
    rows_of_another_fragment: "load_vectors(vectors, tile_of_x, row + rows * Fragment::ROWS, first / 2)" => "load_vectors(vectors, tile_of_x, row, first / 2)", Found::ByValues;
    failure_at_the_first_time: "look_up(at_step, of.x" => "look_up(of.batch, of.x", Found::ByValues;
}

mod after {
    use crate::harness::bugs;

    bugs! {
        super::super::is_found_after;
        rows_beyond_the_batch: "    if (row < 0) return;\n    const float* projected" => "    const float* projected", Found::By(Fault::OutOfBounds);
        units_beyond_the_cell: "  if (part.unit >= of.hidden) return;\n  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    const float* projected" => "  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    const float* projected", Found::By(Fault::OutOfBounds);
        sums_of_another_unit: "of.projected, row) + part.unit * GATES" => "of.projected, row) + part.unit", Found::ByAnything;
        products_passed_over: "of.projected.place != NOWHERE" => "false", Found::ByValues;
        no_bias_of_h: "part) {\n  begin_sums<SUMS>(sums, of.b, part.unit, of.hidden);\n  if" => "part) {\n  if", Found::ByAnything;
    }
}
