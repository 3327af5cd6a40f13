//! The state that HTTP handlers share.

use std::sync::Arc;

use crate::http::body::BodyLimits;
use crate::serving::app::App;

/// The state that HTTP handlers share.
#[derive(Debug)]
pub(crate) struct HttpState {
    pub(crate) app: Arc<App>,
    pub(crate) limits: BodyLimits,
}
