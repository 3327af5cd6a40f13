"""`Loop` and `Scan` through `batchmaker run` against ONNX Runtime.

Graphs are in ONNX's own text form; names that nothing makes are weights, whose shapes stand in WEIGHTS.
A reply is within 1e-5 of ONNX Runtime's (|a - b| <= 1e-5 * max(1, max|b|)) and, bit for bit, the same as
the reply to the same request sent alone.
"""

import json
import re
import subprocess

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import sessions
from conftest import BINARY
from onnx import numpy_helper

SEED = 20269
F, H, IDS = 5, 7, 11
WEIGHTS = {
    "Wx": (F, H), "Wh": (H, H), "b": (H,), "Wc": (3, H), "first": (1, H), "table": (IDS, F),
    "W_lstm": (1, 4 * H, F), "R_lstm": (1, 4 * H, H), "W_gru": (1, 3 * H, H), "R_gru": (1, 3 * H, H),
    "W_rnn": (1, H, 3), "R_rnn": (1, H, H),
}
INTEGERS = {
    "i0": 0, "i1": 1, "i2": 2, "i3": 3, "i12": 12, "i300": 300, "i3000": 3000, "vH0": H, "v0": [0], "v1": [1], "v2": [2], "vH": [H], "v1H": [1, H],
    "l1": 0,
}
STEP = "xw = MatMul(x, Wx) hw = MatMul(h, Wh) s = Add(xw, hw) t = Add(s, b) n = Tanh(t)"
ZEROS = "size = Shape(xs) batch = Gather<axis=0>(size, v1) dims = Concat<axis=0>(batch, vH) h0 = Expand(zero, dims)"
LENGTH = "size = Shape(xs) trips = Gather<axis=0>(size, i0)"

