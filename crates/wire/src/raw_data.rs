//! A tensor's elements as little-endian bytes, the form of the binary-tensor extension and of
//! gRPC's raw contents.
//!
//! Sizes of fixed-size datatypes are checked by the caller, who knows how to name them.

use half::{bf16, f16};

use crate::error::WireError;

/// The bytes of the length before each element of BYTES.
const LENGTH_SIZE: usize = size_of::<u32>();

/// An element of a tensor, read from bytes and written to them.
pub(crate) trait RawElement: Sized {
    /// Reads `count` elements that take up all of `bytes`.
    fn read(count: usize, bytes: &[u8]) -> Result<Vec<Self>, WireError>;
    /// The bytes that `values` take.
    fn size_bytes(values: &[Self]) -> usize;
    /// Writes `values` over `bytes`, which are as many as [`Self::size_bytes`] says.
    fn write(values: &[Self], bytes: &mut [u8]);
}

pub(crate) fn read<T: RawElement>(count: usize, bytes: &[u8]) -> Result<Vec<T>, WireError> {
    T::read(count, bytes)
}

pub(crate) fn size_bytes<T: RawElement>(values: &[T]) -> usize {
    T::size_bytes(values)
}

pub(crate) fn append<T: RawElement>(values: &[T], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.resize(start + T::size_bytes(values), 0);
    T::write(values, &mut bytes[start..]);
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl RawElement for $number {
            fn read(_count: usize, bytes: &[u8]) -> Result<Vec<Self>, WireError> {
                let (elements, _) = bytes.as_chunks();
                Ok(elements.iter().map(|&element| Self::from_le_bytes(element)).collect())
            }

            fn size_bytes(values: &[Self]) -> usize {
                size_of_val(values)
            }

            fn write(values: &[Self], bytes: &mut [u8]) {
                let (elements, _) = bytes.as_chunks_mut();
                for (element, value) in elements.iter_mut().zip(values) {
                    *element = value.to_le_bytes();
                }
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);

impl RawElement for bool {
    fn read(_count: usize, bytes: &[u8]) -> Result<Vec<Self>, WireError> {
        let element = |(index, &byte)| match byte {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::invalid(format!(
                "element {index} is the byte {other}, expected a BOOL: 0 or 1"
            ))),
        };
        bytes.iter().enumerate().map(element).collect()
    }

    fn size_bytes(values: &[Self]) -> usize {
        values.len()
    }

    fn write(values: &[Self], bytes: &mut [u8]) {
        for (byte, &value) in bytes.iter_mut().zip(values) {
            *byte = value.into();
        }
    }
}

impl RawElement for Vec<u8> {
    fn read(count: usize, bytes: &[u8]) -> Result<Vec<Self>, WireError> {
        // Every element takes at least its length, which bounds what a false count reserves.
        let mut values = Vec::with_capacity(count.min(bytes.len() / LENGTH_SIZE));
        let mut rest = bytes;
        while values.len() < count {
            let index = values.len();
            let Some((&length, after)) = rest.split_first_chunk() else {
                return Err(WireError::invalid(format!(
                    "expected {count} BYTES elements, got {} bytes that hold {index}",
                    bytes.len()
                )));
            };
            let length = u32::from_le_bytes(length) as usize;
            let Some((value, after)) = after.split_at_checked(length) else {
                return Err(WireError::invalid(format!(
                    "element {index} has the length {length}, but {} bytes follow",
                    after.len()
                )));
            };
            values.push(value.to_vec());
            rest = after;
        }
        if rest.is_empty() {
            return Ok(values);
        }
        let over = rest.len();
        Err(WireError::invalid(format!(
            "expected {count} BYTES elements, got {over} more bytes after them"
        )))
    }

    fn size_bytes(values: &[Self]) -> usize {
        values.iter().map(|value| LENGTH_SIZE + value.len()).sum()
    }

    fn write(values: &[Self], bytes: &mut [u8]) {
        let mut rest = bytes;
        for value in values {
            let length = u32::try_from(value.len()).expect("an element has less than 4 GiB");
            let (head, tail) = rest.split_at_mut(LENGTH_SIZE + value.len());
            head[..LENGTH_SIZE].copy_from_slice(&length.to_le_bytes());
            head[LENGTH_SIZE..].copy_from_slice(value);
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::datatype::Datatype;
    use crate::tensor::TensorData;

    fn written(data: impl Into<TensorData>) -> Vec<u8> {
        let data = data.into();
        let mut bytes = vec![9];
        data.append_le_bytes(&mut bytes);
        assert_eq!(bytes.remove(0), 9);
        assert_eq!(bytes.len(), data.le_size_bytes());
        assert_eq!(TensorData::from_le_bytes(data.datatype(), data.len(), &bytes), Ok(data));
        bytes
    }

    fn refusal(datatype: Datatype, count: usize, bytes: &[u8]) -> String {
        TensorData::from_le_bytes(datatype, count, bytes).unwrap_err().to_string()
    }

    #[test]
    fn elements_are_little_endian() {
        assert_eq!(written(vec![true, false]), [1, 0]);
        assert_eq!(written(vec![0x0102u16, 3]), [2, 1, 3, 0]);
        assert_eq!(written(vec![-2i64]), [0xfe, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(written(vec![1.0f32]), [0, 0, 0x80, 0x3f]);
        assert_eq!(written(vec![half::f16::ONE]), [0, 0x3c]);
        assert_eq!(written(vec![half::bf16::ONE]), [0x80, 0x3f]);
        assert!(written(Vec::<f64>::new()).is_empty());
    }

    #[test]
    fn an_element_of_bytes_follows_its_length() {
        let values = vec![b"ab".to_vec(), vec![], vec![0xff]];
        assert_eq!(written(values), [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 1, 0, 0, 0, 0xff]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert_eq!(
            refusal(Datatype::Fp32, 2, &[0; 9]),
            "expected 2 FP32 elements of 4 bytes each, got 9 bytes"
        );
        assert_eq!(
            refusal(Datatype::Bytes, 2, &[0, 0, 0, 0, 1, 0]),
            "expected 2 BYTES elements, got 6 bytes that hold 1"
        );
        assert_eq!(
            refusal(Datatype::Bytes, 1, &[255, 255, 255, 255, 1]),
            "element 0 has the length 4294967295, but 1 bytes follow"
        );
        assert_eq!(
            refusal(Datatype::Bytes, 1, &[0, 0, 0, 0, 1]),
            "expected 1 BYTES elements, got 1 more bytes after them"
        );
    }

    #[test]
    fn a_bool_is_0_or_1() {
        assert_eq!(
            refusal(Datatype::Bool, 2, &[1, 7]),
            "element 1 is the byte 7, expected a BOOL: 0 or 1"
        );
    }
}
