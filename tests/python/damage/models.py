"""Small valid models of many kinds, to be damaged."""

import pathlib
import shutil

import cell_files
import numpy as np
import onnx
import recurrent_files
from conftest import ROOT
from onnx import TensorProto, helper, numpy_helper

SIZE = 8

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, *shape, of=FLOAT):
    return helper.make_tensor_value_info(name, of, shape)


def write(path, nodes, inputs, outputs, constants, opset=17, is_checked=True):
    """Writes a graph; `nodes` are tuples (operator, inputs, outputs, attributes)."""
    nodes = [
        helper.make_node(operator, given, made, f"node_{number}", **dict(*attributes))
        for number, (operator, given, made, *attributes) in enumerate(nodes)
    ]
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if is_checked:
        onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def uniform(seed, **shapes):
    """Random tensors by name."""
    random = np.random.default_rng(seed)
    return {
        name: random.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in shapes.items()
    }


def recurrent(seed, **options):
    """A stack of a recurrent operator, in a file."""

    def make(folder):
        folder.mkdir(parents=True)
        path = folder / "stack.onnx"
        recurrent_files.write(path, seed=seed, input_size=4, hidden_size=SIZE, **options)
        return path.name

    return make


def tagger(folder):
    """What exporters write: batch first, ids, first states made of the input's shape."""
    folder.mkdir(parents=True)
    constants = uniform(
        5, table=(20, 6), W=(1, 4 * SIZE, 6), R=(1, 4 * SIZE, SIZE), B=(1, 8 * SIZE), p=(SIZE, 3),
        p_b=(3,),
    )
    constants |= {
        "axis_0": np.array([0]), "axis_1": np.array([1]), "index_0": np.array(0),
        "one": np.array([1]), "size": np.array([SIZE]), "zeros": np.zeros((1, 1, SIZE), np.float32),
    }
    write(
        folder / "tagger.onnx",
        [
            ("Gather", ["table", "token"], ["embedded"]),
            ("Transpose", ["embedded"], ["x"], {"perm": [1, 0, 2]}),
            ("Shape", ["token"], ["shape"]),
            ("Gather", ["shape", "index_0"], ["batch"], {"axis": 0}),
            ("Unsqueeze", ["batch", "axis_0"], ["batch_1"]),
            ("Concat", ["one", "batch_1", "size"], ["state_shape"], {"axis": 0}),
            ("ConstantOfShape", ["state_shape"], ["h0"]),
            ("Expand", ["zeros", "state_shape"], ["c0"]),
            ("LSTM", ["x", "W", "R", "B", "", "h0", "c0"], ["y_4"], {"hidden_size": SIZE}),
            ("Squeeze", ["y_4", "axis_1"], ["y_3"]),
            ("Transpose", ["y_3"], ["y"], {"perm": [1, 0, 2]}),
            ("MatMul", ["y", "p"], ["product"]),
            ("Add", ["product", "p_b"], ["sums"]),
            ("Softmax", ["sums"], ["tags"], {"axis": -1}),
        ],
        [info("token", "batch", "time", of=INT64)], [info("tags", "batch", "time", 3)], constants,
    )
    return "tagger.onnx"


