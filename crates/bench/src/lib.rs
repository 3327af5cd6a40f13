//! Measures how well a server batches: draws the requests of a run and their arrivals, and gives figures, tables and
//! plots. [`compare`] plays one [`Load`] to several contenders: engines
//! of this process ([`InProcess`]), or a server at the end of a wire ([`OverHttp`]).
//!
//! **Open loop.** Users do not wait for each other: requests arrive as a Poisson process, whatever
//! the server does. [`Workload::shapes`] and [`Trace::poisson`] draw a run before its clock
//! starts, and every policy is given the same trace. A closed loop, where a client sends its next
//! request after the reply to the last, would slow down with the server and hide its queue.
//!
//! **Latency counts from the intended arrival**, in the trace, not from when the request was sent:
//! a load generator that is held up would otherwise leave out the worst of the waiting
//! ("coordinated omission"). How late it was is reported apart ([`Report::lateness_ms`]); where
//! that is not far below the latency, the generator was measured and not the server.
//!
//! **The peak** of a contender is the highest rate at which it keeps a quality of service ([`peak`]).
//!
//! **Saturation** asks for throughput alone: [`Trace::saturated`] has no times, and the driver
//! keeps as many requests in flight as batches can use, and counts completions in the middle of
//! the run. The latency of such a run depends on how many those are. A rate above what saturation
//! gives is not [sustained](Report::sustained): its latency grows with the length of the run.
//!
//! **Where the figures come from.** Lengths are those of the paper's dataset, or a distribution
//! fitted to it. A [`Recorder`] takes every request's time, none are sampled, and merges over
//! parts: policies take turns on [parts](Trace::parts) of one trace, so that a machine that slows
//! down slows all of them. A [`Report`] is one JSON line; [`table()`] shows several to people, and
//! [`latency_against_throughput`] and [`time_cdf`] draw Figures 7 and 9 of the paper.
//!
//! Gao, Yu, Wu, Li: Low Latency RNN Inference with Cellular Batching, EuroSys 2018, section 7.

#![forbid(unsafe_code)]

mod batcher;
mod compare;
mod cpu_time;
mod distribution;
mod driver;
mod in_process;
mod inputs;
mod kernel_rate;
mod measurement;
mod over_http;
mod padding;
mod peak;
mod plot;
mod random;
mod report;
mod shape;
mod table;
mod trace;
mod workload;

pub use batcher::Batching;
pub use compare::{Contender, Load, Measured, Progress, WarmUpFailed, compare};
pub use distribution::{Distribution, Recorder};
pub use driver::{Answer, Service};
pub use in_process::{InProcess, NoSequences};
pub use inputs::{Inputs, NoLength};
pub use kernel_rate::KernelRate;
pub use measurement::AnswerTime;
pub use over_http::{HttpError, OverHttp};
pub use peak::{Qos, peak};
pub use plot::{
    BatchCurve, PlotError, latency_against_throughput, time_against_throughput, time_cdf,
};
pub use report::{BatchSample, CellReport, CpuSeconds, KernelTime, Lateness, ManagerNs, Report};
pub use shape::{Shape, Tree};
pub use table::table;
pub use trace::{Arrival, Trace};
pub use workload::{Workload, WorkloadError};
