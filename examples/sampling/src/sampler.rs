//! Samplers: each continues a prompt, character by character, in a session of its own.

use std::thread;

use anyhow::{Context, bail};
use batchmaker::{Engine, Reply, Request, Tensor, TensorData};
use rand::SeedableRng;
use rand_distr::Distribution;
use rand_distr::weighted::WeightedIndex;
use rand_pcg::Pcg64;

/// The options with which texts are sampled.
#[derive(Clone, Debug)]
pub(crate) struct Sampling {
    /// The text that each sample continues, at least one character.
    pub(crate) prompt: String,
    /// Characters to sample, for each text.
    pub(crate) length: usize,
    /// The divisor of the logits, above 0.
    pub(crate) temperature: f64,
    /// The seed of all samplers.
    pub(crate) seed: u64,
}

/// Samples `samplers` texts at once, a thread for each, and returns them without the prompt. The text
/// of a sampler depends on the seed and the sampler's number, and not on how many others there are: a
/// reply has the same bits in any batch.
///
/// # Errors
/// A request fails, or the model does not answer with `logits` over `vocabulary`.
pub(crate) fn sample_texts(
    engine: &Engine,
    model: &str,
    vocabulary: &[char],
    sampling: &Sampling,
    samplers: usize,
) -> anyhow::Result<Vec<String>> {
    let mut seeds = Pcg64::seed_from_u64(sampling.seed);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..samplers)
            .map(|_| {
                let random = Pcg64::from_rng(&mut seeds);
                scope.spawn(move || sample_text(engine, model, vocabulary, sampling, random))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a sampler panicked")).collect()
    })
}

/// Samples one text, in a session that ends when this returns.
fn sample_text(
    engine: &Engine,
    model: &str,
    vocabulary: &[char],
    sampling: &Sampling,
    mut random: Pcg64,
) -> anyhow::Result<String> {
    let mut session = engine.session(model);
    let mut text = String::new();
    let mut chunk = sampling.prompt.clone();
    for _ in 0..sampling.length {
        let input = Tensor::new(vec![1], TensorData::Bytes(vec![chunk.into_bytes()]));
        let reply = session.submit(Request::new().input("text", input))?.wait()?;
        let logits = last_logits(&reply, vocabulary.len())?;
        let next = vocabulary[draw(logits, sampling.temperature, &mut random)?];
        text.push(next);
        chunk = next.to_string();
    }
    Ok(text)
}

/// The logits after the last step of a chunk, `[vocabulary]`, of a reply's `logits`, `[steps, vocabulary]`.
fn last_logits(reply: &Reply, vocabulary: usize) -> anyhow::Result<&[f32]> {
    let logits = reply.output("logits").context("the model has no output `logits`")?;
    match (logits.shape(), logits.data()) {
        (&[steps, width], TensorData::F32(data)) if steps > 0 && width == vocabulary => {
            Ok(&data[(steps - 1) * width..])
        }
        (shape, _) => bail!("`logits` of shape {shape:?} for {vocabulary} characters"),
    }
}

/// Draws an index with the probabilities softmax(`logits` / `temperature`).
fn draw(logits: &[f32], temperature: f64, random: &mut Pcg64) -> anyhow::Result<usize> {
    // The largest logit is taken off first, so that no exponential overflows.
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights = logits.iter().map(|logit| (f64::from(logit - largest) / temperature).exp());
    Ok(WeightedIndex::new(weights)?.sample(random))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::vocabulary::read_vocabulary;

    fn sampling(seed: u64) -> Sampling {
        Sampling { prompt: "A cell ".to_owned(), length: 40, temperature: 0.7, seed }
    }

    fn charlm(sessions: usize) -> (Engine, Vec<char>) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/charlm");
        let engine = Engine::builder().model(&folder).sessions(sessions, Duration::from_secs(60));
        (engine.build().unwrap(), read_vocabulary(&folder.join("vocab.txt")).unwrap())
    }

    #[test]
    fn a_text_depends_on_its_seed_and_not_on_other_samplers() {
        let (engine, vocabulary) = charlm(32);
        let sample = |seed, samplers| {
            sample_texts(&engine, "charlm", &vocabulary, &sampling(seed), samplers).unwrap()
        };
        let many = sample(1, 32);
        assert!(many.iter().all(|text| text.chars().count() == 40));
        assert_eq!(sample(1, 1), many[..1]);
        assert_eq!(sample(1, 5), many[..5]);
        assert_ne!(sample(2, 1), many[..1]);
        assert!((1..32).all(|number| many[number] != many[number - 1]));
    }

    /// The network sees the prompt and all sampled characters but the last, each once, whatever the
    /// chunks; and the sessions' state is freed.
    #[test]
    fn every_character_is_one_step_and_steps_share_batches() {
        let (engine, vocabulary) = charlm(32);
        sample_texts(&engine, "charlm", &vocabulary, &sampling(1), 32).unwrap();
        let statistics = engine.statistics();
        for cell in &statistics.cells {
            assert_eq!(cell.nodes, 32 * (7 + 39), "{}", cell.name);
            assert!(cell.tasks < cell.nodes, "{}: {} batches", cell.name, cell.tasks);
        }
        assert_eq!((statistics.sessions.begun, statistics.sessions.broken), (32, 0));
    }

    #[test]
    fn frequencies_are_the_softmax_of_the_logits() {
        // Odds of 1 to 3, and at half the temperature 1 to 9.
        let logits = [0.0, 3f32.ln()];
        let mut random = Pcg64::seed_from_u64(7);
        for (temperature, expected) in [(1.0, 0.75), (0.5, 0.9)] {
            let mut count = |_| draw(&logits, temperature, &mut random).unwrap();
            let share = (0..10_000).map(&mut count).sum::<usize>() as f64 / 10_000.0;
            assert!((share - expected).abs() < 0.02, "{share} at {temperature}");
        }
    }

    #[test]
    fn large_logits_and_low_temperatures_do_not_overflow() {
        let mut random = Pcg64::seed_from_u64(7);
        assert_eq!(draw(&[-1e30, 1e30, 0.0], 1e-6, &mut random).unwrap(), 1);
    }
}
