//! Steps of recurrent cells.

use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_graph::{Precision, RecurrentKind, RnnActivation};

use crate::chains::{Chains, Places, cell, check_alone, check_steps, shows};
use crate::harness::{Embedding, Found, bugs, is_padding, known_id, library, numbers, rows, slots};

pub(crate) const FILE: &str = "recurrent_step.cu";

pub(crate) fn kinds(hidden_size: usize) -> Vec<RecurrentKind> {
    let peepholes = Some(numbers(3 * hidden_size, 4).into());
    vec![
        RecurrentKind::Lstm { p: None, bytes: None },
        RecurrentKind::Lstm { p: peepholes, bytes: None },
        RecurrentKind::Gru { linear_before_reset: true },
        RecurrentKind::Gru { linear_before_reset: false },
        RecurrentKind::Rnn { activation: RnnActivation::Tanh },
        RecurrentKind::Rnn { activation: RnnActivation::Relu },
    ]
}

#[test]
fn recurrent_steps_are_right() {
    check_steps(&library("right", FILE, None), kinds);
}

#[test]
fn a_row_alone_has_the_bits_of_a_row_in_a_batch() {
    check_alone(&library("alone", FILE, None), kinds);
}

/// A step in which the id of one row is one that its embedding lacks.
#[derive(Clone, Copy, Debug)]
struct Unknown {
    row: usize,
    id: i64,
    /// Whether the row's chain has ended.
    has_ended: bool,
}

impl Unknown {
    /// Rows, elements of x, units: those of two blocks.
    const SHAPE: [usize; 3] = [5, 3, 40];

    fn all() -> impl Iterator<Item = Self> {
        let rows = 0..Self::SHAPE[0];
        rows.flat_map(|row| {
            [-1, Embedding::ROWS as i64, 1 << 32, i64::MIN]
                .into_iter()
                .flat_map(move |id| [false, true].map(|has_ended| Self { row, id, has_ended }))
        })
    }

    /// Whether somebody wants what the row computes.
    fn is_wanted(self) -> bool {
        let is_padding = is_padding(&rows(Self::SHAPE[0], 1)[self.row]);
        !self.has_ended && !is_padding
    }

    /// Runs the step. Returns reports, and whether x is other than zeros, or the step fails where it should not, or the other way round.
    fn run(self, library: &KernelLibrary) -> (Vec<Report>, bool) {
        let [rows, input, hidden] = Self::SHAPE;
        let cell = cell(RecurrentKind::Rnn { activation: RnnActivation::Tanh }, input, hidden);
        let id_of = |row, node| if row == self.row { self.id } else { known_id(row, node) };
        let mut chains = Chains::with_ids((&cell, Precision::F32), Places::Ids, rows, &id_of);
        let mut ended = vec![0; slots(rows)];
        ended[chains.rows[self.row].slot as usize] = u32::from(self.has_ended);
        chains.ended = chains.gpu.upload(&ended, "ended");
        let reports = chains.run(library, 0);
        let has_failed = chains.embedding.has_failed(&chains.gpu);
        (reports, chains.is_wrong() || has_failed != self.is_wanted())
    }
}

#[test]
fn an_unknown_id_fails_unless_nobody_wants_the_row() {
    let library = library("unknown", FILE, None);
    for unknown in Unknown::all() {
        let (reports, is_wrong) = unknown.run(&library);
        assert!(reports.is_empty(), "{unknown:?}: {}", reports[0]);
        assert!(!is_wrong, "{unknown:?}");
    }
    let wanted = Unknown::all().filter(|of| of.is_wanted()).count();
    assert_eq!((wanted, Unknown::all().count()), (16, 40), "one of five rows is padding");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for unknown in Unknown::all() {
        let (reports, is_wrong) = unknown.run(&library);
        if found.is_by(&reports, || is_wrong) {
            return;
        }
    }
    assert!(shows(&library, kinds, found), "{name} is not found");
}

