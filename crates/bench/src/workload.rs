//! The lengths or trees of the requests of a run: drawn from a distribution, fixed, or sampled
//! from files.
//! Not what they hold (inputs are drawn for the model that gets them) and not when they arrive
//! (see [`Trace`](crate::Trace)).

use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, LogNormal};

use crate::random::{Purpose, stream};
use crate::shape::{Shape, Tree};

/// The longest sentence of the paper's dataset (BatchMaker, section 7.1).
const EUROPARL_LONGEST: NonZeroU32 = NonZeroU32::new(330).unwrap();
/// The mean of the logarithm of a sentence's length in words.
const EUROPARL_LOG_MEAN: f64 = 2.9585;
/// The standard deviation of that logarithm.
const EUROPARL_LOG_DEVIATION: f64 = 0.6627;

/// The source of the lengths of requests. Written as on the command line: [`FromStr`] reads what
/// [`Display`](fmt::Display) writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// `europarl`, or `europarl:MAX`: lengths round(exp(N(2.9585, 0.6627))), drawn again until
    /// within 1..=`max_length`. At 330, the longest of the paper's dataset, the mean is 24 and the
    /// 99th percentile near 90, as there (BatchMaker, section 7.1 and Figure 10); a lower bound
    /// gives the clipped datasets of Figure 11.
    Europarl {
        /// The longest length drawn; above 330 it changes nothing.
        max_length: NonZeroU32,
    },
    /// `fixed:LEN`: every request has this length; if requests are trees, each is the complete tree
    /// with this number of leaves.
    Fixed {
        /// The length.
        length: NonZeroU32,
    },
    /// `file:PATH`: a sequence a line, its length in words (runs of what is not white space), or a
    /// labelled tree a line ([`Tree::read`]); blank lines are skipped.
    File {
        /// The file.
        path: PathBuf,
    },
    /// `pairs:SOURCE:TARGET`: a sequence a line of one file, and its target on the same line of the
    /// other: a decoder runs as many steps as the target has words. Pairs of which either line is blank
    /// are skipped.
    Pairs {
        /// The sequences.
        source: PathBuf,
        /// Their targets.
        target: PathBuf,
    },
}

/// Why a workload cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No such workload.
    #[error(
        "unknown workload `{0}`: use europarl, europarl:MAX, fixed:LEN, file:PATH or \
         pairs:SOURCE:TARGET"
    )]
    Unknown(String),
    /// `pairs:` without two paths.
    #[error("the workload `{0}` does not name two files: write pairs:SOURCE:TARGET")]
    NoPair(String),
    /// Two files that are no pairs.
    #[error(
        "{} has {source_lines} lines, {} {target_lines}: they are no pairs",
        source_path.display(), target_path.display()
    )]
    Unpaired {
        /// The sequences.
        source_path: PathBuf,
        /// Its number of lines.
        source_lines: usize,
        /// Their targets.
        target_path: PathBuf,
        /// Its number of lines.
        target_lines: usize,
    },
    /// A workload that takes a number came with something else.
    #[error("in the workload `{workload}`, `{number}` is not a whole number from 1 to {most}")]
    Number {
        /// The workload as given.
        workload: String,
        /// The text in place of the number.
        number: String,
        /// The largest number that it could have been.
        most: u32,
    },
    /// `file:` without a path.
    #[error("the workload `file:` names no file: write file:PATH")]
    NoPath,
    /// The file cannot be read.
    #[error("cannot read the workload file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not text.
    #[error("line {line} of the workload file {} is not UTF-8: convert the file", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first such line, from 1.
        line: usize,
    },
    /// The workload is of sequences, the model of trees.
    #[error("the workload `{0}` has no trees: use fixed:LEAVES or file:PATH with a tree a line")]
    NoTrees(String),
    /// No tree of the model's arity has the wanted number of leaves.
    #[error("{0}")]
    NoSuchTree(String),
    /// A line of the file is no tree for the model.
    #[error("line {line} of the workload file {}: {reason}", path.display())]
    NoTree {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why the line is no tree.
        reason: String,
    },
    /// The file holds no sequence.
    #[error(
        "the workload file {} holds no sequence, its {lines} lines are blank: \
         write a sequence a line, words apart by spaces",
        path.display()
    )]
    NoSequence {
        /// The file.
        path: PathBuf,
        /// The number of its lines.
        lines: usize,
    },
}

