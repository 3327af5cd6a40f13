//! Checks that the files of a crate form no circle: of two files, at most one uses the other, directly or through
//! more files.

use super::cycles::{Graph, arrows_of, shortest_cycles};
use super::finding::Finding;
use super::source::FileId;
use super::workspace::{Crate, Workspace};

/// All circles of files, those of few files first within a crate.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Finding> {
    let mut graph: Graph<FileId> = Graph::new();
    for arrow in &member.arrows.between_files {
        graph.entry(arrow.from).or_default().insert(arrow.to);
    }
    let arrow_between = |(from, to)| {
        member.arrows.between_files.iter().find(move |arrow| (arrow.from, arrow.to) == (from, to))
    };
    let finding = |cycle: Vec<FileId>| {
        let arrows = arrows_of(&cycle).filter_map(arrow_between);
        Finding {
            crate_name: member.name.clone(),
            place: member.path(cycle[0]),
            text: format!("a circle of {} files{}", cycle.len(), member.describe_circle(arrows)),
        }
    };
    shortest_cycles(&graph).into_iter().map(finding).collect()
}
