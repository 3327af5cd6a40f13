//! `cargo xtask quanta`: how near to its ideal a GPU comes whose launches run task after task, in virtual time.

use batchmaker_sim::quanta::{Costs, Launches, Load, Outcome, play};

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask quanta                       one layer and two, 64 and 512 chains
  cargo xtask quanta --steps-max 64        launches of at most 64 steps
  cargo xtask quanta --join-ns 2000        a host that takes 2 us for each chain that joins";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Requests of each line
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// The seed of their lengths
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most steps of a launch
    #[arg(long, default_value_t = 256)]
    steps_max: u32,
    /// The host's time for a chain that joins, in nanoseconds
    #[arg(long, default_value_t = Costs::H200.host_join)]
    join_ns: u64,
    /// Rounds of a cell, of up to five steps each, before another cell has its turn with launches that run task after task
    #[arg(long, default_value_t = 2)]
    rounds_of_a_turn: u32,
}

/// Prints a table.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let costs = Costs { host_join: arguments.join_ns, ..Costs::H200 };
    println!("costs in ns: {costs:?}");
    println!(
        "\n| layers | chains | lookahead | launches | share of the ideal | steps a launch | joins and leaves a launch | the host works |\n|---|---|---|---|---|---|---|---|"
    );
    let quanta = Launches::OfQuanta { steps_max: arguments.steps_max };
    for (layers, chains) in [(1, 64), (1, 512), (2, 64), (2, 512)] {
        for lookahead in [0, 1, 2] {
            for (name, launches, rounds_of_a_turn) in [
                ("a task", Launches::OfTasks, 1),
                ("a quantum", quanta, arguments.rounds_of_a_turn),
            ] {
                let in_flight = chains as usize * 3 / 2;
                let requests = arguments.requests.max(20 * chains as usize);
                let load =
                    Load { chains, in_flight, requests, layers, lookahead, rounds_of_a_turn };
                let Outcome { share, steps_of_launch, changes_of_launch, host, .. } =
                    play(costs, launches, load, arguments.seed);
                println!(
                    "| {layers} | {chains} | {lookahead} | {name} | {:.0}% | {steps_of_launch:.0} | {changes_of_launch:.0} | {:.0}% |",
                    100.0 * share,
                    100.0 * host
                );
            }
        }
    }
    Ok(())
}
