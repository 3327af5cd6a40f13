//! Recurrent cells whose weights stay on the chip while the batch changes: a host brings tasks while the kernel runs.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use batchmaker_cuda::kernels::batch::{Batch as RosterBatch, Port, Row};
use batchmaker_cuda::kernels::persistent::PersistentArguments;
use batchmaker_cuda::kernels::quantum::{
    BROUGHT_BYTES, IS_STUCK, QuantumArguments, QuantumKernel, Task, WORDS,
};
use batchmaker_cuda::kernels::rows::{Copy, Status};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_graph::Precision;
use bytemuck::Zeroable;

use crate::chains::cell;
use crate::harness::{Found, Gpu, TIME, bits, bugs, known_id, library_of, node_of};
use crate::persistent::{Batch, Case, libraries, run_parts};

const FILE: &str = "quantum.cu";

/// Places of the ring: fewer than a plan has tasks.
const RING: u64 = 3;

/// The time of the first step: times wrap around soon after.
const START: u32 = u32::MAX - 2;

/// The cases that are to be right, and those that are to show a bug.
const CASES: usize = 18;
const CASES_OF_BUGS: usize = 6;

/// A case in bfloat16 whose tiles have more rows than a product of a warp.
const TALL: usize = 23;

/// The ends of sequences that the host is to hear of with each task.
const END_COUNT: u32 = 9;

/// The most launches that a plan may take.
const LAUNCHES_MAX: usize = 200;

/// Numbers that follow from a seed (the constants of Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, of: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % of
    }
}

/// The rows that a task takes off the roster, those that it puts on it, and its steps.
#[derive(Debug)]
struct Planned {
    leaves: Vec<usize>,
    joins: Vec<usize>,
    steps: usize,
}

/// Tasks, and how a kernel and its host run them.
#[derive(Debug)]
struct Plan {
    tasks: Vec<Planned>,
    /// The steps that each row runs in all.
    ran: Vec<usize>,
    looks_max: u32,
    steps_max: usize,
    brought_max: usize,
}

impl Plan {
    /// A plan in which each row may join and leave at any task, once.
    fn draw(rows: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let (mut waiting, mut running): (Vec<usize>, Vec<usize>) =
            ((0..rows).collect(), Vec::new());
        let mut ran = vec![0; rows];
        let mut tasks = Vec::new();
        for _ in 0..5 + random.below(4) {
            // Some tasks change nothing: blocks go on without a barrier.
            let changes = tasks.is_empty() || random.below(3) > 0;
            let mut take = |from: &mut Vec<usize>, one_in: usize| {
                let is_taken = |_: &usize| changes && random.below(one_in) == 0;
                let (taken, kept) = from.drain(..).partition(is_taken);
                *from = kept;
                taken
            };
            let leaves: Vec<usize> = take(&mut running, 4);
            let joins: Vec<usize> = take(&mut waiting, 2);
            running.extend(&joins);
            let steps = 1 + random.below(3);
            running.iter().for_each(|&row| ran[row] += steps);
            tasks.push(Planned { leaves, joins, steps });
        }
        Self {
            tasks,
            ran,
            looks_max: [1, 20, 1 << 20][random.below(3)],
            steps_max: 1 + random.below(12),
            // Some tasks have more copies.
            brought_max: if seed.is_multiple_of(2) { 4 } else { 64 },
        }
    }
}

/// A kernel's memory that its host shares with it, and tasks that are ready to be brought.
struct Tasks<'a> {
    batch: Batch<'a>,
    launches: AtomicU64,
    tasks: Vec<Task>,
    /// Whether each task, by its number, looks up an id that the table does not have; nobody knows of 0.
    fails: Vec<bool>,
    /// Whether the host was told something else.
    is_misled: AtomicBool,
    rows_at: u64,
    ports_at: u64,
    ring: u64,
    done: u64,
    statuses: u64,
    failed: u64,
    end_count: u64,
    next: u64,
    announced: u64,
    /// Tasks, copies and bytes that the courier brings.
    brought: [u64; 3],
    /// A word for each position of the roster, which is 0 once a task has changed the position.
    cleared: u64,
    changed: std::collections::BTreeSet<usize>,
}

