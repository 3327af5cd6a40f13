//! The model that a path names: `/v2/models/M` or `/v2/models/M/versions/V`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use crate::http::error::HttpError;
use crate::http::state::HttpState;
use crate::serving::app::Target;

impl FromRequestParts<Arc<HttpState>> for Target {
    type Rejection = HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<HttpState>,
    ) -> Result<Self, HttpError> {
        let unknown = HttpError::UnknownPath(parts.uri.path().to_owned());
        let found = RawPathParams::from_request_parts(parts, state).await.map_err(|_| unknown)?;
        let get = |wanted: &str| found.iter().find(|(name, _)| *name == wanted).map(|(_, v)| v);
        let name = get("model").unwrap_or_default();
        Ok(Self::find(&state.app, name, get("version"))?)
    }
}
