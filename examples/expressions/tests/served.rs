//! The example in an engine: many expressions in flight, against each alone and without sharing.

use std::path::Path;

use batchmaker::{Engine, EngineError, NamedTensor, Request, Tensor, TensorData};
use batchmaker_example_expressions::{Part, model, parts};

fn engine() -> Engine {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cells");
    Engine::builder().custom_model(model(&folder).unwrap()).build().unwrap()
}

fn request(expression: &str) -> Request {
    let data = TensorData::Bytes(vec![expression.into()]);
    Request::new().input("expression", Tensor::new(vec![1], data))
}

/// `code` and `parts`.
fn encode(engine: &Engine, expression: &str) -> Result<[Vec<f32>; 2], EngineError> {
    let reply = engine.run("expressions", request(expression))?;
    Ok(floats(reply.outputs))
}

fn floats(outputs: Vec<NamedTensor>) -> [Vec<f32>; 2] {
    let floats = |output: NamedTensor| match output.tensor.into_data() {
        TensorData::F32(data) => data,
        other => panic!("{other:?}"),
    };
    let outputs: Vec<Vec<f32>> = outputs.into_iter().map(floats).collect();
    outputs.try_into().unwrap()
}

/// An expression of about so many functions, which uses parts again.
fn expression(seed: u32, functions: u32) -> String {
    let mut parts: Vec<String> = ["x", "y", "a"].map(String::from).into();
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    for _ in 0..functions {
        let a = parts[next(parts.len())].clone();
        let b = parts[parts.len() - 1].clone();
        let part = match next(5) {
            0 => format!("(sin {b})"),
            1 => format!("(neg {b})"),
            function => format!("({} {a} {b})", ["+", "-", "*"][function - 2]),
        };
        if part.len() < 2_000 {
            parts.push(part);
        }
    }
    parts.pop().unwrap()
}

#[test]
fn shared_parts_are_computed_once_and_change_nothing() {
    let engine = engine();
    let once = |expression: &str| {
        let before: u64 = engine.statistics().cells.iter().map(|cell| cell.nodes).sum();
        let [code, parts] = encode(&engine, expression).unwrap();
        let after: u64 = engine.statistics().cells.iter().map(|cell| cell.nodes).sum();
        (code, parts, after - before)
    };
    let (code, all, nodes) = once("(* (+ x y) (sin (+ x y)))");
    assert_eq!((nodes, all.len()), (5, 5 * code.len()));
    assert_eq!(code, all[4 * code.len()..]);
    assert_eq!(once("(sin (+ x y))").0, all[3 * code.len()..][..code.len()]);
}

#[test]
fn under_load_as_alone() {
    let engine = engine();
    let expressions: Vec<String> = (1..200).map(|seed| expression(seed, seed % 40)).collect();
    let nodes: usize = expressions.iter().map(|expression| parts(expression).unwrap().len()).sum();
    let unaries = |part: &&Part| matches!(part, Part::Unary(..));
    let some = expressions.iter().map(|expression| parts(expression).unwrap());
    assert!(some.map(|parts| parts.iter().filter(unaries).count()).sum::<usize>() > 100);
    let counts = || {
        let cells = engine.statistics().cells;
        let of_cells = cells.iter().map(|cell| (cell.nodes, cell.tasks));
        of_cells.fold((0, 0), |sums, counts| (sums.0 + counts.0, sums.1 + counts.1))
    };
    let alone: Vec<_> =
        expressions.iter().map(|expression| encode(&engine, expression).unwrap()).collect();
    let (nodes_alone, batches_alone) = counts();
    assert_eq!(nodes_alone, nodes as u64);
    let submit = |expression: &String| engine.submit("expressions", request(expression)).unwrap();
    let pending: Vec<_> = expressions.iter().map(submit).collect();
    let together: Vec<_> =
        pending.into_iter().map(|pending| floats(pending.wait().unwrap().outputs)).collect();
    let (nodes_together, batches_together) = counts();
    assert_eq!(nodes_together, 2 * nodes_alone);
    // Expressions share batches, as far as the client submits them faster than they end.
    let shared = batches_together - batches_alone;
    assert!(shared < batches_alone, "{shared} batches of {nodes} nodes, alone {batches_alone}");
    for ((expression, alone), together) in expressions.iter().zip(alone).zip(together) {
        assert_eq!(alone, together, "{expression}");
    }
}

#[test]
fn a_bad_expression_is_the_clients_to_mend() {
    let error = encode(&engine(), "(+ x").unwrap_err();
    assert_eq!(error.to_string(), "tensor `expression`: a bracket is not closed");
}