/// Ids of which some are none of the table.
fn id_of(row: usize, node: usize) -> i64 {
    if (row + node).is_multiple_of(2) { -1 } else { known_id(row, node) }
}

/// A number in memory of the host.
fn number_at(at: u64) -> &'static AtomicU64 {
    // SAFETY: the memory is aligned, and there as long as a test uses it.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }
}

impl<'a> Tasks<'a> {
    fn new(case: &'a Case, plan: &Plan) -> Self {
        let batch = Batch::new(case);
        let gpu = &batch.chains.gpu;
        let rows_at = gpu.room(case.rows * size_of::<Row>(), "rows");
        let ports_at = gpu.room(case.rows * 3 * size_of::<Port>(), "ports");
        let between = gpu.room(case.rows * 3 * size_of::<Port>(), "ports on their way");
        let cleared = gpu.upload(&vec![1u32; case.rows], "cleared");
        let (mut roster, mut time, mut tasks) = (Vec::<(usize, Row)>::new(), START, Vec::new());
        let (mut fails, mut all_changed) = (vec![false], std::collections::BTreeSet::new());
        for (number, planned) in (1..).zip(&plan.tasks) {
            let mut changed = std::collections::BTreeSet::new();
            for row in &planned.leaves {
                let position = roster.iter().position(|(of, _)| of == row).unwrap();
                roster.swap_remove(position);
                changed.insert(position);
            }
            for &row in &planned.joins {
                let of = &batch.rows[row];
                // At its node when it joins, with its state in the half that has it.
                let first = time.wrapping_sub(node_of(of) as u32);
                let half = TIME.wrapping_add(of.half).wrapping_sub(time) & 1;
                changed.insert(roster.len());
                roster.push((row, Row { first, half, ..*of }));
            }
            let has_id = |node: u32, (row, of): &(usize, Row)| {
                // Padding looks up nothing that anybody wants.
                node >= of.length || case.ids.is_none_or(|id_of| id_of(*row, node as usize) >= 0)
            };
            let fails_at = |step: u32| {
                let node = |of: &Row| time.wrapping_add(step).wrapping_sub(of.first);
                !roster.iter().all(|of| has_id(node(&of.1), of))
            };
            fails.push((0..planned.steps as u32).any(fails_at));
            all_changed.extend(changed.range(..roster.len()));
            let changed = changed.range(..roster.len()).copied();
            let (task, from_host, within) =
                changes(gpu, &batch, [rows_at, ports_at, between, cleared], &roster, changed);
            tasks.push(Task {
                copies: task,
                from_host,
                within,
                count: roster.len() as i32,
                time,
                steps: planned.steps as i32,
                padding: 0,
                number,
            });
            time = time.wrapping_add(planned.steps as u32);
        }
        let number = tasks.len() as u64 + 1;
        tasks.push(Task { number, ..Task::zeroed() });
        let ring = gpu.upload_to_host(&[Task::zeroed(); RING as usize], "ring");
        let [done, next] = ["done", "next"].map(|name| gpu.upload_to_host(&[0u64], name));
        let unknown = Status { failed: u32::MAX, end_count: 0 };
        let statuses = gpu.upload_to_host(&[unknown; RING as usize], "statuses");
        let announced = gpu.upload(&[Task::zeroed(); 4], "announced");
        let copies = 2 * plan.brought_max;
        let brought = [
            gpu.room(2 * size_of::<Task>(), "brought tasks"),
            gpu.room(copies * size_of::<Copy>(), "brought copies"),
            gpu.room(copies * BROUGHT_BYTES, "brought bytes"),
        ];
        Self {
            launches: AtomicU64::new(0),
            tasks,
            fails,
            is_misled: AtomicBool::new(false),
            rows_at,
            ports_at,
            ring,
            done,
            statuses,
            failed: gpu.upload(&[0u32; 2], "failed"),
            end_count: gpu.upload(&[END_COUNT], "end count"),
            next,
            announced,
            brought,
            cleared,
            changed: all_changed,
            batch,
        }
    }