bugs! {
    super::is_found;
    no_barrier_before_filling: "start += Product::CHUNK) {\n    __syncthreads();" => "start += Product::CHUNK) {", Found::By(Fault::DataRace);
    no_barrier_after_filling: "    }\n    __syncthreads();\n    Product::template" => "    }\n    Product::template", Found::By(Fault::DataRace);
    barrier_of_some_units: "    Product::template" => "    if (part.unit >= units) return;\n    Product::template", Found::ByAnything;
    input_beyond_its_end: "return at < elements ? Weights::factor(from[at]) : 0;" => "return Weights::factor(from[at]);", Found::By(Fault::OutOfBounds);
    no_check_of_sources: "source ? Product::word(source + start, at % Product::WORDS, length - start) : 0;" => "Product::word(source + start, at % Product::WORDS, length - start);", Found::By(Fault::OutOfBounds);
    rows_beyond_the_batch: "is_there && of.projected.place == NOWHERE ? look_up(batch, of.x, of.lookup, row) : nullptr" => "look_up(batch, of.x, of.lookup, row)", Found::By(Fault::OutOfBounds);
    sources_of_rows_beyond: "if (part.thread >= ROWS) return;" => "if (part.thread >= part.rows) return;", Found::By(Fault::UninitialisedRead);
    units_beyond_the_cell: "    if (part.unit >= units) return;\n    const int count" => "    const int count", Found::By(Fault::OutOfBounds);
    states_of_units_beyond: "  if (part.unit >= of.hidden) return;\n  const Batch batch = as_now(of.batch);\n  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    float c" => "  const Batch batch = as_now(of.batch);\n  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    float c", Found::ByAnything;
    states_of_rows_beyond: "    if (row < 0) return;\n    float c" => "    float c", Found::By(Fault::OutOfBounds);
    gates_of_rows_beyond: "    if (row < 0) return;\n    float* gates" => "    float* gates", Found::By(Fault::OutOfBounds);
    one_half_of_states: "own->half + (of.place == NEXT_STATE)" => "own->half", Found::By(Fault::DataRace);
    halves_exchanged: "own->half + (of.place == NEXT_STATE)" => "own->half + (of.place == STATE)", Found::ByValues;
    same_half_for_all: "batch.time + own->half + (of.place" => "batch.time + (of.place", Found::ByValues;
    no_z: "    gates[part.unit] = sigmoid(sums[at][0]);\n" => "", Found::By(Fault::UninitialisedRead);
    gates_of_the_first_row: "of.base + (long long)row * of.stride;" => "of.base;", Found::By(Fault::DataRace);
    no_reset: "  reset.base += of.hidden * sizeof(float);\n" => "", Found::ByValues;
    slots_overlap: "((long long)own->slot * 2 + half)" => "((long long)own->slot + half)", Found::ByAnything;
    no_check_of_place: "return at ? at[unit] : 0.f;" => "return at[unit];", Found::By(Fault::OutOfBounds);
    inputs_past_the_last: "node < last ? node : last" => "node", Found::By(Fault::OutOfBounds);
    no_list: "(port.list ? (long long)port.list[node] * port.bytes : (long long)node * port.stride)" => "(long long)node * port.stride", Found::ByValues;
    list_of_backwards: "(long long)node * port.stride)" => "(long long)node * port.bytes)", Found::By(Fault::OutOfBounds);
    another_id: "lookup.table + id * lookup.width" => "lookup.table + id", Found::ByValues;
    half_an_id: "id = *(const long long*)at;" => "id = *(const int*)at;", Found::ByValues;
    ids_before_the_table: "id >= 0 && id < lookup.rows" => "id < lookup.rows", Found::By(Fault::OutOfBounds);
    an_id_past_the_table: "id >= 0 && id < lookup.rows" => "id >= 0 && id <= lookup.rows", Found::By(Fault::OutOfBounds);
    cut_to_bfloat16: "(bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u" => "bits & 0xffff0000u", Found::ByValues;
    ties_away_from_zero: "(bits + 0x7fffu + ((bits >> 16) & 1u))" => "(bits + 0x8000u)", Found::ByValues;
    vectors_not_rounded: "rounded_to_bf16(low)" => "low", Found::ByValues;
    rows_of_weights_one_by_one: "(long long)(k / 2) * units" => "(long long)k * units", Found::By(Fault::OutOfBounds);
    elements_of_another_register: "start + first + Fragment::element(2 * at)" => "start + first + Fragment::element(at)", Found::ByValues;
    elements_of_the_first_chunk: "start + first + Fragment::element(2 * at)" => "first + Fragment::element(2 * at)", Found::ByValues;
    fragments_of_elements_beyond: "if (k < length && part.unit < units)" => "if (part.unit < units)", Found::By(Fault::OutOfBounds);
    fragments_of_units_beyond: "if (k < length && part.unit < units)" => "if (k < length)", Found::By(Fault::OutOfBounds);
    registers_of_gates_exchanged: "weights[0][gate + 1], weights[1][gate], " => "weights[1][gate], weights[0][gate + 1], ", Found::ByValues;
    units_of_the_first_warp: " + threadIdx.y * UNITS_OF_WARP + " => " + ", Found::By(Fault::DataRace);
    rows_of_another_half: "at / 2 * Fragment::ROWS + Fragment::row_of_sum(at % 2)" => "Fragment::row_of_sum(at % 2)", Found::ByAnything;
    failure_is_no_atomic: "atomicMax(lookup.failed, 1u)" => "*lookup.failed = 1", Found::By(Fault::DataRace);
    failure_of_padding: "node_of(batch, row) < batch.rows[row].length && " => "", Found::ByValues;
    failure_after_the_end: " && !(batch.ended && batch.ended[batch.rows[row].slot])" => "", Found::ByValues;
}
