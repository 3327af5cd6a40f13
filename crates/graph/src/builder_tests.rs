use super::*;

/// The text of the mistake that a graph is refused for.
fn refusal(graph: CellGraphBuilder) -> String {
    let begin = "the unfolding function built a graph that cannot run: ";
    graph.finish().unwrap_err().to_string().replace(begin, "")
}

fn row() -> RowSpec {
    RowSpec::new(ElementType::F32, [2])
}

fn every(value: ValueIndex, first: u32, stride: i32) -> Sink {
    Sink { port: 0, time: SinkTime::Every, rows: Rows::strided(value, first, stride) }
}

/// A chain of 4 writes rows 0 to 3; what must a reader of them wait for?
fn edges_of_reader(length: u32, first: u32, stride: i32) -> Vec<Edge> {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), 4);
    let y = graph.value(row(), 4);
    graph.chain(CellTypeId(0), 4, vec![Rows::all(x)], vec![None], vec![every(y, 0, 1)]);
    let read = Rows::strided(y, first, stride);
    graph.chain(CellTypeId(1), length, vec![read], vec![None], vec![]);
    graph.finish().unwrap().runs()[1].edges.clone()
}

fn one(need: Need) -> Vec<Edge> {
    vec![Edge { producer: RunIndex(0), need }]
}

#[test]
fn the_next_layer_follows_in_lockstep() {
    assert_eq!(edges_of_reader(4, 0, 1), one(Need::Lockstep { offset: 0 }));
    assert_eq!(edges_of_reader(2, 2, 1), one(Need::Lockstep { offset: 2 }));
}

#[test]
fn a_reader_of_one_row_waits_for_that_row() {
    assert_eq!(edges_of_reader(1, 3, 0), one(Need::First { nodes: 4 }));
    assert_eq!(edges_of_reader(3, 1, 0), one(Need::First { nodes: 2 }));
}

#[test]
fn the_other_direction_waits_for_the_whole_producer() {
    assert_eq!(edges_of_reader(4, 3, -1), one(Need::First { nodes: 4 }));
}

#[test]
fn a_reader_of_a_span_waits_for_all_who_write_in_it() {
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 4), graph.value(row(), 4));
    for first in [0, 2] {
        let read = vec![Rows::strided(x, first, 1)];
        graph.chain(CellTypeId(0), 2, read, vec![None], vec![every(y, first, 1)]);
    }
    let pooled = graph.value(row(), 3);
    let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::spanning(pooled, 0, 3) }];
    graph.rows(CellTypeId(1), 1, vec![Rows::spanning(y, 0, 3)], sinks);
    graph.rows(CellTypeId(2), 1, vec![Rows::one(pooled, 2)], vec![]);
    let graph = graph.finish().unwrap();
    let need = |run, nodes| Edge { producer: RunIndex(run), need: Need::First { nodes } };
    assert_eq!(graph.runs()[2].edges, [need(0, 2), need(1, 1)]);
    assert_eq!(graph.runs()[3].edges, [need(2, 1)]);
}

#[test]
fn sequences_of_one_request_do_not_wait_for_each_other() {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), 6);
    let y = graph.value(row(), 6);
    for b in 0..2 {
        let rows = |value| Rows::strided(value, b, 2);
        let sinks = vec![every(y, b, 2)];
        graph.chain(CellTypeId(0), 3, vec![rows(x)], vec![None], sinks);
    }
    for b in 0..2 {
        let rows = Rows::strided(y, b, 2);
        graph.chain(CellTypeId(1), 3, vec![rows], vec![None], vec![]);
    }
    let graph = graph.finish().unwrap();
    for b in 0..2 {
        let edge = Edge { producer: RunIndex(b), need: Need::Lockstep { offset: 0 } };
        assert_eq!(graph.runs()[2 + b as usize].edges, [edge]);
    }
}

/// Finding edges costs as much as the rows there are: 60,000 sequences in one request.
#[test]
fn many_sequences_are_no_more_than_their_rows() {
    let count = 60_000;
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), count), graph.value(row(), count));
    for b in 0..count {
        let sinks = vec![every(y, b, 0)];
        graph.chain(CellTypeId(0), 1, vec![Rows::one(x, b)], vec![None], sinks);
    }
    for b in 0..count {
        graph.rows(CellTypeId(1), 1, vec![Rows::one(y, b)], vec![]);
    }
    let graph = graph.finish().unwrap();
    let last = Edge { producer: RunIndex(count - 1), need: Need::First { nodes: 1 } };
    assert_eq!(graph.runs()[2 * count as usize - 1].edges, [last]);
}

