//! Serves the example on port 8000 until it is interrupted.

use std::path::Path;
use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::{Engine, EngineConfig};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_server::{Server, ServerConfig};

fn main() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cells");
    let mut registry = CellRegistry::default();
    let model = batchmaker_example_expressions::load(&folder, ModelId(0), &mut registry)?;
    let device = Arc::new(CpuDevice::new(CpuConfig::default())?);
    let engine = Engine::start(vec![model], &registry, device, &EngineConfig::default())?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let server = Server::bind(ServerConfig::default(), Arc::new(engine))?;
        println!("ready http://{}", server.addresses().http);
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        server.run(interrupted).await;
        Ok(())
    })
}
