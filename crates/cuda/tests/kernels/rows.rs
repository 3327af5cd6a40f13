//! Copies of rows, the end of a step, and the signal that work is done.

use batchmaker_cuda::kernels::batch::{Operand, Port, Row};
use batchmaker_cuda::kernels::rows::{
    BLOCK, COPY_OPERAND, COPY_ROWS, Copy, CopyArguments, CopyOperandArguments, End, FINISH_STEP,
    FinishArguments, SIGNAL, SignalArguments, Status,
};
use batchmaker_cuda_emulator::{KernelLibrary, Report};

use crate::harness::{
    Found, Gpu, SEEDS, Value, bugs, half_of, input_node, is_padding, library, node_of, numbers,
    row_at, rows, slots,
};

const FILE: &str = "rows.cu";

/// Rows of a batch.
const SHAPES: [usize; 2] = [8, 19];

/// A check: what is reported, and whether the result is wrong.
type Check = fn(&KernelLibrary, usize, u64) -> (Vec<Report>, bool);

const CHECKS: [(&str, Check); 4] =
    [(COPY_ROWS, copies), (COPY_OPERAND, operands), (FINISH_STEP, ends), (SIGNAL, signals)];

/// Bytes, no two alike nearby.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + seed * 13 + at / 256) as u8).collect()
}

/// Copies of many lengths, at addresses that are multiples of four and others, from memory and of zeros.
fn copies(library: &KernelLibrary, count: usize, seed: u64) -> (Vec<Report>, bool) {
    const LENGTHS: [usize; 7] = [4, 1200, 7, 520, 1, 16, 131];
    let gpu = Gpu::new();
    let of_sources = 1300 + count;
    let sources = bytes(of_sources, 1);
    let mut right = bytes(count * 1300, 3);
    let targets = gpu.upload(&right, "targets");
    let sources_at = gpu.upload(&sources, "sources");
    let (mut copies, mut to) = (Vec::new(), 0);
    for number in 0..count {
        let length = LENGTHS[number % LENGTHS.len()];
        // Bytes beside each other are of different copies now and then.
        to += [0, 4, 3][number % 3];
        let from = number / 2;
        let target = &mut right[to..][..length];
        let from = if number % 4 == 1 {
            target.fill(0);
            0
        } else {
            target.copy_from_slice(&sources[from..][..length]);
            sources_at + from as u64
        };
        copies.push(Copy { to: targets + to as u64, from, bytes: length as u64 });
        to += length;
    }
    let arguments = CopyArguments { copies: gpu.upload(&copies, "copies") };
    let launch = [[count as u32, 1, 1], BLOCK];
    let reports = gpu.launch((library, COPY_ROWS), launch, &arguments, seed);
    let is_wrong = gpu.read::<u8>(targets, right.len()) != right;
    (reports, is_wrong)
}

/// A word for each slot, which is 1 where the chain of every third row has ended.
fn ended_words(rows: &[Row]) -> Vec<u32> {
    let mut words = vec![0; slots(rows.len())];
    for row in rows.iter().step_by(3) {
        words[row.slot as usize] = 1;
    }
    words
}

