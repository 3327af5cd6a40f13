//! Values that the command line gives for all cells or models, or for one of them.

use std::str::FromStr;

/// `VALUE` or `CELL=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfCell<T> {
    pub(crate) cell: Option<String>,
    pub(crate) value: T,
}

impl<T: FromStr<Err: ToString>> FromStr for OfCell<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cell, value) = match text.rsplit_once('=') {
            Some((cell, value)) => (Some(cell.to_owned()), value),
            None => (None, text),
        };
        let value = value.parse().map_err(|error: T::Err| error.to_string())?;
        Ok(Self { cell, value })
    }
}

/// A number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchLimit(pub(crate) u32);

impl FromStr for BatchLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = text.parse().ok().filter(|&limit| limit > 0);
        limit.map(Self).ok_or_else(|| format!("'{text}' is not a number of rows from 1 up"))
    }
}

/// `VALUE` or `MODEL=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfModel<T> {
    pub(crate) model: Option<String>,
    pub(crate) value: T,
}

impl<T: FromStr<Err: ToString>> FromStr for OfModel<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The options of a value, which has its name first, have equals signs as well: `staged:batch=8`.
        let of_one = text.split_once('=').filter(|(model, _)| !model.contains(':'));
        let (model, value) = match of_one {
            Some((model, value)) => (Some(model.to_owned()), value),
            None => (None, text),
        };
        let value = value.parse().map_err(|error: T::Err| error.to_string())?;
        Ok(Self { model, value })
    }
}

/// `MODEL=N`, with N from 1 up.
pub(crate) fn share(text: &str) -> Result<(String, u32), String> {
    let parsed = text.rsplit_once('=').and_then(|(model, weight)| {
        let weight = weight.parse().ok().filter(|&weight| weight > 0)?;
        (!model.is_empty()).then(|| (model.to_owned(), weight))
    });
    parsed.ok_or_else(|| "expected a model and its share, from 1 up, such as tagger=3".to_owned())
}

#[cfg(test)]
mod tests {
    use batchmaker::{Policy, Precision};

    use super::*;

    #[test]
    fn values_of_cells() {
        let limit = |text: &str| text.parse::<OfCell<BatchLimit>>();
        assert_eq!(limit("8"), Ok(OfCell { cell: None, value: BatchLimit(8) }));
        let cell = Some("a=b".to_owned());
        assert_eq!(limit("a=b=8"), Ok(OfCell { cell, value: BatchLimit(8) }));
        assert!(limit("0").is_err() && limit("x=").is_err());
        let precision = "lstm=bf16".parse::<OfCell<Precision>>();
        let cell = Some("lstm".to_owned());
        assert_eq!(precision, Ok(OfCell { cell, value: Precision::Bf16 }));
        assert!("f16".parse::<OfCell<Precision>>().is_err());
    }

    #[test]
    fn values_of_models() {
        let policy = |text: &str| text.parse::<OfModel<Policy>>();
        for (text, model, expected) in [
            ("cellular", None, "cellular"),
            ("staged:batch=8", None, "staged:batch=8"),
            ("bert=staged", Some("bert"), "staged"),
            ("bert-base=staged:batch=8:pairs=3", Some("bert-base"), "staged:batch=8:pairs=3"),
        ] {
            let OfModel { model: of, value } = policy(text).unwrap();
            assert_eq!((of.as_deref(), value.to_string().as_str()), (model, expected), "{text}");
        }
        assert!(policy("bert=").is_err() && policy("bert=x").is_err());
    }
}
