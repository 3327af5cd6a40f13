//! A plot with the name of its file.

/// A plot, or why there is none.
pub(super) struct Figure {
    /// The name of its file, without `.svg`.
    pub(super) name: &'static str,
    pub(super) svg: anyhow::Result<String>,
}

impl Figure {
    pub(super) fn new(name: &'static str, svg: anyhow::Result<String>) -> Self {
        Self { name, svg }
    }
}
