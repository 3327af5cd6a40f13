//! The form in which the table of operators (`table.rs`) says what the compiler knows of each. `A` stands for
//! the state of the analysis, which the rules change.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::value::{Operand, Val};
use crate::data::dim::Dim;
use crate::data::literal::Literal;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The inputs of a node; none: an optional input that is absent.
pub(crate) type Inputs = [Option<Val>];

/// Gives a node's outputs, or says why it cannot be served.
pub(crate) type Rule<A> = fn(&mut A, &Node, &Inputs) -> Result<Vec<Val>, String>;

/// As [`Rule`], for some nodes of an operator; gives none for the others.
pub(crate) type PartialRule<A> = fn(&mut A, &Node, &Inputs) -> Result<Option<Vec<Val>>, String>;

/// As [`Rule`], for a node that reads the graph around it.
pub(crate) type GraphRule<A> = fn(&mut A, &Node, &Inputs, &OnnxFile) -> Result<Vec<Val>, String>;

/// A node's inputs in another form; none: they stay as they are.
pub(crate) type AsData<A> = fn(&mut A, &Node, &Inputs) -> Result<Option<Vec<Option<Val>>>, String>;

/// All that the compiler knows of an ONNX operator. A rule that is absent does not apply.
pub(crate) struct Operator<A: 'static> {
    pub(crate) name: &'static str,
    /// For a node that reads the graph around it, or whose inputs may be unknown.
    pub(crate) in_graph: Option<GraphRule<A>>,
    /// For values along any axes, lists of tensors included.
    pub(crate) on_any: Option<Rule<A>>,
    /// As `on_any`, where the node's second or third output is used.
    pub(crate) with_more_outputs: Option<Rule<A>>,
    /// For factors that stand for whole numbers of 8 bits; gives none where the other rules apply.
    pub(crate) on_dequantised: Option<PartialRule<A>>,
    /// For integers of 8 and 16 bits, where the operator computes numbers of them.
    pub(crate) on_narrow: Option<Rule<A>>,
    /// For constants alone, where there is no rule on rows.
    pub(crate) on_constants: Option<Rule<A>>,
    /// For rows, where the operator is the same function of every row. It folds constants.
    pub(crate) on_rows: Option<Rule<A>>,
    /// For whole sequences: tensors along any axes.
    pub(crate) on_sequences: Option<Rule<A>>,
    /// Given for an operator that broadcasts its operands and computes element by element.
    pub(crate) elementwise: Option<&'static Elementwise<A>>,
    /// Turns inputs that are lengths of the request into data, where the rule on rows does not take them;
    /// gives none if no input is a length.
    pub(crate) lengths_as_data: Option<AsData<A>>,
    pub(crate) on_repeated: OnRepeated,
    /// Whether inputs other than the first are weights: one number in a fixed shape becomes a whole constant.
    pub(crate) takes_weights: bool,
    /// Whether its inputs may be lists of tensors.
    pub(crate) takes_lists: bool,
    /// Whether its rule takes tensors that each sequence has for itself.
    pub(crate) takes_per_sequence: bool,
    /// Whether integers that index a table are the same ones after it.
    pub(crate) keeps_ids: bool,
    /// Whether it costs little beside the operators on whole tensors that it follows, and is computed with them.
    pub(crate) is_light: bool,
    pub(crate) executor: ExecutorForm,
}

/// The treatment of a constant that is repeated along axes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRepeated {
    Refuse,
    /// The operator's rule takes it as it is.
    AsItStands,
    /// The operator applies to the constant itself, which broadcasts.
    Broadcast,
    /// The operator applies to the constant itself, whose axes stay where they are.
    KeepAxes,
    /// The operator applies to the constant itself, whose axes move.
    MoveAxes,
}

/// A peculiarity of the general executor in running an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutorForm {
    AsSpecified,
    /// The executor multiplies a chain of them out, which must not have too many parts.
    MultipliedOut,
    /// Among equal elements the executor gives the last, where the specification has the first.
    LastOfEquals,
}

