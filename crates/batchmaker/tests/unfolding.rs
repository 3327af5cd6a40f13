//! Unfolding functions that break each rule get an error that names it, and the engine goes on.
//!
//! The cells are small and the device runs scalar kernels on one thread, so that an interpreter that looks
//! for undefined behaviour can run this file:
//!
//! ```console
//! MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks" \
//!     cargo +nightly miri test -p batchmaker --test unfolding
//! ```
//!
//! The device reads the processor's description, and the threads of rayon, which outlive a test, need the
//! other two flags.

use std::sync::Arc;

use batchmaker::{
    Cell, CellHandle, CustomModel, ElementType, Engine, EngineError, Graph, InvalidRequest, Isa,
    Lookup, Operand, RecurrentCell, RecurrentKind, Request, RnnActivation, Tensor, TensorData,
    UnfoldRequest, Value,
};
use batchmaker_cpu::{CpuConfig, CpuDevice};

/// h' = relu(x + h), over numbers or over a table of two.
fn sum(lookup: Option<Lookup>) -> Cell {
    Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Rnn { activation: RnnActivation::Relu },
        input_size: 1,
        hidden_size: 1,
        w: vec![1.0].into(),
        r: vec![1.0].into(),
        b: None,
        lookup,
    })
}

/// The cells of the model under test.
struct Cells {
    sum: CellHandle,
    of_ids: CellHandle,
    /// A cell of another model.
    foreign: CellHandle,
}

type Mistake = fn(&Cells, Value, Value, &mut Graph);

/// An engine with a model whose unfolding function adds `mistake` to a good graph.
fn engine(mistake: Mistake) -> Engine {
    let mut model = CustomModel::new("sums");
    let table = Lookup { table: vec![1.0, 2.0].into(), width: 1 };
    let cells = Cells {
        sum: model.cell("sum", sum(None)),
        of_ids: model.cell("of_ids", sum(Some(table))),
        foreign: CustomModel::new("another").cell("foreign", sum(None)),
    };
    let unfold = move |mut request: UnfoldRequest, graph: &mut Graph| {
        let x = graph.input(request.take("x")?, &[1]);
        let sums = graph.value(ElementType::F32, &[1], x.rows());
        mistake(&cells, x, sums, graph);
        graph.chain(&cells.sum, x.rows()).input(x).each_step(0, sums).add();
        graph.output("sums", sums, &[x.rows()]);
        Ok(())
    };
    let model = model
        .input("x", ElementType::F32, &[-1])
        .output("sums", ElementType::F32, &[-1])
        .unfold(unfold);
    start(model)
}

fn start(model: CustomModel) -> Engine {
    let config = CpuConfig { isa: Isa::Scalar, ..CpuConfig::default() };
    let device = Arc::new(CpuDevice::new(config).unwrap());
    let builder = Engine::builder().custom_model(model).workers(1).threads_per_worker(1);
    builder.without_profiles().load().unwrap().start_on(device).unwrap()
}

fn ask(engine: &Engine) -> Result<Tensor, EngineError> {
    let x = Tensor::new(vec![3], TensorData::F32(vec![1.0, 2.0, 4.0]));
    let reply = engine.run("sums", Request::new().input("x", x))?;
    Ok(reply.outputs[0].tensor.clone())
}

