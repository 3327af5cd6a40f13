//! What a module's image says of its kernels: their names, and of a cubin their registers and shared memory.

use std::collections::BTreeMap;

/// A kernel of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of static shared memory.
    pub(crate) shared: u32,
}

/// Registers of a thread where the image does not say.
const REGISTERS: u32 = 32;

/// The kernels of an image: text of PTX that ends with a zero, or a cubin. None if it is neither.
///
/// # Safety
/// The image is complete.
pub(crate) unsafe fn entries(image: *const u8) -> Option<BTreeMap<String, Entry>> {
    // SAFETY: the caller's promise; both kinds have four bytes and more.
    let magic = unsafe { std::slice::from_raw_parts(image, 4) };
    if magic == b"\x7fELF" {
        // SAFETY: the caller's promise.
        return Some(of_cubin(unsafe { elf_bytes(image) }?));
    }
    // SAFETY: the caller's promise: what is no cubin is text.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) }.to_str().ok()?;
    text.contains(".target").then(|| of_ptx(text))
}

fn of_ptx(text: &str) -> BTreeMap<String, Entry> {
    let names = text.split(".entry").skip(1).filter_map(|rest| {
        let name = rest.trim_start().split(|c: char| c == '(' || c.is_whitespace()).next()?;
        Some((name.to_owned(), Entry { registers: REGISTERS, shared: 0 }))
    });
    names.collect()
}

/// The bytes of an ELF file, up to the end of its table of sections, which comes last in a cubin.
unsafe fn elf_bytes(image: *const u8) -> Option<&'static [u8]> {
    // SAFETY: the caller's promise: a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let end = number(header, 40, 8)? + number(header, 58, 2)? * number(header, 60, 2)?;
    let programs = number(header, 32, 8)? + number(header, 54, 2)? * number(header, 56, 2)?;
    // SAFETY: the tables lie within the file.
    Some(unsafe { std::slice::from_raw_parts(image, end.max(programs)) })
}

fn number(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    let of = bytes.get(at..at + count)?;
    Some(of.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)))
}

/// Kernels are the sections `.text.NAME`, whose info has the registers in its last byte; `.nv.shared.NAME` is as long as the shared memory.
fn of_cubin(bytes: &[u8]) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let mut shared = BTreeMap::new();
    for (name, section) in sections(bytes) {
        if let Some(kernel) = name.strip_prefix(".text.") {
            let registers = number(bytes, section + 44, 4).unwrap_or(0) >> 24;
            let registers = if registers == 0 { REGISTERS } else { registers as u32 };
            entries.insert(kernel.to_owned(), Entry { registers, shared: 0 });
        } else if let Some(kernel) = name.strip_prefix(".nv.shared.") {
            shared.insert(kernel.to_owned(), number(bytes, section + 32, 8).unwrap_or(0) as u32);
        }
    }
    for (kernel, bytes) in shared {
        entries.entry(kernel).and_modify(|entry| entry.shared = bytes);
    }
    entries
}

/// The sections of an ELF file: their names and the offsets of their headers.
fn sections(bytes: &[u8]) -> Vec<(String, usize)> {
    let of = |at, count| number(bytes, at, count).unwrap_or(0);
    let (table, size, count, names) = (of(40, 8), of(58, 2), of(60, 2), of(62, 2));
    let strings = of(table + names * size + 24, 8);
    let section = |at: usize| {
        let header = table + at * size;
        let name = bytes.get(strings + of(header, 4)..)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        Some((String::from_utf8_lossy(&name[..end]).into_owned(), header))
    };
    (0..count).filter_map(section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_names_its_kernels() {
        let text = ".version 8.0\n.target sm_75\n.visible .entry scale(\n.param .u64 x\n)\n{}\n.entry add (";
        let entries = of_ptx(text);
        assert_eq!(entries.keys().collect::<Vec<_>>(), ["add", "scale"]);
        assert_eq!(entries["add"], Entry { registers: 32, shared: 0 });
    }

    #[test]
    fn what_is_no_image_is_refused() {
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { entries(c"nothing".as_ptr().cast()) }, None);
    }
}
