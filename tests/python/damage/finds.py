"""What the program once got wrong, each as small as it gets.

Functions of a new folder that write a model into it and give the path of what the program takes.
"""

import os

import cell_files
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .messages import nested, varint
from .models import BOOL, FLOAT, INT64, SIZE, info, uniform, write

FINDS = {}


def find(function):
    FINDS[function.__name__.replace("_", " ")] = function
    return function


def network(folder, nodes, constants=None, outputs=("y",)):
    """An RNN whose rows `h` [time, batch, 8] some nodes go on with, to outputs of 3 dimensions."""
    folder.mkdir(parents=True)
    nodes = [
        ("RNN", ["x", "W", "R"], ["h_4"], {"hidden_size": SIZE}),
        ("Squeeze", ["h_4", "axis_1"], ["h"]),
        *nodes,
    ]
    given = uniform(1, W=(1, SIZE, 4), R=(1, SIZE, SIZE)) | {"axis_1": np.array([1])}
    path = folder / "network.onnx"
    write(
        path, nodes, [info("x", "time", "batch", 4)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        given | (constants or {}), is_checked=False,
    )
    return path


def with_bytes(folder, data):
    """A network with bytes at the end of its file."""
    path = network(folder, [("Tanh", ["h"], ["y"])])
    with open(path, "ab") as file:
        file.write(data)
    return path


def with_external(folder, tensors, location="weights.bin"):
    """A network with more tensors, which are in another file."""
    path = network(folder, [("Add", ["h", "part_0"], ["y"])])
    model = onnx.load(path)
    for number in range(tensors):
        tensor = model.graph.initializer.add(name=f"part_{number}", data_type=FLOAT, dims=[SIZE])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", 32 * number), ("length", 32)):
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())
    return path


# Files


@find
def a_fifo_as_external_data(folder):
    path = with_external(folder, 1)
    os.mkfifo(folder / "weights.bin")
    return path


@find
def a_fifo_as_a_graph(folder):
    folder.mkdir(parents=True)
    os.mkfifo(folder / "graph.onnx")
    (folder / "model.toml").write_text('[unfold]\nkind = "onnx"\ngraph = "graph.onnx"\n')
    return folder


@find
def a_file_of_which_many_tensors_have_a_part(folder):
    path = with_external(folder, 3000)
    (folder / "weights.bin").touch()
    os.truncate(folder / "weights.bin", 64 << 20)
    return path


# Messages


@find
def a_varint_without_an_end(folder):
    return with_bytes(folder, b"\xff" * 20)


@find
def a_length_of_more_than_the_file(folder):
    return with_bytes(folder, varint(2 << 3 | 2) + varint(2**40))


@find
def a_length_beyond_all_numbers(folder):
    return with_bytes(folder, varint(2 << 3 | 2) + varint(2**64 - 1))


@find
def a_length_that_leads_back(folder):
    return with_bytes(folder, varint(99 << 3 | 2) + varint(2**64 - 12))


@find
def graphs_in_graphs(folder):
    return with_bytes(folder, nested(1, [7], nested(100_000, [1, 5, 6], b"")))


# What is undefined


@find
def a_constant_of_shape_of_two_values(folder):
    value = numpy_helper.from_array(np.ones(2, np.float32))
    return network(
        folder, [("ConstantOfShape", ["n"], ["c"], {"value": value}), ("Add", ["h", "c"], ["y"])],
        {"n": np.array([SIZE])},
    )


@find
def a_range_of_the_least_number(folder):
    nodes = [
        ("Range", ["zero", "least", "minus_one"], ["range"]),
        ("Cast", ["range"], ["c"], {"to": FLOAT}), ("Add", ["h", "c"], ["y"]),
    ]
    numbers = {"zero": np.array(0), "least": np.array(-(2**63)), "minus_one": np.array(-1)}
    return network(folder, nodes, numbers)


@find
def an_axis_reduced_twice(folder):
    nodes = [("ReduceMax", ["h"], ["y"], {"axes": [-1, -1], "keepdims": 0})]
    return network(folder, nodes)


@find
def a_gemm_of_weights_of_rank_3(folder):
    nodes = [("Gemm", ["h", "w"], ["y"])]
    return network(folder, nodes, uniform(2, w=(SIZE, 2, 2)))


