//! The text classifier that comes with the project: text in, languages out.

use std::path::Path;

use batchmaker_graph::{CellRegistry, ModelId, NamedTensor, Parameters, Tensor, TensorData};
use batchmaker_model::{LoadOptions, Model, load};

mod support;

fn text(text: &str) -> NamedTensor {
    let tensor = Tensor::new(vec![1], TensorData::Bytes(vec![text.as_bytes().to_vec()]));
    NamedTensor { name: "text".to_owned(), tensor }
}

fn strings(tensor: &Tensor) -> Vec<String> {
    match tensor.data() {
        TensorData::Bytes(texts) => {
            texts.iter().map(|text| String::from_utf8(text.clone()).unwrap()).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn ask(model: &Model, registry: &CellRegistry, question: &str) -> Vec<NamedTensor> {
    let (unfolded, plan) = model.unfold(vec![text(question)], &Parameters::default(), &[]).unwrap();
    plan.reply(support::interpreter::run(registry, &unfolded), &[]).unwrap()
}

#[test]
fn text_becomes_languages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/langid");
    let options = LoadOptions::new(ModelId(0));
    let mut registry = CellRegistry::default();
    let model = load(&path, &options, &mut registry).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(model.inputs.len(), 1);
    assert_eq!(model.inputs[0].name, "text");
    let reply = ask(&model, &registry, "Where is the nearest railway station, please?");
    let names: Vec<&str> = reply.iter().map(|tensor| tensor.name.as_str()).collect();
    let declared: Vec<&str> = model.outputs.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, declared);
    let named = |name: &str| &reply.iter().find(|tensor| tensor.name == name).unwrap().tensor;
    let language = strings(named("language"));
    let languages = strings(named("languages"));
    assert_eq!(named("languages").shape(), [3]);
    assert!(languages[0].starts_with(&format!("{}:", language[0])), "{language:?} {languages:?}");
    let error = model.unfold(vec![text("")], &Parameters::default(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "tensor `text`: an empty sequence");
    println!("{language:?} {languages:?} {:?}", model.cells);
}
