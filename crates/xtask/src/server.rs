//! A `batchmaker serve` process on ports of its own, which ends when it is dropped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// A server that is ready.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts `serve`, a command with all arguments but the addresses, and waits until it is ready.
    pub(crate) fn start(serve: &mut Command) -> anyhow::Result<Self> {
        serve.args(["--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        let mut child =
            serve.stdout(Stdio::piped()).spawn().context("batchmaker does not start")?;
        let out = child.stdout.take().context("a piped output")?;
        let mut server = Self { child, url: String::new() };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let url = line.strip_prefix("ready ").and_then(|rest| rest.split(',').next());
        server.url = url.with_context(|| format!("the server is not ready: {line:?}"))?.to_owned();
        Ok(server)
    }

    /// The address that it serves on, as `http://127.0.0.1:8000`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Processor time so far, in seconds.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .context("the server's processor time is read on Linux only")?;
        // The name, in brackets, may hold anything; user and system time are fields 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        let ticks: Vec<f64> =
            fields.skip(11).take(2).filter_map(|tick| tick.parse().ok()).collect();
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