@find
def an_unsqueeze_of_a_million_axes(folder):
    nodes = [("Unsqueeze", ["c", "axes"], ["d"]), ("Add", ["h", "d"], ["y"])]
    return network(folder, nodes, {"c": np.float32([1]), "axes": np.zeros(2**20, np.int64)})


@find
def rows_of_all_pairs_of_steps(folder):
    nodes = [
        ("Unsqueeze", ["h", "axis_0"], ["a"]), ("Unsqueeze", ["h", "axis_1"], ["b"]),
        ("Add", ["a", "b"], ["y"]),
    ]
    return network(folder, nodes, {"axis_0": np.array([0])})


@find
def a_step_and_all_steps(folder):
    nodes = [
        ("Tanh", ["h"], ["a"]), ("Gather", ["a", "two"], ["b"], {"axis": 0}),
        ("Add", ["a", "b"], ["y"]),
    ]
    return network(folder, nodes, {"two": np.array(2)})


@find
def a_step_and_all_steps_of_what_it_is_made_of(folder):
    nodes = [
        ("Tanh", ["h"], ["a"]), ("Sigmoid", ["a"], ["b"]),
        ("Gather", ["b", "two"], ["c"], {"axis": 0}), ("Add", ["a", "c"], ["y"]),
    ]
    return network(folder, nodes, {"two": np.array(2)})


@find
def a_cell_of_open_dimensions(folder):
    cell_files.chain(folder, "forward", 1)
    model = onnx.load(folder / "step.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "time"
    (folder / "step.onnx").write_bytes(model.SerializeToString())
    return folder


@find
def lengths_that_are_no_integers(folder):
    folder.mkdir(parents=True)
    nodes = [("RNN", ["x", "W", "R", "", "lens"], ["", "h_n"], {"hidden_size": SIZE})]
    inputs = [info("x", "time", "batch", 4), info("lens", "batch", of=BOOL)]
    constants = uniform(1, W=(1, SIZE, 4), R=(1, SIZE, SIZE))
    path = folder / "lengths.onnx"
    write(path, nodes, inputs, [info("h_n", 1, "batch", SIZE)], constants, is_checked=False)
    return path


@find
def an_input_twice(folder):
    path = network(folder, [("Tanh", ["h"], ["y"])])
    model = onnx.load(path)
    model.graph.input.append(model.graph.input[0])
    path.write_bytes(model.SerializeToString())
    return path


@find
def an_output_twice(folder):
    return network(folder, [("Tanh", ["h"], ["y"])], outputs=("y", "y"))


# What needs much memory or a deep stack


@find
def a_product_of_long_constants(folder):
    nodes = [
        ("Unsqueeze", ["long", "axis_1"], ["turned"]), ("Mul", ["long", "turned"], ["product"]),
        ("ReduceMax", ["product"], ["c"]), ("Add", ["h", "c"], ["y"]),
    ]
    return network(folder, nodes, {"long": np.ones(2**17, np.float32)})


@find
def a_constant_doubled(folder):
    nodes = [("Concat", [f"c_{n}"] * 2, [f"c_{n + 1}"], {"axis": 0}) for n in range(40)]
    nodes += [("Gather", ["c_40", "zero"], ["c"]), ("Add", ["h", "c"], ["y"])]
    return network(folder, nodes, {"c_0": np.float32([1]), "zero": np.array(0)})


@find
def a_constant_gathered_by_itself(folder):
    nodes = [
        ("Gather", ["c_0", "zeros"], ["c_1"]), ("Gather", ["c_1", "c_1"], ["c_2"]),
        ("Gather", ["c_2", "c_2"], ["c_3"]), ("Cast", ["c_3"], ["c_4"], {"to": FLOAT}),
        ("Add", ["h", "c_4"], ["y"]),
    ]
    constants = {"c_0": np.zeros((1, 2**10), np.int64), "zeros": np.zeros(2**10, np.int64)}
    return network(folder, nodes, constants)


@find
def constants_of_16_million_numbers(folder):
    nodes = []
    for n in range(12):
        nodes += [
            ("Expand", [f"c_{n}", "wide"], [f"w_{n}"]), ("Gather", [f"w_{n}", "zero"], [f"c_{n + 1}"]),
        ]
    nodes += [("Cast", ["c_12"], ["c"], {"to": FLOAT}), ("Add", ["h", "c"], ["y"])]
    constants = {"c_0": np.array(1), "wide": np.array([2**24]), "zero": np.array(0)}
    return network(folder, nodes, constants)


@find
def a_length_squared_again_and_again(folder):
    nodes = [("Shape", ["h"], ["shape"]), ("Gather", ["shape", "zero"], ["n_0"])]
    nodes += [("Mul", [f"n_{n}"] * 2, [f"n_{n + 1}"]) for n in range(40)]
    nodes += [("Cast", ["n_40"], ["c"], {"to": FLOAT}), ("Add", ["h", "c"], ["y"])]
    return network(folder, nodes, {"zero": np.array(0)})


@find
def rows_squared_again_and_again(folder):
    nodes = [("Identity", ["h"], ["h_0"])]
    nodes += [("Mul", [f"h_{n}"] * 2, [f"h_{n + 1}"]) for n in range(40)]
    return network(folder, [*nodes, ("Relu", ["h_40"], ["y"])], {})


@find
def a_scan_in_a_scan(folder):
    """Each step goes along all steps."""
    make = helper.make_node
    value = helper.make_tensor_value_info
    inner = helper.make_graph(
        [make("Add", ["g", "u"], ["g2"])], "inner", [value("g", FLOAT, None), value("u", FLOAT, None)],
        [value("g2", FLOAT, None)],
    )
    scan = make("Scan", ["s", "h"], ["s2"], body=inner, num_scan_inputs=1)
    outer = helper.make_graph(
        [scan], "outer", [value("s", FLOAT, None), value("v", FLOAT, None)], [value("s2", FLOAT, None)],
    )
    nodes = [
        ("Gather", ["h", "zero"], ["h_0"]),
        ("Scan", ["h_0", "h"], ["y"], {"body": outer, "num_scan_inputs": 1}),
    ]
    return network(folder, nodes, {"zero": np.array(0)})


@find
def a_loop_without_an_end(folder):
    make = helper.make_node
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [make("Tanh", ["s"], ["s2"]), make("Identity", ["c"], ["c2"])], "body",
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, None)],
        [value("c2", BOOL, []), value("s2", FLOAT, None)],
    )
    return network(folder, [("Loop", ["", "", "h"], ["y"], {"body": body})], {})