    /// Brings all tasks until it is to stop: each as soon as it has a place, or some ahead and some once those before are done.
    fn bring(&self, random: &mut Random, is_ahead: bool, stops: &AtomicBool) {
        let done = number_at(self.done);
        for task in self.tasks.iter().skip(if is_ahead { RING as usize } else { 0 }) {
            let ahead = if is_ahead { RING as usize - 1 } else { random.below(RING as usize) };
            while done.load(Ordering::Acquire) + ahead as u64 + 1 < task.number {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::yield_now();
            }
            if !is_ahead {
                for _ in 0..random.below(4) * random.below(2000) {
                    std::hint::spin_loop();
                }
            }
            self.push(task);
        }
    }

    /// Reads what the host was told of a task that is done.
    fn take(&self, number: u64) {
        let at = self.statuses + number % RING * size_of::<Status>() as u64;
        let status: Status = bytemuck::cast(number_at(at).load(Ordering::Relaxed));
        let failed = u32::from(self.fails[number as usize]);
        if status != (Status { failed, end_count: END_COUNT }) {
            self.is_misled.store(true, Ordering::Relaxed);
        }
    }

    /// Writes a task to its place in the ring, its number last. The task that was there is done.
    fn push(&self, task: &Task) {
        if let Some(before @ 1..) = task.number.checked_sub(RING) {
            self.take(before);
        }
        let place = self.ring + task.number % RING * size_of::<Task>() as u64;
        let words: [u64; size_of::<Task>() / 8] = bytemuck::cast(*task);
        let (number, others) = words.split_last().unwrap();
        for (at, &word) in others.iter().enumerate() {
            number_at(place + 8 * at as u64).store(word, Ordering::Relaxed);
        }
        number_at(place + 8 * others.len() as u64).store(*number, Ordering::Release);
    }

    /// The argument of a launch that has the first of these places for its counts, from a known first task on, or from the one on that the launch before has
    /// left.
    fn argument(
        &self,
        plan: &Plan,
        [words, next_words]: [u64; 2],
        first: Option<&Task>,
    ) -> QuantumArguments {
        let Batch { chains, failed, between, .. } = &self.batch;
        let [w_of_state, r_of_state, b_of_state] = chains.weights.get(1).copied().unwrap_or([0; 3]);
        let of = &chains.arguments;
        let last = plan.tasks.len() as u64;
        QuantumArguments {
            of: PersistentArguments {
                batch: RosterBatch {
                    rows: self.rows_at,
                    ports: self.ports_at,
                    ended: 0,
                    now: 0,
                    count: 0,
                    time: 0,
                },
                h: of.h,
                c: of.c,
                next_h: of.next_h,
                next_c: of.next_c,
                r: chains.weights[0][1],
                r_of_state,
                b: chains.weights[0][2],
                peepholes: of.peepholes,
                between: *between,
                arrived: words,
                failed: *failed,
                tries_max: 1 << 20,
                inputs: 1,
                ..PersistentArguments::zeroed()
            },
            x: of.x,
            lookup: of.lookup,
            w: chains.weights[0][0],
            w_of_state,
            b_of_state,
            ring: self.ring,
            words,
            next_words,
            brought: self.brought[0],
            brought_copies: self.brought[1],
            brought_bytes: self.brought[2],
            announced: self.announced,
            done: self.done,
            statuses: self.statuses,
            failed: self.failed,
            end_count: self.end_count,
            next: self.next,
            until: if first.is_some() { 0 } else { last + 1 },
            first: first.copied().unwrap_or(Task { number: 1, ..Task::zeroed() }),
            ring_tasks: RING as u32,
            looks_max: plan.looks_max,
            steps_max: plan.steps_max as i32,
            brought_max: plan.brought_max as u32,
            input: of.input,
            padding: 0,
        }
    }

    /// Places of counts, with which launches take turns.
    fn words(&self) -> [u64; 2] {
        [(); 2].map(|()| self.batch.chains.gpu.upload(&[0u32; WORDS], "words"))
    }