impl Workload {
    /// Draws the shapes of `count` requests. They are trees whose inner nodes have `arity` children, if it is given.
    ///
    /// The same seed gives the same requests, and fewer of them are the first of more. A file's
    /// lines are sampled with the seed, each as likely at every draw and any number of times, as
    /// the paper samples requests from its dataset; the order of the file plays no part.
    ///
    /// # Errors
    /// For a file that cannot be read, is not text or holds no sequence or tree; for a workload
    /// that has no trees.
    pub fn shapes(
        &self,
        arity: Option<u32>,
        count: usize,
        seed: u64,
    ) -> Result<Vec<Shape>, WorkloadError> {
        let Some(arity) = arity else {
            if let Self::Pairs { source, target } = self {
                let pairs = file_pairs(source, target)?;
                let mut rng = stream(seed, Purpose::Lengths);
                let draw = |_| pairs[rng.random_range(0..pairs.len())].clone();
                return Ok((0..count).map(draw).collect());
            }
            let lengths = self.lengths(count, seed)?;
            return Ok(lengths.into_iter().map(Shape::Sequence).collect());
        };
        match self {
            Self::Europarl { .. } | Self::Pairs { .. } => {
                Err(WorkloadError::NoTrees(self.to_string()))
            }
            Self::Fixed { length } => {
                let tree = Tree::complete(length.get(), arity);
                let tree = Arc::new(tree.map_err(WorkloadError::NoSuchTree)?);
                Ok(vec![Shape::Tree(tree); count])
            }
            Self::File { path } => {
                let trees = file_trees(path, arity)?;
                let mut rng = stream(seed, Purpose::Lengths);
                let draw = |_| Shape::Tree(trees[rng.random_range(0..trees.len())].clone());
                Ok((0..count).map(draw).collect())
            }
        }
    }

    /// The lengths of `count` sequences, none of them 0.
    fn lengths(&self, count: usize, seed: u64) -> Result<Vec<u32>, WorkloadError> {
        let mut rng = stream(seed, Purpose::Lengths);
        Ok(match self {
            Self::Europarl { max_length } => {
                let within = 1.0..=f64::from((*max_length).min(EUROPARL_LONGEST).get());
                LogNormal::new(EUROPARL_LOG_MEAN, EUROPARL_LOG_DEVIATION)
                    .expect("the deviation is finite")
                    .sample_iter(rng)
                    .map(f64::round)
                    .filter(|length| within.contains(length))
                    .map(|length| length as u32)
                    .take(count)
                    .collect()
            }
            Self::Fixed { length } => vec![length.get(); count],
            Self::File { path } => {
                let lines = file_lengths(path)?;
                (0..count).map(|_| lines[rng.random_range(0..lines.len())]).collect()
            }
            Self::Pairs { .. } => unreachable!("pairs are drawn as such"),
        })
    }
}

/// The length of every sequence of a file, in its order; at least one.
fn file_lengths(path: &Path) -> Result<Vec<u32>, WorkloadError> {
    let text = read(path)?;
    let lengths: Vec<u32> = text
        .lines()
        .map(|line| line.split_whitespace().count() as u32)
        .filter(|&length| length > 0)
        .collect();
    if lengths.is_empty() {
        let lines = text.lines().count();
        return Err(WorkloadError::NoSequence { path: path.to_owned(), lines });
    }
    Ok(lengths)
}

/// Every pair of two files, in their order; at least one.
fn file_pairs(source: &Path, target: &Path) -> Result<Vec<Shape>, WorkloadError> {
    let (sources, targets) = (read(source)?, read(target)?);
    let lines = |text: &str| text.lines().count();
    let (source_lines, target_lines) = (lines(&sources), lines(&targets));
    if source_lines != target_lines {
        let (source_path, target_path) = (source.to_owned(), target.to_owned());
        let unpaired =
            WorkloadError::Unpaired { source_path, source_lines, target_path, target_lines };
        return Err(unpaired);
    }
    let words = |line: &str| line.split_whitespace().count() as u32;
    let pairs = sources.lines().map(words).zip(targets.lines().map(words));
    let pairs: Vec<Shape> = pairs
        .filter(|&(source, target)| source > 0 && target > 0)
        .map(|(source, target)| Shape::Pair { source, target })
        .collect();
    if pairs.is_empty() {
        return Err(WorkloadError::NoSequence { path: source.to_owned(), lines: source_lines });
    }
    Ok(pairs)
}

