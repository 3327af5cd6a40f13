//! Embeds compiled kernels into the program: the images of the folder that BATCHMAKER_CUDA_IMAGES names, as `registers.py` writes them. Without the
//! variable there are none.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;

const VARIABLE: &str = "BATCHMAKER_CUDA_IMAGES";

/// The file of the folder that has the sources which the images were made of.
const SOURCES: &str = "sources.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let embedded = folder.map_or(Ok("&[]".to_owned()), |folder| embed(Path::new(&folder)));
    let written = embedded.and_then(|list| {
        std::fs::write(out().join("images.rs"), list).map_err(|error| error.to_string())
    });
    if let Err(reason) = written {
        println!("cargo::error={VARIABLE}: {reason}");
    }
}

fn out() -> PathBuf {
    PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where the output lies"))
}

/// Compresses the images of a folder. Gives the list of them, as Rust: architecture, whether it is PTX, and the compressed bytes.
fn embed(folder: &Path) -> Result<String, String> {
    let shown = folder.display();
    println!("cargo::rerun-if-changed={shown}");
    println!("cargo::rerun-if-changed=kernels");
    if !folder.is_absolute() {
        return Err(format!("'{shown}' is no absolute path"));
    }
    let files = files(folder)?;
    let named = files.iter().filter_map(|file| Some((architecture(file)?, file)));
    let mut images: Vec<((u32, bool), &PathBuf)> = named.collect();
    images.sort();
    if images.is_empty() {
        let expected = "no image, such as kernels_90.cubin or kernels_75.ptx";
        return Err(format!(
            "the folder '{shown}' has {expected}: `registers.py --images` writes them"
        ));
    }
    if read(&folder.join(SOURCES))? != sources()? {
        return Err(format!(
            "the images of '{shown}' are of other sources than {}: `registers.py --images` writes them anew",
            "crates/cuda/kernels"
        ));
    }
    let mut list = "&[\n".to_owned();
    for ((architecture, is_ptx), file) in images {
        let mut bytes = read(file)?;
        if is_ptx {
            // A text ends with a zero.
            bytes.push(0);
        }
        let name = format!("{}.z", file.file_name().unwrap_or_default().to_string_lossy());
        compress(&bytes, &out().join(&name)).map_err(|error| format!("{name}: {error}"))?;
        writeln!(list, "    ({architecture}, {is_ptx}, include_bytes!({name:?})),")
            .expect("memory takes text");
    }
    list.push_str("]\n");
    Ok(list)
}

/// The architecture of an image, and whether it is PTX, by its name; none if the file is no image.
fn architecture(file: &Path) -> Option<(u32, bool)> {
    let name = file.file_name()?.to_str()?.strip_prefix("kernels_")?;
    let (architecture, ending) = name.split_once('.')?;
    let is_ptx = match ending {
        "ptx" => true,
        "cubin" => false,
        _ => return None,
    };
    Some((architecture.parse().ok()?, is_ptx))
}

/// All sources as one text, as `registers.py` writes it.
fn sources() -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    for file in files(Path::new("kernels"))? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text.extend(format!("// {name}\n").bytes());
        text.extend(read(&file)?);
    }
    Ok(text)
}

fn compress(bytes: &[u8], to: &Path) -> std::io::Result<()> {
    let mut encoder = ZlibEncoder::new(std::fs::File::create(to)?, Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish().map(drop)
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("cannot read the folder '{}': {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|of| Ok(of?.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("cannot read '{}': {error}", file.display()))
}
