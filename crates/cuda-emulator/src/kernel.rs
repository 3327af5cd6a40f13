//! A kernel: its code as g++ compiled it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

/// A kernel of a library.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The bytes of each parameter.
    pub parameter_bytes: Vec<usize>,
    pub(crate) call: unsafe extern "C" fn(*mut *mut c_void),
    pub(crate) library: Arc<Loaded>,
}

/// The library of a kernel, which is loaded as long as one of its kernels is there.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    /// The address at which it is.
    pub(crate) base: usize,
    pub(crate) _library: Library,
    /// The lines of sites that were looked up.
    pub(crate) lines: Mutex<HashMap<u32, String>>,
}

impl Loaded {
    /// Whether an address is one of the library's own code or data.
    fn has(&self, at: *const u8) -> bool {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the function writes the structure, which is valid when it is zeros, and reads nothing at the address.
        let info = unsafe {
            libc::dladdr(at.cast(), info.as_mut_ptr());
            info.assume_init()
        };
        info.dli_fbase as usize == self.base
    }
}

impl Kernel {
    /// Runs the code of one thread.
    ///
    /// # Safety
    /// `arguments` has a pointer to a value of each parameter, and the emulator runs the thread.
    pub(crate) unsafe fn call(&self, arguments: *mut *mut c_void) {
        // SAFETY: the caller's promise; the library is loaded as long as the kernel is there.
        unsafe { (self.call)(arguments) }
    }

    /// Whether an address is one of the library's own code or data.
    pub(crate) fn has(&self, at: *const u8) -> bool {
        self.library.has(at)
    }

    /// The offset of an address of code in the library.
    pub(crate) fn site(&self, address: *const c_void) -> u32 {
        (address as usize - self.library.base) as u32
    }

    /// The line of source of a site, if `addr2line` finds it: of the kernel's own file, not of the header that it includes.
    pub(crate) fn line(&self, site: u32) -> String {
        let lines = &self.library.lines;
        let known = lines.lock().unwrap_or_else(PoisonError::into_inner).get(&site).cloned();
        known.unwrap_or_else(|| {
            let line = self.find_line(site);
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.insert(site, line.clone());
            line
        })
    }

    fn find_line(&self, site: u32) -> String {
        // A site is a return address: the instruction after the call.
        let offset = format!("{:#x}", site.saturating_sub(1));
        let mut command = Command::new("addr2line");
        command.arg("-i").arg("-e").arg(&self.library.path).arg(&offset);
        let output = command.output().ok().filter(|output| output.status.success());
        let lines = output.and_then(|output| String::from_utf8(output.stdout).ok());
        let own = |line: &&str| !line.contains("emulated_cuda.h") && !line.starts_with("??");
        match lines.as_deref().and_then(|lines| lines.lines().find(own)) {
            Some(line) => {
                let line = line.split(" (").next().unwrap_or(line);
                line.rsplit('/').next().unwrap_or(line).to_owned()
            }
            None => format!("{}+{offset}", self.name),
        }
    }
}