def layers(folder):
    """A GRU and many row-wise operators after it."""
    folder.mkdir(parents=True)
    constants = uniform(
        6, W=(1, 3 * SIZE, 4), R=(1, 3 * SIZE, SIZE), scale=(SIZE,), shift=(SIZE,), g=(5, SIZE),
        g_b=(5,), m=(SIZE,),
    )
    constants |= {
        "v": np.ones(SIZE, np.float32), "axis_1": np.array([1]), "low": np.float32(-0.9),
        "high": np.float32(0.9), "starts": np.array([1]), "ends": np.array([7]),
        "axes": np.array([2]), "steps": np.array([2]), "halves": np.array([4, 4]),
        "four": np.array([0, 0, 2, 4]), "flat": np.array([0, 0, -1]), "k": np.array([3]),
        "depth": np.array(SIZE), "values": np.array([0, 1], np.float32), "half": np.float32(0.5),
        "picked": np.array([1, 0, 6]), "axis_0": np.array([0]), "last": np.array(-1),
        "wide": np.array([1, 1, 2, 4]),
    }
    write(
        folder / "layers.onnx",
        [
            ("GRU", ["x", "W", "R"], ["y_4", "h_n"], {"hidden_size": SIZE}),
            ("Squeeze", ["y_4", "axis_1"], ["y"]),
            ("LayerNormalization", ["y", "scale", "shift"], ["normal"], {"axis": -1}),
            ("Clip", ["normal", "low", "high"], ["clipped"]),
            ("Slice", ["clipped", "starts", "ends", "axes", "steps"], ["sliced"]),
            ("Split", ["clipped", "halves"], ["left", "right"], {"axis": 2}),
            ("Concat", ["right", "left"], ["turned"], {"axis": -1}),
            ("Reshape", ["turned", "four"], ["apart"]),
            ("Expand", ["apart", "wide"], ["apart_2"]),
            ("Transpose", ["apart_2"], ["moved"], {"perm": [0, 1, 3, 2]}),
            ("ReduceMean", ["moved"], ["means"], {"axes": [3], "keepdims": 0}),
            ("ReduceSum", ["moved", "axes"], ["sums"], {"keepdims": 0}),
            ("Reshape", ["moved", "flat"], ["joined"]),
            ("TopK", ["joined", "k"], ["top", "top_ids"], {"axis": -1}),
            ("ArgMax", ["joined"], ["best"], {"axis": 2, "keepdims": 0}),
            ("OneHot", ["best", "depth", "values"], ["hot"]),
            ("Gather", ["joined", "picked"], ["chosen"], {"axis": 2}),
            ("Greater", ["joined", "half"], ["large"]),
            ("Cast", ["large"], ["large_f"], {"to": FLOAT}),
            ("Where", ["large", "joined", "hot"], ["either"]),
            ("Mul", ["either", "large_f"], ["masked"]),
            ("Concat", ["sliced", "means", "sums", "top", "chosen", "masked"], ["all"], {"axis": 2}),
            ("LeakyRelu", ["all"], ["features"], {"alpha": 0.1}),
            ("Squeeze", ["h_n", "axis_0"], ["h"]),
            ("Gather", ["y", "last"], ["h_last"], {"axis": 0}),
            ("Add", ["h", "h_last"], ["h_both"]),
            ("BatchNormalization", ["h_both", "scale", "shift", "m", "v"], ["h_normal"]),
            ("Gemm", ["h_normal", "g", "g_b"], ["scores"], {"transB": 1, "alpha": 0.5}),
            ("LogSoftmax", ["scores"], ["class"], {"axis": 1}),
        ],
        [info("x", "time", "batch", 4)],
        [info("features", "time", "batch", 24), info("top_ids", "time", "batch", 3, of=INT64),
         info("class", "batch", 5)],
        constants,
    )
    return "layers.onnx"


def constants(folder):
    """Much that is computed of constants and shapes alone."""
    folder.mkdir(parents=True)
    tensor = lambda values: numpy_helper.from_array(np.array(values))
    write(
        folder / "constants.onnx",
        [
            ("Constant", [], ["start"], {"value_int": 0}),
            ("Constant", [], ["limit"], {"value": tensor(SIZE)}),
            ("Constant", [], ["delta"], {"value_int": 1}),
            ("Range", ["start", "limit", "delta"], ["range"]),
            ("Cast", ["range"], ["range_f"], {"to": FLOAT}),
            ("Constant", [], ["eighth"], {"value_float": 0.125}),
            ("Mul", ["range_f", "eighth"], ["shift"]),
            ("Constant", [], ["tenth"], {"value_floats": [0.1]}),
            ("Constant", [], ["shape"], {"value_ints": [1, 4 * SIZE, 4]}),
            ("Expand", ["tenth", "shape"], ["W"]),
            ("Shape", ["W"], ["W_shape"]),
            ("Constant", [], ["where"], {"value": tensor([2])}),
            ("Constant", [], ["new"], {"value_ints": [SIZE]}),
            ("Gather", ["W_shape", "where"], ["four"], {"axis": 0}),
            ("Sub", ["new", "four"], ["rest"]),
            ("Add", ["rest", "four"], ["eight"]),
            ("Size", ["W"], ["count"]),
            ("Div", ["count", "eight"], ["sixteen"]),
            ("Constant", [], ["two"], {"value_ints": [2]}),
            ("Mul", ["sixteen", "two"], ["rows"]),
            ("Constant", [], ["one"], {"value_ints": [1]}),
            ("Concat", ["one", "rows", "eight"], ["R_shape"], {"axis": 0}),
            ("ConstantOfShape", ["R_shape"], ["R"], {"value": tensor(np.float32([0.01]))}),
            ("Shape", ["x"], ["x_shape"]),
            ("Slice", ["x_shape", "one", "two"], ["batch"]),
            ("Concat", ["one", "batch", "eight"], ["h_shape"], {"axis": 0}),
            ("ConstantOfShape", ["h_shape"], ["h0"]),
            ("LSTM", ["x", "W", "R", "", "", "h0", "h0"], ["", "h_n"], {"hidden_size": SIZE}),
            ("Flatten", ["h_n"], ["flat"], {"axis": 2}),
            ("Add", ["flat", "shift"], ["y"]),
        ],
        [info("x", "time", "batch", 4)], [info("y", "batch", SIZE)], {},
    )
    return "constants.onnx"