/// So does finding the edges of one run that reads what all others write.
#[test]
fn one_reader_of_many_sequences_is_no_more_than_its_rows() {
    let count = 60_000;
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), count), graph.value(row(), count));
    for b in 0..count {
        let sinks = vec![every(y, b, 0)];
        graph.chain(CellTypeId(0), 1, vec![Rows::one(x, b)], vec![None], sinks);
    }
    graph.rows(CellTypeId(1), 1, vec![Rows::spanning(y, 0, count)], vec![]);
    graph.rows(CellTypeId(1), count, vec![Rows::all(y)], vec![]);
    let graph = graph.finish().unwrap();
    let producers =
        |run: &Run| -> Vec<u32> { run.edges.iter().map(|edge| edge.producer.0).collect() };
    let all: Vec<u32> = (0..count).collect();
    let [.., span, rows] = graph.runs() else { unreachable!() };
    assert_eq!([producers(span), producers(rows)], [all.clone(), all]);
}

/// A run that reads nothing of the one that decides waits for it all the same.
#[test]
fn a_run_with_a_guard_waits_for_the_decision() {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), 3);
    let truth = graph.value(RowSpec::new(ElementType::Bool, []), 3);
    graph.rows(CellTypeId(0), 3, vec![Rows::all(x)], vec![every(truth, 0, 1)]);
    let decision = graph.decision(truth, 1);
    let run = graph.rows(CellTypeId(1), 1, vec![Rows::one(x, 0)], vec![]);
    graph.guard(run, Guard { decision, when: true });
    let graph = graph.finish().unwrap();
    assert_eq!(graph.runs()[1].edges, one(Need::First { nodes: 2 }));
    assert_eq!(graph.runs()[1].guard, Some(Guard { decision, when: true }));
    let run = RunIndex(0);
    assert_eq!(graph.decisions(), [Decision { value: truth, row: 1, run, nodes: 2 }]);
}

#[test]
fn the_watermark_follows_progress() {
    let edge = |need| Edge { producer: RunIndex(0), need };
    let lockstep = edge(Need::Lockstep { offset: 0 });
    assert_eq!(lockstep.need.available(0, 4, 4), 0);
    assert_eq!(lockstep.need.available(3, 4, 4), 3);
    assert_eq!(Need::Lockstep { offset: 2 }.available(3, 4, 2), 1);
    let first = edge(Need::First { nodes: 3 });
    assert_eq!((first.need.available(2, 4, 7), first.need.available(3, 4, 7)), (0, 7));
}

/// Two values of a tree of `leaves` leaves and the given inner nodes, whose rows are the nodes.
fn tree(leaves: u32, children: &[[u32; 2]]) -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), leaves);
    let h = graph.value(row(), leaves + children.len() as u32);
    graph.rows(CellTypeId(0), leaves, vec![Rows::all(x)], vec![every(h, 0, 1)]);
    let child = |side: usize| {
        let rows: Vec<u32> = children.iter().map(|children| children[side]).collect();
        Rows::listed(h, rows)
    };
    let sinks = vec![every(h, leaves, 1)];
    graph.nodes(CellTypeId(1), children.len() as u32, vec![child(0), child(1)], sinks);
    graph.finish().unwrap()
}

#[test]
fn nodes_are_numbered_as_they_become_ready() {
    // Depth first: the root's left child is a chain of two, its right child one node.
    let graph = tree(5, &[[0, 1], [5, 2], [3, 4], [6, 7]]);
    let inner = &graph.runs()[1];
    assert_eq!(inner.kind, RunKind::Nodes);
    assert_eq!(*inner.precedence, [0, 0, 1, 3]);
    let rows = |rows: &Rows| (0..4).map(|node| rows.row(node)).collect::<Vec<_>>();
    assert_eq!(rows(&inner.inputs[0]), [0, 3, 5, 6]);
    assert_eq!(rows(&inner.sinks[0].rows), [5, 7, 6, 8]);
    let reach: Vec<u32> = (0..=4).map(|submitted| inner.reach(submitted)).collect();
    assert_eq!(reach, [2, 3, 3, 4, 4]);
    assert_eq!(inner.edges, one(Need::First { nodes: 5 }));
}

#[test]
fn nodes_that_read_nothing_of_their_own_are_rows() {
    let graph = tree(2, &[[0, 1]]);
    assert_eq!(graph.runs()[1].kind, RunKind::Rows);
}

/// The mistake that a graph with values x (brought, 4 rows) and y (4 rows) is refused for.
fn mistake(add: impl Fn(&mut CellGraphBuilder, ValueIndex, ValueIndex)) -> String {
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 4), graph.value(row(), 4));
    add(&mut graph, x, y);
    // What follows a mistake is ignored.
    graph.rows(CellTypeId(0), 4, vec![Rows::all(x)], vec![every(y, 0, 1)]);
    refusal(graph)
}

/// Adds a mistake to a graph with values x and y.
type Mistake<'a> = dyn Fn(&mut CellGraphBuilder, ValueIndex, ValueIndex) + 'a;

