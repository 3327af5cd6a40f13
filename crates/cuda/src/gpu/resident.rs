//! A kernel that is compiled for one cell, all of whose blocks run at a time.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::device::Gpu;
use super::error::GpuError;

/// A kernel in a module of its own.
pub(crate) struct ResidentKernel {
    gpu: Arc<Gpu>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    blocks: usize,
    dynamic_shared: u32,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for ResidentKernel {}
// SAFETY: as above.
unsafe impl Sync for ResidentKernel {}

impl ResidentKernel {
    /// Loads the kernel `name` of an image. Its launches have `threads` threads a block, and `dynamic_shared` bytes of shared memory beside the kernel's own.
    pub(crate) fn load(
        gpu: &Arc<Gpu>,
        image: &[u8],
        name: &str,
        threads: u32,
        dynamic_shared: usize,
    ) -> Result<Self, GpuError> {
        gpu.bind()?;
        let name = CString::new(name).expect("a name has no zeros");
        // SAFETY: the image is a cubin, or PTX that ends with a zero; the module has no other user.
        unsafe {
            let module = result::module::load_data(image.as_ptr().cast())?;
            let function = result::module::get_function(module, name);
            let of_one = function.and_then(|function| {
                if dynamic_shared > 0 {
                    let of =
                        sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                    result::function::set_function_attribute(function, of, dynamic_shared as i32)?;
                }
                let of_one = result::occupancy::max_active_block_per_multiprocessor;
                Ok((function, of_one(function, threads as i32, dynamic_shared)?))
            });
            match of_one {
                Ok((function, of_one)) => {
                    let blocks = of_one as usize * gpu.multiprocessors;
                    let dynamic_shared = dynamic_shared as u32;
                    Ok(Self { gpu: gpu.clone(), module, function, blocks, dynamic_shared })
                }
                Err(error) => {
                    let _ = result::module::unload(module);
                    Err(error.into())
                }
            }
        }
    }

    /// The most blocks that run at a time.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of shared memory of a block of its launches, beside the kernel's own.
    pub(super) fn dynamic_shared(&self) -> u32 {
        self.dynamic_shared
    }

    pub(super) fn function(&self) -> sys::CUfunction {
        self.function
    }
}

impl Drop for ResidentKernel {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the driver waits until no launch uses the module. An error is that of a GPU that is lost.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}
