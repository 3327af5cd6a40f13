//! A stream of work for a GPU, and events in it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use cudarc::driver::{DriverError, result, sys};

use super::device::Gpu;
use super::error::GpuError;
use super::launches::Launches;
use super::pinned::Pinned;
use super::resident::ResidentKernel;

/// A call of the driver that launches a kernel: grid, block, bytes of dynamic shared memory, stream and arguments.
type Launch = unsafe fn(
    sys::CUfunction,
    (u32, u32, u32),
    (u32, u32, u32),
    u32,
    sys::CUstream,
    &mut [*mut c_void],
) -> Result<(), DriverError>;

/// Work for a GPU, which it does in the order in which it is submitted. No method waits for it.
pub(crate) struct Stream {
    gpu: Arc<Gpu>,
    raw: sys::CUstream,
    copied: Copied,
}

/// Bytes that a stream has copied, or will.
#[derive(Default)]
pub(crate) struct Copied {
    /// From the host.
    pub(crate) r#in: AtomicU64,
    /// To the host.
    pub(crate) out: AtomicU64,
    /// From other GPUs.
    pub(crate) between: AtomicU64,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, GpuError> {
        gpu.bind()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { gpu: gpu.clone(), raw, copied: Copied::default() })
    }

    /// What it has copied.
    pub(crate) fn copied(&self) -> &Copied {
        &self.copied
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Copies from memory of this process.
    pub(crate) fn upload(
        &self,
        to: u64,
        (from, offset): (&Pinned, usize),
        bytes: usize,
    ) -> Result<(), GpuError> {
        self.gpu.bind()?;
        self.copied.r#in.fetch_add(bytes as u64, Ordering::Relaxed);
        let from = from.address(offset, bytes);
        // SAFETY: the bytes are within the memory, which its owner keeps until the copy is over.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.raw) };
        Ok(copied.result()?)
    }

    /// Copies to memory of this process.
    pub(crate) fn download(
        &self,
        (to, offset): (&Pinned, usize),
        from: u64,
        bytes: usize,
    ) -> Result<(), GpuError> {
        self.gpu.bind()?;
        self.copied.out.fetch_add(bytes as u64, Ordering::Relaxed);
        let to = to.address(offset, bytes);
        // SAFETY: the bytes are within the memory, which its owner keeps until the copy is over.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.raw) };
        Ok(copied.result()?)
    }

    /// Copies within the GPU's memory.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), GpuError> {
        self.gpu.bind()?;
        // SAFETY: the memory is the GPU's.
        Ok(unsafe { result::memcpy_dtod_async(to, from, bytes, self.raw) }?)
    }

    /// Copies from the memory of another GPU.
    pub(crate) fn copy_from(
        &self,
        other: &Gpu,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), GpuError> {
        self.gpu.bind()?;
        self.copied.between.fetch_add(bytes as u64, Ordering::Relaxed);
        let (own, other) = (self.gpu.context(), other.context());
        // SAFETY: the memory is that of the GPUs.
        Ok(unsafe { result::memcpy_peer_async(own, to, other, from, bytes, self.raw) }?)
    }

    /// Writes zeros.
    pub(crate) fn clear(&self, at: u64, bytes: usize) -> Result<(), GpuError> {
        self.fill(at, bytes, 0)
    }

    /// Writes the same byte everywhere.
    pub(crate) fn fill(&self, at: u64, bytes: usize, with: u8) -> Result<(), GpuError> {
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the memory is the GPU's.
        Ok(unsafe { result::memset_d8_async(at, with, bytes, self.raw) }?)
    }

    /// Launches a kernel on a grid of blocks of threads.
    pub(crate) fn launch<A: Pod>(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        argument: &A,
    ) -> Result<(), GpuError> {
        let kernel = self.gpu.kernel(kernel);
        self.launch_by(result::launch_kernel, (kernel, 0), [grid, block], argument)
    }

    /// Launches a kernel all of whose blocks run at a time; an error where they cannot.
    pub(crate) fn launch_resident<A: Pod>(
        &self,
        kernel: &ResidentKernel,
        shape: [[u32; 3]; 2],
        argument: &A,
    ) -> Result<(), GpuError> {
        let kernel = (kernel.function(), kernel.dynamic_shared());
        self.launch_by(result::launch_cooperative_kernel, kernel, shape, argument)
    }

    /// Launches kernels one after the other.
    pub(crate) fn launch_all(&self, launches: &Launches) -> Result<(), GpuError> {
        self.gpu.bind()?;
        for (launch, argument) in launches.iter() {
            let mut arguments = [argument.as_ptr().cast::<c_void>().cast_mut()];
            let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| (x, y, z));
            // SAFETY: the driver copies the argument, which has the layout of the kernel's parameter.
            unsafe {
                result::launch_kernel(launch.kernel, grid, block, 0, self.raw, &mut arguments)
            }?;
        }
        Ok(())
    }

    fn launch_by<A: Pod>(
        &self,
        launch: Launch,
        (kernel, dynamic_shared): (sys::CUfunction, u32),
        [grid, block]: [[u32; 3]; 2],
        argument: &A,
    ) -> Result<(), GpuError> {
        self.gpu.bind()?;
        let mut argument = *argument;
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        let [grid, block] = [grid, block].map(|[x, y, z]| (x, y, z));
        // SAFETY: the driver copies the argument, which has the layout of the kernel's parameter.
        Ok(unsafe { launch(kernel, grid, block, dynamic_shared, self.raw, &mut arguments) }?)
    }

    /// Has a thread of the driver run `work`, which calls no function of the driver and does not panic, in its turn. Where the GPU fails before,
    /// `work` neither runs nor is dropped.
    pub(crate) fn run_on_host(&self, work: impl FnOnce() + Send + 'static) -> Result<(), GpuError> {
        unsafe extern "C" fn run(work: *mut c_void) {
            // SAFETY: the pointer is the one that was given away below, once.
            let work = unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce() + Send>>()) };
            work();
        }
        self.gpu.bind()?;
        let work: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(work));
        let work = Box::into_raw(work).cast();
        // SAFETY: `run` takes the box, once.
        let launched = unsafe { result::stream::launch_host_function(self.raw, run, work) };
        if launched.is_err() {
            // SAFETY: the driver has refused the box.
            drop(unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce() + Send>>()) });
        }
        Ok(launched?)
    }

    /// Records an event behind all work so far.
    pub(crate) fn record(&self) -> Result<Event, GpuError> {
        self.gpu.bind()?;
        let event = Event::new(&self.gpu)?;
        // SAFETY: both are this GPU's.
        unsafe { result::event::record(event.raw, self.raw) }?;
        Ok(event)
    }

    /// Whether the GPU has failed.
    pub(crate) fn check(&self) -> Result<(), GpuError> {
        self.gpu.bind()?;
        // SAFETY: the stream is there.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            queried => Ok(queried.result()?),
        }
    }

    /// Waits until all work is done.
    pub(crate) fn synchronize(&self) -> Result<(), GpuError> {
        self.gpu.bind()?;
        // SAFETY: the stream is there.
        Ok(unsafe { result::stream::synchronize(self.raw) }?)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the stream is used for the last time. Errors are those of a GPU that is lost.
            let _ = unsafe {
                result::stream::synchronize(self.raw)
                    .and_then(|()| result::stream::destroy(self.raw))
            };
        }
    }
}

/// A point in a stream.
pub(crate) struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, GpuError> {
        // A thread that waits for it sleeps.
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes the handle.
        unsafe { sys::cuEventCreate(&mut raw, flags) }.result()?;
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// Whether the work before it is done.
    pub(crate) fn is_reached(&self) -> Result<bool, GpuError> {
        self.gpu.bind()?;
        // SAFETY: the event is there.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            queried => Ok(queried.result().map(|()| true)?),
        }
    }

    /// Waits until the work before it is done.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        self.gpu.bind()?;
        // SAFETY: the event is there.
        Ok(unsafe { result::event::synchronize(self.raw) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the event is used for the last time.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}