#[test]
fn each_mistake_is_named() {
    let rows = |graph: &mut CellGraphBuilder, length, input, sinks| {
        graph.rows(CellTypeId(0), length, vec![input], sinks);
    };
    let table: [(&str, &Mistake<'_>); 17] = [
        ("run0: it has no nodes", &|graph, x, _| rows(graph, 0, Rows::one(x, 0), vec![])),
        ("run0: row 4 of value0, which has 4", &|graph, x, _| {
            rows(graph, 5, Rows::all(x), vec![]);
        }),
        ("run0: row -1 of value0, which has 4", &|graph, x, _| {
            rows(graph, 3, Rows::strided(x, 1, -1), vec![]);
        }),
        ("run0: row 9 of value0, which has 4", &|graph, x, _| {
            rows(graph, 2, Rows::listed(x, vec![0, 9]), vec![]);
        }),
        ("run0: 1 rows are listed for 2 nodes", &|graph, x, _| {
            rows(graph, 2, Rows::listed(x, vec![0]), vec![]);
        }),
        ("run0: there is no value7", &|graph, _, _| {
            rows(graph, 1, Rows::one(ValueIndex(7), 0), vec![]);
        }),
        ("there is no value7", &|graph, _, _| graph.output(ValueIndex(7))),
        ("run0: a span of several rows belongs to a run of one node", &|graph, x, _| {
            rows(graph, 2, Rows::spanning(x, 0, 2), vec![]);
        }),
        ("run0: a span of several rows belongs to a run of one node", &|graph, x, _| {
            rows(graph, 1, Rows::spanning(x, 0, 0), vec![]);
        }),
        ("run0: row 1 of value1 is written twice", &|graph, x, y| {
            rows(graph, 2, Rows::all(x), vec![every(y, 1, 0)]);
        }),
        ("run1: row 0 of value1 is written twice", &|graph, x, y| {
            rows(graph, 1, Rows::all(x), vec![every(y, 0, 1)]);
            rows(graph, 1, Rows::all(x), vec![every(y, 0, 1)]);
        }),
        ("run0: value0 is what the request brings: no run writes it", &|graph, x, y| {
            rows(graph, 1, Rows::all(y), vec![every(x, 0, 1)]);
        }),
        ("run1: row 2 of value1 is read before the run that writes it", &|graph, x, y| {
            rows(graph, 1, Rows::one(y, 2), vec![]);
            rows(graph, 4, Rows::all(x), vec![every(y, 0, 1)]);
        }),
        ("run0: row 0 of value1 is read before the run that writes it", &|graph, _, y| {
            graph.chain(CellTypeId(0), 4, vec![Rows::all(y)], vec![None], vec![every(y, 0, 1)]);
        }),
        ("run1: a run reads what run0 writes, whose end is not known", &|graph, x, y| {
            let (inputs, sinks) = (vec![Rows::all(x)], vec![every(y, 0, 1)]);
            let stop = Stop { port: 0, value: 0 };
            graph.chain_until(CellTypeId(0), 4, inputs, vec![None], sinks, stop);
            rows(graph, 1, Rows::all(y), vec![]);
        }),
        ("nodes depend on each other in a circle", &|graph, _, y| {
            let reads = vec![Rows::listed(y, vec![1, 0])];
            graph.nodes(CellTypeId(0), 2, reads, vec![every(y, 0, 1)]);
        }),
        ("nodes that read each other have no last one", &|graph, _, y| {
            let last = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, 3) };
            let reads = vec![Rows::listed(y, vec![3, 0])];
            graph.nodes(CellTypeId(0), 2, reads, vec![every(y, 0, 1), last]);
        }),
    ];
    for (expected, add) in table {
        assert_eq!(mistake(add), expected);
    }
    let truth = RowSpec::new(ElementType::Bool, []);
    let mut early = CellGraphBuilder::new();
    let unwritten = early.value(truth, 1);
    early.decision(unwritten, 0);
    let expected = "row 0 of value0 decides nothing: no run before writes it";
    assert_eq!(refusal(early), expected);
    let mut number = CellGraphBuilder::new();
    let x = number.input(row(), 1);
    number.decision(x, 0);
    assert_eq!(refusal(number), "row 0 of value0 decides nothing: it is not one BOOL");
    let mut other = CellGraphBuilder::new();
    let (x, y) = (other.input(row(), 1), other.value(row(), 1));
    other.choose(Choice { output: x, condition: y, other: y });
    assert_eq!(refusal(other), "value1 does not take the place of value0");
    let mut later = CellGraphBuilder::of_chunk(Chunk::Next);
    let x = later.input(row(), 1);
    later.chain(CellTypeId(0), 1, vec![], vec![Some(Rows::one(x, 0))], vec![]);
    let expected = "run0: a later chunk's chain begins with the state that it finds";
    assert_eq!(refusal(later), expected);
    let mut large = CellGraphBuilder::new();
    large.value(RowSpec::new(ElementType::F32, [usize::MAX / 8]), u32::MAX);
    assert!(refusal(large).contains("do not fit the memory"));
    let mut text = CellGraphBuilder::new();
    text.input(RowSpec::new(ElementType::Bytes, []), 1);
    assert_eq!(refusal(text), "no value holds byte strings");
}
