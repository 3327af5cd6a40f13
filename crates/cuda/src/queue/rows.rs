//! Batches whose rows are listed: nodes of row-wise runs, and single steps of chains.

use batchmaker_device::Chain;
use batchmaker_graph::Item;

use super::steps::{Run, TypedCell};
use super::submitter::{Submitter, TaskError};
use crate::kernels::batch::{Batch, Port, Row};
use crate::lock::lock;
use crate::memory::Slots;

/// Rows of a batch on their way to the GPU.
#[derive(Default)]
struct RowList {
    rows: Vec<Row>,
    ports: Vec<Port>,
}

impl Submitter {
    /// Runs nodes of row-wise runs.
    pub(super) fn run_rows(
        &mut self,
        typed: TypedCell<'_>,
        items: &[Item],
    ) -> Result<(), TaskError> {
        let mut list = RowList::default();
        let mut finishes = false;
        for item in items {
            let listed = self.list(item.request, item.run)?;
            let nodes = item.first..item.first + item.count;
            self.bring_inputs(&listed, nodes.clone())?;
            let ports = list.ports.len() as u32;
            list.ports.extend(listed.ports());
            list.rows.extend(nodes.clone().map(|node| Row { ports, ..listed.row(node, 0) }));
            finishes |= nodes.clone().any(|node| listed.finishes(node));
            self.note_writes(&listed, nodes);
        }
        self.run_list(typed, &list, None, finishes)
    }

    /// Runs a step of each of some chains.
    pub(super) fn run_chains(
        &mut self,
        typed: TypedCell<'_>,
        items: &[Item],
    ) -> Result<(), TaskError> {
        let slots = self.slots(typed);
        drop(self.reach(&slots, items.iter().filter_map(|item| item.slot))?);
        let mut list = RowList::default();
        let mut finishes = false;
        for item in items {
            let listed = self.list(item.request, item.run)?;
            let chain = Chain::of_item(&listed.memory.graph, item, false);
            self.bring_inputs(&listed, item.first..item.first + 1)?;
            self.bring_state(typed, &listed, &chain)?;
            let ports = list.ports.len() as u32;
            list.ports.extend(listed.ports());
            let half = lock(&slots).half(chain.slot);
            let row = listed.row(item.first, 0);
            list.rows.push(Row { ports, slot: chain.slot.index, half, ..row });
            finishes |= listed.finishes(item.first);
            self.note_writes(&listed, item.first..item.first + 1);
        }
        let mut slots = lock(&slots);
        self.run_list(typed, &list, Some(&slots), finishes)?;
        for slot in items.iter().filter_map(|item| item.slot) {
            let half = slots.half(slot) ^ 1;
            slots.set_half(slot, half);
        }
        Ok(())
    }

    /// Runs the rows of a list, at time 0.
    fn run_list(
        &mut self,
        typed: TypedCell<'_>,
        list: &RowList,
        slots: Option<&Slots>,
        finishes: bool,
    ) -> Result<(), TaskError> {
        let may_end = list.rows.iter().filter(|row| row.may_end()).count();
        let extent = self.extent(list.rows.len(), 1, may_end > 0);
        let frame = self.frame(typed, extent, slots)?;
        let mut upload = self.upload();
        let (rows, ports) = (upload.keep(&list.rows), upload.keep(&list.ports));
        let outputs = upload.keep(&frame.outputs(typed));
        let at = self.bring(upload)?;
        let batch = Batch {
            rows: at + rows,
            ports: at + ports,
            ended: slots.map_or(0, Slots::ended),
            now: 0,
            count: list.rows.len() as i32,
            time: 0,
        };
        self.ends_expected += may_end;
        let (frame, finishes) = (&frame, &[finishes][..]);
        self.run_batch(&Run {
            typed,
            frame,
            batch,
            outputs: at + outputs,
            finishes,
            repeats: false,
        })
    }
}
