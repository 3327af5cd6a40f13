//! Shapes of requests: a sequence of rows, a pair of sequences, or a tree.

use std::sync::Arc;

use serde::Serialize;

/// The shape of a request, without the values of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A sequence with this number of rows, one for each step.
    Sequence(u32),
    /// A sequence that a decoder turns into another.
    Pair {
        /// Rows.
        source: u32,
        /// Steps of the decoder.
        target: u32,
    },
    /// A tree.
    Tree(Arc<Tree>),
}

/// A tree: leaves from left to right, then inner nodes, children before parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The number of leaves.
    pub leaves: u32,
    /// A number for each leaf's word, if it has one; equal words have equal numbers.
    pub words: Vec<u32>,
    /// The children of each inner node, as node numbers.
    pub children: Vec<Vec<u32>>,
}

impl Shape {
    /// The length of an axis of time: rows of a sequence, leaves of a tree.
    pub fn length(&self) -> u32 {
        match self {
            Self::Sequence(length) | Self::Pair { source: length, .. } => *length,
            Self::Tree(tree) => tree.leaves,
        }
    }

    /// The number of steps that a decoder is to run; none of requests without a decoder.
    pub fn target(&self) -> Option<u32> {
        match self {
            Self::Pair { target, .. } => Some(*target),
            Self::Sequence(_) | Self::Tree(_) => None,
        }
    }

    /// The number of cells that run for it: steps of sequences, nodes of trees.
    pub fn steps(&self) -> u32 {
        match self {
            Self::Sequence(length) => *length,
            Self::Pair { source, target } => source + target,
            Self::Tree(tree) => tree.leaves + tree.children.len() as u32,
        }
    }
}

impl Tree {
    /// The complete tree of `leaves` leaves: nodes are joined level by level, `arity` neighbours
    /// each; those that are too few for it move up a level.
    ///
    /// # Errors
    /// If no tree of this arity has `leaves` leaves.
    pub fn complete(leaves: u32, arity: u32) -> Result<Self, String> {
        if leaves > 1 && (arity < 2 || !(leaves - 1).is_multiple_of(arity - 1)) {
            return Err(format!(
                "no tree whose inner nodes have {arity} children has {leaves} leaves"
            ));
        }
        let mut level: Vec<u32> = (0..leaves).collect();
        let mut children = Vec::new();
        while level.len() > 1 {
            let mut above = Vec::new();
            for nodes in level.chunks(arity as usize) {
                if nodes.len() == arity as usize {
                    above.push(leaves + children.len() as u32);
                    children.push(nodes.to_vec());
                } else {
                    above.extend(nodes);
                }
            }
            level = above;
        }
        Ok(Self { leaves, words: Vec::new(), children })
    }

    /// Reads a labelled tree: `(label word)` is a leaf, `(label tree tree)` an inner node. Inner
    /// nodes are numbered as they end.
    ///
    /// # Errors
    /// A text that says what is wrong, and at which character.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut nodes: Vec<Vec<Node>> = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut root = None;
        for (at, token) in tokens(text) {
            let wrong = |what: &str| Err(format!("character {}: {what}", at + 1));
            if root.is_some() {
                return wrong("something follows the tree");
            }
            match token {
                "(" => open.push(Open::default()),
                ")" => {
                    let Some(Open { label, word, children }) = open.pop() else {
                        return wrong("nothing is open");
                    };
                    let node = match (label, word, children.is_empty()) {
                        (Some(_), Some(word), true) => {
                            words.push(hash(word));
                            Node::Leaf(words.len() as u32 - 1)
                        }
                        (Some(_), None, false) => {
                            nodes.push(children);
                            Node::Inner(nodes.len() as u32 - 1)
                        }
                        _ => return wrong("a node has a label, and a word or children"),
                    };
                    match open.last_mut() {
                        Some(parent) => parent.children.push(node),
                        None => root = Some(node),
                    }
                }
                text => match open.last_mut() {
                    Some(node) if node.label.is_none() => node.label = Some(()),
                    Some(node) if node.word.is_none() && node.children.is_empty() => {
                        node.word = Some(text);
                    }
                    _ => return wrong("a word where a tree goes"),
                },
            }
        }
        if root.is_none() {
            return Err(format!("the tree does not end: {} are open", open.len()));
        }
        let leaves = words.len() as u32;
        let number = |node: &Node| match *node {
            Node::Leaf(leaf) => leaf,
            Node::Inner(inner) => leaves + inner,
        };
        let children = nodes.iter().map(|children| children.iter().map(number).collect());
        Ok(Self { leaves, children: children.collect(), words })
    }
}

#[derive(Clone, Copy)]
enum Node {
    Leaf(u32),
    Inner(u32),
}

/// A node whose end has not been read.
#[derive(Default)]
struct Open<'a> {
    label: Option<()>,
    word: Option<&'a str>,
    children: Vec<Node>,
}

/// Brackets, and what stands between them and (ASCII) white space; with their places.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].len() - text[at..].trim_ascii_start().len();
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let end = match first {
            '(' | ')' => 1,
            _ => rest
                .find(|c: char| c.is_ascii_whitespace() || "()".contains(c))
                .unwrap_or(rest.len()),
        };
        let token = (at, &rest[..end]);
        at += end;
        Some(token)
    })
}

/// FNV-1a, 31 bits.
fn hash(word: &str) -> u32 {
    let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    ((hash ^ (hash >> 32)) & 0x7fff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labelled_trees_are_read() {
        let tree = Tree::read("(3 (2 (2 a) (1 b)) (2 a))\n").unwrap();
        assert_eq!((tree.leaves, &tree.children[..]), (3, &[vec![0, 1], vec![3, 2]][..]));
        assert!(tree.words[0] == tree.words[2] && tree.words[0] != tree.words[1]);
        let leaf = Tree::read("(2 word)").unwrap();
        assert_eq!((leaf.leaves, leaf.children.len()), (1, 0));
        assert_eq!(Tree::read("(1 8\u{a0}1/2)").unwrap().leaves, 1, "one word");
        assert_eq!(Tree::read("(0(1 a)(2 b)(3 c))").unwrap().children, [vec![0, 1, 2]]);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (text, expected) in [
            ("", "the tree does not end: 0 are open"),
            ("(2 (2 a) (2 b)", "the tree does not end: 1 are open"),
            ("(2 a))", "character 6: something follows the tree"),
            (")", "character 1: nothing is open"),
            ("(2 a b)", "character 6: a word where a tree goes"),
            ("word", "character 1: a word where a tree goes"),
            ("(2)", "character 3: a node has a label, and a word or children"),
            ("((2 a) (2 b))", "character 13: a node has a label, and a word or children"),
        ] {
            assert_eq!(Tree::read(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn complete_trees_are_joined_level_by_level() {
        let tree = Tree::complete(5, 2).unwrap();
        assert_eq!(tree.children, [vec![0, 1], vec![2, 3], vec![5, 6], vec![7, 4]]);
        assert_eq!(Tree::complete(1, 2).unwrap().children.len(), 0);
        assert_eq!(Tree::complete(9, 3).unwrap().children.len(), 4);
        assert!(Tree::complete(4, 3).is_err());
    }
}