/// Every tree of a file, in its order; at least one.
fn file_trees(path: &Path, arity: u32) -> Result<Vec<Arc<Tree>>, WorkloadError> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tree = |(number, line): (usize, &str)| {
        let wrong = |reason: String| WorkloadError::NoTree {
            path: path.to_owned(),
            line: number + 1,
            reason,
        };
        let tree = Tree::read(line).map_err(wrong)?;
        match tree.children.iter().find(|children| children.len() != arity as usize) {
            Some(children) => {
                let found = children.len();
                Err(wrong(format!("a node has {found} children; the model's have {arity}")))
            }
            None => Ok(Arc::new(tree)),
        }
    };
    let trees = lines.map(tree).collect::<Result<Vec<_>, _>>()?;
    if trees.is_empty() {
        let lines = text.lines().count();
        return Err(WorkloadError::NoSequence { path: path.to_owned(), lines });
    }
    Ok(trees)
}

fn read(path: &Path) -> Result<String, WorkloadError> {
    let bytes =
        fs::read(path).map_err(|source| WorkloadError::Read { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        WorkloadError::NotText { path: path.to_owned(), line }
    })
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(workload: &str) -> Result<Self, WorkloadError> {
        let number = |number: &str, most: u32| {
            number.parse().ok().filter(|n: &NonZeroU32| n.get() <= most).ok_or_else(|| {
                WorkloadError::Number { workload: workload.into(), number: number.into(), most }
            })
        };
        match workload.split_once(':') {
            None if workload == "europarl" => Ok(Self::Europarl { max_length: EUROPARL_LONGEST }),
            Some(("europarl", max)) => {
                Ok(Self::Europarl { max_length: number(max, EUROPARL_LONGEST.get())? })
            }
            Some(("fixed", length)) => Ok(Self::Fixed { length: number(length, u32::MAX)? }),
            Some(("file", "")) => Err(WorkloadError::NoPath),
            Some(("file", path)) => Ok(Self::File { path: path.into() }),
            Some(("pairs", paths)) => match paths.split_once(':') {
                Some((source, target)) if !source.is_empty() && !target.is_empty() => {
                    Ok(Self::Pairs { source: source.into(), target: target.into() })
                }
                _ => Err(WorkloadError::NoPair(workload.into())),
            },
            _ => Err(WorkloadError::Unknown(workload.into())),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Europarl { max_length: EUROPARL_LONGEST } => f.write_str("europarl"),
            Self::Europarl { max_length } => write!(f, "europarl:{max_length}"),
            Self::Fixed { length } => write!(f, "fixed:{length}"),
            Self::File { path } => write!(f, "file:{}", path.display()),
            Self::Pairs { source, target } => {
                write!(f, "pairs:{}:{}", source.display(), target.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(workload: &str, count: usize, seed: u64) -> Vec<u32> {
        workload.parse::<Workload>().unwrap().lengths(count, seed).unwrap()
    }

    /// A file of this test process, gone when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, content: &[u8]) -> Self {
            let name = format!("batchmaker-bench-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, content).unwrap();
            Self(path)
        }

        fn lengths(&self, count: usize, seed: u64) -> Result<Vec<u32>, WorkloadError> {
            Workload::File { path: self.0.clone() }.lengths(count, seed)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn workloads_read_as_they_are_written() {
        for text in
            ["europarl", "europarl:50", "fixed:24", "file:data/de.txt", "file:a b", "pairs:en:de"]
        {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_there_is() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        let all = "use europarl, europarl:MAX, fixed:LEN, file:PATH or pairs:SOURCE:TARGET";
        assert_eq!(error("wmt"), format!("unknown workload `wmt`: {all}"));
        assert_eq!(error("fixed"), format!("unknown workload `fixed`: {all}"));
        assert_eq!(
            error("pairs:a"),
            "the workload `pairs:a` does not name two files: write pairs:SOURCE:TARGET"
        );
        assert_eq!(
            error("europarl:331"),
            "in the workload `europarl:331`, `331` is not a whole number from 1 to 330"
        );
        assert_eq!(
            error("fixed:0"),
            "in the workload `fixed:0`, `0` is not a whole number from 1 to 4294967295"
        );
        assert_eq!(error("file:"), "the workload `file:` names no file: write file:PATH");
    }

    #[test]
    fn europarl_has_the_papers_mean_and_tail() {
        let mut lengths = lengths("europarl", 100_000, 1);
        lengths.sort_unstable();
        let mean = lengths.iter().copied().map(f64::from).sum::<f64>() / lengths.len() as f64;
        assert!((23.5..24.5).contains(&mean), "{mean}");
        let p99 = lengths[lengths.len() * 99 / 100];
        assert!((87..=93).contains(&p99), "{p99}");
        assert!(lengths[0] >= 1 && lengths[lengths.len() - 1] <= 330);
    }

    #[test]
    fn a_maximum_is_reached_and_held() {
        assert_eq!(lengths("europarl:50", 10_000, 1).into_iter().max(), Some(50));
        assert_eq!(lengths("europarl:1", 3, 1), [1, 1, 1]);
    }

    #[test]
    fn a_seed_means_the_same_lengths_for_ever() {
        assert_eq!(lengths("europarl", 8, 1), [30, 10, 52, 29, 13, 24, 6, 22]);
        assert_eq!(lengths("europarl", 8, 1), lengths("europarl", 100, 1)[..8]);
        assert_ne!(lengths("europarl", 8, 1), lengths("europarl", 8, 2));
        assert_eq!(lengths("fixed:7", 3, 1), [7, 7, 7]);
    }

    #[test]
    fn a_file_is_sampled_by_its_lines() {
        let file =
            Scratch::new("lines", b"one two\r\n\n \t\nein Satz\xc2\xa0mit f\xc3\xbcnf Worten\n");
        let lengths = file.lengths(1000, 1).unwrap();
        let twos = lengths.iter().filter(|&&length| length == 2).count();
        assert!((400..600).contains(&twos), "{twos}");
        assert!(lengths.iter().all(|length| [2, 5].contains(length)));
        assert_eq!(lengths, file.lengths(1000, 1).unwrap());
        assert_ne!(lengths, file.lengths(1000, 2).unwrap());
    }

    #[test]
    fn pairs_are_lines_of_two_files() {
        let source = Scratch::new("en", b"one two\n\na b c\nx\n");
        let target = Scratch::new("de", b"eins\nnichts\na b c d\n \n");
        let pairs = |target: &Scratch| Workload::Pairs {
            source: source.0.clone(),
            target: target.0.clone(),
        };
        let shapes = pairs(&target).shapes(None, 200, 1).unwrap();
        let is_one = |shape: &Shape| *shape == Shape::Pair { source: 2, target: 1 };
        let ones = shapes.iter().filter(|shape| is_one(shape)).count();
        assert!((60..140).contains(&ones), "{ones}");
        let other = Shape::Pair { source: 3, target: 4 };
        assert!(shapes.iter().all(|shape| is_one(shape) || *shape == other));
        let short = Scratch::new("short", b"eins\n");
        let error = pairs(&short).shapes(None, 1, 1).unwrap_err().to_string();
        assert!(
            error.contains("has 4 lines") && error.ends_with("1: they are no pairs"),
            "{error}"
        );
    }

    #[test]
    fn a_file_of_no_use_is_named() {
        let blank = Scratch::new("blank", b"\n \n");
        let error = blank.lengths(1, 1).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the workload file {} holds", blank.0.display())));
        assert!(error.contains("its 2 lines are blank"), "{error}");

        let latin = Scratch::new("latin", b"eins\nf\xfcnf\n");
        let error = latin.lengths(1, 1).unwrap_err().to_string();
        assert!(error.starts_with("line 2 of the workload file"), "{error}");

        let absent = Workload::File { path: "/absent/file".into() };
        let error = absent.lengths(1, 1).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the workload file /absent/file: "), "{error}");
    }
}
