//! A program that uses the library: an unfolding function over a cell of the program's own, a session
//! and a stream.

use batchmaker::{
    Cell, CustomModel, ElementType, Engine, Operand, RecurrentCell, RecurrentKind, Request,
    RnnActivation, Tensor, TensorData, TreeCell,
};

type Error = Box<dyn std::error::Error>;

fn floats(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), TensorData::F32(data.to_vec()))
}

/// `sums[i] = x[0] + … + x[i]` of numbers that are not below zero, by a chain of `h' = relu(x + h)`; and
/// `leaves`, h of a TreeLSTM's leaf for each x, by nodes.
fn model() -> CustomModel {
    let (w, r): ([f32; 1], [f32; 1]) = ([1.0], [1.0]);
    let kind = RecurrentKind::Rnn { activation: RnnActivation::Relu };
    let (w, r, b, lookup) = (w.into(), r.into(), None, None);
    let step = RecurrentCell { kind, input_size: 1, hidden_size: 1, w, r, b, lookup };
    let w = [0.5; 3].into();
    let leaf = TreeCell::Leaf { input_size: 1, hidden_size: 1, w, b: None, lookup: None };
    let mut model = CustomModel::new("sums");
    let leaf = model.cell("leaf", Cell::tree(leaf));
    let step = model.cell("step", Cell::recurrent(step));
    model
        .input("x", ElementType::F32, &[-1])
        .output("sums", ElementType::F32, &[-1])
        .output("leaves", ElementType::F32, &[-1])
        .unfold(move |mut request, graph| {
            let x = graph.input(request.take("x")?, &[1]);
            let sums = graph.value(ElementType::F32, &[1], x.rows());
            graph.chain(&step, x.rows()).input(x).each_step(0, sums).add();
            let leaf = |row| graph.node(&leaf, &[Operand::Row(x, row)]);
            let leaves: Vec<_> = (0..x.rows()).map(leaf).collect();
            graph.output("sums", sums, &[x.rows()]);
            graph.output_of("leaves", &leaves, 0, &[x.rows()]);
            Ok(())
        })
}

fn main() -> Result<(), Error> {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let engine = Engine::builder()
        .custom_model(model())
        .model(format!("{models}models/g2p"))
        .model(format!("{models}crates/model/tests/vectors/lstm1.onnx"))
        .build()?;

    let reply = engine.run("sums", Request::new().input("x", floats(&[3], &[1.0, 2.0, 4.0])))?;
    assert_eq!(reply.output("sums"), Some(&floats(&[3], &[1.0, 3.0, 7.0])));
    println!("unfolded: {:?}", reply.outputs);

    let name = engine.model("lstm1").ok_or("no such model")?.inputs[0].name.clone();
    let x = |steps: usize| Request::new().input(&name, floats(&[steps, 1, 5], &vec![0.5; 5 * steps]));
    let whole = engine.run("lstm1", x(5))?;
    let mut session = engine.session("lstm1");
    session.submit(x(2))?.wait()?;
    let last = session.finish(x(3))?.wait()?;
    assert_eq!(last.outputs[1], whole.outputs[1]);
    println!("session: the state of two chunks is that of the whole sequence");

    let word = Tensor::new(vec![1], TensorData::Bytes(vec![b"hello".to_vec()]));
    let mut stream = engine.stream("g2p", Request::new().input("text", word))?;
    let mut steps = 0;
    while let Some(tensors) = stream.wait_next() {
        steps += tensors[0].tensor.shape()[0];
    }
    println!("stream: {steps} steps, {:?}", stream.wait()?.outputs);
    assert!(steps > 0);
    Ok(())
}