    /// Launches the kernel. Returns reports.
    fn launch(
        &self,
        library: &KernelLibrary,
        case: &Case,
        argument: &QuantumArguments,
        seed: u64,
    ) -> Vec<Report> {
        let kernel = QuantumKernel::new(case.kernel()).unwrap();
        let resident = case.blocks + 1;
        let shape = [kernel.grid(case.rows, resident), kernel.persistent().block()];
        let of_gpu = (resident, kernel.persistent().shared_bytes_of_weights());
        let gpu = &self.batch.chains.gpu;
        gpu.launch_some((library, &kernel.name()), shape, of_gpu, argument, seed)
    }

    /// Launches the kernel until it has run all tasks. Returns reports, and whether something is wrong.
    fn run(
        &self,
        library: &KernelLibrary,
        case: &Case,
        plan: &Plan,
        seed: u64,
    ) -> (Vec<Report>, bool) {
        let (gpu, failed) = (&self.batch.chains.gpu, self.batch.failed);
        let [even, odd] = self.words();
        let last = plan.tasks.len() as u64;
        let stops = AtomicBool::new(false);
        // Every second one runs what the launch before has left, as that has told.
        let launch_some = |launch: u64, first: u64, is_known: bool| {
            self.launches.fetch_add(1, Ordering::Relaxed);
            let words = if launch.is_multiple_of(2) { [even, odd] } else { [odd, even] };
            let first = is_known.then(|| &self.tasks[first as usize - 1]);
            self.launch(library, case, &self.argument(plan, words, first), seed ^ launch)
        };
        let launch_all = || {
            let mut first = 1;
            for launch in 0..LAUNCHES_MAX as u64 {
                let reports = launch_some(launch, first, first.is_multiple_of(2));
                let next = number_at(self.next).load(Ordering::Acquire);
                let is_stuck = gpu.read::<u32>(failed, 1) != [0];
                if !reports.is_empty() || is_stuck || next < first || next > last + 1 {
                    return (reports, true);
                }
                let ran = &plan.tasks[first as usize - 1..next as usize - 1];
                let steps: usize = ran.iter().map(|of| of.steps).sum();
                if ran.len() > 1 && steps > plan.steps_max {
                    return (reports, true);
                }
                first = next;
                if number_at(self.done).load(Ordering::Acquire) != first - 1 {
                    return (reports, true);
                }
                if first > last {
                    // Another one has nothing left to do.
                    let more = launch_some(launch + 1, first, false);
                    if !more.is_empty() || number_at(self.next).load(Ordering::Acquire) != next {
                        return (more, true);
                    }
                    (first.saturating_sub(RING).max(1)..first).for_each(|number| self.take(number));
                    let words: Vec<u32> = gpu.read(self.cleared, case.rows);
                    let is_right =
                        |(at, &word): (usize, &u32)| (word == 0) == self.changed.contains(&at);
                    let are_right = words.iter().enumerate().all(is_right);
                    return (reports, !are_right || self.is_misled.load(Ordering::Relaxed));
                }
                std::thread::yield_now();
            }
            (Vec::new(), true)
        };
        // Of every second seed, the first tasks are there before the kernel begins.
        let is_ahead = seed % 2 == 1;
        if is_ahead {
            self.tasks.iter().take(RING as usize).for_each(|task| self.push(task));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.bring(&mut Random(seed), is_ahead, &stops));
            let ended = launch_all();
            stops.store(true, Ordering::Relaxed);
            ended
        })
    }
}

