//! A tensor's elements as JSON: the value of `data`, nested as the shape is or flat.
//!
//! The lists are read in one pass over their text, and nothing is built but the vector of
//! elements. What one element is, the module `json_element` knows.

use serde::{Serialize, Serializer};

use crate::datatype::Datatype;
use crate::error::{WireError, excerpt};
use crate::json_element::JsonElement;
use crate::tensor::{TensorData, data_of_type, element_count, with_values};

/// Reads `data`: `text` is one value of well-formed JSON, `shape` has passed [`element_count`].
///
/// # Errors
/// [`WireError::Invalid`], without the tensor's name.
pub(crate) fn parse(
    datatype: Datatype,
    shape: &[usize],
    text: &str,
) -> Result<TensorData, WireError> {
    let flat = [element_count(shape)?];
    // A list of lists follows the shape, and so does the bare value of a scalar; any other list
    // is flat, which is a list nested one deep.
    let layout = match text.strip_prefix('[') {
        Some(inside) if !inside.trim_start().starts_with('[') => &flat,
        _ => shape,
    };
    let list = NestedList { shape, layout, text };
    Ok(data_of_type!(datatype, list.elements()?))
}

/// The text of nested lists, where those at depth `d` are to have `layout[d]` elements.
struct NestedList<'a> {
    /// The shape in the request, for messages.
    shape: &'a [usize],
    layout: &'a [usize],
    text: &'a str,
}

impl NestedList<'_> {
    fn elements<T: JsonElement>(&self) -> Result<Vec<T>, WireError> {
        let text = self.text.as_bytes();
        let count: usize = self.layout.iter().product();
        // An element and its comma are two bytes, which bounds what a false shape reserves.
        let mut values = Vec::with_capacity(count.min(text.len() / 2 + 1));
        // For each list that is open, outermost first, the elements it has so far.
        let mut open: Vec<usize> = Vec::with_capacity(self.layout.len());
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            match byte {
                b',' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
                b']' => {
                    let got = open.pop().unwrap_or_default();
                    self.check_closed(open.len(), got)?;
                    at += 1;
                }
                b'[' => {
                    self.begin_element(&mut open)?;
                    if open.len() == self.layout.len() {
                        let (shape, rank) = (self.shape, self.shape.len());
                        return Err(WireError::invalid(format!(
                            "data is nested more than the {rank} deep of shape {shape:?}"
                        )));
                    }
                    open.push(0);
                    at += 1;
                }
                _ => {
                    self.begin_element(&mut open)?;
                    let token = &self.text[at..at + token_len(&text[at..])];
                    if open.len() != self.layout.len() {
                        let (token, depth) = (excerpt(token), open.len());
                        return Err(WireError::invalid(format!(
                            "data has {token} where shape {:?} has a list along dimension {depth}",
                            self.shape
                        )));
                    }
                    let value = T::parse(token).ok_or_else(|| {
                        let (index, token, expected) =
                            (values.len(), excerpt(token), T::expected());
                        WireError::invalid(format!(
                            "element {index} is {token}, expected {expected}"
                        ))
                    })?;
                    values.push(value);
                    at += token.len();
                }
            }
        }
        Ok(values)
    }

    /// Counts one more element in the innermost open list.
    fn begin_element(&self, open: &mut [usize]) -> Result<(), WireError> {
        let depth = open.len();
        let Some(count) = open.last_mut() else { return Ok(()) };
        *count += 1;
        if *count <= self.layout[depth - 1] {
            return Ok(());
        }
        Err(self.wrong_length(depth - 1, "more"))
    }

    /// Checks a list at `depth` that ended with `got` elements.
    fn check_closed(&self, depth: usize, got: usize) -> Result<(), WireError> {
        if got == self.layout[depth] {
            return Ok(());
        }
        Err(self.wrong_length(depth, &got.to_string()))
    }

    fn wrong_length(&self, depth: usize, got: &str) -> WireError {
        let (shape, expected) = (self.shape, self.layout[depth]);
        let place = match self.layout.len() {
            1 => String::new(),
            _ => format!(" in each list along dimension {depth}"),
        };
        WireError::invalid(format!(
            "expected {expected} elements{place} for shape {shape:?}, got {got}"
        ))
    }
}

