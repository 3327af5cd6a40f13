//! The state that all doors of a server share: its engine, its models' records, its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchmaker::{Engine, Model};

use crate::config::ServerConfig;
use crate::serving::attempt::ModelRecord;
use crate::serving::error::ServeError;
use crate::serving::heavy_work::HeavyWork;
use crate::serving::metrics::Metrics;

/// The state that all doors share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) metrics: Metrics,
    /// The record of each model, by the model's name.
    pub(crate) records: BTreeMap<String, Arc<ModelRecord>>,
    pub(crate) heavy_work: HeavyWork,
    /// The time that a request waits for memory.
    pub(crate) memory_wait: Duration,
    /// The time that a request has which names none.
    pub(crate) default_timeout: Option<Duration>,
    is_draining: AtomicBool,
}

/// A model that is served here.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    app: Arc<App>,
    name: String,
}

impl App {
    pub(crate) fn new(engine: Engine, config: &ServerConfig) -> Self {
        let heavy_work = HeavyWork::new(config.heavy_threads);
        let (memory_wait, default_timeout) = (config.memory_wait, config.default_timeout);
        let metrics = Metrics::new();
        let record = |name: &str| {
            let record = ModelRecord::new(metrics.of_model(name));
            (name.to_owned(), Arc::new(record))
        };
        let records = engine.models().iter().map(|model| record(&model.name)).collect();
        let is_draining = AtomicBool::new(false);
        Self { engine, metrics, records, heavy_work, memory_wait, default_timeout, is_draining }
    }

    /// Checks that the server answers: no worker hangs.
    pub(crate) fn check_live(&self) -> Result<(), ServeError> {
        self.engine.hung().map_or(Ok(()), |hung| Err(ServeError::Hung(hung)))
    }

    /// Checks that requests are welcome: not once the server drains, or its device is lost or hangs.
    pub(crate) fn check_ready(&self) -> Result<(), ServeError> {
        if self.is_draining.load(Ordering::SeqCst) || self.engine.is_lost() {
            return Err(ServeError::NotReady);
        }
        self.check_live()
    }

    /// From here on, the server reports that it is not ready.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }
}

/// The model `name` of an engine.
pub(crate) fn find_model<'a>(engine: &'a Engine, name: &str) -> Result<&'a Model, ServeError> {
    engine.model(name).ok_or_else(|| {
        let served: Vec<&str> = engine.models().iter().map(|model| &*model.name).collect();
        ServeError::UnknownModel { model: name.to_owned(), served: served.join(", ") }
    })
}

impl Target {
    /// Finds the model `name`; `version`, where it is given, must be the one that is served.
    pub(crate) fn find(
        app: &Arc<App>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Self, ServeError> {
        let served = find_model(&app.engine, name)?.version.as_str();
        match version {
            Some(asked) if asked != served => Err(ServeError::UnknownVersion {
                model: name.to_owned(),
                asked: asked.to_owned(),
                served: served.to_owned(),
            }),
            _ => Ok(Self { app: app.clone(), name: name.to_owned() }),
        }
    }

    /// The name of the model.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The model.
    pub(crate) fn model(&self) -> &Model {
        self.app.engine.model(&self.name).expect("the engine keeps its models")
    }

    /// The record of the model's requests.
    pub(crate) fn record(&self) -> &Arc<ModelRecord> {
        &self.app.records[&self.name]
    }
}
