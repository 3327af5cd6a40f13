//! Checks arrows between crates: each crate uses only crates above it in the table "Crates" of ARCHITECTURE.md, and
//! its manifest names no crate that the column "uses" does not lead to.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::tables::{CrateRow, TABLES_FILE, Tables, Uses};
use super::workspace::{Crate, Workspace};

/// Everything that breaks the order of crates.
pub(super) fn check(workspace: &Workspace, tables: &Tables) -> Vec<Finding> {
    let mut findings = check_rows(workspace, tables);
    let rows = Rows::new(&tables.crates);
    for user in &workspace.crates {
        match rows.index.get(user.name.as_str()) {
            None => findings.push(Finding {
                crate_name: user.name.clone(),
                place: user.manifest(),
                text: format!("the table \"Crates\" of {TABLES_FILE} has no row for this crate"),
            }),
            Some(&index) => {
                findings.extend(rows.check_manifest(workspace, user, index));
                findings.extend(rows.check_paths(workspace, user, index));
            }
        }
    }
    findings
}

/// Rows that name what is not there, or use what is not above them.
fn check_rows(workspace: &Workspace, tables: &Tables) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut above = BTreeSet::new();
    for row in &tables.crates {
        let finding = |text| Finding {
            crate_name: row.name.clone(),
            place: format!("{TABLES_FILE}:{}", row.line),
            text,
        };
        let user = workspace.crates.iter().find(|c| c.name == row.name);
        if user.is_none() {
            findings.push(finding(format!("there is no crate `{}`", row.name)));
        }
        if let Uses::Named(named) = &row.uses {
            for used in named {
                if !above.contains(used.as_str()) {
                    let text =
                        format!("`{}` is to use `{used}`, which has no row above it", row.name);
                    findings.push(finding(text));
                }
                let is_used = |user| workspace.dependencies(user).any(|c| c.name == *used);
                if user.is_some_and(|user| !is_used(user)) {
                    let text =
                        format!("`{}` is to use `{used}`, but does not depend on it", row.name);
                    findings.push(finding(text));
                }
            }
        }
        above.insert(row.name.as_str());
    }
    findings
}

struct Rows<'a> {
    rows: &'a [CrateRow],
    /// The row of each crate.
    index: BTreeMap<&'a str, usize>,
}

impl<'a> Rows<'a> {
    fn new(rows: &'a [CrateRow]) -> Self {
        let index = rows.iter().enumerate().map(|(index, row)| (row.name.as_str(), index));
        Self { rows, index: index.collect() }
    }

    /// Dependencies of `user`, which has the row `index`, that the table does not allow.
    fn check_manifest(&self, workspace: &Workspace, user: &Crate, index: usize) -> Vec<Finding> {
        let allowed = self.reachable(index);
        let forbidden = workspace.dependencies(user).filter(|used| match &allowed {
            None => !self.is_above(used, index),
            Some(allowed) => !allowed.contains(used.name.as_str()),
        });
        forbidden
            .map(|used| Finding {
                crate_name: user.name.clone(),
                place: user.manifest(),
                text: format!(
                    "depends on `{}`, which the column \"uses\" of the table \"Crates\" does not lead to",
                    used.name
                ),
            })
            .collect()
    }

    /// Paths in the code of `user`, which has the row `index`, into crates that are not above it.
    fn check_paths(&self, workspace: &Workspace, user: &Crate, index: usize) -> Vec<Finding> {
        let climbs = user.arrows.to_crates.iter().filter_map(|arrow| {
            let used = workspace.by_library(&arrow.library)?;
            (!self.is_above(used, index)).then(|| Finding {
                crate_name: user.name.clone(),
                place: format!("{}:{}", user.path(arrow.from), arrow.line),
                text: format!(
                    "uses `{}`: crate `{}` is not above `{}` in the table \"Crates\"",
                    arrow.path, used.name, user.name
                ),
            })
        });
        climbs.collect()
    }

    fn is_above(&self, used: &Crate, index: usize) -> bool {
        self.index.get(used.name.as_str()).is_some_and(|&row| row < index)
    }

    /// The crates that the column "uses" of row `index` names, and those that their rows lead to; none if it says
    /// "all".
    fn reachable(&self, index: usize) -> Option<BTreeSet<&'a str>> {
        let mut reachable = BTreeSet::new();
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            let Uses::Named(named) = &self.rows[index].uses else { return None };
            for name in named {
                if reachable.insert(name.as_str()) {
                    open.extend(self.index.get(name.as_str()));
                }
            }
        }
        Some(reachable)
    }
}
