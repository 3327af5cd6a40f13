//! The configuration of a manager: cell types, workers, policy.

pub use batchmaker_graph::StatePlacement;
use batchmaker_graph::{CellRegistry, ModelId, ModelPriority};

use crate::fairness::Fairness;
use crate::stages::Stages;
use crate::staging::{Delay, Staging, StagingOptions};

/// The batch sizes that a cell type supports: any from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// `Bsizes.Min()`: a smaller batch is submitted only as the first of a round.
    pub min: u32,
    /// `Bsizes.Max()`: the batch limit.
    pub max: u32,
}

impl BatchSizes {
    /// Any size from 1 to `max`.
    pub fn up_to(max: u32) -> Self {
        Self { min: 1, max }
    }

    /// The same sizes with `max` as the limit, and no least size above it.
    pub fn with_max(self, max: u32) -> Self {
        Self { min: self.min.min(max), max }
    }
}

/// The scheduling parameters of a cell type.
#[derive(Clone, Debug)]
pub struct CellTypeConfig {
    /// The supported batch sizes.
    pub batch_sizes: BatchSizes,
    /// The most rows of a batch that the device prepared for: no limit that is set later
    /// ([`crate::Event::Limits`]) is above it. None where a device takes batches of any size.
    pub rows_max: Option<u32>,
    /// The number of slots that the device has for the states of its chains; none: as many as there are
    /// chains.
    /// A chain takes one when its first node is ready and every chain that it depends on has one or
    /// has ended; a session's first chunk takes those of all its chains together. What gets none
    /// waits in the order of the queue, and is not counted as ready. So a chain that has a slot never
    /// waits for one that has none.
    ///
    /// Sessions keep their slots from chunk to chunk: while they have all of them, others wait.
    /// Bounds are for [`Policy::Cellular`] alone: a closed batch takes all its slots at once.
    pub slots_max: Option<u32>,
    /// The number of workers whose cores a batch of a single row takes while all others are idle, its own included; 1: it takes no others.
    ///
    /// A request that has been alone since it arrived runs on one worker at a time if each of its chains depends on the one before, and one of its
    /// cells takes as many workers here as could each have one of these chains. Two of its batches at a time, a core each, would take longer than
    /// one after the other on all cores. Nodes that feed each other, as a tree's, rule this out. It is for [`Policy::Cellular`] alone, where no
    /// model runs in stages.
    pub workers_of_a_row: u32,
    /// Its priority in each model that uses it.
    pub priorities: Vec<ModelPriority>,
}

impl CellTypeConfig {
    /// A type whose batches have up to `rows` rows, on a device without bounds of its own.
    pub fn up_to(rows: u32, priorities: Vec<ModelPriority>) -> Self {
        Self {
            batch_sizes: BatchSizes::up_to(rows),
            rows_max: None,
            slots_max: None,
            workers_of_a_row: 1,
            priorities,
        }
    }

    /// The batch sizes with `max` as the limit, or `rows_max` where that is less.
    pub fn sizes_with_max(&self, max: u32) -> BatchSizes {
        self.batch_sizes.with_max(self.rows_max.map_or(max, |rows_max| max.min(rows_max)))
    }
}

/// The form of the tasks of chains ([`batchmaker_graph::Work`]). Both forms run the same nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskForm {
    /// Standing lists, changed by joins and leaves, with a number of steps.
    Roster,
    /// Every item of every step listed.
    Rows,
}

/// The policy by which requests share batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Cells of one type share a batch, whatever request and step they are of; requests
    /// join and leave at every step (section 3 of the paper).
    #[default]
    Cellular,
    /// Requests of like length share a batch from their start to their end, padded to one length
    /// (section 7.1): what cellular batching is compared with.
    Padded(Padding),
    /// Graphs that wait share a batch from its start to its end, merged level by level (section
    /// 7.5): what cellular batching is compared with where padding makes no sense, as for trees.
    Merged(Merging),
    /// Requests share a batch through the stages that their model is cut into ([`Config::stages`]); between stages, others are
    /// added to a batch, and it is split (DVABatch). No cell of the models has states, and each request has one
    /// of the first stage. The rules of [`Config::fairness`] and
    /// [`Config::lookahead`] have no effect, but on how the workers are shared with other policies ([`Config::staged_models`]).
    Staged(StagingOptions),
    /// Requests that have waited long enough, or are enough for a batch, share one from its start to its end (ZeroBatch and DelayBatch of
    /// DVABatch, section 8.1): what batches in stages are compared with. What holds of the models there holds here.
    Delayed(Delay),
}

