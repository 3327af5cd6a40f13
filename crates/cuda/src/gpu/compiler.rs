//! Compiles kernels with NVIDIA's compiler library, NVRTC: those that this program holds none of for a GPU, and those that are made for a cell. What was
//! compiled once is kept.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Debug;
use std::sync::Mutex;

use cudarc::nvrtc::{result, sys};

use super::image_cache::{ImageCache, Key};
use crate::kernels::{HEADERS, SOURCES};
use crate::lock::lock;

/// Compiles a source, which may include all headers and files of kernels, for an architecture, 90 for sm_90; or gives what another process has compiled.
///
/// # Errors
/// There is no library, or it does not compile the source.
pub fn nvrtc(source: &str, architecture: u32) -> Result<Vec<u8>, String> {
    let compiler = Compiler::load(source, architecture)?;
    let (cache, key) = (ImageCache::of_user(), compiler.key());
    if let Some(image) = cache.as_ref().and_then(|cache| cache.find(&key)) {
        return Ok(image);
    }
    let image = compiler.compile()?;
    if let Some(cache) = &cache {
        cache.keep(&key, &image);
    }
    Ok(image)
}

/// All kernels that cells of any size share, for an architecture: compiled by this process once.
///
/// # Errors
/// As [`nvrtc`].
pub(super) fn compiled(architecture: u32) -> Result<Vec<u8>, String> {
    static KNOWN: Mutex<BTreeMap<u32, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut known = lock(&KNOWN);
    if let Some(image) = known.get(&architecture) {
        return Ok(image.clone());
    }
    let source: String = SOURCES.iter().map(|of| format!("#include \"{}\"\n", of.name)).collect();
    let image = nvrtc(&source, architecture)?;
    known.insert(architecture, image.clone());
    Ok(image)
}

/// The library, with what it is to compile.
struct Compiler<'a> {
    version: (i32, i32),
    options: Vec<String>,
    source: &'a str,
}

impl<'a> Compiler<'a> {
    fn load(source: &'a str, architecture: u32) -> Result<Self, String> {
        // SAFETY: the library, if there is one, may be loaded at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "this program holds no kernels for it, and there is no library to compile them \
                        (libnvrtc.so, of the package nvidia-cuda-nvrtc)"
                    .to_owned(),
            );
        }
        let mut version = (0, 0);
        // SAFETY: the library writes both numbers.
        unsafe { sys::nvrtcVersion(&mut version.0, &mut version.1) }.result().map_err(failed)?;
        let options =
            vec![format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".to_owned()];
        Ok(Self { version, options, source })
    }

    /// All that the image follows from, as far as the library tells its version.
    fn key(&self) -> Key {
        let Self { version: (major, minor), options, source } = self;
        let mut key = Key::default();
        key.add(&format!("NVRTC {major}.{minor} {options:?}"));
        key.add(source);
        for source in HEADERS.iter().chain(&SOURCES) {
            key.add(source.name);
            key.add(source.text);
        }
        key
    }

    fn compile(&self) -> Result<Vec<u8>, String> {
        let text = |text: &str| CString::new(text).expect("sources have no zeros");
        let files: Vec<(CString, CString)> =
            HEADERS.iter().chain(&SOURCES).map(|of| (text(of.text), text(of.name))).collect();
        let texts: Vec<_> = files.iter().map(|of| of.0.as_ptr()).collect();
        let names: Vec<_> = files.iter().map(|of| of.1.as_ptr()).collect();
        let (source, name) = (text(self.source), text("kernels.cu"));
        let mut program = std::ptr::null_mut();
        // SAFETY: all texts live until the program is made.
        let made = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                files.len() as i32,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        made.result().map_err(failed)?;
        // SAFETY: the program is made and not yet destroyed.
        unsafe {
            let image = result::compile_program(program, &self.options).map_err(|error| {
                let log = result::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|of| of as u8).collect();
                format!("{}\n{}", failed(error), String::from_utf8_lossy(&log))
            });
            let image = image.and_then(|()| cubin(program));
            let _ = result::destroy_program(program);
            image
        }
    }
}

fn failed(error: impl Debug) -> String {
    format!("its kernels cannot be compiled: {error:?}")
}

/// The cubin of a program that is compiled.
///
/// # Safety
/// The program is compiled.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the caller's promise; the bytes have room for as many as the library says.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(failed)?;
        let mut bytes = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()).result().map_err(failed)?;
        Ok(bytes)
    }
}