def external(folder):
    """A stack whose weights are in a file beside it."""
    folder.mkdir(parents=True)
    path = folder / "stack.onnx"
    recurrent_files.write(path, seed=8, input_size=4, hidden_size=SIZE, layers=1, head=3)
    onnx.save(
        onnx.load(path), path, save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )
    return path.name


def convolution(folder):
    """A convolution before an LSTM."""
    folder.mkdir(parents=True)
    given = uniform(9, k=(4, 4, 3), W=(1, 4 * SIZE, 4), R=(1, 4 * SIZE, SIZE))
    write(
        folder / "convolution.onnx",
        [
            ("Conv", ["x", "k"], ["c"], {"pads": [1, 1]}),
            ("Relu", ["c"], ["r"]),
            ("MaxPool", ["r"], ["m"], {"kernel_shape": [2], "strides": [2]}),
            ("Transpose", ["m"], ["t"], {"perm": [2, 0, 1]}),
            ("LSTM", ["t", "W", "R"], ["", "h_n"], {"hidden_size": SIZE}),
        ],
        [info("x", "batch", 4, "time")], [info("h_n", 1, "batch", SIZE)], given,
    )
    return "convolution.onnx"


def attention(folder):
    """Attention over the steps of a GRU."""
    folder.mkdir(parents=True)
    given = uniform(10, W=(1, 3 * SIZE, 4), R=(1, 3 * SIZE, SIZE), q=(SIZE, SIZE))
    write(
        folder / "attention.onnx",
        [
            ("GRU", ["x", "W", "R"], ["y_4"], {"hidden_size": SIZE}),
            ("Squeeze", ["y_4", "axis_1"], ["y"]),
            ("Transpose", ["y"], ["keys"], {"perm": [1, 2, 0]}),
            ("Transpose", ["y"], ["values"], {"perm": [1, 0, 2]}),
            ("MatMul", ["values", "q"], ["queries"]),
            ("MatMul", ["queries", "keys"], ["scores"]),
            ("Softmax", ["scores"], ["shares"], {"axis": -1}),
            ("MatMul", ["shares", "values"], ["out"]),
        ],
        [info("x", "time", "batch", 4)], [info("out", "batch", "time", SIZE)],
        given | {"axis_1": np.array([1])},
    )
    return "attention.onnx"