/// A model that runs in stages of its own, beside models under another policy ([`Config::staged_models`]). It is without
/// recurrence, as under [`Policy::Staged`].
#[derive(Clone, Debug)]
pub struct StagedModel {
    /// The model.
    pub model: ModelId,
    /// Its batches.
    pub staging: Staging,
    /// The stages of its cell types. Those of others are in any stage.
    pub stages: Stages,
}

/// The batches of [`Policy::Merged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merging {
    /// The most graphs of a batch.
    pub graphs: u32,
}

impl Merging {
    /// The number of graphs that the paper gives Fold and DyNet.
    pub const GRAPHS: u32 = 64;

    /// The largest number of graphs that the text of a policy may give.
    pub const GRAPHS_MAX: u32 = 65_536;
}

/// The buckets of [`Policy::Padded`], and how far a batch is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The number of lengths of one bucket: bucket `i` holds `i * width + 1 ..= (i + 1) * width`.
    pub width: u32,
    /// The length that a batch is padded to.
    pub to: PadTo,
}

/// The length that a batch of a bucket is padded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadTo {
    /// The bucket's bound, as a graph that was compiled for the bucket does.
    Bucket,
    /// The batch's own longest member.
    Longest,
}

impl Padding {
    /// The width of section 7.1 of the paper.
    pub const WIDTH: u32 = 10;

    /// The largest width that the text of a policy may give: sequences are not longer than that.
    pub const WIDTH_MAX: u32 = 65_536;

    /// The bucket of `length`.
    pub(crate) fn bucket(self, length: u32) -> u32 {
        (length - 1) / self.width
    }
}

impl Policy {
    /// Whether it takes row-wise cells alone: no cell with states, and no node that reads another of its cell.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Self::Staged(_) | Self::Delayed(_))
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cellular => write!(f, "cellular"),
            Self::Padded(Padding { width, to: PadTo::Bucket }) => write!(f, "padded:{width}"),
            Self::Padded(Padding { width, to: PadTo::Longest }) => write!(f, "padded:{width}:own"),
            Self::Merged(Merging { graphs: Merging::GRAPHS }) => write!(f, "merged"),
            Self::Merged(Merging { graphs }) => write!(f, "merged:{graphs}"),
            Self::Staged(options) => write!(f, "staged{options}"),
            Self::Delayed(delay) => write!(f, "{delay}"),
        }
    }
}

/// `cellular`, `padded[:WIDTH][:own]`, `merged[:GRAPHS]`, `zero`, `delay`, or `staged` with [`StagingOptions`].
impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let padded = |width: &str, to| {
            let width = width.parse().ok();
            let width = width.filter(|width| (1..=Padding::WIDTH_MAX).contains(width))?;
            Some(Self::Padded(Padding { width, to }))
        };
        let default_width = Padding::WIDTH.to_string();
        if let Some(options) = text.strip_prefix("staged") {
            return options.parse().map(Self::Staged);
        }
        if text.starts_with("zero") || text.starts_with("delay") {
            return text.parse().map(Self::Delayed);
        }
        let policy = match text.split(':').collect::<Vec<_>>()[..] {
            ["cellular"] => Some(Self::Cellular),
            ["padded"] => padded(&default_width, PadTo::Bucket),
            ["padded", "own"] => padded(&default_width, PadTo::Longest),
            ["padded", width] => padded(width, PadTo::Bucket),
            ["padded", width, "own"] => padded(width, PadTo::Longest),
            ["merged"] => Some(Self::Merged(Merging { graphs: Merging::GRAPHS })),
            ["merged", graphs] => {
                let graphs = graphs.parse().ok();
                let graphs = graphs.filter(|graphs| (1..=Merging::GRAPHS_MAX).contains(graphs));
                graphs.map(|graphs| Self::Merged(Merging { graphs }))
            }
            _ => None,
        };
        policy.ok_or_else(|| {
            let expected =
                "expected cellular, staged, padded[:WIDTH][:own], merged[:GRAPHS], zero or delay";
            format!("'{text}' is no policy: {expected}, numbers from 1 to {}", Padding::WIDTH_MAX)
        })
    }
}

