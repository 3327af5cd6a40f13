//! The model that a path names: `/v2/models/M` or `/v2/models/M/versions/V`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use batchmaker_engine::EngineError;
use batchmaker_model::Model;

use crate::attempt::ModelRecord;
use crate::router::App;
use crate::status::ApiError;

/// A model that is served here.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    app: Arc<App>,
    name: String,
}

impl Target {
    /// Finds the model `name`; `version`, where it is given, must be the one that is served.
    fn find(app: &Arc<App>, name: &str, version: Option<&str>) -> Result<Self, ApiError> {
        let unknown = || EngineError::UnknownModel(name.to_owned());
        let served = app.engine.model(name).ok_or_else(unknown)?.version.as_str();
        match version {
            Some(asked) if asked != served => Err(ApiError::UnknownVersion {
                model: name.to_owned(),
                asked: asked.to_owned(),
                served: served.to_owned(),
            }),
            _ => Ok(Self { app: app.clone(), name: name.to_owned() }),
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> &Model {
        self.app.engine.model(&self.name).expect("the engine keeps its models")
    }

    /// What is counted of it.
    pub(crate) fn record(&self) -> &Arc<ModelRecord> {
        &self.app.records[&self.name]
    }
}

impl FromRequestParts<Arc<App>> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let path = || ApiError::UnknownPath(parts.uri.path().to_owned());
        let unknown = path();
        let found = RawPathParams::from_request_parts(parts, app).await.map_err(|_| unknown)?;
        let get = |wanted: &str| found.iter().find(|(name, _)| *name == wanted).map(|(_, v)| v);
        let name = get("model").unwrap_or_default();
        Self::find(app, name, get("version"))
    }
}