#[test]
fn each_mistake_is_an_error() {
    let table: &[(&str, Mistake)] = &[
        ("cell 'foreign' is not one of the model's", |cells, x, _, graph| {
            graph.chain(&cells.foreign, 3).input(x).add();
        }),
        ("run0: 2 input ports, expected 1", |cells, x, _, graph| {
            graph.chain(&cells.sum, 3).input(x).input(x).add();
        }),
        ("run0: 0 input ports, expected 1", |cells, _, _, graph| {
            graph.chain(&cells.sum, 3).add();
        }),
        ("run0: row 4 of value0, which has 3", |cells, x, _, graph| {
            graph.chain(&cells.sum, 5).input(x).add();
        }),
        ("run0: row 3 of value0, which has 3", |cells, x, _, graph| {
            graph.chain(&cells.sum, 1).input(x.row(3)).add();
        }),
        ("run0: it has no nodes", |cells, x, _, graph| {
            graph.chain(&cells.sum, 0).input(x).add();
        }),
        ("row 0 of value1 is written twice", |cells, x, sums, graph| {
            graph.chain(&cells.sum, 3).input(x).each_step(0, sums).add();
        }),
        ("run1: row 0 of value1 is read before the run that writes it", |cells, _, sums, graph| {
            graph.chain(&cells.sum, 3).input(sums).add();
        }),
        ("run0: value0 is what the request brings: no run writes it", |cells, x, _, graph| {
            graph.chain(&cells.sum, 3).input(x).each_step(0, x).add();
        }),
        ("output port 0: value2 has rows of INT64 [1], not FP32 [1]", |cells, x, _, graph| {
            let integers = graph.value(ElementType::I64, &[1], 3);
            graph.chain(&cells.sum, 3).input(x).each_step(0, integers).add();
        }),
        ("output port 0: value2 has rows of FP32 [2], not FP32 [1]", |cells, x, _, graph| {
            let wide = graph.value(ElementType::F32, &[2], 3);
            graph.chain(&cells.sum, 3).input(x).each_step(0, wide).add();
        }),
        ("there is no output port 1", |cells, x, _, graph| {
            let other = graph.value(ElementType::F32, &[1], 3);
            graph.chain(&cells.sum, 3).input(x).each_step(1, other).add();
        }),
        ("input port 0: value0 has rows of FP32 [1], not INT64 []", |cells, x, _, graph| {
            graph.chain(&cells.of_ids, 3).input(x).add();
        }),
        ("input port 0: value2 holds id 2, the table 2 rows", |cells, _, _, graph| {
            let ids = Tensor::new(vec![2], TensorData::I64(vec![0, 2]));
            let ids = graph.input(ids, &[]);
            graph.chain(&cells.of_ids, 2).input(ids).add();
        }),
        ("input port 0: value2 holds id -1, the table 2 rows", |cells, _, _, graph| {
            let ids = Tensor::new(vec![1], TensorData::I64(vec![-1]));
            let ids = graph.input(ids, &[]);
            graph.chain(&cells.of_ids, 1).input(ids).add();
        }),
        ("a cell with states makes chains", |cells, x, _, graph| {
            graph.rows(&cells.sum, 3).input(x).add();
        }),
        ("a cell with states is part of a chain", |cells, x, _, graph| {
            graph.node(&cells.sum, &[Operand::Row(x, 0)]);
        }),
        ("there is no state 1", |cells, x, _, graph| {
            graph.chain(&cells.sum, 3).input(x).first_state(1, x).add();
        }),
        ("state 0: value2 has rows of INT64 [1], not FP32 [1]", |cells, x, _, graph| {
            let integers = graph.value(ElementType::I64, &[1], 1);
            graph.chain(&cells.sum, 3).input(x).first_state(0, integers).add();
        }),
        ("the model declares no output `other`", |_, _, sums, graph| {
            graph.output("other", sums, &[3]);
        }),
        ("output `sums` is made twice", |_, _, sums, graph| graph.output("sums", sums, &[3])),
        ("no value holds byte strings", |_, _, _, graph| {
            graph.value(ElementType::Bytes, &[], 1);
        }),
        ("do not fit the memory", |_, _, _, graph| {
            graph.value(ElementType::F32, &[usize::MAX / 4, 4], 9);
        }),
        ("3 elements are no rows of shape [2]", |_, _, _, graph| {
            graph.input(Tensor::new(vec![3], TensorData::F32(vec![0.0; 3])), &[2]);
        }),
    ];
    for (expected, mistake) in table {
        let engine = engine(*mistake);
        for _ in 0..2 {
            match ask(&engine) {
                Err(EngineError::Unfolding(error)) => {
                    assert!(error.to_string().contains(expected), "{error} for {expected}");
                }
                other => panic!("{other:?} for {expected}"),
            }
        }
        assert_eq!(engine.statistics().permits_in_use, 0, "{expected}");
    }
}

#[test]
fn a_graph_without_a_mistake_runs() {
    let engine = engine(|cells, _, _, graph| {
        let ids = graph.input(Tensor::new(vec![2], TensorData::I64(vec![1, 0])), &[]);
        graph.chain(&cells.of_ids, 2).input(ids).add();
    });
    let sums = Tensor::new(vec![3], TensorData::F32(vec![1.0, 3.0, 7.0]));
    assert_eq!(ask(&engine), Ok(sums));
}

#[test]
fn a_wrong_request_is_the_clients_to_change() {
    let mut model = CustomModel::new("sums");
    let sum = model.cell("sum", sum(None));
    let model = model.input("x", ElementType::F32, &[-1]).unfold(move |mut request, graph| {
        let x = graph.input(request.take("x")?, &[1]);
        if x.rows() > 2 {
            return Err(InvalidRequest("tensor `x`: more than 2 numbers".to_owned()));
        }
        graph.chain(&sum, x.rows()).input(x).add();
        Ok(())
    });
    let error = ask(&start(model)).unwrap_err();
    assert!(matches!(error, EngineError::Invalid(_)), "{error:?}");
    assert_eq!(error.to_string(), "tensor `x`: more than 2 numbers");
}

#[test]
fn outputs_are_checked_against_what_the_model_declares() {
    let error = |output: fn(&mut Graph, Value)| {
        let model = CustomModel::new("sums")
            .input("x", ElementType::F32, &[-1])
            .output("sums", ElementType::F32, &[-1])
            .unfold(move |mut request, graph| {
                let x = graph.input(request.take("x")?, &[1]);
                output(graph, x);
                Ok(())
            });
        ask(&start(model)).unwrap_err().to_string()
    };
    let none = error(|_, _| {});
    assert!(none.contains("there is no output `sums`"), "{none}");
    let shape = error(|graph, x| graph.output("sums", x, &[4]));
    assert!(shape.contains("output `sums`: shape [4] for 3 elements"), "{shape}");
    let element = error(|graph, _| {
        let integers = graph.value(ElementType::I64, &[1], 3);
        graph.output("sums", integers, &[3]);
    });
    assert!(element.contains("output `sums`: value1 holds INT64, not FP32"), "{element}");
}

#[test]
fn a_model_without_an_unfolding_function_says_so() {
    let model = CustomModel::new("sums").input("x", ElementType::F32, &[-1]);
    let error = ask(&start(model)).unwrap_err().to_string();
    assert!(error.contains("the model has no unfolding function"), "{error}");
}
