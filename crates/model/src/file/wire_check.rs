//! Checks that a file's bytes are nested as those of an ONNX file: every field within the message that holds
//! it, and no graph too deep inside others. The protobuf reader trusts lengths, and allocates memory for them.

/// The deepest that messages may lie in each other; a branch in a branch is four deeper.
const DEPTH_MAX: usize = 100;

/// A message and, by field number, the messages in it. Other fields are numbers, strings or bytes.
struct Message(&'static [(u64, &'static Message)]);

static MODEL: Message = Message(&[(7, &GRAPH), (8, &PLAIN), (14, &PLAIN)]);
static GRAPH: Message =
    Message(&[(1, &NODE), (5, &TENSOR), (11, &VALUE), (12, &VALUE), (13, &VALUE), (16, &PLAIN)]);
static NODE: Message = Message(&[(5, &ATTRIBUTE), (9, &PLAIN)]);
static ATTRIBUTE: Message =
    Message(&[(5, &TENSOR), (6, &GRAPH), (10, &TENSOR), (11, &GRAPH), (14, &TYPE), (15, &TYPE)]);
static TENSOR: Message = Message(&[(3, &PLAIN), (13, &PLAIN), (16, &PLAIN)]);
static VALUE: Message = Message(&[(2, &TYPE), (4, &PLAIN)]);
static TYPE: Message = Message(&[(1, &TENSOR_TYPE), (4, &SEQUENCE), (9, &SEQUENCE)]);
static TENSOR_TYPE: Message = Message(&[(2, &SHAPE)]);
static SEQUENCE: Message = Message(&[(1, &TYPE)]);
static SHAPE: Message = Message(&[(1, &PLAIN)]);
static PLAIN: Message = Message(&[]);

/// Fails with the reason if the bytes are not those of an ONNX file.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    check_message(bytes, &MODEL, 0)
}

fn check_message(mut bytes: &[u8], message: &Message, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("graphs lie too deep in each other".to_owned());
    }
    let cut = || "it is cut off, or not a protobuf message".to_owned();
    while !bytes.is_empty() {
        let key = varint(&mut bytes).ok_or_else(cut)?;
        match key & 7 {
            0 => {
                varint(&mut bytes).ok_or_else(cut)?;
            }
            1 => bytes = bytes.get(8..).ok_or_else(cut)?,
            5 => bytes = bytes.get(4..).ok_or_else(cut)?,
            2 => {
                let length = varint(&mut bytes).ok_or_else(cut)?;
                let length = usize::try_from(length).map_err(|_| cut())?;
                let (field, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
                let inner = message.0.iter().find(|(number, _)| *number == key >> 3);
                if let Some((_, inner)) = inner {
                    check_message(field, inner, depth + 1)?;
                }
                bytes = rest;
            }
            _ => return Err(cut()),
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_stay_inside() {
        // A graph (7) with a node (1) with an operator (4) of two letters.
        let model = [0x3a, 6, 0x0a, 4, 0x22, 2, b'I', b'f'];
        assert_eq!(check(&model), Ok(()));
        for at in [1, 3, 5] {
            let mut longer = model;
            longer[at] += 1;
            assert!(check(&longer).is_err(), "length at {at}");
        }
        assert!(check(&model[..7]).is_err());
        assert!(check(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).is_err());
    }

    #[test]
    fn graphs_in_graphs_end() {
        let mut graph = vec![];
        for _ in 0..60 {
            for key in [0x32, 0x2a, 0x0a] {
                let mut outer = vec![key];
                let mut length = graph.len();
                while length >= 0x80 {
                    outer.push(length as u8 | 0x80);
                    length >>= 7;
                }
                outer.push(length as u8);
                outer.extend(&graph);
                graph = outer;
            }
        }
        let error = check_message(&graph, &GRAPH, 0).unwrap_err();
        assert_eq!(error, "graphs lie too deep in each other");
    }
}
