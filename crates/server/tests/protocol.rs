//! The protocol, over real sockets.

mod support;

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};
use support::{Client, HIDDEN, INFER, INPUT, Running, body, bytes, config, engine, with};

#[test]
fn the_server_and_its_models_describe_themselves() {
    let server = Running::plain();
    let get = |path: &str| {
        let reply = server.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        reply.json()
    };
    assert_eq!(get("/v2")["name"], "batchmaker");
    let extensions = get("/v2")["extensions"].clone();
    let expected = [
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "schedule_policy",
        "sequence",
        "statistics",
    ];
    assert_eq!(extensions, json!(expected));
    assert_eq!(get("/v2/health/live"), json!({"live": true}));
    assert_eq!(get("/v2/health/ready"), json!({"ready": true}));
    let metadata = json!({
        "name": "lstm1",
        "versions": ["1"],
        "platform": "batchmaker_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1, INPUT]}],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, -1, HIDDEN]},
            {"name": "h_n", "datatype": "FP32", "shape": [1, -1, HIDDEN]},
            {"name": "c_n", "datatype": "FP32", "shape": [1, -1, HIDDEN]},
        ],
    });
    for path in ["/v2/models/lstm1", "/v2/models/lstm1/versions/1", "/v2/models/%6cstm1?a=b"] {
        assert_eq!(get(path), metadata);
    }
    assert_eq!(get("/v2/models/lstm1/ready"), json!({"name": "lstm1", "ready": true}));
    let config = get("/v2/models/lstm1/versions/1/config");
    assert_eq!((&config["name"], &config["max_batch_size"]), (&json!("lstm1"), &json!(0)));
    let input = json!([{
        "name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, -1, INPUT],
        "is_shape_tensor": false, "allow_ragged_batch": false, "optional": false,
    }]);
    assert_eq!(config["input"], input);
    let idle = json!({"max_sequence_idle_microseconds": 300_000_000u64});
    assert_eq!(config["sequence_batching"], idle);
    assert_eq!(config.get("dynamic_batching"), None);
    let layout = &config["parameters"]["layout:x"]["string_value"];
    assert_eq!(*layout, json!(format!("[time, batch, {INPUT}] numbers")));

    let index = json!([{"name": "lstm1", "version": "1", "state": "READY", "reason": ""}]);
    for body in ["", "{}", r#"{"ready": true}"#] {
        let reply = server.post("/v2/repository/index", body.as_bytes());
        assert_eq!((reply.status, reply.json()), (200, index.clone()));
    }
}

#[test]
fn paths_verbs_and_bodies_that_are_wrong_are_told_so() {
    let server = Running::plain();
    let good = bytes(&body(2));
    let parameter =
        |name: &str, value: Value| bytes(&with(body(2), "parameters", json!({name: value})));
    let outputs = |outputs: Value| bytes(&with(body(2), "outputs", outputs));
    let double = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1]}]});
    let table: &[(&str, &str, &[u8], u16, &str)] = &[
        ("GET", "/", b"", 404, "there is nothing at /"),
        ("POST", "/v3/x", b"{}", 404, "there is nothing at /v3/x"),
        ("GET", "/v2/models/none", b"", 404, "Request for unknown model: 'none' is not found"),
        (
            "GET",
            "/v2/models/none/ready",
            b"",
            404,
            "Request for unknown model: 'none' is not found",
        ),
        ("GET", "/v2/models/%ff", b"", 404, "there is nothing at /v2/models/%ff"),
        (
            "POST",
            "/v2/models/none/infer",
            &good,
            404,
            "Request for unknown model: 'none' is not found",
        ),
        (
            "POST",
            "/v2/models/lstm1/versions/9/infer",
            &good,
            404,
            "Request for unknown model: 'lstm1' version 9 is not found; served here: 1",
        ),
        ("POST", "/v2/models/lstm1", b"", 405, "/v2/models/lstm1 does not take POST"),
        ("GET", INFER, b"", 405, "/v2/models/lstm1/infer does not take GET"),
        ("DELETE", "/v2", b"", 405, "/v2 does not take DELETE"),
        ("POST", "/v2/models/lstm1/generate", b"{}", 400, "text_input"),
        ("POST", "/v2/models/lstm1/generate_stream", b"[]", 400, "request"),
        ("POST", "/v2/repository/models/lstm1/load", b"{}", 501, "loading and unloading"),
        ("POST", "/v2/repository/models/lstm1/unload", b"", 501, "loading and unloading"),
        ("POST", "/v2/repository/index", b"[]", 400, "the body: expected {}"),
        ("POST", "/v2/repository/index", b"{\"x\": 1}", 400, "'x' is not supported"),
        ("POST", INFER, b"", 400, "request"),
        ("POST", INFER, b"{", 400, "request"),
        ("POST", INFER, b"\xff", 400, "UTF-8"),
        ("POST", INFER, &bytes(&double), 400, "input 'x': expected data type FP32, got FP64"),
        ("POST", INFER, &bytes(&json!({"inputs": []})), 400, "x"),
        (
            "POST",
            INFER,
            &outputs(json!([{"name": "y", "parameters": {"classification": 0}}])),
            400,
            "output 'y': parameter 'classification': expected a number of classes, got 0",
        ),
        ("POST", INFER, &parameter("priority", json!("high")), 400, "'priority'"),
        (
            "POST",
            INFER,
            &parameter("sequence_id", json!(5)),
            400,
            "sequence_id '5': no such sequence of model 'lstm1'",
        ),
        ("POST", INFER, &outputs(json!([{"name": "z"}])), 400, "output 'z' is unknown"),
    ];
    for (verb, path, body, status, message) in table {
        // On one connection each, and the reply leaves it usable.
        let mut client = Client::new(server.http);
        let reply = client.call(verb, path, &[], body);
        assert_eq!(reply.status, *status, "{verb} {path}: {reply:?}");
        assert!(reply.error().contains(message), "{verb} {path}: {}", reply.error());
        assert_eq!(reply.header("allow").is_some(), *status == 405, "{verb} {path}");
        assert_eq!(client.call("GET", "/v2/health/live", &[], b"").status, 200, "{verb} {path}");
    }
    assert_eq!(server.permits_in_use(), 0.0);
}

