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

/// Bytes that the compiler adds to the shared memory of a kernel, for the system, from sm_90 on.
const RESERVED_BYTES: u32 = 1 << 10;

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

/// Kernels are the sections `.text.NAME`; `.nv.shared.NAME` is as long as the shared memory, with what is added for the system if there is a section
/// for that.
fn of_cubin(bytes: &[u8]) -> BTreeMap<String, Entry> {
    let sections = sections(bytes);
    let registers = registers(bytes, &sections);
    let header = |name: &str| sections.iter().find(|of| of.0 == name).map(|of| of.1);
    let is_with_reserved = header(".nv.shared.reserved.0").is_some();
    let reserved = if is_with_reserved { RESERVED_BYTES } else { 0 };
    let kernels = sections.iter().filter_map(|(name, _)| name.strip_prefix(".text."));
    let entry = |kernel: &str| {
        let section = header(&format!(".nv.shared.{kernel}"));
        let shared = section.and_then(|section| number(bytes, section + 32, 8)).unwrap_or(0);
        Entry {
            registers: registers.get(kernel).copied().unwrap_or(REGISTERS),
            shared: (shared as u32).saturating_sub(reserved),
        }
    };
    kernels.map(|kernel| (kernel.to_owned(), entry(kernel))).collect()
}

/// The registers of kernels: what `.nv.info` says of the symbols of a table. It is a list of attributes: a format, a kind, and a number of bytes that
/// follow if the format says so.
fn registers(bytes: &[u8], sections: &[(String, usize)]) -> BTreeMap<String, u32> {
    const FOLLOWED: usize = 4;
    const REGISTER_COUNT: usize = 0x2f;
    let of = |at, count| number(bytes, at, count).unwrap_or(0);
    // Offset, length and the index of the section that a section refers to.
    let parts = |header: usize| (of(header + 24, 8), of(header + 32, 8), of(header + 40, 4));
    let Some(info) = sections.iter().find(|of| of.0 == ".nv.info") else {
        return BTreeMap::new();
    };
    let (mut at, length, symbols) = parts(info.1);
    let end = at + length;
    let (table, size) = (of(40, 8), of(58, 2));
    let (symbols, _, names) = parts(table + symbols * size);
    let names = parts(table + names * size).0;
    let mut registers = BTreeMap::new();
    while at < end {
        let (format, kind) = (of(at, 1), of(at + 1, 1));
        if (format, kind) == (FOLLOWED, REGISTER_COUNT) {
            let symbol = symbols + of(at + 4, 4) * 24;
            let name = text(bytes, names + of(symbol, 4)).unwrap_or_default();
            registers.insert(name, of(at + 8, 4) as u32);
        }
        at += 4 + if format == FOLLOWED { of(at + 2, 2) } else { 0 };
    }
    registers
}

/// A text that ends with a zero.
fn text(bytes: &[u8], at: usize) -> Option<String> {
    let text = bytes.get(at..)?;
    let end = text.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// The sections of an ELF file: their names and the offsets of their headers.
fn sections(bytes: &[u8]) -> Vec<(String, usize)> {
    let of = |at, count| number(bytes, at, count).unwrap_or(0);
    let (table, size, count, names) = (of(40, 8), of(58, 2), of(60, 2), of(62, 2));
    let strings = of(table + names * size + 24, 8);
    let section = |at: usize| {
        let header = table + at * size;
        Some((text(bytes, strings + of(header, 4))?, header))
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

    /// `cargo xtask emulate` names a folder of cubins; they are checked against the table of what the compiler has said of them.
    #[test]
    fn cubins_have_the_registers_of_the_table() {
        let Some(folder) = std::env::var_os("BATCHMAKER_CUDA_IMAGES") else { return };
        let table = include_str!("../../cuda/registers.md");
        // Kernels that are made for one cell are in no image of the folder.
        let is_of_one_cell =
            |line: &str| ["`persistent_", "`quantum_"].iter().any(|name| line.contains(name));
        let mut rows = table
            .lines()
            .filter(|line| line.starts_with('|') && !is_of_one_cell(line))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<&str>>());
        let architectures = rows.next().unwrap();
        let kernels: Vec<Vec<&str>> = rows.skip(1).collect();
        for (column, architecture) in architectures.iter().enumerate().skip(1) {
            let name = architecture.replace("sm_", "kernels_") + ".cubin";
            let image = std::fs::read(std::path::Path::new(&folder).join(name)).unwrap();
            // SAFETY: the image is complete.
            let entries = unsafe { entries(image.as_ptr()) }.unwrap();
            assert_eq!(entries.len(), kernels.len());
            for kernel in &kernels {
                let Entry { registers, shared } = entries[kernel[0].trim_matches('`')];
                let of = (kernel[0], format!("{registers}; {shared}"));
                assert_eq!(of, (kernel[0], kernel[column].to_owned()), "{architecture}");
            }
        }
    }
}
