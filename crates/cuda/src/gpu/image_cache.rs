//! A folder of the user's that keeps compiled kernels from one start to the next.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the checksum that a file begins with.
const CHECKSUM_BYTES: usize = blake3::OUT_LEN;

/// A folder with a file for each image.
pub(super) struct ImageCache(PathBuf);

/// The inputs of a compilation, hashed: images of equal keys are equal.
#[derive(Default)]
pub(super) struct Key(blake3::Hasher);

impl Key {
    pub(super) fn add(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }
}

impl ImageCache {
    /// The folder of this user's: `batchmaker/kernels` in XDG_CACHE_HOME, else in `.cache` of the home. None where neither is known.
    pub(super) fn of_user() -> Option<Self> {
        let absolute = |variable| {
            let folder = std::env::var_os(variable).map(PathBuf::from);
            folder.filter(|folder| folder.is_absolute())
        };
        let caches = absolute("XDG_CACHE_HOME");
        let caches = caches.or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self(caches.join("batchmaker/kernels")))
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.0.join(format!("{}.cubin", key.0.finalize().to_hex()))
    }

    /// The image of a key, if it is there and whole.
    pub(super) fn find(&self, key: &Key) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.file(key)).ok()?;
        let image = bytes.split_off(CHECKSUM_BYTES.min(bytes.len()));
        (bytes == blake3::hash(&image).as_bytes()).then_some(image)
    }

    /// Keeps an image, if the folder takes it: where it does not, the next start compiles again.
    pub(super) fn keep(&self, key: &Key, image: &[u8]) {
        let bytes = [blake3::hash(image).as_bytes(), image].concat();
        let _ = write_whole(&self.file(key), &bytes);
    }
}

/// Writes a file that nobody sees half written.
fn write_whole(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let unfinished = file.with_extension(format!("{}", std::process::id()));
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, file));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(texts: &[&str]) -> Key {
        let mut key = Key::default();
        texts.iter().for_each(|text| key.add(text));
        key
    }

    #[test]
    fn images_are_kept_while_they_are_whole() {
        let folder = std::env::temp_dir().join(format!("image-cache-{}", std::process::id()));
        let cache = ImageCache(folder.join("made/when/needed"));
        let (own, other) = (key(&["a", "bc"]), key(&["ab", "c"]));
        assert_eq!(cache.find(&own), None, "nothing is there");
        cache.keep(&own, b"image");
        assert_eq!(cache.find(&own).as_deref(), Some(&b"image"[..]));
        assert_eq!(cache.find(&other), None);
        assert_eq!(fs::read_dir(&cache.0).unwrap().count(), 1, "no other file stays");
        let mut bytes = fs::read(cache.file(&own)).unwrap();
        for damage in [bytes.len() - 1, CHECKSUM_BYTES / 2, 0] {
            fs::write(cache.file(&own), &bytes[..damage]).unwrap();
            assert_eq!(cache.find(&own), None, "cut off after {damage} bytes");
        }
        bytes[CHECKSUM_BYTES] ^= 1;
        fs::write(cache.file(&own), &bytes).unwrap();
        assert_eq!(cache.find(&own), None, "changed");
        cache.keep(&own, b"image");
        assert_eq!(cache.find(&own).as_deref(), Some(&b"image"[..]), "made anew");
        fs::remove_dir_all(&folder).unwrap();
        ImageCache(PathBuf::from("/dev/null/no folder")).keep(&own, b"image");
    }
}