impl<A> Operator<A> {
    /// An operator without rules.
    pub(crate) const fn named(name: &'static str) -> Self {
        Self {
            name,
            in_graph: None,
            on_any: None,
            with_more_outputs: None,
            on_dequantised: None,
            on_narrow: None,
            on_constants: None,
            on_rows: None,
            on_sequences: None,
            elementwise: None,
            lengths_as_data: None,
            on_repeated: OnRepeated::Refuse,
            takes_weights: false,
            takes_lists: false,
            takes_per_sequence: false,
            keeps_ids: false,
            is_light: false,
            executor: ExecutorForm::AsSpecified,
        }
    }
}

/// A table of operators, in the order of their names.
pub(crate) struct Operators<A: 'static>(pub(crate) &'static [Operator<A>]);

impl<A> Operators<A> {
    pub(crate) fn find(&self, name: &str) -> Option<&'static Operator<A>> {
        let at = self.0.binary_search_by_key(&name, |operator| operator.name).ok()?;
        Some(&self.0[at])
    }
}

/// An operator that computes element by element. `A` is the state that its rules change.
pub(crate) struct Elementwise<A> {
    pub(crate) operands: Operands,
    pub(crate) gives: Gives,
    /// Refuses operands of types that it does not take.
    pub(crate) check: fn(&[&Val]) -> Result<(), String>,
    /// The attributes that the executor is given.
    pub(crate) attributes: fn(&Node) -> Vec<AttributeProto>,
    /// Folds constants; gives none where it does not fold such ones.
    pub(crate) fold: fn(&Node, &[&Literal]) -> Option<Literal>,
    /// Folds constants that are lengths of the request, where `fold` gives none.
    pub(crate) fold_lengths: Option<FoldLengths<A>>,
    /// Writes it in other operators, on rows; none: it stays as it is.
    pub(crate) rewrite: Option<Rewrite<A>>,
    /// Whether it is an activation, as it stands between two convolutions.
    pub(crate) is_activation: bool,
}

/// Folds operands that are lengths of the request; gives none if they are not of the form that it folds.
pub(crate) type FoldLengths<A> = fn(&mut A, &[&Val]) -> Option<Val>;

/// Gives the constants that the inputs of a node other than the first become.
pub(crate) type OtherOperands = fn(&Node, &Inputs) -> Result<Vec<Operand>, String>;

/// Writes an operator in terms of others, given its operands and the dimensions that they broadcast to; gives
/// none if the operator stays as it is.
pub(crate) type Rewrite<A> = fn(&mut A, &Node, &[&Val], &[Dim]) -> Result<Option<Vec<Val>>, String>;

/// The inputs of a node that are operands.
#[derive(Clone, Copy)]
pub(crate) enum Operands {
    All,
    /// The first input alone. The function gives the constants that the other inputs become.
    First(OtherOperands),
}

/// The type of the elements that an operator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// The type of the operand of this index.
    TypeOf(usize),
    Truth,
}

impl Gives {
    pub(crate) fn element(self, operands: &[&Val]) -> Result<ElementType, String> {
        match self {
            Self::Truth => Ok(ElementType::Bool),
            Self::TypeOf(0) => Ok(operands[0].element().unwrap_or(ElementType::F32)),
            Self::TypeOf(at) => {
                let element = operands.get(at).and_then(|val| val.element());
                element.ok_or_else(|| "it has no branches".to_owned())
            }
        }
    }
}

impl<A> Elementwise<A> {
    /// An operator on elements of any type that is not folded.
    pub(crate) const PLAIN: Self = Self {
        operands: Operands::All,
        gives: Gives::TypeOf(0),
        check: |_| Ok(()),
        attributes: |_| Vec::new(),
        fold: |_, _| None,
        fold_lengths: None,
        rewrite: None,
        is_activation: false,
    };
}