# The inputs, then the graph.
CASES = {
    "scan": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""last, ys = Scan <num_scan_inputs=1, body = step (float[N,7] h, float[N,5] x)
            => (float[N,7] n, float[N,7] y) {{ {STEP} y = Mul(n, b) }}> (h0, xs)""",
    ),
    "scan_batch_first_backwards": (
        "float[N,T,5] xs, float[N,7] h0",
        f"""last, ys = Scan <num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
            scan_output_axes=[-2], scan_output_directions=[1], body = step (float[N,7] h, float[N,5] x)
            => (float[N,7] n, float[N,7] y) {{ {STEP} y = Identity(n) }}> (h0, xs)""",
    ),
    "scan_backwards_written_forwards": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""last, ys, zs = Scan <num_scan_inputs=1, scan_input_directions=[1],
            scan_output_directions=[0, 1], body = step (float[N,7] h, float[N,5] x)
            => (float[N,7] n, float[N,7] y, float[N,7] z)
            {{ {STEP} y = Sigmoid(n) z = Relu(n) }}> (h0, xs)""",
    ),
    "scan_of_two": (
        "float[T,N,5] xs, float[T,N,5] us, float[N,7] h0",
        f"""last, ys = Scan <num_scan_inputs=2, scan_input_directions=[0, 1], body = step
            (float[N,7] h, float[N,5] p, float[N,5] q) => (float[N,7] n, float[N,7] y)
            {{ x = Sub(p, q) {STEP} y = Identity(n) }}> (h0, xs, us)""",
    ),
    "scan_without_state": (
        "float[T,N,5] xs, float[N,7] h0",
        """last, ys = Scan <num_scan_inputs=1, scan_input_directions=[1], body = step
           (float[N,7] unread, float[N,5] x) => (float[N,7] n, float[N,7] y)
           { y = MatMul(x, Wx) n = Tanh(y) }> (h0, xs)""",
    ),
    "scan_between_operators": (
        "float[T,N,5] xs",
        f"""one, ys4 = LSTM <hidden_size=7> (xs, W_lstm, R_lstm) ys = Squeeze(one, v1)
            w = MatMul(ys, Wh) lasts = Squeeze(ys4, v0)
            last, all = Scan <num_scan_inputs=1, body = step (float[N,7] h, float[N,7] x)
            => (float[N,7] n, float[N,7] y) {{ p = Add(x, h) n = Tanh(p) y = Identity(n) }}> (lasts, w)
            g, out = GRU <hidden_size=7> (all, W_gru, R_gru)""",
    ),
    "loop": (
        "float[T,N,5] xs",
        f"""{ZEROS} trips = Gather<axis=0>(size, i0)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c2, float[N,7] n, float[N,7] y)
            {{ x = Gather<axis=0>(xs, i) {STEP} y = Mul(n, n) c2 = Identity(c) }}>""",
    ),
    "loop_backwards": (
        "float[N,T,5] xs, float[N,7] h0",
        f"""size = Shape(xs) trips = Gather<axis=0>(size, i1) end = Sub(trips, i1)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool yes2, float[N,7] n, float[N,7] y)
            {{ k = Sub(end, i) x = Gather<axis=1>(xs, k) {STEP} y = Mul(n, n) yes2 = Identity(yes) }}>""",
    ),
    "loop_with_slices": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""{LENGTH}
            last, ys = Loop (trips, , h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ from = Unsqueeze(i, v0) next = Add(i, i1) to = Unsqueeze(next, v0)
               part = Slice(xs, from, to, v0) x = Squeeze(part, v0) {STEP} y = Identity(n) }}>""",
    ),
    "loop_of_a_counter": (
        "float[T,N,5] xs",
        f"""{LENGTH}
            last, count, ys = Loop (trips, yes, first, i300) <body = step
            (int64 i, bool c, float[1,7] h, int64 k) => (bool c, float[N,7] n, int64 k2, float[N,7] y)
            {{ x = Gather<axis=0>(xs, i) xw = MatMul(x, Wx) hw = MatMul(h, Wh) s = Add(xw, hw)
               k2 = Add(k, i2) kf = Cast<to=1>(k2) m = Mul(s, kf) n = Tanh(m) y = Identity(n) }}>""",
    ),
    "loop_of_a_fused_step": (
        "float[T,N,5] xs, float[1,N,7] h0, float[1,N,7] c0",
        f"""{LENGTH}
            h_n, c_n, ys = Loop (trips, yes, h0, c0) <body = step
            (int64 i, bool c, float[1,N,7] h, float[1,N,7] cell)
            => (bool c, float[1,N,7] h2, float[1,N,7] cell2, float[1,N,7] y)
            {{ x = Gather<axis=0>(xs, i) x3 = Unsqueeze(x, v0)
               unused, h2, cell2 = LSTM <hidden_size=7> (x3, W_lstm, R_lstm, , , h, cell)
               y = Identity(h2) }}>""",
    ),
    "loop_around_a_context": (
        "float[T,N,5] xs, float[N,3] context, float[N,7] h0",
        f"""{LENGTH}
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ raw = Gather<axis=0>(xs, i) cw = MatMul(context, Wc) x = Relu(raw)
               xw = MatMul(x, Wx) hw = MatMul(h, Wh) sum = Add(xw, hw) s = Add(sum, cw)
               gate = Sigmoid(cw) t = Mul(s, gate) n = Tanh(t) y = Identity(n) }}>""",
    ),
    "loop_with_lengths": (
        "float[T,N,5] xs, int64[N] ids, float[N,7] h0",
        f"""{LENGTH} size_f = Cast<to=1>(trips)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] m, float[N,7] y)
            {{ k = Sub(trips, i) at = Neg(k) x = Gather<axis=0>(xs, at) {STEP}
               on = Less(i, ids) col = Unsqueeze(on, v1) m = Where(col, n, h)
               j = Add(i, i1) f = Cast<to=1>(j) share = Div(f, size_f) y = Mul(m, share) }}>
            twice = Add(size_f, size_f) two_f = Div(twice, size_f) half = Div(size_f, two_f)
            out = Div(ys, half)""",
    ),
    "loop_from_behind": (
        "float[T,N,5] xs",
        f"""{ZEROS} trips = Gather<axis=0>(size, i0) learned = Add(h0, first)
            twice = Tile(first, tiles) start = Add(learned, twice)
            last, ys = Loop (trips, yes, start) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ j = Add(i, i1) back = Neg(j) x = Gather<axis=0>(xs, back) xw = MatMul(x, Wx)
               gates = Concat<axis=1>(xw, h) parts = SplitToSequence<axis=1>(gates, vH0)
               p = SequenceAt(parts, i0) q = SequenceAt(parts, i1) s = Add(p, q) n = Tanh(s)
               zero_th = Equal(i, i0) y = Where(zero_th, h, n) }}>""",
    ),
    "loops_in_a_loop": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""{LENGTH}
            last, count, counts = Loop (trips, yes, h0, i0) <body = step (int64 i, bool c, float[N,7] h, int64 k)
            => (bool c, float[N,7] n, int64 k2, int64 kk)
            {{ x = Gather<axis=0>(xs, i) xw = MatMul(x, Wx) s = Add(xw, h)
               n = Loop (i12, yes, s) <body = inner (int64 j, bool d, float[N,7] g)
               => (bool d, float[N,7] g3) {{ g2 = MatMul(g, Wh) g3 = Tanh(g2) }}>
               k2 = Add(k, i2) kk = Identity(k2) }}>
            out = Cast<to=1>(counts)""",
    ),
    "loop_of_ids": (
        "int64[T,N] ids, float[N,7] h0",
        f"""size = Shape(ids) trips = Gather<axis=0>(size, i0)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ id = Gather<axis=0>(ids, i) x = Gather<axis=0>(table, id) {STEP} y = Identity(n) }}>""",
    ),
    "loop_over_a_layer": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""w = MatMul(xs, Wx) {LENGTH}
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ x = Gather<axis=0>(w, i) s = Add(x, h)
               n = Loop (i3, yes, s) <body = inner (int64 j, bool d, float[N,7] g)
               => (bool d, float[N,7] g3) {{ g2 = MatMul(g, Wh) g3 = Tanh(g2) }}>
               y = Identity(n) }}>
            out = MatMul(ys, Wh)""",
    ),
    "loop_of_three": (
        "float[N,5] x",
        f"""h0 = MatMul(x, Wx)
            last, ys = Loop (i3, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ {STEP} k = Cast<to=1>(i) y = Mul(n, k) }}>""",
    ),
    "loop_that_ends_early": (
        "float[N,5] x",
        f"""h0 = MatMul(x, Wx)
            last, ys = Loop (i300, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c2, float[N,7] n, float[N,7] y)
            {{ {STEP} y = Identity(n) c2 = Less(i, i2) }}>""",
    ),
    "loop_that_appends": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""steps = SplitToSequence<axis=0, keepdims=0>(xs) trips = SequenceLength(steps) none = SequenceEmpty()
            last, list = Loop (trips, yes, h0, none) <body = step
            (int64 i, bool c, float[N,7] h, seq(float[N,7]) before)
            => (bool c, float[N,7] n, seq(float[N,7]) after)
            {{ x = SequenceAt(steps, i) {STEP} after = SequenceInsert(before, n) }}>
            two = SequenceAt(list, l1) out = ConcatFromSequence<axis=1, new_axis=1>(list)
            g1 = MatMul(two, Wh)""",
    ),
    "loop_that_joins": (
        "float[N,T,5] xs, float[N,7] h0",
        f"""steps = SplitToSequence<axis=1>(xs) trips = SequenceLength(steps) none = SequenceEmpty()
            end = Sub(trips, i1)
            last, list = Loop (trips, yes, h0, none) <body = step
            (int64 i, bool c, float[N,7] h, seq(float[N,1,7]) before)
            => (bool c, float[N,7] n, seq(float[N,1,7]) after)
            {{ k = Sub(end, i) part = SequenceAt(steps, k) x = Squeeze(part, v1) {STEP}
               m = Unsqueeze(n, v1) after = SequenceInsert(before, m) }}>
            joined = ConcatFromSequence<axis=1>(list) out = MatMul(joined, Wh)""",
    ),
    "lists_of_the_file": (
        "float[T,N,5] xs",
        """list = SplitToSequence<axis=2>(xs) one = SequenceAt(list, i1) two = SequenceAt(list, i3)
           both = SequenceConstruct(one, two) three = SequenceInsert(both, one, i0)
           count = SequenceLength(three) type = CastLike(count, one) all = ConcatFromSequence<axis=2>(three)
           more = Mul(all, type) none, last = RNN <hidden_size=7> (more, W_rnn, R_rnn)
           out = Squeeze(last, v0)""",
    ),
    "attention_in_a_loop": (
        "float[T,1,5] xs, float[1,7] h0",
        f"""{LENGTH} keys = MatMul(xs, Wx)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[1,7] h)
            => (bool c, float[1,7] n, float[1,7] y)
            {{ x = Gather<axis=0>(xs, i) products = Mul(keys, h)
               scores = ReduceSum<keepdims=1>(products, v2) shares = Softmax<axis=0>(scores)
               seen = Mul(keys, shares) context = ReduceSum<keepdims=0>(seen, v0)
               xw = MatMul(x, Wx) hw = MatMul(h, Wh) p = Add(xw, hw) s = Add(p, context) n = Tanh(s)
               f = Cast<to=1>(i) y = Mul(n, f) }}>
            out = MatMul(ys, Wh)""",
    ),
    "scan_of_all_and_each": (
        "float[1,T,5] xs, float[1,7] h0",
        f"""last, ys = Scan <num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
            scan_output_axes=[1], scan_output_directions=[1], body = step (float[1,7] h, float[1,5] x)
            => (float[1,7] n, float[1,7] y)
            {{ top = ReduceMax<axes=[1], keepdims=0>(xs) d = Sub(x, top) xw = MatMul(d, Wx)
               hw = MatMul(h, Wh) s = Add(xw, hw) n = Tanh(s) y = Sigmoid(n) }}> (h0, xs)""",
    ),
    "loop_until": (
        "float[1,5] x",
        f"""h0 = MatMul(x, Wx)
            last, count = Loop (i300, yes, h0, i0) <body = step (int64 i, bool c, float[1,7] h, int64 k)
            => (bool c2, float[1,7] n, int64 k2)
            {{ hw = MatMul(h, Wh) n = Tanh(hw) size = ReduceL2<keepdims=0>(n) k2 = Add(k, i1)
               c2 = Greater(size, small) }}>
            out = MatMul(last, Wh)""",
    ),
    "one_sequence": (
        "float[T,5] xs, float[7] h0",
        f"""last, ys = Scan <num_scan_inputs=1, body = step (float[7] h, float[5] x)
            => (float[7] n, float[7] y) {{ {STEP} y = Identity(n) }}> (h0, xs)""",
    ),
    "steps_in_the_file": (
        "float[12,N,5] xs, float[N,7] h0",
        f"""last, ys = Scan <num_scan_inputs=1, body = step (float[N,7] h, float[N,5] x)
            => (float[N,7] n, float[N,7] y) {{ {STEP} y = Identity(n) }}> (h0, xs)""",
    ),
    "a_state_is_the_one_before": (
        "float[T,N,5] xs, float[N,7] h0, float[N,7] g0",
        f"""one, two, ys = Scan <num_scan_inputs=1, body = step (float[N,7] h, float[N,7] g, float[N,5] x)
            => (float[N,7] n, float[N,7] g2, float[N,7] y)
            {{ {STEP} y = Sub(n, g) g2 = Identity(h) }}> (h0, g0, xs)""",
    ),
}