/// The copies that bring the rows and ports of some positions of a roster to the GPU, ports of every second one by way of another place, and clear a word of
/// each: their address, how many are from the host and how many within the GPU.
fn changes(
    gpu: &Gpu,
    batch: &Batch<'_>,
    [rows_at, ports_at, between, cleared]: [u64; 4],
    roster: &[(usize, Row)],
    positions: impl Iterator<Item = usize>,
) -> (u64, u32, u32) {
    let (mut from_host, mut within) = (Vec::new(), Vec::new());
    let record = |bytes: &[u8]| gpu.upload_to_host(bytes, "record");
    for position in positions {
        let (row, of) = &roster[position];
        let of = Row { ports: 3 * position as u32, ..*of };
        let ports = &batch.ports[batch.rows[*row].ports as usize..][..3];
        let [row_bytes, port_bytes] = [size_of::<Row>(), 3 * size_of::<Port>()].map(|of| of as u64);
        let place = |of: u64, bytes: u64| of + position as u64 * bytes;
        from_host.push(Copy { to: place(cleared, 4), from: 0, bytes: 4 });
        let from = record(bytemuck::bytes_of(&of));
        from_host.push(Copy { to: place(rows_at, row_bytes), from, bytes: row_bytes });
        let from = record(bytemuck::cast_slice(ports));
        let to = place(ports_at, port_bytes);
        if position % 2 == 0 {
            from_host.push(Copy { to, from, bytes: port_bytes });
        } else {
            let on_the_way = place(between, port_bytes);
            from_host.push(Copy { to: on_the_way, from, bytes: port_bytes });
            within.push(Copy { to, from: on_the_way, bytes: port_bytes });
        }
    }
    let counts = (from_host.len() as u32, within.len() as u32);
    from_host.extend(within);
    let at = record(bytemuck::cast_slice(&from_host));
    (at, counts.0, counts.1)
}

/// A case, six of twelve in bfloat16, and a plan for it. Some cells have more inputs than units.
fn draw(seed: usize) -> (Case, Plan) {
    let precision = if seed / 6 % 2 == 1 { Precision::Bf16 } else { Precision::F32 };
    let cases = (0..).map(|more| Case::draw(precision, seed + 1000 * more));
    let has_kernel = |case: &Case| QuantumKernel::new(case.kernel()).is_some();
    let mut case = cases.into_iter().find(has_kernel).unwrap();
    if seed.is_multiple_of(3) {
        let hidden = case.cell.hidden_size;
        case.cell = cell(case.cell.kind.clone(), hidden + 7, hidden);
    } else {
        case.ids = Some(id_of);
    }
    let plan = Plan::draw(case.rows, seed as u64);
    (case, plan)
}

/// The library of the kernels of cases.
fn quantum_library(
    name: &str,
    cases: &[(Case, Plan)],
    replaced: Option<[&str; 2]>,
) -> KernelLibrary {
    let kernels = cases.iter().map(|(case, _)| QuantumKernel::new(case.kernel()).unwrap());
    let mut names = std::collections::BTreeSet::new();
    let kernels: Vec<_> = kernels.filter(|kernel| names.insert(kernel.name())).collect();
    library_of(name, FILE, Some(&QuantumKernel::source(&kernels)), replaced)
}

/// The bits of the states of a row after some steps, and those of its sinks.
fn bits_of(batch: &Batch<'_>, row: usize, steps: usize) -> [Vec<Vec<u32>>; 2] {
    let sinks = batch.sinks[row].each_ref().map(|sink| sink.read::<f32>(&batch.chains.gpu));
    [bits(&batch.states(row, steps)), bits(&sinks)]
}

/// What a row's states and sinks are to be, for each row of a plan.
type Right = Vec<[Vec<Vec<u32>>; 2]>;

/// The kernels that run each row alone, by one launch for all of its steps.
fn libraries_alone(name: &str, cases: &[(Case, Plan)]) -> [KernelLibrary; 2] {
    let cases: Vec<Case> = cases.iter().map(|(case, _)| case.clone()).collect();
    libraries(&format!("of-quantum-{name}"), &cases, None)
}

/// The bits of each row alone.
fn alone([project, persistent]: &[KernelLibrary; 2], case: &Case, plan: &Plan) -> Right {
    let of_row = |(row, &steps): (usize, &usize)| {
        let parts: &[usize] = if steps > 0 { &[steps] } else { &[] };
        bits_of(&run_parts([project, persistent], case, parts, Some(row)), row, steps)
    };
    plan.ran.iter().enumerate().map(of_row).collect()
}

