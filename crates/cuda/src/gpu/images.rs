//! The compiled kernels, and which of them a GPU takes.

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

use flate2::read::ZlibDecoder;

use super::compiler::compiled;

/// The images that this program was built with (BATCHMAKER_CUDA_IMAGES): architecture, whether it is PTX, and compressed bytes.
static EMBEDDED: &[(u32, bool, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Compiled kernels: an image for each architecture, or none, where they are compiled when they are needed. The default are those that this
/// program was built with.
#[derive(Clone, Debug)]
pub struct Images {
    /// Images of kernels for real architectures, 90 for sm_90, or in the language PTX, which drivers compile for any architecture from
    /// that one on.
    images: Arc<[Image]>,
}

/// An image.
#[derive(Clone, Debug)]
struct Image {
    architecture: u32,
    is_ptx: bool,
    is_compressed: bool,
    bytes: Cow<'static, [u8]>,
}

impl Image {
    fn bytes(&self) -> Cow<'_, [u8]> {
        if !self.is_compressed {
            return Cow::Borrowed(&self.bytes[..]);
        }
        let mut bytes = Vec::new();
        let done = ZlibDecoder::new(&self.bytes[..]).read_to_end(&mut bytes);
        done.expect("the build has compressed it");
        Cow::Owned(bytes)
    }
}

impl Default for Images {
    fn default() -> Self {
        let image = |&(architecture, is_ptx, bytes): &(u32, bool, &'static [u8])| Image {
            architecture,
            is_ptx,
            is_compressed: true,
            bytes: Cow::Borrowed(bytes),
        };
        Self { images: EMBEDDED.iter().map(image).collect() }
    }
}

impl Images {
    /// PTX for one architecture and all later ones. A zero at its end is added.
    pub fn of_ptx(architecture: u32, text: &str) -> Self {
        let bytes = Cow::Owned([text.as_bytes(), &[0]].concat());
        let image = Image { architecture, is_ptx: true, is_compressed: false, bytes };
        Self { images: [image].into() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The architectures that there are images for, by NVIDIA's names: `sm_90` for one, `compute_75` for that one and all later ones.
    pub fn architectures(&self) -> Vec<String> {
        let name = |image: &Image| {
            format!("{}_{}", if image.is_ptx { "compute" } else { "sm" }, image.architecture)
        };
        self.images.iter().map(name).collect()
    }

    /// The image for an architecture: compiled for it, or as PTX, or compiled now.
    pub(super) fn of(&self, architecture: u32) -> Result<Cow<'_, [u8]>, String> {
        let fits = |image: &&Image| match image.is_ptx {
            true => image.architecture <= architecture,
            // What is compiled for 8.0 runs on 8.6, not on 9.0.
            false => {
                image.architecture / 10 == architecture / 10 && image.architecture <= architecture
            }
        };
        let best = self.images.iter().filter(fits).max_by_key(|of| (!of.is_ptx, of.architecture));
        match best {
            Some(image) => Ok(image.bytes()),
            None => compiled(architecture).map(Cow::Owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_the_image_that_is_nearest() {
        let image = |architecture: u32, is_ptx| Image {
            architecture,
            is_ptx,
            is_compressed: false,
            bytes: Cow::Owned(vec![architecture as u8, u8::from(is_ptx)]),
        };
        let all = [image(75, true), image(80, false), image(86, false), image(90, false)];
        let images = Images { images: all.into() };
        let of = |architecture| images.of(architecture).unwrap().to_vec();
        assert_eq!([of(75), of(80), of(87), of(90), of(100)].map(|of| of[0]), [75, 80, 86, 90, 75]);
    }

    #[test]
    fn what_the_program_holds_is_whole() {
        let images = Images::default();
        assert_eq!(images.architectures().len(), EMBEDDED.len());
        for image in &*images.images {
            let bytes = image.bytes();
            match image.is_ptx {
                true => assert_eq!((&bytes[..2], bytes.last()), (&b"//"[..], Some(&0))),
                false => assert_eq!(bytes[..4], *b"\x7fELF"),
            }
        }
    }
}
