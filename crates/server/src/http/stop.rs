//! The end of a server, as its parts learn of it.

use tokio::sync::watch;

/// Waits until the server stops.
pub(crate) async fn stopping(stop: &mut watch::Receiver<bool>) {
    // Nobody is left who could say stop: the port is about to be dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}
