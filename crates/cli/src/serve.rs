//! `batchmaker serve`.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use batchmaker::{Fairness, Slices, ask_for_slices};
use batchmaker_server::{Ports, Server, ServerConfig, Stopped, log, log_details};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::ServeArgs;
use crate::calibrate::Calibration;
use crate::start::{Limits, prepare, start};

/// Serves until a signal comes.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let limits = Limits {
        requests: args.max_requests as usize,
        requests_per_model: args.max_requests_per_model.map(|requests| requests as usize),
        bytes: args.max_memory_bytes,
        memory_wait: args.memory_wait,
        sessions: args.max_sessions as usize,
        session_idle: args.session_idle,
        hung_after: args.hung_after,
    };
    let config = ServerConfig {
        http: args.http,
        metrics: Some(args.metrics),
        body_bytes_max: args.max_body_bytes,
        connections_max: args.max_connections.map(|count| count as usize),
        connections_per_client_max: args.max_connections_per_client.map(|count| count as usize),
        streams_max: args.max_streams,
        head_bytes_max: args.max_head_bytes,
        body_time_max: args.body_time,
        rate_min: args.min_rate,
        reply_timeout: args.reply_timeout,
        default_timeout: Some(args.timeout).filter(|time| !time.is_zero()),
        memory_wait: args.memory_wait,
        drain_delay: args.drain_delay,
        grace: args.grace,
        ..ServerConfig::default()
    };
    log_details(args.log_details);
    raise_file_limit();
    let ports = Ports::take(&config)?;
    let prepared = prepare(&args.models, &args.machine, &args.policy, fairness(args), limits)?;
    let names: Vec<String> =
        prepared.loaded.models.iter().map(|model| model.name.clone()).collect();
    let machine = prepared.machine;
    let calibration = args.calibrate.then(|| Calibration::new(&prepared, args.machine.goal));
    let calibration = calibration.transpose()?;
    let engine = start(prepared)?;
    let watched = engine.downgrade();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.enable_all().on_thread_start(|| ask_for_slices(Slices::Short));
    let runtime = threads.build().context("cannot start the server's threads")?;
    runtime.block_on(async {
        let server = Server::open(ports, config, engine)?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let addresses = server.addresses();
        let metrics = addresses.metrics.map(|at| format!(", metrics http://{at}/metrics"));
        // Whoever started the server may not want to know.
        let mut stdout = std::io::stdout();
        let _ = writeln!(
            stdout,
            "ready http://{}{}, models: {}, {} worker{} of {} thread{}, {}{}",
            addresses.http,
            metrics.unwrap_or_default(),
            names.join(" "),
            machine.workers,
            if machine.workers == 1 { "" } else { "s" },
            machine.threads_per_worker,
            if machine.threads_per_worker == 1 { "" } else { "s" },
            machine.isa,
            machine.gpus.map(|gpus| format!(", {gpus}")).unwrap_or_default(),
        );
        let _ = stdout.flush();
        if let Some(calibration) = calibration {
            calibration.start(watched)?;
        }
        let (stopping, stop) = oneshot::channel();
        let (aborting, abort) = oneshot::channel();
        tokio::spawn(async move {
            for then in [stopping, aborting] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                let _ = then.send(());
            }
        });
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                log("models are not reloaded while serving, and nothing changed; start again for new files");
            }
        });
        let stop = async {
            let _ = stop.await;
            log("answering what was accepted, then stopping");
        };
        let abort = async {
            let _ = abort.await;
        };
        match server.run_until(stop, abort).await {
            Stopped::Drained => Ok(()),
            Stopped::BrokenOff => bail!("stopped before every request was answered"),
        }
    })
}

/// The rules that the arguments choose.
fn fairness(args: &ServeArgs) -> Fairness {
    if args.paper_rules {
        return Fairness::paper();
    }
    let unless_zero = |time: Duration| Some(time).filter(|time| !time.is_zero());
    let mut rules = Fairness::default()
        .priority_aging(unless_zero(args.priority_aging))
        .large_rows(Some(args.large_rows));
    if let Some(patience) = args.patience {
        rules = rules.patience(unless_zero(patience));
    }
    args.shares.iter().fold(rules, |rules, (model, weight)| rules.share(model, *weight))
}

/// Lets the process open as many files, which connections are, as the system allows.
fn raise_file_limit() {
    let limits = getrlimit(Resource::Nofile);
    // A limit that cannot be raised is what the server's own follows from.
    let _ =
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limits.maximum, ..limits });
}