def branches(folder):
    """`If`, `Loop` and `Scan` after an RNN."""
    folder.mkdir(parents=True)
    node, graph = helper.make_node, helper.make_graph
    relu = graph([node("Relu", ["h_n"], ["a"])], "then", [], [info("a", 1, "batch", SIZE)])
    tanh = graph([node("Tanh", ["h_n"], ["b"])], "else", [], [info("b", 1, "batch", SIZE)])
    body = graph(
        [node("Identity", ["go"], ["go_on"]), node("Sigmoid", ["v"], ["w"])], "body",
        [info("i", of=INT64), info("go", of=BOOL), info("v", 1, "batch", SIZE)],
        [info("go_on", of=BOOL), info("w", 1, "batch", SIZE)],
    )
    step = graph(
        [node("Add", ["s", "row"], ["s_out"]), node("Identity", ["s_out"], ["each"])], "step",
        [info("s", SIZE), info("row", SIZE)], [info("s_out", SIZE), info("each", SIZE)],
    )
    write(
        folder / "branches.onnx",
        [
            ("RNN", ["x", "W", "R"], ["", "h_n"], {"hidden_size": SIZE}),
            ("If", ["yes"], ["either"], {"then_branch": relu, "else_branch": tanh}),
            ("Loop", ["three", "yes", "either"], ["looped"], {"body": body}),
            ("Reshape", ["looped", "rows"], ["flat"]),
            ("Scan", ["zeros", "flat"], ["last", "all"], {"body": step, "num_scan_inputs": 1}),
        ],
        [info("x", "time", "batch", 4)], [info("last", SIZE), info("all", "n", SIZE)],
        uniform(11, W=(1, SIZE, 4), R=(1, SIZE, SIZE))
        | {
            "yes": np.array(True), "three": np.array(3), "rows": np.array([-1, SIZE]),
            "zeros": np.zeros(SIZE, np.float32),
        },
    )
    return "branches.onnx"