/// The configuration of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cell types; the id of a type is its position.
    pub cell_types: Vec<CellTypeConfig>,
    /// The number of workers, up to 64. All are up at the start.
    pub workers: u16,
    /// The number of tasks of a worker that may be unfinished when it is given its next round (of closed
    /// batches: its next batch). With 0 a round is formed when the one before it is complete, as late
    /// as can be, so that the most requests share it. With more, the device has the next round before
    /// it is done with this one and never waits for the manager, but a request that arrives waits for
    /// up to `lookahead` tasks more. The documentation of the crate says what this means for pinning,
    /// cell types and priorities.
    pub lookahead: u32,
    /// The rules beside those of Algorithm 1 that keep requests, cell types and models from waiting for
    /// others for ever; none: the paper's rules alone.
    pub fairness: Option<Fairness>,
    /// The stages of the cell types for [`Policy::Staged`]; no other policy has a use for them.
    pub stages: Stages,
    /// The models that run in stages, whatever the policy of the others is.
    pub staged_models: Vec<StagedModel>,
    /// The policy by which requests share batches. Only [`Policy::Cellular`] has a use for the next four.
    pub policy: Policy,
    /// `MaxTasksToSubmit` of Algorithm 1: the most batches of one round.
    pub max_tasks_to_submit: u32,
    /// The rounds of a cell type of chains that a worker has before another one has its turn, as long as it has ready nodes, unless another model's turn comes
    /// by its share or another cell type has waited for [`Fairness::patience_ns`]. 1: those of Algorithm 1. More pay where a worker loses time when it changes
    /// from one cell type to another.
    pub rounds_of_a_turn: u32,
    /// The most work that a round submits of the chains of a cell type, in nanoseconds by the
    /// recent time of a step; none: as many steps as `max_tasks_to_submit` allows.
    pub submission_window_ns: Option<u64>,
    /// The form of the tasks of chains.
    pub task_form: TaskForm,
    /// Whether workers share the memory for the states of chains.
    pub state_placement: StatePlacement,
}

impl Config {
    /// Whether models run in stages.
    pub fn has_stages(&self) -> bool {
        self.policy.is_of_rows() || !self.staged_models.is_empty()
    }

    /// The default of `max_tasks_to_submit` (section 4.3 of the paper).
    pub const MAX_TASKS_TO_SUBMIT: u32 = 5;

    /// How many times `max_tasks_to_submit` a round may have while a request runs on one worker because it is alone, of cells that take the cores of
    /// other workers ([`CellTypeConfig::workers_of_a_row`]). A request that arrives meanwhile goes to an idle worker.
    pub const ROUNDS_AT_ONCE_ALONE: u32 = 4;

    /// Rosters over shared memory, batches of any size up to each type's limit, no lookahead.
    pub fn new(registry: &CellRegistry, workers: u16) -> Self {
        let cell_types = registry.cell_types().iter().map(|cell_type| {
            CellTypeConfig::up_to(cell_type.max_batch_size, cell_type.priorities.clone())
        });
        Self {
            cell_types: cell_types.collect(),
            workers,
            lookahead: 0,
            fairness: None,
            stages: Stages::default(),
            staged_models: Vec::new(),
            policy: Policy::Cellular,
            max_tasks_to_submit: Self::MAX_TASKS_TO_SUBMIT,
            rounds_of_a_turn: 1,
            submission_window_ns: None,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_back() {
        let staged = ["staged", "staged:batch=8:pairs=3", "zero:batch=8", "delay:window=1ms"];
        let closed = ["padded:10", "padded:1", "padded:40:own", "merged", "merged:8"];
        for text in ["cellular"].into_iter().chain(closed).chain(staged) {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        let read = |text: &str| text.parse::<Policy>().map(|policy| policy.to_string());
        assert_eq!(read("padded").as_deref(), Ok("padded:10"));
        assert_eq!(read("padded:own").as_deref(), Ok("padded:10:own"));
        let wrong = ["", "cellular:1", "padded:0", "padded:x", "padded:own:5", "padded:5:own:own"];
        for text in wrong.into_iter().chain([
            "padded:",
            "padded:5:",
            "padded:5:no",
            "merged:0",
            "merged:own",
            "padded:65537",
        ]) {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