#[test]
fn messages_repeat_little_of_what_came() {
    let server = Running::plain();
    let long = "x".repeat(100_000);
    let id = |length: usize| bytes(&with(body(2), "id", json!(long[..length])));
    let parameter = |value: &Value| bytes(&with(body(2), "parameters", value.clone()));
    let infer = [
        format!("\"{long}\"").into_bytes(),
        format!(r#"{{"inputs":"{long}"}}"#).into_bytes(),
        format!(r#"{{"inputs":["{long}"]}}"#).into_bytes(),
        parameter(&json!({"sequence_id": [long]})),
        parameter(&json!({"priority": long})),
        bytes(&with(body(2), "outputs", json!([{"name": long}]))),
        id(1025),
    ];
    let generate = [format!(r#"{{"{long}":1}}"#), format!(r#"{{"text_input":"a","id":"{long}"}}"#)];
    let infer = infer.iter().map(|body| (INFER, &body[..]));
    let generate = generate.iter().map(|body| ("/v2/models/lstm1/generate", body.as_bytes()));
    for (path, body) in infer.chain(generate) {
        let reply = server.post(path, body);
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.body.len() < 2000, "{} bytes", reply.body.len());
    }
    assert_eq!(server.post(INFER, &id(1024)).status, 200);
}

#[test]
fn headers_that_are_wrong_are_told_so() {
    let server = Running::plain();
    let good = bytes(&body(2));
    let table = [
        ("Inference-Header-Content-Length", "-1", 400, "expected a number of bytes, got '-1'"),
        ("Inference-Header-Content-Length", "100000", 400, "the body has"),
        ("Content-Encoding", "br", 415, "content encoding 'br'"),
        ("Content-Encoding", "gzip", 400, "not sound gzip"),
        ("X-Session-Id", "5", 400, "sequence_id '5': no such sequence of model 'lstm1'"),
        ("X-Session-Id", "\u{e9}", 400, "header 'x-session-id': expected visible ASCII"),
    ];
    for (name, value, status, message) in table {
        let reply = Client::new(server.http).call("POST", INFER, &[(name, value)], &good);
        assert_eq!(reply.status, status, "{name}: {value}");
        assert!(reply.error().contains(message), "{name}: {}", reply.error());
    }
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

#[test]
fn an_inference_answers_all_outputs_or_those_asked_for() {
    let server = Running::plain();
    let reply = server.post(INFER, &bytes(&with(body(3), "id", json!("seven"))));
    assert_eq!(reply.status, 200, "{reply:?}");
    let all = reply.json();
    assert_eq!(
        (&all["model_name"], &all["model_version"], &all["id"]),
        (&json!("lstm1"), &json!("1"), &json!("seven"))
    );
    assert_eq!(all["outputs"][0]["name"], "y");
    assert_eq!(all["outputs"][0]["shape"], json!([3, 1, HIDDEN]));
    let y = floats(&all["outputs"][0]["data"]);
    let h_n = floats(&all["outputs"][1]["data"]);
    assert_eq!(y[2 * HIDDEN..], h_n);
    assert!(y.iter().all(|value| *value != 0.0 && value.abs() < 1.0), "{y:?}");

    let outputs = json!([{"name": "h_n"}, {"name": "y", "parameters": {"binary_data": true}}]);
    let reply = server.post(INFER, &bytes(&with(body(3), "outputs", outputs)));
    let length: usize = reply.header("inference-header-content-length").unwrap().parse().unwrap();
    let (head, binary) = reply.body.split_at(length);
    let head: Value = serde_json::from_slice(head).unwrap();
    assert_eq!(floats(&head["outputs"][0]["data"]), h_n);
    assert_eq!(head["outputs"][1]["name"], "y");
    assert_eq!(head["outputs"][1]["parameters"]["binary_data_size"], 4 * y.len());
    let y_bytes: Vec<u8> = y.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(binary, y_bytes);
    assert_eq!(reply.header("content-type"), Some("application/octet-stream"));

    let one = with(body(3), "outputs", json!([{"name": "h_n"}]));
    assert_eq!(server.post(INFER, &bytes(&one)).json()["outputs"].as_array().unwrap().len(), 1);
}

#[test]
fn binary_inputs_and_outputs_are_as_tritonclient_sends_and_reads_them() {
    let server = Running::plain();
    let json_reply = server.post(INFER, &bytes(&body(3))).json();
    let x: Vec<u8> = floats(&body(3)["inputs"][0]["data"])
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let head = bytes(&json!({
        "inputs": [{
            "name": "x", "shape": [3, 1, INPUT], "datatype": "FP32",
            "parameters": {"binary_data_size": x.len()},
        }],
        "parameters": {"binary_data_output": true},
    }));
    let length = head.len().to_string();
    let headers = [("Inference-Header-Content-Length", &*length)];
    let whole = [head, x].concat();
    let reply = Client::new(server.http).call("POST", INFER, &headers, &whole);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let length: usize = reply.header("inference-header-content-length").unwrap().parse().unwrap();
    let outputs = json_reply["outputs"].as_array().unwrap();
    let expected: Vec<u8> = outputs
        .iter()
        .flat_map(|output| floats(&output["data"]))
        .flat_map(f32::to_le_bytes)
        .collect();
    assert_eq!(reply.body[length..], expected);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn bodies_are_compressed_both_ways() {
    let server = Running::plain();
    let plain = server.post(INFER, &bytes(&body(100)));
    let request = bytes(&body(100));
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(&request).unwrap();
    for (encoding, body) in [("gzip", gzip(&request)), ("deflate", zlib.finish().unwrap())] {
        let headers = [("Content-Encoding", encoding), ("Accept-Encoding", encoding)];
        let reply = Client::new(server.http).call("POST", INFER, &headers, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("content-encoding"), Some(encoding));
        assert!(reply.body.len() < plain.body.len());
        let encoding = encoding.parse().unwrap();
        let decoded = batchmaker_wire::decompress(encoding, &reply.body, 1 << 20, |_| {
            Ok::<_, batchmaker_wire::WireError>(())
        })
        .unwrap();
        assert_eq!(*decoded, plain.body);
    }
}

#[test]
fn a_body_over_the_limit_is_refused_readably() {
    let limits = batchmaker_server::ServerConfig { body_bytes_max: 100_000, ..config() };
    let server = Running::start(limits, engine(Duration::ZERO, 64));
    let message = "the body has more than the 100000 bytes that are allowed";

    let large = vec![b' '; 20_000_000];
    let reply = server.post(INFER, &large);
    assert_eq!((reply.status, reply.error()), (413, message.to_owned()));

    let bomb = gzip(&large);
    assert!(bomb.len() < 100_000);
    let headers = [("Content-Encoding", "gzip")];
    let reply = Client::new(server.http).call("POST", INFER, &headers, &bomb);
    assert_eq!((reply.status, reply.error()), (413, message.to_owned()));

    let mut chunked = Client::new(server.http);
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..100 {
        write!(chunked.stream, "2710\r\n").unwrap();
        chunked.stream.write_all(&[b' '; 10_000]).unwrap();
        write!(chunked.stream, "\r\n").unwrap();
    }
    write!(chunked.stream, "0\r\n\r\n").unwrap();
    let reply = chunked.receive().unwrap();
    assert_eq!((reply.status, reply.error()), (413, message.to_owned()));

    // Who asks first is told before it sends.
    let mut polite = Client::new(server.http);
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 200000\r\n\r\n"
    );
    polite.stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(polite.receive().unwrap().status, 413);
}

#[test]
fn statistics_and_metrics_count() {
    let server = Running::plain();
    for _ in 0..3 {
        assert_eq!(server.post(INFER, &bytes(&body(5))).status, 200);
    }
    assert_eq!(server.post(INFER, b"{}").status, 400);
    let one = server.get("/v2/models/lstm1/stats").json();
    assert_eq!(server.get("/v2/models/stats").json(), one);
    let model = &one["model_stats"][0];
    assert_eq!((&model["name"], &model["version"]), (&json!("lstm1"), &json!("1")));
    assert_eq!(model["inference_count"], 3);
    assert_eq!(model["execution_count"], 3, "batches of one row");
    let batches = &model["batch_stats"][0];
    assert_eq!(batches["batch_size"], 1);
    assert!(batches["compute_infer"]["count"].as_u64().unwrap() >= 3, "{batches}");
    assert!(model["last_inference"].as_u64().unwrap() > 1_600_000_000_000);
    let statistics = &model["inference_stats"];
    for name in ["success", "queue", "compute_input", "compute_infer", "compute_output"] {
        assert_eq!(statistics[name]["count"], 3, "{name}");
        // A request that finds an idle worker does not queue.
        assert!(name == "queue" || statistics[name]["ns"].as_u64().unwrap() > 0, "{name}");
    }
    assert_eq!(statistics["fail"]["count"], 1);
    assert_eq!(statistics["cache_hit"], json!({"count": 0, "ns": 0}));

    assert_eq!(server.outcomes("success"), 3.0);
    assert_eq!(server.outcomes("invalid"), 1.0);
    assert_eq!(server.outcomes("failed"), 0.0);
    assert_eq!(server.metric("batchmaker_nodes_total{"), 15.0);
    assert!(server.metric("batchmaker_batches_total{") >= 3.0);
    let rows = |end: &str| server.metric(&format!("batchmaker_batch_rows_{end}{{"));
    assert_eq!(rows("sum"), rows("count"), "batches of one row");
    let names = || -> Vec<String> {
        let text = Client::new(server.metrics).call("GET", "/metrics", &[], b"").text();
        text.lines().map(|line| line.rsplit_once(' ').map_or("", |of| of.0).to_owned()).collect()
    };
    assert_eq!(names(), names(), "the order of samples");
    assert_eq!(server.metric("batchmaker_waiting_subgraphs{"), 0.0);
    assert_eq!((server.slots_in_use(), server.permits_in_use()), (0.0, 0.0));
    assert_eq!(server.metric("batchmaker_permits "), 64.0);
    for name in ["request", "queue", "compute"] {
        let name = format!("batchmaker_{name}_seconds_count{{model=\"lstm1\"}}");
        assert_eq!(server.metric(&name), 3.0, "{name}");
    }
    assert_eq!(server.metric("batchmaker_http_responses_total{status=\"400\"}"), 1.0);
    assert_eq!(server.get("/metrics").status, 200);
}

#[test]
fn offline_lines_are_answered_as_over_http() {
    use batchmaker_server::offline;

    let engine = engine(Duration::ZERO, 64);
    let server = Running::start(config(), engine.clone());
    let line = bytes(&with(body(3), "id", json!("7")));
    let (context, pending) = offline::submit(&engine, "lstm1", &line).unwrap();
    let reply = offline::encode(context, pending.wait().unwrap()).unwrap();
    assert_eq!(reply, server.post(INFER, &line).body);

    let refusal = |model: &str, line: &[u8]| {
        offline::submit(&engine, model, line).map(|_| ()).unwrap_err().to_string()
    };
    let unknown = "Request for unknown model: 'none' is not found; served here: lstm1";
    assert_eq!(refusal("none", &line), unknown);
    assert!(refusal("lstm1", b"plain text").starts_with("request"));
    for (name, value, message) in [
        ("timeout", json!(5), "parameter 'timeout' has no meaning here"),
        ("binary_data_output", json!(true), "replies are lines of JSON, never binary"),
    ] {
        let line = bytes(&with(body(3), "parameters", json!({name: value})));
        assert_eq!(refusal("lstm1", &line), message);
    }
}