/// Whether some row of a plan that was run has other bits than it is to have.
fn differs(plan: &Plan, tasks: &Tasks<'_>, right: &Right) -> bool {
    let mut rows = right.iter().zip(&plan.ran).enumerate();
    rows.any(|(row, (right, &steps))| bits_of(&tasks.batch, row, steps) != *right)
}

#[test]
fn rows_join_and_leave_while_a_kernel_runs() {
    let cases: Vec<_> = (0..CASES).chain([TALL]).map(draw).collect();
    let (library, of_alone) =
        (quantum_library("right", &cases, None), libraries_alone("right", &cases));
    for (seed, (case, plan)) in (0..).zip(&cases) {
        let tasks = Tasks::new(case, plan);
        let (reports, is_wrong) = tasks.run(&library, case, plan, seed);
        let of = format!("seed {seed}: {}, {plan:?}", case.kernel().name());
        assert!(reports.is_empty(), "{of}: {}", reports[0]);
        assert!(!is_wrong, "{of}");
        let right = alone(&of_alone, case, plan);
        assert!(!differs(plan, &tasks, &right), "{of}: other bits than alone");
    }
}

/// Plans, schedules of blocks and delays of the host, until there were 2,000 launches. It takes longer than all other tests of kernels, and so has a
/// command of its own:
///
/// ```console
/// $ cargo test --release -p batchmaker-cuda --features compiled-kernels --test kernels two_thousand -- --ignored --nocapture
/// ```
#[test]
#[ignore = "takes longer than all other tests of kernels"]
fn two_thousand_launches() {
    let cases: Vec<_> = (0..CASES_OF_BUGS).map(draw).collect();
    let library = quantum_library("many", &cases, None);
    let of_alone = libraries_alone("many", &cases);
    let mut launches = 0;
    for seed in 0.. {
        let (case, _) = &cases[seed as usize % cases.len()];
        let plan = Plan::draw(case.rows, seed);
        let tasks = Tasks::new(case, &plan);
        let (reports, is_wrong) = tasks.run(&library, case, &plan, seed);
        assert!(reports.is_empty() && !is_wrong, "seed {seed}: {reports:?}");
        let right = alone(&of_alone, case, &plan);
        assert!(!differs(&plan, &tasks, &right), "seed {seed}: other bits than alone");
        launches += tasks.launches.into_inner();
        if launches >= 2000 {
            println!("{launches} launches, {} plans", seed + 1);
            return;
        }
    }
}

/// Whether a case of some seeds shows a bug; `of_alone` keeps what their rows have alone.
fn is_found_in(
    (seeds, of_alone): (Range<usize>, &OnceLock<Vec<Right>>),
    name: &str,
    replaced: [&str; 2],
    found: Found,
) {
    let cases: Vec<_> = seeds.map(draw).collect();
    let right = of_alone.get_or_init(|| {
        let of_alone = libraries_alone(&format!("alone-{}", cases[0].0.precision), &cases);
        cases.iter().map(|(case, plan)| alone(&of_alone, case, plan)).collect()
    });
    let library = quantum_library(name, &cases, Some(replaced));
    let is_found = (0..).zip(cases.iter().zip(right)).any(|(seed, ((case, plan), right))| {
        let tasks = Tasks::new(case, plan);
        let (reports, is_wrong) = tasks.run(&library, case, plan, seed);
        found.is_by(&reports, || is_wrong || differs(plan, &tasks, right))
    });
    assert!(is_found, "{name} is not found");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    static OF_ALONE: OnceLock<Vec<Right>> = OnceLock::new();
    is_found_in((0..CASES_OF_BUGS, &OF_ALONE), name, replaced, found);
}