def picture(folder):
    """Images of any height and width: windows, resizing, a transposed convolution."""
    folder.mkdir(parents=True)
    write(
        folder / "picture.onnx",
        [
            ("Conv", ["x", "k", "k_b"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("LRN", ["c"], ["l"], {"size": 3}),
            ("MaxPool", ["l"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
            ("Resize", ["m", "", "twice"], ["wide"], {"mode": "linear"}),
            ("Resize", ["m", "", "twice"], ["near"], {"mode": "nearest", "nearest_mode": "floor"}),
            ("Add", ["wide", "near"], ["both"]),
            ("InstanceNormalization", ["both", "scale", "shift"], ["normal"]),
            ("ConvTranspose", ["normal", "up"], ["t"], {"strides": [2, 2]}),
            ("GlobalAveragePool", ["t"], ["mean"]),
            ("Sub", ["t", "mean"], ["y"]),
        ],
        [info("x", "batch", 1, "height", "width")], [info("y", "batch", 2, "up", "wide")],
        uniform(22, k=(4, 1, 3, 3), k_b=(4,), scale=(4,), shift=(4,), up=(4, 2, 2, 2))
        | {"twice": np.array([1, 1, 2, 2], np.float32)},
    )
    return "picture.onnx"


def places(folder):
    """Rows and elements at places that are computed, some of them counted from the end."""
    folder.mkdir(parents=True)
    write(
        folder / "places.onnx",
        [
            ("GRU", ["x", "W", "R"], ["y_4"], {"hidden_size": SIZE}),
            ("Squeeze", ["y_4", "axis_1"], ["y"]),
            ("TopK", ["y", "three"], ["high", "top"], {"axis": 2}),
            ("Sub", ["top", "size"], ["back"]),
            ("GatherElements", ["y", "back"], ["largest"], {"axis": 2}),
            ("Neg", ["largest"], ["less"]),
            ("ScatterElements", ["y", "back", "less"], ["marked"], {"axis": 2}),
            ("ArgMin", ["marked"], ["least"], {"axis": 2, "keepdims": 0}),
            ("Mod", ["least", "five"], ["ids"]),
            ("Gather", ["table", "ids"], ["rows"], {"axis": 0}),
            ("Gather", ["x_table", "chosen"], ["row"], {"axis": 0}),
            ("Add", ["marked", "rows"], ["sums"]),
            ("Add", ["sums", "row"], ["rest"]),
            ("ReduceMin", ["x"], ["low"], {"axes": [2], "keepdims": 1}),
            ("Max", ["rest", "low"], ["z"]),
        ],
        [info("x", "time", "batch", 4), info("chosen", "time", "batch", of=INT64)],
        [info("z", "time", "batch", SIZE)],
        uniform(23, W=(1, 3 * SIZE, 4), R=(1, 3 * SIZE, SIZE), table=(5, SIZE), x_table=(7, SIZE))
        | {"axis_1": np.array([1]), "three": np.array([3]), "size": np.array(SIZE), "five": np.array(5)},
    )
    return "places.onnx"


def quantised(folder):
    """Numbers of 8 bits: by the file's scales, by a sequence's own, in a product and a convolution."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(24)
    write(
        folder / "quantised.onnx",
        [
            ("QuantizeLinear", ["x", "scale", "middle"], ["q"]),
            ("DequantizeLinear", ["q", "scale", "middle"], ["d"]),
            ("DynamicQuantizeLinear", ["d"], ["dq", "d_scale", "d_zero"]),
            ("ConvInteger", ["dq", "k", "d_zero"], ["c"], {"pads": [1, 1]}),
            ("Cast", ["c"], ["c_f"], {"to": FLOAT}),
            ("Mul", ["c_f", "d_scale"], ["scaled"]),
            ("Transpose", ["scaled"], ["steps"], {"perm": [0, 2, 1]}),
            ("DynamicQuantizeLinear", ["steps"], ["sq", "s_scale", "s_zero"]),
            ("MatMulInteger", ["sq", "w", "s_zero"], ["product"]),
            ("Cast", ["product"], ["product_f"], {"to": FLOAT}),
            ("Mul", ["product_f", "s_scale"], ["rows"]),
            ("Transpose", ["rows"], ["first"], {"perm": [1, 0, 2]}),
            ("GRU", ["first", "W", "R"], ["", "h_n"], {"hidden_size": SIZE}),
        ],
        [info("x", "batch", 4, "time")], [info("h_n", 1, "batch", SIZE)],
        uniform(25, W=(1, 3 * SIZE, 6), R=(1, 3 * SIZE, SIZE))
        | {
            "scale": np.float32(0.05), "middle": np.uint8(128),
            "w": random.integers(-127, 128, (5, 6)).astype(np.int8),
            "k": random.integers(0, 256, (5, 4, 3)).astype(np.uint8),
        },
    )
    return "quantised.onnx"


def crossroads(folder):
    """Branches by the length of a sequence and by a number that the request brings."""
    folder.mkdir(parents=True)
    node = helper.make_node
    graph = lambda name, *nodes: helper.make_graph(
        nodes, name, [], [info(nodes[-1].output[0], "time", "batch", SIZE)]
    )
    short, long = graph("short", node("Relu", ["y"], ["a"])), graph("long", node("Tanh", ["y"], ["b"]))
    one, other = graph("one", node("Neg", ["z"], ["d"])), graph("other", node("Abs", ["z"], ["e"]))
    write(
        folder / "crossroads.onnx",
        [
            ("LSTM", ["x", "W", "R"], ["y_4"], {"hidden_size": SIZE}),
            ("Squeeze", ["y_4", "axis_1"], ["y"]),
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "first"], ["steps"], {"axis": 0}),
            ("Less", ["steps", "three"], ["is_short"]),
            ("If", ["is_short"], ["z"], {"then_branch": short, "else_branch": long}),
            ("Equal", ["way", "three"], ["is_one"]),
            ("If", ["is_one"], ["out"], {"then_branch": one, "else_branch": other}),
        ],
        [info("x", "time", "batch", 4), info("way", of=INT64)],
        [info("out", "time", "batch", SIZE)],
        uniform(26, W=(1, 4 * SIZE, 4), R=(1, 4 * SIZE, SIZE))
        | {"axis_1": np.array([1]), "first": np.array(0), "three": np.array(3)},
    )
    return "crossroads.onnx"


def bidirectional(folder):
    """An LSTM in both directions, of an old opset."""
    folder.mkdir(parents=True)
    write(
        folder / "bidirectional.onnx",
        [
            (
                "LSTM", ["x", "W", "R"], ["y_4", "h_n"],
                {"hidden_size": SIZE, "direction": "bidirectional"},
            ),
            ("Squeeze", ["y_4"], ["y"], {"axes": [2]}),
        ],
        [info("x", "time", 1, 4)], [info("y", "time", 2, SIZE), info("h_n", 2, 1, SIZE)],
        uniform(12, W=(2, 4 * SIZE, 4), R=(2, 4 * SIZE, SIZE)), opset=9,
    )
    return "bidirectional.onnx"


def lengths(folder):
    """A bidirectional GRU with lengths of its sequences and what else the operator has."""
    folder.mkdir(parents=True)
    write(
        folder / "lengths.onnx",
        [
            (
                "GRU", ["x", "W", "R", "B", "lens", "h0"], ["y_4", "h_n"],
                {
                    "hidden_size": SIZE, "direction": "bidirectional", "clip": 3.0,
                    "activations": ["HardSigmoid", "Softsign"] * 2,
                },
            ),
            ("Transpose", ["y_4"], ["y_t"], {"perm": [0, 2, 1, 3]}),
            ("Reshape", ["y_t", "joined"], ["y"]),
        ],
        [info("x", "time", "batch", 4), info("lens", "batch", of=TensorProto.INT32),
         info("h0", 2, "batch", SIZE)],
        [info("y", "time", "batch", 2 * SIZE), info("h_n", 2, "batch", SIZE)],
        uniform(21, W=(2, 3 * SIZE, 4), R=(2, 3 * SIZE, SIZE), B=(2, 6 * SIZE))
        | {"joined": np.array([0, 0, -1])},
    )
    return "lengths.onnx"


def layout(folder):
    """A reverse LSTM, batch first."""
    folder.mkdir(parents=True)
    write(
        folder / "layout.onnx",
        [
            (
                "LSTM", ["x", "W", "R"], ["y_4", "", "c_n"],
                {"hidden_size": SIZE, "direction": "reverse", "layout": 1, "input_forget": 1},
            ),
            ("Squeeze", ["y_4", "axis"], ["y"]),
        ],
        [info("x", "batch", "time", 4)],
        [info("y", "batch", "time", SIZE), info("c_n", "batch", 1, SIZE)],
        uniform(22, W=(1, 4 * SIZE, 4), R=(1, 4 * SIZE, SIZE)) | {"axis": np.array([2])},
    )
    return "layout.onnx"


def directory(make, *arguments, **options):
    """A model directory."""

    def write_(folder):
        make(folder, *arguments, **options)
        return ""

    return write_


def langid(folder):
    """The model that comes with the project: text and labels."""
    folder.mkdir(parents=True)
    for name in ("model.toml", "model.onnx", "vocab.txt", "labels.txt"):
        shutil.copyfile(ROOT / "models" / "langid" / name, folder / name)
    return ""


# Functions that write a valid model into a new folder and give the path in it that the program takes:
# a file, or "" for the folder itself.
SERVED = {
    "lstm": recurrent(1, layers=2, initial_states=True, head=3),
    "gru": recurrent(2, layers=1, operator="GRU", linear_before_reset=1),
    "rnn": recurrent(3, layers=2, operator="RNN", activations=["Relu"], head=2),
    "peepholes": recurrent(4, layers=1, peepholes=True, initial_states=True),
    "tagger": tagger,
    "layers": layers,
    "constants": constants,
    "external": external,
    "picture": picture,
    "places": places,
    "quantised": quantised,
    "crossroads": crossroads,
    "tree": directory(cell_files.tree_lstm, SIZE, 5, False, 13),
    "tree, gates apart": directory(cell_files.tree_lstm, SIZE, 5, True, 14),
    "ternary tree": directory(cell_files.ternary_tree, 4, 15),
    "chain": directory(cell_files.chain, "reverse", 16),
    "lstm step": directory(cell_files.recurrent_chain, 11, SIZE, 17),
    "stacked state": directory(cell_files.stacked_state, SIZE, 18),
    "greedy chain": directory(cell_files.greedy_chain, 9, 9, 19),
    "translator": directory(cell_files.translator, 12, SIZE, 20),
    "langid": langid,
}

# Valid too, but not all of them are served.
OTHERS = {
    "convolution": convolution,
    "attention": attention,
    "branches": branches,
    "bidirectional": bidirectional,
    "lengths": lengths,
    "layout": layout,
}


def write_all(folder):
    """Writes every model into a folder of its own; the path in it that the program takes, by name."""
    folder = pathlib.Path(folder)
    return {name: make(folder / name) for name, make in (SERVED | OTHERS).items()}