/// Operands in each place, copied to each place that a kernel writes; rows that nobody wants become zeros, or do not.
fn operands(library: &KernelLibrary, count: usize, seed: u64) -> (Vec<Report>, bool) {
    /// Elements of a row: more than the threads of a block.
    const WIDTH: usize = 150;
    let (gpu, rows) = (Gpu::new(), rows(count, 2));
    let halves = slots(count) * 2;
    let (states, dense) = (numbers(halves * WIDTH, 1), numbers(count * WIDTH, 2));
    let [states_at, dense_at] =
        [(&states, "states"), (&dense, "dense")].map(|(data, name)| gpu.upload(data, name));
    let (mut inputs, mut ports) = (Vec::new(), Vec::new());
    for (number, row) in rows.iter().enumerate() {
        let length = row.length as usize;
        for port in 0..2 {
            let values = numbers(length * WIDTH, 10 + number * 2 + port);
            ports.push(Value::upload(&gpu, number + port, length, &values).port(&gpu, 0));
            if port == 1 {
                inputs.push(values[input_node(row) * WIDTH..][..WIDTH].to_vec());
            }
        }
    }
    let bytes = 4 * WIDTH;
    let ended = ended_words(&rows);
    let ended_at = gpu.upload(&ended, "ended");
    let half = |row: usize, is_after| &states[half_of(&rows[row], is_after) * WIDTH..][..WIDTH];
    type OfRow<'a> = Box<dyn Fn(usize) -> Vec<f32> + 'a>;
    let sources: [(Operand, OfRow<'_>); 5] = [
        (Operand::NOWHERE, Box::new(|_| vec![0.0; WIDTH])),
        (Operand::dense(dense_at, bytes), Box::new(|row| dense[row * WIDTH..][..WIDTH].to_vec())),
        (Operand::state(states_at, bytes), Box::new(|row| half(row, false).to_vec())),
        (Operand::next_state(states_at, bytes), Box::new(|row| half(row, true).to_vec())),
        (Operand::port(1), Box::new(|row| inputs[row].clone())),
    ];
    let (mut reports, mut is_wrong) = (Vec::new(), false);
    for (number, (from, source)) in sources.iter().enumerate() {
        for is_to_slots in [false, true] {
            // Without the words, no chain has ended.
            for (ended_at, clears_idle) in [(0, 0), (0, 1), (ended_at, 0), (ended_at, 1)] {
                let mut right = numbers(halves * WIDTH, 30 + number);
                let target = gpu.upload(&right, "target");
                let to = match is_to_slots {
                    true => Operand::next_state(target, bytes),
                    false => Operand::dense(target, bytes),
                };
                for (number, row) in rows.iter().enumerate() {
                    let has_ended = ended_at != 0 && ended[row.slot as usize] != 0;
                    let is_idle = has_ended || is_padding(row);
                    let place = if is_to_slots { half_of(row, true) } else { number };
                    let row = match clears_idle == 1 && is_idle {
                        true => vec![0.0; WIDTH],
                        false => source(number),
                    };
                    right[place * WIDTH..][..WIDTH].copy_from_slice(&row);
                }
                let (batch, rows_max) = gpu.batch_of(&rows, &ports, ended_at, seed);
                let arguments = CopyOperandArguments {
                    batch,
                    from: *from,
                    to,
                    bytes: bytes as u32,
                    clears_idle,
                };
                let launch = [[rows_max as u32, 1, 1], BLOCK];
                reports.extend(gpu.launch((library, COPY_OPERAND), launch, &arguments, seed));
                is_wrong |= gpu.read::<f32>(target, right.len()) != right;
            }
        }
    }
    (reports, is_wrong)
}

/// What may become of a row's chain when a step ends.
#[derive(Clone, Copy)]
struct Case {
    node: usize,
    length: usize,
    /// Whether its output is its stop, if it has one.
    stop: Option<bool>,
    /// Whether it had ended before.
    has_ended: bool,
}

const CASES: [Case; 8] = [
    Case { node: 1, length: 5, stop: None, has_ended: false },
    Case { node: 4, length: 5, stop: None, has_ended: false },
    Case { node: 1, length: 5, stop: Some(true), has_ended: false },
    Case { node: 2, length: 5, stop: Some(false), has_ended: false },
    Case { node: 3, length: 2, stop: None, has_ended: false },
    Case { node: 3, length: 2, stop: Some(true), has_ended: false },
    Case { node: 1, length: 5, stop: Some(true), has_ended: true },
    Case { node: 4, length: 5, stop: Some(true), has_ended: false },
];

/// A sink of a row, and what its value has to be after the step.
struct Sink {
    value: Value,
    right: Vec<u8>,
}

/// Ends a step whose outputs lie in three places: bools, dense; numbers, in slots; and integers, dense, which end chains.
fn ends(library: &KernelLibrary, count: usize, seed: u64) -> (Vec<Report>, bool) {
    /// Bytes of a row of each output.
    const BYTES: [usize; 3] = [3, 600, 8];
    const STOPS: usize = 2;
    /// The sinks of a row: the output, and whether only the last node writes.
    const SINKS: [(usize, bool); 5] = [(0, false), (1, true), (2, false), (1, false), (2, true)];
    const INPUTS: usize = 1;
    /// Places of the ring of ends, and the ends before: places are used again.
    const RING: usize = 8;
    const ENDS_BEFORE: u32 = 14;
    let gpu = Gpu::new();
    let halves = slots(count) * 2;
    let (bools, states) = (bytes(count * BYTES[0], 1), bytes(halves * BYTES[1], 2));
    let tokens: Vec<i64> = (0..count as i64).map(|row| (row % 3) << 33).collect();
    let places = [
        Operand::dense(gpu.upload(&bools, "bools"), BYTES[0]),
        Operand::next_state(gpu.upload(&states, "states"), BYTES[1]),
        Operand::dense(gpu.upload(&tokens, "tokens"), BYTES[2]),
    ];
    let (mut rows, mut ports, mut sinks): (Vec<Row>, Vec<Port>, Vec<Sink>) = Default::default();
    let (mut ended, mut right_ends) = (vec![0u32; slots(count)], Vec::new());
    let mut right_ended = ended.clone();
    for number in 0..count {
        let case = CASES[number % CASES.len()];
        let row = row_at(number, count, [case.node, case.length]);
        let sinks_of_row = SINKS.len() - number % 2;
        let token = tokens[number];
        let row = Row {
            ports: ports.len() as u32,
            sinks: sinks_of_row as u32,
            stop: if case.stop == Some(true) { token } else { token + 1 },
            stop_output: if case.stop.is_some() { STOPS as u32 } else { row.stop_output },
            ..row
        };
        rows.push(row);
        let slot = row.slot as usize;
        let is_running = !case.has_ended && !is_padding(&row);
        let is_stopped = is_running && case.stop == Some(true);
        ended[slot] = u32::from(case.has_ended);
        right_ended[slot] = u32::from(case.has_ended || is_stopped);
        let nodes = node_of(&row) as u32 + 1;
        right_ends.extend(is_stopped.then_some((row.request, row.run, nodes)));
        ports.push(Value::upload(&gpu, 0, 1, &[0f32]).port(&gpu, 0));
        for (at, &(output, is_last)) in SINKS[..sinks_of_row].iter().enumerate() {
            let (nodes, node) = if is_last { (1, 0) } else { (case.length, case.node) };
            let width = BYTES[output];
            let mut right = bytes(nodes * width, 10 + number + at);
            let layout = if is_last { 0 } else { number + at };
            let value = Value::upload(&gpu, layout, nodes, &right);
            ports.push(value.port(&gpu, 2 * output as u32 + u32::from(is_last)));
            // The row of a chain that may end is the last one for now.
            let is_written = !is_last || case.stop.is_some() || case.node + 1 == case.length;
            if is_running && !is_stopped && is_written {
                let row = match output {
                    0 => &bools[number * width..][..width],
                    1 => &states[half_of(&row, true) * width..][..width],
                    _ => bytemuck::bytes_of(&tokens[number]),
                };
                right[node * width..][..width].copy_from_slice(row);
            }
            sinks.push(Sink { value, right });
        }
    }
    let ended_at = gpu.upload(&ended, "ended");
    let ends_at = gpu.room_of_host(RING * size_of::<End>(), "ends");
    let end_count = gpu.upload(&[ENDS_BEFORE], "the number of ends");
    let (batch, rows_max) = gpu.batch_of(&rows, &ports, ended_at, seed);
    let arguments = FinishArguments {
        batch,
        outputs: gpu.upload(&places, "outputs"),
        ended: ended_at,
        ends: ends_at,
        end_count,
        ends_max: RING as u32,
        inputs: INPUTS as u32,
    };
    let launch = [[rows_max as u32, 1, 1], BLOCK];
    let reports = gpu.launch((library, FINISH_STEP), launch, &arguments, seed);
    let ring: Vec<End> = gpu.read(ends_at, RING);
    let places = (0..right_ends.len()).map(|at| (ENDS_BEFORE as usize + at) % RING);
    let mut found_ends: Vec<_> =
        places.map(|at| (ring[at].request, ring[at].run, ring[at].nodes)).collect();
    // Blocks take places of the ring in any order.
    found_ends.sort_unstable();
    right_ends.sort_unstable();
    let right_count = ENDS_BEFORE + right_ends.len() as u32;
    let is_right = sinks.iter().all(|of| of.value.read::<u8>(&gpu) == of.right)
        && gpu.read::<u32>(ended_at, ended.len()) == right_ended
        && gpu.read::<u32>(end_count, 1) == [right_count]
        && found_ends == right_ends;
    (reports, !is_right)
}

/// Two tasks, of which the first one has failed.
fn signals(library: &KernelLibrary, count: usize, seed: u64) -> (Vec<Report>, bool) {
    let gpu = Gpu::new();
    let counter = gpu.room_of_host(8, "counter");
    let failed = gpu.upload(&[1u32], "failed");
    let end_count = gpu.upload(&[count as u32], "the number of ends");
    let (mut reports, mut is_wrong) = (Vec::new(), false);
    for (number, has_failed) in [(1 << 32, 1), ((1 << 32) + 1, 0)] {
        let status = gpu.room_of_host(size_of::<Status>(), "status");
        let arguments = SignalArguments { counter, status, failed, end_count, number };
        reports.extend(gpu.launch((library, SIGNAL), [[1; 3]; 2], &arguments, seed));
        let right = Status { failed: has_failed, end_count: count as u32 };
        is_wrong |= gpu.read::<Status>(status, 1) != [right];
        is_wrong |= gpu.read::<u64>(counter, 1) != [number];
        is_wrong |= gpu.read::<u32>(failed, 1) != [0];
    }
    (reports, is_wrong)
}

#[test]
fn rows_are_copied_and_steps_end() {
    let library = library("right", FILE, None);
    for (kernel, check) in CHECKS {
        for rows in SHAPES {
            for seed in 0..SEEDS {
                let (reports, is_wrong) = check(&library, rows, seed);
                let of = format!("{kernel}, {rows} rows, seed {seed}");
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                assert!(!is_wrong, "{of}");
            }
        }
    }
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for seed in 0..5 {
        for ((_, check), rows) in CHECKS.into_iter().flat_map(|of| SHAPES.map(|rows| (of, rows))) {
            let (reports, is_wrong) = check(&library, rows, seed);
            if found.is_by(&reports, || is_wrong) {
                return;
            }
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    words_for_bytes: "more * threads < bytes / 4) ((uint32_t*)to)" => "more * threads < bytes) ((uint32_t*)to)", Found::By(Fault::OutOfBounds);
    steps_of_half_a_block: "((uint32_t*)to)[at + more * threads] = words[more];" => "((uint32_t*)to)[at + more * threads / 2] = words[more];", Found::By(Fault::DataRace);
    one_word_a_thread: "more < LOADS; more++)\n        if (at" => "more < 1; more++)\n        if (at", Found::ByValues;
    words_past_the_bytes: "uint64_t)from | bytes) & 3) == 0" => "uint64_t)from) & 3) == 0", Found::ByValues;
    copies_of_nothing: "at] = from ? from[at] : (char)0;" => "at] = from[at];", Found::By(Fault::OutOfBounds);
    copies_of_others: "of.copies[blockIdx.x];" => "of.copies[blockIdx.x ^ 1];", Found::ByAnything;
    idle_rows_kept: "!of.clears_idle || is_running(of.batch, row)" => "true", Found::ByValues;
    idle_rows_cleared: "!of.clears_idle || is_running" => "is_running", Found::ByValues;
    no_check_of_words: "!(batch.ended && batch.ended[" => "!(batch.ended[", Found::By(Fault::OutOfBounds);
    padding_runs: "node_of(batch, row) < batch.rows[row].length && " => "", Found::By(Fault::OutOfBounds);
    ended_chains_run: " && !(batch.ended && batch.ended[batch.rows[row].slot])" => "", Found::ByValues;
    words_of_rows: "batch.ended[batch.rows[row].slot]" => "batch.ended[row]", Found::ByAnything;
    inputs_past_the_last: "node < last ? node : last" => "node", Found::By(Fault::OutOfBounds);
    no_barrier_before_the_end: "    __syncthreads();\n    if (threadIdx.x > 0) return;\n" => "    if (threadIdx.x > 0) return;\n", Found::By(Fault::DataRace);
    all_threads_end: "    if (threadIdx.x > 0) return;\n" => "", Found::By(Fault::DataRace);
    count_is_no_atomic: "atomicAdd(of.end_count, 1u)" => "(*of.end_count)++", Found::By(Fault::DataRace);
    ring_without_end: ", 1u) % of.ends_max]" => ", 1u)]", Found::By(Fault::OutOfBounds);
    no_stop: "if (has_stop && " => "if (", Found::ByAnything;
    half_a_stop: "if (has_stop && *(const long long*)" => "if (has_stop && *(const int*)", Found::ByValues;
    inputs_are_sinks: "batch.rows[row].ports + inputs + at" => "batch.rows[row].ports + at", Found::ByAnything;
    last_row_of_each_node: "is_of_last(sink) ? 0 : node" => "node", Found::By(Fault::OutOfBounds);
    last_row_of_the_last_node: " && node + 1 != own->length && !has_stop" => " && node + 1 != own->length", Found::ByValues;
    all_nodes_are_last: "if (is_of_last(sink) && node + 1 != own->length && !has_stop) continue;" => "", Found::ByValues;
    outputs_of_sinks: "of.outputs[sink.sink / 2]" => "of.outputs[sink.sink]", Found::By(Fault::OutOfBounds);
    failure_stays: "  *failed = 0;\n" => "", Found::ByValues;
    scope_of_gpu_for_host: "st_release_sys(counter" => "st_release_gpu(counter", Found::By(Fault::HostScope);
}