# What is refused, and why.
REFUSED = {
    "a_step_before": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""{LENGTH}
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ k = Sub(i, i1) x = Gather<axis=0>(xs, k) {STEP} y = Identity(n) }}>""",
        "it takes neither this one nor its mirror",
    ),
    "a_slice_that_is_empty_at_first": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""{LENGTH}
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ less = Neg(i) j = Sub(less, i1) from = Unsqueeze(j, v0) to = Unsqueeze(less, v0)
               part = Slice(xs, from, to, v0) x = ReduceSum<keepdims=0>(part, v0) {STEP} y = Identity(n) }}>""",
        "it takes neither this one nor its mirror",
    ),
    "a_condition_that_ends_it": (
        "float[T,N,5] xs, float[N,7] h0",
        f"""{LENGTH} no = Not(yes)
            last, ys = Loop (trips, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
            => (bool no2, float[N,7] n, float[N,7] y)
            {{ x = Gather<axis=0>(xs, i) {STEP} y = Identity(n) no2 = Identity(no) }}>""",
        "its condition ends it after one step",
    ),
    "a_loop_without_an_end": (
        "float[N,7] h0",
        """last, ys = Loop (, yes, h0) <body = step (int64 i, bool c, float[N,7] h)
           => (bool c2, float[N,7] n, float[N,7] y)
           { n = Tanh(h) y = Identity(n) size = ReduceMax<keepdims=0>(n) c2 = Greater(size, small) }>""",
        "it may never end",
    ),
    "a_state_that_widens": (
        "float[T,N,5] xs",
        f"""{LENGTH}
            last, ys = Loop (trips, yes, narrow) <body = step (int64 i, bool c, float[1,1] h)
            => (bool c, float[N,7] n, float[N,7] y)
            {{ x = Gather<axis=0>(xs, i) xw = MatMul(x, Wx) sum = ReduceSum<keepdims=1>(h, v1)
               n = Add(xw, sum) y = Identity(n) }}>""",
        "before a step and [batch, 7] after it",
    ),
    "a_list_that_grows_without_end": (
        "float[N,5] x",
        """none = SequenceEmpty() h0 = MatMul(x, Wx)
           last, list = Loop (i3000, yes, h0, none) <body = step
           (int64 i, bool c, float[N,7] h, seq(float[N,7]) before)
           => (bool c, float[N,7] n, seq(float[N,7]) after)
           { n = Tanh(h) after = SequenceInsert(before, n) }>
           out = ConcatFromSequence<axis=0>(list)""",
        "beyond 512 tensors",
    ),
}


