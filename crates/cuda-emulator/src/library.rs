//! Kernels in a library that [`compile`](crate::compile) made.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use libloading::Library;

use crate::abi::{Calls, RawKernel};
use crate::execution::CALLS;
use crate::kernel::{Kernel, Loaded};

/// A library is none of kernels.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct LibraryError {
    path: PathBuf,
    message: String,
}

/// A library of kernels.
#[derive(Debug)]
pub struct KernelLibrary {
    kernels: Vec<Kernel>,
}

impl KernelLibrary {
    /// Loads a library.
    ///
    /// # Errors
    /// [`LibraryError`] where it cannot be loaded, or has no kernels.
    pub fn load(path: &Path) -> Result<Self, LibraryError> {
        let failed = |message: String| LibraryError { path: path.to_owned(), message };
        type Attach = unsafe extern "C" fn(*const Calls, *mut usize) -> *const RawKernel;
        // SAFETY: a library of kernels registers them when it is loaded, and does nothing else.
        let library = unsafe { Library::new(path) }.map_err(|error| failed(error.to_string()))?;
        // SAFETY: the header declares the function so.
        let attach = unsafe { library.get::<Attach>(b"emulated_attach") };
        let attach = *attach.map_err(|error| failed(error.to_string()))?;
        let mut count = 0;
        // SAFETY: the calls live as long as the program.
        let first = unsafe { attach(&CALLS, &mut count) };
        if count == 0 {
            return Err(failed("it registers no kernels".to_owned()));
        }
        let base = base_of(attach as *const c_void);
        let library = Arc::new(Loaded {
            path: path.to_owned(),
            base,
            _library: library,
            lines: Mutex::default(),
        });
        // SAFETY: the library has so many kernels, at this place.
        let raw = unsafe { std::slice::from_raw_parts(first, count) };
        let kernel = |raw: &RawKernel| {
            // SAFETY: the name is a literal of the library.
            let name = unsafe { CStr::from_ptr(raw.name) }.to_string_lossy().into_owned();
            // SAFETY: a static array of the library has the bytes of so many parameters.
            let bytes = unsafe { std::slice::from_raw_parts(raw.parameter_bytes, raw.parameters) };
            let (parameter_bytes, library) = (bytes.to_vec(), library.clone());
            Kernel { name, parameter_bytes, call: raw.call, library }
        };
        Ok(Self { kernels: raw.iter().map(kernel).collect() })
    }

    /// Its kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// The address at which the library of a function is loaded.
fn base_of(function: *const c_void) -> usize {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function writes the structure, which is valid when it is zeros.
    let info = unsafe {
        libc::dladdr(function, info.as_mut_ptr());
        info.assume_init()
    };
    info.dli_fbase as usize
}