@find
def a_one_hot_of_huge_depth(folder):
    nodes = [
        ("ArgMax", ["h"], ["ids"], {"axis": -1, "keepdims": 0}),
        ("OneHot", ["ids", "depth", "values"], ["hot"]),
        ("ReduceMax", ["hot"], ["y"], {"axes": [-1], "keepdims": 1}),
    ]
    return network(folder, nodes, {"depth": np.array(2**31), "values": np.float32([0, 1])})


@find
def rows_expanded_to_a_huge_length(folder):
    nodes = [
        ("Unsqueeze", ["h", "last"], ["a"]), ("Expand", ["a", "wide"], ["b"]),
        ("ReduceMax", ["b"], ["y"], {"axes": [-1], "keepdims": 0}),
    ]
    return network(folder, nodes, {"last": np.array([3]), "wide": np.array([1, 1, 1, 2**31])})


@find
def rows_doubled(folder):
    nodes = [("Identity", ["h"], ["h_0"])]
    nodes += [("Concat", [f"h_{n}"] * 2, [f"h_{n + 1}"], {"axis": 2}) for n in range(28)]
    nodes += [("Gather", ["h_28", "zero"], ["y"], {"axis": 2})]
    return network(folder, nodes, {"zero": np.array([0])})


@find
def a_chain_of_many_nodes(folder):
    nodes = [("Relu", ["h"], ["h_0"])]
    nodes += [("Relu", [f"h_{n}"], [f"h_{n + 1}"]) for n in range(20_000)]
    return network(folder, [*nodes, ("Relu", ["h_20000"], ["y"])])


@find
def a_sum_of_many_operands(folder):
    """In a tree, whose cells are compared with a TreeLSTM."""
    cell_files.tree_lstm(folder, SIZE, 5, False, 1)
    path = folder / "internal.onnx"
    model = onnx.load(path)
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    node = helper.make_node("Sum", [product.input[0]] * 20_000, ["sum"])
    at = list(model.graph.node).index(product)
    product.input[0] = "sum"
    model.graph.node.insert(at, node)
    path.write_bytes(model.SerializeToString())
    return folder