/// Whether no launch behind one that is stuck runs a task, whatever tasks there are.
fn stays_stuck(library: &KernelLibrary, case: &Case, plan: &Plan) -> bool {
    let tasks = Tasks::new(case, plan);
    let [even, odd] = tasks.words();
    let launch = |argument: &QuantumArguments| {
        assert!(tasks.launch(library, case, argument, 1).is_empty());
        number_at(tasks.next).load(Ordering::Acquire)
    };
    // The task that is to come first does not come.
    let mut left = tasks.argument(plan, [even, odd], None);
    left.of.tries_max = 9;
    assert_eq!(launch(&left), IS_STUCK);
    tasks.push(&tasks.tasks[0]);
    let known = tasks.argument(plan, [odd, even], Some(&tasks.tasks[0]));
    let known = QuantumArguments { looks_max: 1, ..known };
    let behind = [known, tasks.argument(plan, [even, odd], None), known];
    behind.iter().all(|argument| launch(argument) == IS_STUCK)
        && number_at(tasks.done).load(Ordering::Acquire) == 0
}

#[test]
fn launches_behind_one_that_is_stuck_run_nothing() {
    let cases = [draw(0)];
    let [(case, plan)] = &cases;
    let check = |name, replaced| stays_stuck(&quantum_library(name, &cases, replaced), case, plan);
    assert!(check("stuck", None));
    let next = "  if (next == IS_STUCK) red_release_gpu_add(&of.next_words->is_over, 1u);\n";
    assert!(!check("stuck-next", Some([next, ""])), "a flag that is not passed on is not found");
    let first = ["!is_over && looks < looks_max", "looks < looks_max"];
    assert!(!check("stuck-first", Some(first)), "a flag that is not read is not found");
}