/// The length of the value, no list, that `text` begins with. An object counts as its brace,
/// which no element parses from.
fn token_len(text: &[u8]) -> usize {
    match text[0] {
        b'"' => {
            let mut at = 1;
            loop {
                match text[at] {
                    b'"' => return at + 1,
                    b'\\' => at += 2,
                    _ => at += 1,
                }
            }
        }
        b'{' => 1,
        _ => {
            let ends = |&byte: &u8| matches!(byte, b',' | b']' | b' ' | b'\t' | b'\n' | b'\r');
            text.iter().position(ends).unwrap_or(text.len())
        }
    }
}

/// Writes a tensor's elements as a flat list.
pub(crate) struct JsonData<'a>(pub(crate) &'a TensorData);

impl Serialize for JsonData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        with_values!(self.0, values => serializer.collect_seq(values.iter().map(JsonValue)))
    }
}

struct JsonValue<'a, T>(&'a T);

impl<T: JsonElement> Serialize for JsonValue<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(datatype: Datatype, shape: &[usize], text: &str) -> TensorData {
        parse(datatype, shape, text).unwrap()
    }

    fn refusal(datatype: Datatype, shape: &[usize], text: &str) -> String {
        parse(datatype, shape, text).unwrap_err().to_string()
    }

    #[test]
    fn data_are_nested_or_flat() {
        let expected = TensorData::Int32(vec![1, 2, 3, 4, 5, 6]);
        for text in ["[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]", " [ [1 ,2,3]\n,\t[4,5,6 ] ]"] {
            assert_eq!(read(Datatype::Int32, &[2, 3], text.trim()), expected);
        }
        assert_eq!(read(Datatype::Int32, &[1, 1, 1], "[[[-5]]]"), vec![-5i32].into());
        assert_eq!(read(Datatype::Int32, &[], "7"), vec![7i32].into());
        assert_eq!(read(Datatype::Int32, &[], "[7]"), vec![7i32].into());
        for (shape, text) in [(&[0][..], "[]"), (&[2, 0], "[]"), (&[2, 0], "[[],[]]")] {
            assert!(read(Datatype::Fp32, shape, text).is_empty());
        }
    }

    #[test]
    fn data_that_do_not_fit_the_shape_are_refused() {
        let refusal = |shape: &[usize], text| refusal(Datatype::Int32, shape, text);
        assert_eq!(refusal(&[2, 2], "[1,2,3]"), "expected 4 elements for shape [2, 2], got 3");
        assert_eq!(refusal(&[2], "[1,2,3,4]"), "expected 2 elements for shape [2], got more");
        assert_eq!(refusal(&[0], "[1]"), "expected 0 elements for shape [0], got more");
        assert_eq!(
            refusal(&[2, 2], "[[1,2],[3]]"),
            "expected 2 elements in each list along dimension 1 for shape [2, 2], got 1"
        );
        assert_eq!(
            refusal(&[2, 2], "[[1,2],[3,4],[5,6]]"),
            "expected 2 elements in each list along dimension 0 for shape [2, 2], got more"
        );
        assert_eq!(
            refusal(&[2, 2], "[[1,2],3]"),
            "data has 3 where shape [2, 2] has a list along dimension 1"
        );
        assert_eq!(refusal(&[2], "[[1],[2]]"), "data is nested more than the 1 deep of shape [2]");
        assert_eq!(refusal(&[], "[[1]]"), "data is nested more than the 0 deep of shape []");
        assert_eq!(refusal(&[2], "[1,[2]]"), "data is nested more than the 1 deep of shape [2]");
        assert_eq!(refusal(&[2], "1"), "data has 1 where shape [2] has a list along dimension 0");
        assert!(refusal(&[1 << 60], "[1]").ends_with("got 1"));
    }
}
