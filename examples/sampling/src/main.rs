//! Samples texts from a language model, many at once: a session for each text, whose chunks are the
//! prompt and then one character after the other.

#![forbid(unsafe_code)]

mod sampler;
mod vocabulary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use batchmaker::Engine;
use clap::Parser;

use crate::sampler::{Sampling, sample_texts};
use crate::vocabulary::read_vocabulary;

/// Sample texts from a language model, many at once
///
/// Each sampler opens a session. It sends the prompt as the first chunk, draws a character from the
/// reply, and sends that character as the next chunk. The state of the network stays in the engine,
/// and steps of different samplers share batches.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo run --release -p batchmaker-example-sampling
  cargo run --release -p batchmaker-example-sampling -- --prompt \"A cell \" --length 200 --seed 1
  cargo run --release -p batchmaker-example-sampling -- --samplers 64 --temperature 0.4")]
struct Args {
    /// The directory of the model: text in, logits of the next character out
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/charlm"))]
    model: PathBuf,

    /// The text that each sample continues
    #[arg(long, value_name = "TEXT", default_value = "A cell ")]
    prompt: String,

    /// Characters to sample, for each text
    #[arg(long, value_name = "CHARACTERS", default_value_t = 200)]
    length: usize,

    /// Divides the logits, above 0: lower values prefer likely characters, 1 is the model as it is
    #[arg(long, default_value_t = 0.7, value_parser = temperature)]
    temperature: f64,

    /// Texts that are sampled at once
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    samplers: usize,

    /// The seed of all random numbers; text n is the same whatever the number of samplers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let vocabulary = read_vocabulary(&args.model.join("vocab.txt"))?;
    let engine = Engine::builder()
        .model(&args.model)
        .sessions(args.samplers, Duration::from_secs(60))
        .build()?;
    let model = engine.models().first().context("there is no model")?.name.clone();
    let sampling = Sampling {
        prompt: args.prompt,
        length: args.length,
        temperature: args.temperature,
        seed: args.seed,
    };
    let texts = sample_texts(&engine, &model, &vocabulary, &sampling, args.samplers)?;
    for (number, text) in texts.iter().enumerate() {
        println!("--- {}\n{}{text}\n", number + 1, sampling.prompt);
    }
    for cell in engine.statistics().cells {
        let mean = cell.nodes as f64 / cell.tasks.max(1) as f64;
        println!(
            "{}: {} steps in {} batches, {mean:.1} a batch",
            cell.name, cell.nodes, cell.tasks
        );
    }
    Ok(())
}

fn temperature(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let is_positive = value.is_finite() && value > 0.0;
    is_positive.then_some(value).ok_or_else(|| "expected a number above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn temperatures_are_positive_numbers() {
        assert_eq!(temperature("0.5"), Ok(0.5));
        for refused in ["0", "-1", "NaN", "inf", "warm"] {
            assert!(temperature(refused).is_err(), "{refused}");
        }
    }
}