bugs! {
    super::is_found;
    a_task_before_its_number: "if (has_place && ld_acquire_sys(there) == number) return true;" => "if (has_place) return true;", Found::ByAnything;
    a_task_in_place_of_one_in_use: "at < 2 || (int)(ld_acquire_gpu(&of.words->taken) + 1 - at) >= 0" => "true", Found::ByAnything;
    a_place_that_is_not_known_to_be_free: "red_release_gpu_add(&of.words->taken, 1u)" => "atomicAdd(&of.words->taken, 1u)", Found::ByAnything;
    one_place_of_the_courier: "place = at & 1;" => "place = 0;", Found::ByAnything;
    a_task_before_its_bytes: "    // All threads of the block have brought their parts, and have read the task.\n    __syncthreads();\n" => "", Found::ByAnything;
    a_task_that_is_not_published: "red_release_gpu_add(&of.words->brought, 1u)" => "atomicAdd(&of.words->brought, 1u)", Found::ByAnything;
    a_task_that_is_looked_at_too_early: "ld_acquire_gpu(&of.words->brought) <= at" => "ld_relaxed_gpu(&of.words->brought) <= at", Found::ByAnything;
    more_copies_than_there_is_room_for: "count <= of.brought_max;" => "true;", Found::ByAnything;
    sources_of_copies_within: "index < task.from_host && copy.from" => "copy.from", Found::ByAnything;
    bytes_of_one_lane: "copy_bytes_by(lane, 32," => "copy_bytes_by(0, 32,", Found::ByAnything;
    one_place_for_all_tasks: "(number & 1) * 2 + is_late" => "is_late", Found::ByAnything;
    a_task_of_the_barrier_before: "      announced++;\n" => "", Found::ByAnything;
    a_task_that_ended_the_launch_before: "number == first_number || announced->number" => "announced->number", Found::ByAnything;
    rows_are_read_while_they_change: "      make_copies(announced->copies, announced->from_host);\n      if (!meet(of, ++barriers)) return;" => "      make_copies(announced->copies, announced->from_host);", Found::ByAnything;
    ports_are_read_while_they_change: "      make_copies(announced->copies + announced->from_host, announced->within);\n      if (!meet(of, ++barriers)) return;" => "      make_copies(announced->copies + announced->from_host, announced->within);", Found::ByAnything;
    all_blocks_make_all_copies: "uint32_t at = blockIdx.x; at < count; at += gridDim.x - 1" => "uint32_t at = 0; at < count; at++", Found::ByAnything;
    the_last_step_has_no_barrier: "announce(of, number + 1, at + 1, false, steps);\n      if (!meet(of, ++barriers)) return;" => "announce(of, number + 1, at + 1, false, steps);", Found::ByAnything;
    a_leave_a_step_late: "step < task_steps; step++" => "step <= task_steps; step++", Found::ByAnything;
    steps_of_another_task: "step < task_steps; step++" => "step < announced->steps; step++", Found::ByAnything;
    a_row_too_few: "batch.count = count;" => "batch.count = count - 1;", Found::ByValues;
    time_stands_still: "batch.time = time + step;" => "batch.time = time;", Found::ByAnything;
    a_quantum_without_end: "steps > 0 && steps + task->steps > of.steps_max" => "false", Found::ByValues;
    an_end_that_nobody_learns_of: "      if (is_first) end_launch(of, count == NEVER_CAME ? IS_STUCK : number);\n" => "", Found::ByValues;
    done_for_the_gpu_alone: "st_release_sys(counter, number)" => "st_release_gpu(counter, number)", Found::By(Fault::HostScope);
    a_failure_of_the_task_before: "lookup.failed = of.failed + (number & 1)" => "lookup.failed = of.failed", Found::ByAnything;
    failures_of_all_tasks: "  *failed = 0;\n" => "", Found::ByValues;
    tasks_that_were_run_before: "left[0] > of.first.number ? left[0] : of.first.number" => "of.first.number", Found::ByAnything;
    counts_of_another_launch: "  if (is_first) *of.next_words = {0, ld_acquire_gpu(&of.words->is_over)};\n" => "", Found::ByAnything;
    the_first_task_for_all: "at == 0 && of.until == 0" => "of.until == 0", Found::ByAnything;
    a_task_that_is_left_before_it_is_known: "  __syncthreads();\n  return left[0]" => "  return left[0]", Found::ByAnything;
    x_is_read_too_early: "    __syncthreads();\n    const char* w" => "    const char* w", Found::ByAnything;
    rows_of_x_are_read_too_early: "    __syncthreads();\n    fill_words" => "    fill_words", Found::ByAnything;
    sums_of_x_change_too_early: "      // Who read the sums and rows of the tile before has done so.\n      __syncthreads();\n" => "", Found::ByAnything;
    units_beyond_the_cell: "      if (gate_row >= all_gate_rows) continue;\n" => "", Found::By(Fault::OutOfBounds);
    elements_of_the_first_tile: "(const char*)of_all + (long long)start * HIDDEN * GATES * Weights::WEIGHT_BYTES" => "(const char*)of_all", Found::ByValues;
    no_barrier_before_the_state: "    if (!meet(of, ++barriers)) return false;\n" => "", Found::ByAnything;
    products_with_weights_of_the_gates: "of.w_of_state, of.b_of_state" => "of.w, of.b_of_state", Found::ByAnything;
    no_bias: "unit < HIDDEN ? b[unit * SUMS + gate] : 0.f" => "0.f", Found::ByValues;
}

/// Bugs in products of x in bfloat16.
mod fragments {
    use std::sync::OnceLock;

    use super::{CASES_OF_BUGS, Right, TALL};
    use crate::harness::{Found, bugs};

    fn is_found(name: &str, replaced: [&str; 2], found: Found) {
        static OF_ALONE: OnceLock<Vec<Right>> = OnceLock::new();
        let seeds = TALL + 1 - CASES_OF_BUGS..TALL + 1;
        super::is_found_in((seeds, &OF_ALONE), &format!("fragments-{name}"), replaced, found);
    }

    bugs! {
        super::is_found;
        units_beyond_the_cell: " && first_gate_row + gate_row < all_gate_rows;" => ";", Found::By(Fault::OutOfBounds);
        rows_of_the_first_product: "load_vectors(vectors, tile, first_row, start / 2)" => "load_vectors(vectors, tile, 0, start / 2)", Found::ByValues;
        gate_rows_of_the_first_product: "const int gate_row = first + Fragment::gate_row(at), k = start" => "const int gate_row = Fragment::gate_row(at), k = start", Found::ByValues;
    }
}
