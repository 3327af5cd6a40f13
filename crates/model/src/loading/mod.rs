//! Loads models: files and directories become a [`Model`](model::Model) that is ready to be served.

pub(crate) mod cell_file;
mod chain_cell;
pub(crate) mod directory;
mod fixed_rows;
pub(crate) mod load;
pub(crate) mod model;
#[cfg(test)]
mod model_toml_page;
mod newcomer_notes;
mod quantised_note;
pub(crate) mod reply_plan;
mod text;
mod toml_tables;
mod whole_file;