def parse(inputs, text):
    """The file: every value that the graph's own nodes make and its outputs could be is one."""
    outputs = re.findall(r"([\w, ]+)=\s*(?:Scan|Loop|GRU|RNN)", text)[-1 if "GRU" in text else 0]
    outputs = [name.strip() for name in outputs.split(",") if name.strip() not in ("list", "none")]
    outputs += [name for name in ("out", "two") if f"{name} = " in text and name not in outputs]
    given = ", ".join(f"float {name}" for name in outputs)
    graph = onnx.parser.parse_graph(f"graph ({inputs}) => ({given}) {{ {text} }}")
    for output in graph.output:
        output.type.tensor_type.elem_type = 7 if output.name in ("count", "counts") else 1
        output.type.tensor_type.ClearField("shape")
    random = np.random.default_rng(SEED)
    constants = {name: random.uniform(-0.5, 0.5, shape) for name, shape in WEIGHTS.items()}
    constants = {name: values.astype(np.float32) for name, values in constants.items()}
    constants |= {name: np.array(values, np.int64) for name, values in INTEGERS.items()}
    constants["narrow"] = np.ones((1, 1), np.float32)
    constants["small"] = np.array(0.3, np.float32)
    constants["tiles"] = np.array([1, 1], np.int64)
    constants |= {"yes": np.array(True), "zero": np.zeros((1, 1), np.float32)}
    words = set(re.findall(r"\w+", text))
    graph.initializer.extend(
        numpy_helper.from_array(values, name) for name, values in constants.items() if name in words
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    return model


def draw(model, random, size):
    """A request of so many sequences and steps."""
    arrays = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [size.get(dim.dim_param, dim.dim_value) for dim in tensor.shape.dim]
        if tensor.elem_type == onnx.TensorProto.INT64:
            arrays[value.name] = random.integers(0, IDS, shape)
        else:
            arrays[value.name] = random.standard_normal(shape).astype(np.float32)
    return arrays


def run(path, requests):
    """The outputs of `batchmaker run`, {name: array} for each request."""
    def body(arrays):
        tensors = [
            {
                "name": name, "shape": array.shape, "data": array.ravel().tolist(),
                "datatype": {"float32": "FP32", "int64": "INT64"}[str(array.dtype)],
            }
            for name, array in arrays.items()
        ]
        return json.dumps({"inputs": tensors})

    text = "\n".join(map(body, requests)) + "\n"
    result = subprocess.run(
        [BINARY, "run", path], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    kinds = {"FP32": np.float32, "INT64": np.int64}
    return [
        {
            tensor["name"]: np.array(tensor["data"], kinds[tensor["datatype"]]).reshape(tensor["shape"])
            for tensor in json.loads(line)["outputs"]
        }
        for line in result.stdout.splitlines()
    ]


@pytest.mark.parametrize("name", CASES)
def test_against_onnx_runtime(tmp_path, name):
    model, path = parse(*CASES[name]), tmp_path / "model.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    sizes = [{"N": n, "T": t} for n, t in [(1, 5), (3, 5), (1, 1), (2, 9), (4, 31), (1, 6)]]
    requests = [draw(model, random, size) for size in sizes]
    for arrays, reply in zip(requests, run(path, requests), strict=True):
        outputs = [output.name for output in session.get_outputs()]
        wanted = dict(zip(outputs, session.run(None, arrays)))
        (alone,) = run(path, [arrays])
        for output in outputs:
            assert reply[output].shape == wanted[output].shape, output
            apart = np.max(np.abs(reply[output] - wanted[output]))
            assert apart <= 1e-5 * max(1.0, np.max(np.abs(wanted[output]))), output
            assert np.array_equal(alone[output], reply[output]), output


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(tmp_path, name):
    inputs, text, reason = REFUSED[name]
    onnx.save(parse(inputs, text), tmp_path / "model.onnx")
    result = subprocess.run(
        [BINARY, "inspect", tmp_path / "model.onnx"],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert result.returncode == 1
    assert reason in result.stderr


@pytest.mark.parametrize("name", ["scan", "loop", "loop_of_ids", "loop_of_a_fused_step", "loop_of_a_counter"])
def test_in_chunks(serve, tmp_path, name):
    """A sequence that comes in chunks: the bits of the whole."""
    model, path = parse(*CASES[name]), tmp_path / "model.onnx"
    onnx.save(model, path)
    random = np.random.default_rng(SEED)
    arrays = draw(model, random, {"N": 1, "T": 23})
    sequence = {of: arrays.pop(of) for of in ("xs", "ids") if of in arrays}
    client = sessions.Client(serve(path), "model")
    whole = client.infer({**sequence, **arrays})
    replies = sessions.play(client, name, sequence, arrays, sessions.cuts(random, 23, 7), 0)
    chunks = sessions.joined(replies, 0, {"ys"})
    for output, array in whole.items():
        assert np.array_equal(chunks[output], array), output
    client.close()


def test_what_reads_its_length_takes_no_chunks(serve, tmp_path):
    model, path = parse(*CASES["loop_with_lengths"]), tmp_path / "model.onnx"
    onnx.save(model, path)
    arrays = draw(model, np.random.default_rng(SEED), {"N": 1, "T": 4})
    client = sessions.Client(serve(path), "model")
    with pytest.raises(sessions.Refused, match="it computes on the length of its sequence|its steps depend"):
        client.chunk("one", arrays, start=True)
    client.close()
