//! A cell as the step of a chain: some of its inputs are states, which its outputs renew.

use std::collections::BTreeMap;
use std::path::Path;

use crate::data::named_cell::NamedCell;
use crate::emit::states::with_states;
use crate::error::LoadError;
use crate::file::amend::Amendments;
use crate::file::files::Files;
use crate::file::onnx_file::OnnxFile;

impl NamedCell {
    /// Reads the ONNX file `file` in the folder `folder` as the step of a chain. The inputs that
    /// `states` names are states of the cell; each names the output that is its next value.
    ///
    /// A cell that is nothing but one step of a recurrent operator runs as one, by a fused kernel.
    ///
    /// # Errors
    /// As for [`Self::load_amended`], and where an input or output is not there or they do not fit.
    pub fn load_step(
        folder: &Path,
        file: &str,
        amendments: &Amendments,
        states: &BTreeMap<String, String>,
    ) -> Result<Self, LoadError> {
        let read = OnnxFile::read(&Files::Folder(folder.to_owned()), file)?;
        let name = read.name.clone();
        let malformed = |reason| LoadError::Malformed { file: name, reason };
        Self::step_of_file(read, amendments, states)?.map_err(malformed)
    }

    pub(crate) fn step_of_file(
        file: OnnxFile,
        amendments: &Amendments,
        states: &BTreeMap<String, String>,
    ) -> Result<Result<Self, String>, LoadError> {
        match states.is_empty() {
            true => Self::of_file(file, amendments).map(Ok),
            false => Ok(with_states(Self::unrecognised(file, amendments)?, states)),
        }
    }
}
