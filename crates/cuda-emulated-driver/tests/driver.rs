//! A host program on cudarc: what works on a GPU works here, and what it forgets is reported. Takes g++.
//!
//! The driver lives as long as the process, and errors stay with a device: each case runs in a process of its own.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DriverError, LaunchConfig,
    PushKernelArg, result, sys,
};

#[macro_use]
mod common;

use common::{COUNT, Counter, Emulated, IMAGE, Program, error, numbers, printed, scaled};

/// A case whose bug is found under some seeds alone prints this where it is found.
const FOUND: &str = "found under this seed";

impl Program {
    /// Launches a kernel that scales x to y, with a thread too many.
    fn scale(
        &self,
        name: &str,
        stream: &Arc<CudaStream>,
        x: &CudaSlice<f32>,
        y: &mut CudaSlice<f32>,
    ) {
        let kernel = self.kernel(name);
        let count = COUNT as i32;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(x).arg(y).arg(&3.0f32).arg(&count);
        let shape =
            LaunchConfig { grid_dim: (4, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: x and y have as many elements.
        unsafe { launch.launch(shape) }.unwrap();
    }
}

/// Copies between devices, on the stream of the program that has the target.
fn copy(
    (to, to_program): (&mut CudaSlice<f32>, &Program),
    (from, from_program): (&CudaSlice<f32>, &Program),
) -> Result<(), DriverError> {
    let (stream, bytes) = (&to_program.stream, 4 * COUNT);
    let [to_context, from_context] = [to_program, from_program].map(|of| of.context.cu_ctx());
    to_program.context.bind_to_thread().unwrap();
    let ((to, _to), (from, _from)) = (to.device_ptr_mut(stream), from.device_ptr(stream));
    // SAFETY: both have as many elements, and the tests keep them until the copy is over.
    unsafe {
        result::memcpy_peer_async(to_context, to, from_context, from, bytes, stream.cu_stream())
    }
}

/// Copies, a launch, and a copy back, on one stream and on two that an event orders.
fn a_program_that_is_right(emulated: &Emulated) {
    emulated.configure("pause_us", "200");
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.scale("scale", &stream, &x, &mut y);
    assert_eq!(stream.clone_dtoh(&y).unwrap(), scaled());
    let mut z = other.alloc_zeros::<f32>(COUNT).unwrap();
    other.wait(&stream.record_event(None).unwrap()).unwrap();
    program.scale("scale", &other, &y, &mut z);
    let nine_times: Vec<f32> = numbers().iter().map(|x| 9.0 * x).collect();
    assert_eq!(other.clone_dtoh(&z).unwrap(), nine_times);
    assert_eq!(error(program.module.load_function("none")), sys::CUresult::CUDA_ERROR_NOT_FOUND);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// Launches of kernels that are not to run do nothing, and all is counted.
fn what_the_host_asks_for_is_counted(emulated: &Emulated) {
    emulated.configure("runs_only", "another");
    let program = Program::new(0);
    let stream = program.stream.clone();
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    (0..3).for_each(|_| program.scale("scale", &stream, &x, &mut y));
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [0.0; COUNT]);
    let name: String = std::thread::current().name().unwrap().chars().take(15).collect();
    let counted = emulated.calls(&name);
    let count = |what: &str| counted.get(what).copied().unwrap_or(0);
    assert_eq!(count("a launch of scale"), 3);
    assert_eq!(
        [count("a copy from the host"), count("a fill"), count("a copy to the host")],
        [1; 3]
    );
    assert_eq!([count("cuLaunchKernel"), count("cuMemsetD8Async")], [3, 1], "{counted:?}");
    assert!(count("nanoseconds") > 0, "{counted:?}");
    assert!(emulated.calls("another thread").is_empty());
}

/// A second stream reads what the first one writes, and nothing orders them: reported whatever the order was.
fn a_wait_for_an_event_is_forgotten(emulated: &Emulated) {
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    let mut z = stream.alloc_zeros::<f32>(COUNT).unwrap();
    stream.synchronize().unwrap();
    program.scale("scale", &stream, &x, &mut y);
    program.scale("scale", &other, &y, &mut z);
    let done = stream.synchronize().and(other.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race: nothing orders a"), "{reports:?}");
    assert!(reports[0].contains("after a launch of scale (operation"), "{reports:?}");
}

/// A fault of a kernel comes back from the calls that follow, and from all later ones.
fn a_kernel_reads_out_of_bounds(emulated: &Emulated) {
    let program = Program::new(0);
    let stream = program.stream.clone();
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.scale("scale_too_many", &stream, &x, &mut y);
    for _ in 0..2 {
        assert_eq!(error(stream.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    }
    assert_eq!(error(stream.clone_htod(&numbers())), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("access out of bounds"), "{reports:?}");
}

/// The host polls a counter in its own memory, which kernels count up.
fn the_host_polls_a_counter(emulated: &Emulated) {
    emulated.configure("pause_us", "500");
    let program = Program::new(0);
    let counter = Counter::new(&program);
    (0..10).for_each(|_| counter.launch(&program, "count_up", 7));
    counter.wait_for(emulated, 70);
    program.stream.synchronize().unwrap();
    assert_eq!(emulated.reports(), [""; 0]);
}

/// One program scales, and a kernel on its stream then counts up for the host. The other program copies the result: when the host has seen the
/// count, if it `polls`. Returns what the copy has.
fn copy_what_is_counted(
    emulated: &Emulated,
    [program, other]: [&Program; 2],
    (kernel, polls): (&str, bool),
) -> Result<Vec<f32>, DriverError> {
    let counter = Counter::new(program);
    let x = program.stream.clone_htod(&numbers())?;
    let mut y = program.stream.alloc_zeros::<f32>(COUNT)?;
    let mut z = other.stream.alloc_zeros::<f32>(COUNT)?;
    program.stream.synchronize().and(other.stream.synchronize())?;
    emulated.configure("pause_us", "50000");
    program.scale("scale", &program.stream, &x, &mut y);
    counter.launch(program, kernel, 1);
    if polls {
        counter.wait_for(emulated, 1);
    }
    copy((&mut z, other), (&y, program))?;
    let copied = other.stream.clone_dtoh(&z)?;
    program.stream.synchronize()?;
    Ok(copied)
}

/// What a host submits to another stream, of the same device or of another one, follows what it has seen: as soon as it is there, whether or not the
/// launch is over.
fn a_polled_counter_orders_streams(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, same, other] = [0, 0, 1].map(Program::new);
    for kernel in ["count_up", "count_up_and_stay", "count_up_after_fence"] {
        for of in [&same, &other] {
            let copied = copy_what_is_counted(emulated, [&program, of], (kernel, true)).unwrap();
            assert_eq!(copied, scaled(), "{kernel}");
        }
    }
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A host submits to another stream what follows the counter, and does not poll it.
fn a_counter_is_not_polled(emulated: &Emulated) {
    let [program, other] = [0, 0].map(Program::new);
    let copied = copy_what_is_counted(emulated, [&program, &other], ("count_up", false));
    let reports = emulated.reports();
    assert_eq!(copied.is_err(), reports.iter().any(|of| of.contains("data race")), "{reports:?}");
    println!("{}", if copied.is_err() { FOUND } else { "not found" });
}

/// A host polls what a plain store counts up: reported whatever the order was.
fn a_counter_publishes_nothing(emulated: &Emulated) {
    let [program, other] = [0, 0].map(Program::new);
    let copied = copy_what_is_counted(emulated, [&program, &other], ("count_up_plainly", true));
    assert_eq!(error(copied), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race: a copy between devices (operation"), "{reports:?}");
}

/// A copy from one device to another, which an event orders; contexts that are none.
fn a_copy_between_devices(emulated: &Emulated) {
    emulated.configure("devices", "2");
    emulated.configure("pause_us", "500");
    let [program, other] = [0, 1].map(Program::new);
    let x = program.stream.clone_htod(&numbers()).unwrap();
    let mut y = program.stream.alloc_zeros::<f32>(COUNT).unwrap();
    let mut z = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.scale("scale", &program.stream, &x, &mut y);
    other.stream.wait(&program.stream.record_event(None).unwrap()).unwrap();
    copy((&mut z, &other), (&y, &program)).unwrap();
    assert_eq!(other.stream.clone_dtoh(&z).unwrap(), scaled());
    let contexts = [other.context.cu_ctx(), std::ptr::without_provenance_mut(3 << 12)];
    for [to, from] in [contexts, [contexts[1], contexts[0]], [std::ptr::null_mut(), contexts[0]]] {
        // SAFETY: the driver knows its contexts and its memory, and refuses others.
        let refused =
            unsafe { result::memcpy_peer_async(to, 8, from, 8, 4, other.stream.cu_stream()) };
        assert_eq!(error(refused), sys::CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    assert_eq!(emulated.reports(), [""; 0]);
}

/// The same without the event.
fn a_copy_between_devices_is_not_ordered(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, other] = [0, 1].map(Program::new);
    let y = program.stream.clone_htod(&numbers()).unwrap();
    let mut z = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    copy((&mut z, &other), (&y, &program)).unwrap();
    let done = program.stream.synchronize().and(other.stream.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race"), "{reports:?}");
}

/// The device that a copy reads from is lost: the call says so, and the other device goes on. A copy that was submitted before fails as it runs.
fn a_copy_from_a_device_that_is_lost(emulated: &Emulated) {
    emulated.configure("devices", "3");
    let [program, other, third] = [0, 1, 2].map(Program::new);
    let y = program.stream.clone_htod(&numbers()).unwrap();
    let [mut early, mut late] =
        [&other, &third].map(|of| of.stream.alloc_zeros::<f32>(COUNT).unwrap());
    [&program, &other, &third].iter().for_each(|of| of.stream.synchronize().unwrap());
    Counter::new(&program).launch(&program, "wait_for_host", 1);
    other.stream.wait(&program.stream.record_event(None).unwrap()).unwrap();
    copy((&mut early, &other), (&y, &program)).unwrap();
    emulated.configure("lose_device", "0");
    let lost = sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    assert_eq!(error(other.stream.synchronize()), lost);
    assert_eq!(error(copy((&mut late, &third), (&y, &program))), lost);
    assert_eq!(third.stream.clone_dtoh(&late).unwrap(), [0.0; COUNT]);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A device is lost while a kernel that never ends runs on it. Calls that wait for the device return its error, its memory and streams can be freed, and
/// another device works on.
fn a_device_is_lost_that_the_host_waits_for(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, other] = [0, 1].map(Program::new);
    let counter = Counter::new(&program);
    let things = Things::new(&program);
    counter.launch(&program, "wait_for_host", 1);
    let event = program.stream.record_event(None).unwrap();
    other.stream.wait(&event).unwrap();
    let began = Instant::now();
    let lost = sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| error(program.stream.synchronize())),
            scope.spawn(|| error(event.synchronize())),
            scope.spawn(|| error(program.context.synchronize())),
        ];
        let goes_on = scope.spawn(|| other.stream.synchronize());
        std::thread::sleep(Duration::from_millis(50));
        assert!(waits.iter().all(|wait| !wait.is_finished()) && !goes_on.is_finished());
        emulated.configure("lose_device", "0");
        for wait in waits {
            assert_eq!(wait.join().unwrap(), lost);
        }
        goes_on.join().unwrap().unwrap();
    });
    program.context.bind_to_thread().unwrap();
    things.give_back(&program);
    // SAFETY: nothing uses the counter any more.
    assert_eq!(error(unsafe { result::free_host(counter.at.cast()) }), lost);
    let x = other.stream.clone_htod(&numbers()).unwrap();
    assert_eq!(other.stream.clone_dtoh(&x).unwrap(), numbers());
    other.context.bind_to_thread().unwrap();
    // SAFETY: as above.
    unsafe { result::free_host(counter.at.cast()) }.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A device is lost while its stream waits for an event of another device. Calls that wait for the lost device return its error, and the other device
/// works on.
fn a_device_is_lost_that_waits(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, other] = [0, 1].map(Program::new);
    let counter = Counter::new(&program);
    counter.launch(&program, "wait_for_host", 1);
    other.stream.wait(&program.stream.record_event(None).unwrap()).unwrap();
    let event = other.stream.record_event(None).unwrap();
    let lost = sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| error(other.stream.synchronize())),
            scope.spawn(|| error(event.synchronize())),
        ];
        std::thread::sleep(Duration::from_millis(50));
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        emulated.configure("lose_device", "1");
        for wait in waits {
            assert_eq!(wait.join().unwrap(), lost);
        }
    });
    // SAFETY: the kernel loads the four bytes at once.
    unsafe { counter.at.write_volatile(1) };
    program.stream.synchronize().unwrap();
    assert_eq!(emulated.reports(), [""; 0]);
}

/// The memory, the stream and the other objects that a program has on a device.
struct Things {
    memory: [u64; 2],
    stream: sys::CUstream,
    event: sys::CUevent,
    module: sys::CUmodule,
}

impl Things {
    fn new(program: &Program) -> Self {
        program.context.bind_to_thread().unwrap();
        let image = CString::new(IMAGE).unwrap();
        // SAFETY: the image ends with a zero.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.unwrap();
        // SAFETY: the memory is not accessed.
        let memory = [0; 2].map(|_| unsafe { result::malloc_sync(100) }.unwrap());
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap();
        Self { memory, stream, event, module }
    }

