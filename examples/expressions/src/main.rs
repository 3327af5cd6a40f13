//! Serves the example on port 8000 until it is interrupted.

use std::path::Path;

use batchmaker::Engine;
use batchmaker_server::{Server, ServerConfig};

fn main() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cells");
    let model = batchmaker_example_expressions::model(&folder)?;
    let engine = Engine::builder().custom_model(model).build()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let server = Server::bind(ServerConfig::default(), engine)?;
        println!("ready http://{}", server.addresses().http);
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        server.run(interrupted).await;
        Ok(())
    })
}
