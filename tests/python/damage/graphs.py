"""Damages of graphs and models that are well-formed messages."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .case import HUGE, NUMBERS, WAYS, Unfit, draw, edited, onnx_file, replace


def graph_way(function):
    """Adds a way that changes the graph of a file."""

    def apply(random, case):
        path = onnx_file(random, case)
        with edited(path) as model:
            description = function(random, model.graph)
        return f"{path.name}: {description}"

    WAYS[function.__name__.replace("_", " ")] = apply
    return function


def all_nodes(graph):
    """The nodes of a graph and of the graphs in them, each with its graph."""
    for node in graph.node:
        yield graph, node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def a_node(random, graph):
    """A node and the graph that it is in."""
    return draw(random, all_nodes(graph))


def value_names(graph):
    names = [info.name for info in graph.input] + [tensor.name for tensor in graph.initializer]
    return names + [name for node in graph.node for name in node.output if name]


# Initializers


def an_initializer(random, graph):
    return draw(random, graph.initializer)


@graph_way
def another_shape_of_an_initializer(random, graph):
    tensor = an_initializer(random, graph)
    dims, count = list(tensor.dims), max(1, int(np.prod(tensor.dims)))
    shapes = [
        [], [0], [count], [1, count], [-1], [count + 1], [-count], [2**31], [2**62], [2**62, 4],
        [2**32, 2**32], [2**63 - 1], [-(2**63)], [0, 2**62], [1] * 2000, [2] * 64, [2**32] * 2000,
        [count] + [1] * 100, dims + [1], [1] + dims, dims[1:], dims[:-1], dims[::-1],
        [length + 1 for length in dims], [-length for length in dims], [0 for _ in dims],
    ]
    shape = random.choice(shapes)
    replace(tensor.dims, shape)
    return f"{tensor.name} of {dims} as {str(shape)[:60]}"


@graph_way
def another_shape_with_data_that_fit(random, graph):
    tensor = an_initializer(random, graph)
    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unfit
    values = numpy_helper.to_array(tensor)
    shape = list(values.shape)
    change = random.choice(["none", "more", "fewer", "axis", "axes", "scalar", "turned"])
    if change in ("more", "fewer", "none") and not shape:
        change = "axes"
    if change == "none":
        shape[random.randrange(len(shape))] = 0
        values = np.zeros(shape, values.dtype)
    elif change in ("more", "fewer"):
        at = random.randrange(len(shape))
        shape[at] += 1 if change == "more" else -1
        values = np.resize(values, shape)
    elif change == "axis":
        values = np.expand_dims(values, random.randrange(values.ndim + 1))
    elif change == "axes":
        values = values.reshape([1] * random.choice([8, 60]) + [-1])
    elif change == "scalar":
        values = values.reshape(-1)[:1].reshape([])
    else:
        values = np.ascontiguousarray(values.T)
    new = numpy_helper.from_array(values.reshape(values.shape[:64]), tensor.name)
    tensor.CopyFrom(new)
    return f"{tensor.name} {change}: {values.shape}"


@graph_way
def initializers_missing(random, graph):
    count = random.choice([1, 1, len(graph.initializer)])
    if not graph.initializer:
        raise Unfit
    for _ in range(count):
        del graph.initializer[random.randrange(len(graph.initializer))]
    return f"{count}"


@graph_way
def names_of_initializers(random, graph):
    tensor = an_initializer(random, graph)
    old, names = tensor.name, [tensor.name for tensor in graph.initializer]
    others = names + [info.name for info in graph.input] + ["", "x" * 10**6, "\0", "a/b", "é\n"]
    tensor.name = random.choice(others)
    return f"{old} as {tensor.name[:20]!r}"


@graph_way
def another_type_of_an_initializer(random, graph):
    tensor = an_initializer(random, graph)
    old = tensor.data_type
    tensor.data_type = random.choice([*range(0, 27), 99, -1, 2**31 - 1])
    return f"{tensor.name} of {old} as {tensor.data_type}"


@graph_way
def an_initializer_converted(random, graph):
    tensor = an_initializer(random, graph)
    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unfit
    to = random.choice([np.float16, np.float64, np.int32, np.int64, np.int8, np.uint8, np.bool_])
    values = numpy_helper.to_array(tensor).astype(to)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"{tensor.name} to {to.__name__}"


@graph_way
def data_of_an_initializer(random, graph):
    tensor = an_initializer(random, graph)
    kind = random.choice(["shorter", "longer", "none", "one byte", "two kinds", "other kind", "text"])
    if kind == "shorter":
        tensor.raw_data = tensor.raw_data[: -random.choice([1, 4, 8])]
    elif kind == "longer":
        tensor.raw_data += bytes(random.choice([1, 4, 4096]))
    elif kind == "none":
        tensor.ClearField("raw_data")
    elif kind == "one byte":
        tensor.raw_data = b"\x01"
    elif kind == "two kinds":
        tensor.float_data.extend([0.5] * 3)
        tensor.int64_data.extend([1] * 3)
    elif kind == "other kind":
        count = max(1, int(np.prod(tensor.dims)))
        tensor.ClearField("raw_data")
        getattr(tensor, random.choice(["float_data", "int32_data", "int64_data"])).extend([1] * count)
    else:
        tensor.ClearField("raw_data")
        tensor.string_data.extend([b"a"] * 3)
    return f"{tensor.name}: {kind}"


@graph_way
def strange_weights(random, graph):
    tensor = draw(random, [
        tensor for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT and tensor.raw_data
    ])
    value = random.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45, 0.0])
    values = np.full(tuple(tensor.dims), value, np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return f"{tensor.name} all {value}"


def integer_constants(graph):
    """Constants of integers: tensors, and attributes that are lists."""
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
            yield tensor
    for _, node in all_nodes(graph):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.INTS:
                yield attribute
            if attribute.t.data_type == TensorProto.INT64 and attribute.t.raw_data:
                yield attribute.t


@graph_way
def numbers_of_constants(random, graph):
    """Axes, shapes, indices, sizes: what operators take for granted."""
    constant = draw(random, integer_constants(graph))
    is_tensor = isinstance(constant, TensorProto)
    values = numpy_helper.to_array(constant).reshape(-1).tolist() if is_tensor else list(constant.ints)
    old, change = values[:], random.choice(["one", "one", "one", "all", "twice", "many", "none"])
    if change == "one" and values:
        values[random.randrange(len(values))] = random.choice(NUMBERS)
    elif change == "all":
        values = [random.choice(NUMBERS) for _ in values]
    elif change == "twice":
        values = values * 2
    elif change == "many":
        values = values * 1000
    else:
        values = []
    if is_tensor:
        shape = values if len(values) != len(old) else tuple(constant.dims)
        array = np.array(values, np.int64)
        constant.CopyFrom(numpy_helper.from_array(
            array if shape is values else array.reshape(shape), constant.name
        ))
    else:
        replace(constant.ints, values)
    return f"{constant.name} of {old} to {str(values)[:60]}"


# Nodes


@graph_way
def a_node_missing(random, graph):
    graph, node = a_node(random, graph)
    operator = node.op_type
    graph.node.remove(node)
    return operator


@graph_way
def no_nodes(random, graph):
    del graph.node[:]
    return "none is left"


@graph_way
def a_node_twice(random, graph):
    graph, node = a_node(random, graph)
    graph.node.insert(random.randrange(len(graph.node) + 1), node)
    return node.op_type


@graph_way
def nodes_in_another_order(random, graph):
    nodes = list(graph.node)
    change = random.choice(["shuffled", "reversed", "two swapped"])
    if change == "shuffled":
        random.shuffle(nodes)
    elif change == "reversed":
        nodes.reverse()
    else:
        a, b = random.randrange(len(nodes)), random.randrange(len(nodes))
        nodes[a], nodes[b] = nodes[b], nodes[a]
    replace(graph.node, nodes)
    return change


@graph_way
def a_cycle(random, graph):
    """A node reads what a later one makes."""
    first = random.randrange(len(graph.node))
    node, later = graph.node[first], random.choice(list(graph.node)[first:])
    if not node.input or not [name for name in later.output if name]:
        raise Unfit
    name = random.choice([name for name in later.output if name])
    node.input[random.randrange(len(node.input))] = name
    return f"{node.op_type} reads {name}"


@graph_way
def a_node_reads_itself(random, graph):
    graph, node = a_node(random, graph)
    if not node.input or not node.output or not node.output[0]:
        raise Unfit
    node.input[random.randrange(len(node.input))] = node.output[0]
    return node.op_type


@graph_way
def a_value_written_twice(random, graph):
    graph, node = a_node(random, graph)
    node.output[random.randrange(len(node.output))] = random.choice(value_names(graph))
    return f"{node.op_type} to {list(node.output)}"


@graph_way
def a_value_renamed(random, graph):
    graph, node = a_node(random, graph)
    names = draw(random, [names for names in (node.input, node.output) if names])
    at = random.randrange(len(names))
    old, names[at] = names[at], random.choice(["nowhere", "\0", "é", "x" * 10**6])
    return f"{old} of {node.op_type} as {names[at][:20]!r}"


@graph_way
def an_empty_name(random, graph):
    graph, node = a_node(random, graph)
    names = draw(random, [names for names in (node.input, node.output) if names])
    at = random.randrange(len(names))
    old, names[at] = names[at], ""
    return f"{old} of {node.op_type}"


@graph_way
def another_input_of_a_node(random, graph):
    graph, node = a_node(random, graph)
    if not node.input:
        raise Unfit
    at = random.randrange(len(node.input))
    node.input[at] = random.choice(value_names(graph))
    return f"{at} of {node.op_type} is {node.input[at]}"


@graph_way
def inputs_swapped(random, graph):
    graph, node = a_node(random, graph)
    if len(node.input) < 2:
        raise Unfit
    names = list(node.input)
    random.shuffle(names)
    replace(node.input, names)
    return node.op_type


@graph_way
def too_few_inputs(random, graph):
    graph, node = a_node(random, graph)
    count = random.randrange(len(node.input)) if node.input else 0
    del node.input[count:]
    return f"{node.op_type} with {count}"


@graph_way
def too_many_inputs(random, graph):
    graph, node = a_node(random, graph)
    names, count = value_names(graph), random.choice([1, 2, 5, 1000])
    node.input.extend(random.choice(names) for _ in range(count))
    return f"{count} more of {node.op_type}"


@graph_way
def too_few_outputs(random, graph):
    graph, node = a_node(random, graph)
    count = random.randrange(len(node.output)) if node.output else 0
    del node.output[count:]
    return f"{node.op_type} with {count}"


@graph_way
def too_many_outputs(random, graph):
    graph, node = a_node(random, graph)
    count = random.choice([1, 2, 1000])
    node.output.extend(f"more_{number}" for number in range(count))
    at = random.randrange(len(node.output))
    graph.output.append(helper.make_empty_tensor_value_info(node.output[at]))
    return f"{count} more of {node.op_type}, {at} is one of the graph"


@graph_way
def another_operator(random, graph):
    graph, node = a_node(random, graph)
    old = node.op_type
    names = sorted(schema.name for schema in SCHEMAS.values())
    node.op_type = random.choice([*names * 3, "", "lstm", "Lstm", "Nothing", "LSTM", "GRU", "RNN"])
    return f"{old} as {node.op_type!r}"


@graph_way
def another_domain(random, graph):
    graph, node = a_node(random, graph)
    node.domain = random.choice(["ai.onnx", "ai.onnx.ml", "com.microsoft", "\0", "x" * 10**5])
    return f"{node.op_type} of {node.domain[:20]!r}"


@graph_way
def names_of_nodes(random, graph):
    name = random.choice(["same", "", "OP_0", "\x1b[31m\n", "x" * 10**6])
    for node in graph.node:
        node.name = name
    return f"all {name[:20]!r}"


# Attributes

SCHEMAS = {
    schema.name: schema for schema in onnx.defs.get_all_schemas() if schema.domain in ("", "ai.onnx")
}


def any_attribute(random, name, kind=None):
    """An attribute of random value; `kind`: of that type."""
    number = lambda: random.choice(NUMBERS)
    real = lambda: random.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
    graph = helper.make_graph([], "empty", [], [])
    tensor = random.choice([
        np.zeros([0], np.float32), np.zeros([2, 2], np.float32), np.array([number()]),
        np.array(True), np.zeros([1] * 30, np.float32), np.array(1.0),
    ])
    values = {
        onnx.AttributeProto.FLOAT: real(), onnx.AttributeProto.INT: number(),
        onnx.AttributeProto.STRING: random.choice(["", "reverse", "bidirectional", "none", "\0"]),
        onnx.AttributeProto.TENSOR: numpy_helper.from_array(tensor),
        onnx.AttributeProto.GRAPH: graph,
        onnx.AttributeProto.FLOATS: [real() for _ in range(random.randrange(4))],
        onnx.AttributeProto.INTS: [number() for _ in range(random.randrange(5))],
        onnx.AttributeProto.STRINGS: [random.choice(["Tanh", "Relu", "?", ""]) for _ in range(3)],
    }
    kind = kind if kind in values else random.choice(list(values))
    return helper.make_attribute(name, values[kind], attr_type=kind)


def shown(message):
    return " ".join(str(message).split())[:60]


def with_attribute(node, attribute):
    """Gives the node that attribute instead of those of its name."""
    kept = [known for known in node.attribute if known.name != attribute.name]
    replace(node.attribute, [*kept, attribute])


@graph_way
def an_attribute_out_of_range(random, graph):
    """An attribute that the operator has, of its type, with a value that it may not have."""
    _, node = draw(random, [
        (graph, node) for graph, node in all_nodes(graph)
        if node.op_type in SCHEMAS and SCHEMAS[node.op_type].attributes
    ])
    known = SCHEMAS[node.op_type].attributes
    name = random.choice(sorted(known))
    # OpSchema.AttrType and AttributeProto.AttributeType are numbered alike.
    attribute = any_attribute(random, name, known[name].type.value)
    with_attribute(node, attribute)
    return f"{node.op_type}: {shown(attribute)}"


@graph_way
def an_attribute_of_another_type(random, graph):
    _, node = a_node(random, graph)
    names = [attribute.name for attribute in node.attribute]
    names += sorted(SCHEMAS[node.op_type].attributes) if node.op_type in SCHEMAS else []
    attribute = any_attribute(random, draw(random, names))
    with_attribute(node, attribute)
    return f"{node.op_type}: {shown(attribute)}"


@graph_way
def type_and_value_of_an_attribute_differ(random, graph):
    _, node = draw(random, [pair for pair in all_nodes(graph) if pair[1].attribute])
    attribute = random.choice(list(node.attribute))
    attribute.type = random.choice(list(range(15)))
    return f"{attribute.name} of {node.op_type}: type {attribute.type}"


@graph_way
def attributes_missing(random, graph):
    _, node = draw(random, [pair for pair in all_nodes(graph) if pair[1].attribute])
    del node.attribute[:]
    return node.op_type


@graph_way
def an_attribute_twice(random, graph):
    _, node = draw(random, [pair for pair in all_nodes(graph) if pair[1].attribute])
    attribute = random.choice(list(node.attribute))
    node.attribute.append(any_attribute(random, attribute.name, attribute.type))
    return f"{attribute.name} of {node.op_type}"


def attribute_way(name, operators, values):
    """Adds a way that gives an operator an attribute, each value in turn."""

    def change(random, graph):
        _, node = draw(random, [pair for pair in all_nodes(graph) if pair[1].op_type in operators])
        key, value = random.choice(values)
        with_attribute(node, helper.make_attribute(key, value))
        return f"{node.op_type}: {key} {value}"

    change.__name__ = name
    graph_way(change)


RECURRENT = ("LSTM", "GRU", "RNN")
attribute_way(
    "hidden_size", RECURRENT, [("hidden_size", n) for n in (*NUMBERS, 7, 9)]
)
attribute_way(
    "direction", RECURRENT,
    [("direction", text) for text in ("reverse", "bidirectional", "Forward", "sideways", "")]
    + [("layout", 1), ("layout", 2**62), ("layout", -1)],
)
attribute_way(
    "activations", RECURRENT,
    [("activations", ["Relu"] * 9), ("activations", [""]), ("activations", ["Affine", "Elu", "?"]),
     ("activation_alpha", [float("nan")] * 9), ("clip", 0.0), ("clip", float("nan")),
     ("input_forget", 1), ("linear_before_reset", 2**62)],
)
attribute_way(
    "perm", ("Transpose",),
    [("perm", perm) for perm in ([0, 0, 0], [0], [2, 1, 0], [-1, -2, -3], [2**62, 0, 1], [0, 1, 3],
                                 [3, 2, 1, 0], list(range(1000)), [-(2**63), 1, 2])],
)
attribute_way(
    "axis", ("Softmax", "Concat", "Gather", "Split", "Flatten", "TopK", "ArgMax", "OneHot",
             "LayerNormalization", "LogSoftmax", "Scan", "GatherElements", "ScatterElements",
             "QuantizeLinear", "DequantizeLinear"),
    [("axis", n) for n in (*NUMBERS, -3, -4, 4)],
)
attribute_way(
    "windows", ("Conv", "ConvInteger", "ConvTranspose", "MaxPool", "AveragePool", "LRN"),
    [(key, [n] * axes) for key in ("kernel_shape", "strides", "dilations", "pads", "output_padding")
     for n in (0, 1, 3, -1, 2**31, 2**62, -(2**63)) for axes in (1, 2, 4)]
    + [("group", n) for n in NUMBERS] + [("ceil_mode", 1), ("ceil_mode", -1), ("auto_pad", "SAME_UPPER"),
       ("auto_pad", "?"), ("size", 0), ("size", 2**62), ("size", -1), ("output_shape", [2**62, 1])],
)
attribute_way(
    "modes", ("Resize", "Upsample", "ScatterElements", "ScatterND", "Mod", "TopK"),
    [("mode", text) for text in ("nearest", "linear", "cubic", "?")]
    + [("coordinate_transformation_mode", text) for text in ("asymmetric", "align_corners", "tf_crop_and_resize", "?")]
    + [("nearest_mode", text) for text in ("ceil", "round_prefer_ceil", "?")]
    + [("reduction", text) for text in ("add", "mul", "max", "?")]
    + [("fmod", 1), ("largest", 0), ("sorted", 0), ("antialias", 1), ("exclude_outside", 1)],
)


# The graph's inputs and outputs


def an_input(random, graph):
    return draw(random, graph.input)


@graph_way
def another_type_of_an_input(random, graph):
    info = an_input(random, graph)
    info.type.tensor_type.elem_type = random.choice([*range(0, 27), 99, -1])
    return f"{info.name} of {info.type.tensor_type.elem_type}"


@graph_way
def another_dimension_of_an_input(random, graph):
    info = an_input(random, graph)
    dims = info.type.tensor_type.shape.dim
    dim = draw(random, dims)
    kind = random.choice(["number", "number", "name", "none", "empty name"])
    if kind == "number":
        dim.dim_value = random.choice(NUMBERS)
    elif kind == "name":
        names = ["n", "batch", "time", "\0", "x" * 10**6]
        dim.dim_param = random.choice(names)
    elif kind == "none":
        dim.Clear()
    else:
        dim.dim_param = ""
    return f"{info.name}: {dim.dim_value} {dim.dim_param[:20]!r}"


@graph_way
def huge_dimensions_of_an_input(random, graph):
    info = an_input(random, graph)
    number = random.choice([2**20, 2**31, 2**40, 2**62])
    for dim in info.type.tensor_type.shape.dim:
        dim.dim_value = number
    return f"{info.name}: {number}"


@graph_way
def another_rank_of_an_input(random, graph):
    info = an_input(random, graph)
    dims = info.type.tensor_type.shape.dim
    change = random.choice(["fewer", "more", "none", "many", "reversed"])
    if change == "fewer" and dims:
        del dims[random.randrange(len(dims))]
    elif change == "more":
        dims.add().dim_value = random.choice([1, 2])
    elif change == "none":
        del dims[:]
    elif change == "many":
        for _ in range(3000):
            dims.add().dim_value = 1
    else:
        replace(dims, list(dims)[::-1])
    return f"{info.name}: {change}"


@graph_way
def an_input_without_a_shape(random, graph):
    info = an_input(random, graph)
    what = random.choice(["shape", "type", "tensor", "element"])
    if what == "shape":
        info.type.tensor_type.ClearField("shape")
    elif what == "type":
        info.ClearField("type")
    elif what == "tensor":
        info.type.Clear()
        info.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    else:
        info.type.tensor_type.ClearField("elem_type")
    return f"{info.name}: no {what}"


@graph_way
def names_of_inputs(random, graph):
    info = an_input(random, graph)
    others = value_names(graph) + ["", "other", "x" * 10**6, "a b\n\0"]
    old, info.name = info.name, random.choice(others)
    return f"{old} as {info.name[:20]!r}"


@graph_way
def inputs_added_and_removed(random, graph):
    info = an_input(random, graph)
    change = random.choice(["twice", "unused", "removed", "all removed", "many"])
    if change == "twice":
        graph.input.append(info)
    elif change == "unused":
        graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, ["n", 2]))
    elif change == "removed":
        graph.input.remove(info)
    elif change == "all removed":
        del graph.input[:]
    else:
        for number in range(2000):
            new = helper.make_tensor_value_info(f"unused_{number}", TensorProto.FLOAT, ["batch", 2])
            graph.input.append(new)
    return f"{info.name}: {change}"


@graph_way
def an_input_as_a_node_and_a_constant(random, graph):
    """An input has the name of a value that the file makes."""
    name = draw(random, value_names(graph))
    graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]))
    return name


@graph_way
def outputs_changed(random, graph):
    info = draw(random, graph.output)
    change = random.choice([
        "none", "removed", "twice", "an input", "a constant", "nowhere", "empty", "inner", "rank",
        "many",
    ])
    names = value_names(graph)
    if change == "none":
        del graph.output[:]
    elif change == "removed":
        graph.output.remove(info)
    elif change == "twice":
        graph.output.append(info)
    elif change == "an input":
        info.name = draw(random, graph.input).name
    elif change == "a constant":
        info.name = draw(random, graph.initializer).name
    elif change == "nowhere":
        info.name = "nowhere"
    elif change == "empty":
        info.name = ""
    elif change == "inner":
        info.name = random.choice(names)
    elif change == "rank":
        info.type.tensor_type.shape.dim.add().dim_value = random.choice(NUMBERS)
    else:
        for _ in range(2000):
            graph.output.append(helper.make_empty_tensor_value_info(random.choice(names)))
    return f"{change}: {info.name}"


# The model


def model_way(function):
    """Adds a way that changes the model of a file."""

    def apply(random, case):
        path = onnx_file(random, case)
        with edited(path) as model:
            description = function(random, model)
        return f"{path.name}: {description}"

    WAYS[function.__name__.replace("_", " ")] = apply


@model_way
def another_opset(random, model):
    versions = [0, 1, 6, 7, 9, 11, 12, 13, 18, 22, 30, 999, -1, 2**31, 2**62, -(2**63)]
    version = random.choice(versions)
    model.opset_import[0].version = version
    return f"{version}"


@model_way
def several_opsets(random, model):
    kind = random.choice(["none", "two", "other domain"])
    if kind == "none":
        del model.opset_import[:]
    elif kind == "two":
        model.opset_import.append(helper.make_opsetid("", random.choice([1, 9, 20])))
    else:
        model.opset_import[0].domain = "com.example"
    return kind


@model_way
def no_graph(random, model):
    model.ClearField("graph")
    return "none"


@model_way
def the_rest_of_a_model(random, model):
    kind = random.choice(["version", "functions", "metadata", "annotations", "sparse", "info"])
    if kind == "version":
        model.ir_version = random.choice(NUMBERS)
    elif kind == "functions":
        node = helper.make_node("LSTM", ["a"], ["b"])
        model.functions.append(
            helper.make_function("", "LSTM", ["a"], ["b"], [node], [helper.make_opsetid("", 17)])
        )
    elif kind == "metadata":
        for number in range(1000):
            model.metadata_props.add(key=f"{number}", value="x" * 1000)
    elif kind == "annotations":
        model.graph.quantization_annotation.add(tensor_name="nowhere")
    elif kind == "sparse":
        tensor = draw(random, model.graph.initializer)
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.dims.append(HUGE)
        model.graph.initializer.remove(tensor)
    else:
        model.graph.value_info.append(
            helper.make_tensor_value_info(random.choice(value_names(model.graph)), 1, [HUGE])
        )
    return kind