    /// Gives all back. The calls may fail; none waits.
    fn give_back(self, program: &Program) {
        // SAFETY: nothing uses them any more.
        let results = unsafe {
            [
                result::free_sync(self.memory[0]),
                result::free_async(self.memory[1], program.stream.cu_stream()),
                result::stream::destroy(self.stream),
                result::event::destroy(self.event),
                result::module::unload(self.module),
                result::primary_ctx::release(0),
            ]
        };
        println!("{results:?}");
    }
}

/// A stream that waits for an event of a device that fails goes on, and so does a host that waits for the event.
fn a_device_fails_that_others_wait_for(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, other] = [0, 1].map(Program::new);
    let x = program.stream.clone_htod(&numbers()).unwrap();
    let mut y = program.stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.stream.synchronize().unwrap();
    emulated.configure("fail_launch", "1");
    program.scale("scale", &program.stream, &x, &mut y);
    if let Ok(event) = program.stream.record_event(None) {
        other.stream.wait(&event).unwrap();
        other.stream.synchronize().unwrap();
        assert_eq!(error(event.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    }
    let x = other.stream.clone_htod(&numbers()).unwrap();
    let mut y = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    assert_eq!(other.stream.clone_dtoh(&y).unwrap(), scaled(), "one launch alone failed");
}

/// Memory that another stream may still use is freed.
fn memory_is_freed_too_early(emulated: &Emulated) {
    emulated.configure("pause_us", "300");
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = other.alloc_zeros::<f32>(COUNT).unwrap();
    stream.synchronize().unwrap();
    program.scale("scale", &other, &x, &mut y);
    // On the stream that it was allocated on.
    drop(x);
    let done = stream.synchronize().and(other.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(!reports.is_empty(), "{reports:?}");
}

/// Too much memory is asked for; launches fail; one of two devices is lost, and the other one works on.
fn errors_that_a_test_asks_for(emulated: &Emulated) {
    emulated.configure("devices", "2");
    emulated.configure("memory_bytes", "1000");
    let [program, other] = [0, 1].map(Program::new);
    assert_eq!(CudaContext::device_count().unwrap(), 2);
    let allocated = program.stream.alloc_zeros::<f32>(200).unwrap();
    let too_much = program.stream.alloc_zeros::<f32>(100);
    assert_eq!(error(too_much), sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    drop(allocated);
    program.stream.synchronize().unwrap();
    emulated.configure("lose_device", "0");
    let lost = sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    assert_eq!(error(program.stream.synchronize()), lost, "before it is given anything");
    assert_eq!(error(program.stream.clone_htod(&[1.0f32])), lost);
    let x = other.stream.clone_htod(&numbers()).unwrap();
    assert_eq!(other.stream.clone_dtoh(&x).unwrap(), numbers());
    emulated.configure("fail_launch", "2");
    let mut y = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    other.stream.synchronize().unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    assert_eq!(error(other.stream.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

/// A grid that stays must fit the GPU.
fn a_cooperative_grid_that_does_not_fit(emulated: &Emulated) {
    emulated.configure("multiprocessors", "2");
    let program = Program::new(0);
    let kernel = program.kernel("count_up");
    let of_one = kernel.occupancy_max_active_blocks_per_multiprocessor(1024, 0, None).unwrap();
    assert_eq!(of_one, 2);
    let mut counter = program.stream.alloc_zeros::<u32>(1).unwrap();
    let launch = |blocks: u32, counter: &mut CudaSlice<u32>| {
        let mut launch = program.stream.launch_builder(&kernel);
        launch.arg(counter).arg(&1u32);
        let (grid_dim, block_dim) = ((blocks, 1, 1), (1024, 1, 1));
        // SAFETY: the counter has four bytes.
        unsafe {
            launch.launch_cooperative(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 })
        }
        .map(drop)
    };
    let refused = sys::CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    assert_eq!(error(launch(5, &mut counter)), refused);
    launch(4, &mut counter).unwrap();
    assert_eq!(program.stream.clone_dtoh(&counter).unwrap(), [4]);
}

/// Found under some seeds.
#[test]
fn not_polled_counter() {
    let printed = printed("not_polled_counter", a_counter_is_not_polled);
    assert!(printed.is_empty() || printed.iter().any(|of| of.contains(FOUND)), "{printed:?}");
}

cases! {
    right, a_program_that_is_right;
    counted_calls, what_the_host_asks_for_is_counted;
    forgotten_event, a_wait_for_an_event_is_forgotten;
    out_of_bounds, a_kernel_reads_out_of_bounds;
    polled_counter, the_host_polls_a_counter;
    polled_counter_of_another_stream, a_polled_counter_orders_streams;
    plain_counter, a_counter_publishes_nothing;
    peer_copy, a_copy_between_devices;
    peer_copy_without_order, a_copy_between_devices_is_not_ordered;
    peer_copy_from_lost_device, a_copy_from_a_device_that_is_lost;
    failed_device, a_device_fails_that_others_wait_for;
    lost_device, a_device_is_lost_that_the_host_waits_for;
    lost_device_that_waits, a_device_is_lost_that_waits;
    early_free, memory_is_freed_too_early;
    errors, errors_that_a_test_asks_for;
    cooperative, a_cooperative_grid_that_does_not_fit;
}
