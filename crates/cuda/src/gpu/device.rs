//! A GPU: its context and its kernels.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use batchmaker_device::DeviceError;
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, result};

use super::error::GpuError;
use super::functions::missing;
use super::images::Images;
use crate::kernels;

/// The number of GPUs of this machine.
///
/// # Errors
/// [`DeviceError::Resources`] where there is no driver, or it refuses.
pub(crate) fn devices() -> Result<usize, DeviceError> {
    // SAFETY: the library of the driver, if there is one, may be loaded at any time.
    if !unsafe { sys::is_culib_present() } {
        let reason = "there is no NVIDIA driver: its library libcuda.so.1 is not found";
        return Err(DeviceError::Resources(reason.to_owned()));
    }
    if let Some(missing) = missing() {
        let reason =
            format!("the NVIDIA driver is too old for this program: it has no function {missing}");
        return Err(DeviceError::Resources(reason));
    }
    let count = result::init().and_then(|()| result::device::get_count());
    let count = count.map_err(|error| {
        DeviceError::Resources(format!("the NVIDIA driver refuses: {}", GpuError::from(error)))
    })?;
    Ok(count as usize)
}

/// A GPU, ready to be used.
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    module: sys::CUmodule,
    kernels: HashMap<&'static str, sys::CUfunction>,
    /// Name, architecture and number of multiprocessors: times of batches depend on them.
    pub(crate) description: String,
    /// 90 for sm_90.
    pub(crate) architecture: u32,
    pub(crate) multiprocessors: usize,
    /// The most bytes of shared memory that a kernel may ask for.
    pub(crate) shared: usize,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// The GPU of that number, with its kernels.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where it is not there or cannot run the kernels.
    pub(crate) fn open(number: usize, images: &Images) -> Result<Self, DeviceError> {
        let there = devices()?;
        if number >= there {
            let reason = format!("there is no GPU {number}: the machine has {there}");
            return Err(DeviceError::Resources(reason));
        }
        let refused = |error: GpuError| DeviceError::Resources(format!("GPU {number}: {error}"));
        let context = CudaContext::new(number).map_err(|error| refused(error.into()))?;
        let attribute = |of| context.attribute(of).map_err(|error| refused(error.into()));
        let (major, minor) = context.compute_capability().map_err(|error| refused(error.into()))?;
        let processors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let name = context.name().map_err(|error| refused(error.into()))?;
        let architecture = (major * 10 + minor) as u32;
        let image = images.of(architecture).map_err(|reason| {
            DeviceError::Resources(format!("GPU {number} ({name}, sm_{architecture}): {reason}"))
        })?;
        let loaded = load(&image).map_err(|error| {
            let of = driver_version();
            DeviceError::Resources(format!(
                "GPU {number} ({name}, sm_{architecture}): its driver, {of}, does not take the kernels: {error}"
            ))
        })?;
        let description =
            format!("{name}, sm_{architecture}, {processors} multiprocessors").replace('"', "");
        let (module, kernels) = loaded;
        let multiprocessors = processors as usize;
        let shared =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                as usize;
        Ok(Self { context, module, kernels, description, architecture, multiprocessors, shared })
    }

    /// Makes this GPU the one that the thread's calls are for.
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        let own = self.context.cu_ctx();
        if result::ctx::get_current()? != Some(own) {
            // SAFETY: the context lives as long as this.
            unsafe { result::ctx::set_current(own) }?;
        }
        Ok(())
    }

    pub(super) fn context(&self) -> sys::CUcontext {
        self.context.cu_ctx()
    }

    /// A kernel.
    ///
    /// # Panics
    /// If it is none of [`kernels::NAMES`].
    pub(super) fn kernel(&self, name: &str) -> sys::CUfunction {
        self.kernels[name]
    }

    /// Bytes of its memory that nobody uses, and all of them.
    pub(crate) fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.bind()?;
        Ok(result::mem_get_info()?)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            // SAFETY: no kernel of it runs: streams wait for their work when they are dropped. An error is that of a GPU that is lost.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// The version of CUDA that the driver has.
fn driver_version() -> String {
    let mut version = 0;
    // SAFETY: the driver writes a number.
    match unsafe { sys::cuDriverGetVersion(&mut version) }.result() {
        Ok(()) => format!("of CUDA {}.{}", version / 1000, version % 1000 / 10),
        Err(_) => "of no known version of CUDA".to_owned(),
    }
}

type Loaded = (sys::CUmodule, HashMap<&'static str, sys::CUfunction>);

/// Loads an image into the current context, and all its kernels at once: a kernel that is loaded when it is first launched may wait for
/// one that runs.
fn load(image: &[u8]) -> Result<Loaded, GpuError> {
    // SAFETY: the image is a cubin, or PTX that ends with a zero.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }?;
    let kernel = |&name: &&'static str| {
        let text = CString::new(name).expect("a name has no zeros");
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module, text) }?;
        Ok((name, function))
    };
    let kernels: Result<_, GpuError> = kernels::NAMES.iter().map(kernel).collect();
    Ok((module, kernels?))
}
