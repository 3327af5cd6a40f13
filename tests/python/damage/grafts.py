"""Nodes put into a graph that ask for too much, or for what is not defined."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .case import HUGE, NUMBERS, draw, edited, onnx_file, replace, way
from .graphs import SCHEMAS, any_attribute, graph_way
from .messages import messages, write


class Graft:
    """Nodes put before one that reads their result, among inputs that it has."""

    def __init__(self, random, graph):
        self.graph = graph
        constants = {tensor.name for tensor in graph.initializer}
        places = [
            (node, at) for node in graph.node for at, name in enumerate(node.input)
            if name and (name not in constants or random.random() < 0.2)
        ]
        self.consumer, self.at = draw(random, places)
        self.value, self.nodes = self.consumer.input[self.at], []
        self.name = f"graft_{random.randrange(10**9)}"

    def constant(self, values):
        name = f"{self.name}_{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.array(values), name))
        return name

    def add(self, operator, *inputs, outputs=1, **attributes):
        names = [f"{self.name}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def put(self, name, how):
        """Makes the node read `name`: instead of what it read, or what both are together."""
        if how != "instead":
            name = self.add(how, self.value, name)
        self.consumer.input[self.at] = name
        at = list(self.graph.node).index(self.consumer)
        nodes = list(self.graph.node)
        replace(self.graph.node, nodes[:at] + self.nodes + nodes[at:])


def graft_way(name, make):
    """Adds a way that grafts values that `make` makes into a graph."""

    def change(random, graph):
        graft = Graft(random, graph)
        how = random.choice(["instead", "Add", "Mul"])
        graft.put(make(random, graft), how)
        return f"{how} at input {graft.at} of {graft.consumer.op_type}"

    change.__name__ = name
    graph_way(change)


def huge_shape(random):
    return random.choice([
        [HUGE], [2**20, 2**20], [2**62], [2**32, 2**32], [2**31, 2**31, 4], [2**63 - 1], [2**24 + 1],
        [-1], [0], [2**21] * 40, [1] * 1000,
    ])


def constant_of_shape(random, graft):
    value = random.choice([[0.5], [], [1.0, 2.0], [[1.0]]])
    value = numpy_helper.from_array(np.array(value, np.float32))
    shape = random.choice([huge_shape(random), [2, 3], [1]])
    return graft.add("ConstantOfShape", graft.constant(shape), value=value)


def expand(random, graft):
    values = random.choice([np.float32(0.5), np.ones((1, 4, 1), np.float32), np.arange(4)])
    shape = random.choice([[2**20, 4, 2**20], [2**12, 4, 2**12], [HUGE], [2**24], [2**62, 4, 4]])
    return graft.add("Expand", graft.constant(values), graft.constant(shape))


def expand_a_value(random, graft):
    shape = random.choice([[HUGE, 1, 1, 1], [1, 1, 1, HUGE], [2**31, 2**31, 1, 1, 1], [2**62]])
    shape = graft.constant(shape)
    wide = graft.add("Expand", graft.value, shape)
    return graft.add("ReduceMax", wide, axes=[-1], keepdims=random.choice([0, 1]))


def range_(random, graft):
    bounds = random.choice([
        (0, HUGE, 1), (0, 2**63 - 1, 1), (-(2**63), 2**63 - 1, 1), (-(2**63), 0, -1), (0, 1, 0),
        (-(2**63), -1, -1), (2**63 - 1, -(2**63), -1), (0, -(2**63), -1), (0, -(2**63) + 2, -1),
        (0, 2**20 + 1, 1), (0, 4, 2**62),
    ])
    return graft.add("Range", *(graft.constant(np.int64(number)) for number in bounds))


def range_of_reals(random, graft):
    bounds = random.choice([(0, 1e30, 1), (0, 1, 1e-30), (0, 1, float("nan")), (0, 4, 1)])
    return graft.add("Range", *(graft.constant(np.float32(number)) for number in bounds))


def tile(random, graft):
    repeats = graft.constant(random.choice([[1, 1, HUGE], [2**31] * 3, [-1] * 3, [HUGE]]))
    source = random.choice([graft.value, graft.constant(np.ones((2, 2, 2), np.float32))])
    return graft.add("Tile", source, repeats)


def pad(random, graft):
    pads = graft.constant(random.choice([[0, 0, 0, 0, 0, HUGE], [2**62] * 6, [-5] * 6, [0, HUGE]]))
    return graft.add("Pad", graft.value, pads)


def one_hot(random, graft):
    ids = graft.add("ArgMax", graft.value, axis=-1, keepdims=0)
    depth = graft.constant(np.int64(random.choice([HUGE, 2**62, 2**31, 0, -1, 2**20])))
    hot = graft.add("OneHot", ids, depth, graft.constant(np.float32([0, 1])))
    return graft.add("ReduceMax", hot, axes=[-1], keepdims=1)


def reshape(random, graft):
    shape = random.choice([
        [HUGE, -1], [-1, HUGE], [-1, -1], [-2], [0] * 10, [0, 0, 2**62, 0], [2**32, 2**32], [-1, 0],
        [2**63 - 1, 2], [0, 0, -(2**63)], [1] * 1000,
    ])
    return graft.add("Reshape", graft.value, graft.constant(shape), allowzero=random.choice([0, 1]))


def doubled_constant(random, graft):
    name = graft.constant(np.ones((1, 1, 4), np.float32))
    for _ in range(random.choice([20, 45])):
        name = graft.add("Concat", name, name, axis=0)
    return graft.add("ReduceMax", name, axes=[0], keepdims=0)


def doubled_value(random, graft):
    """A row that gets twice as long 45 times, and of which one element is taken."""
    name = graft.value
    for _ in range(random.choice([16, 45, 70])):
        name = graft.add("Concat", name, name, axis=-1)
    return graft.add("Gather", name, graft.constant([0]), axis=-1)


def doubled_exponent(random, graft):
    """The input's size, squared 40 times."""
    name = graft.add("Size", graft.value)
    for _ in range(40):
        name = graft.add("Mul", name, name)
    return graft.add("Cast", name, to=TensorProto.FLOAT)


def doubled_sum(random, graft):
    """2 ** 5000 paths to one value."""
    name = graft.value
    for _ in range(5000):
        name = graft.add("Add", name, name)
    return name


def outer_product(random, graft):
    long = graft.constant(np.ones(2**15, np.float32))
    name = graft.add("Unsqueeze", long, graft.constant([1]))
    for _ in range(2):
        name = graft.add("Mul", name, long)
        name = graft.add("Unsqueeze", name, graft.constant([-1]))
    return graft.add("ReduceMax", name, keepdims=0)


def outer_comparison(random, graft):
    """As many comparisons as pairs of 2 ** 16 integers."""
    bounds = [graft.constant(np.int64(number)) for number in (0, 2**16, 1)]
    row = graft.add("Range", *bounds)
    column = graft.add("Unsqueeze", row, graft.constant([1]))
    same = graft.add(random.choice(["Equal", "Less", "Add"]), row, column)
    return graft.add("Cast", same, to=TensorProto.FLOAT)


def gathered_again(random, graft):
    """A constant gathered by itself: each time as many rows as indices."""
    bounds = [graft.constant(np.int64(number)) for number in (0, 2**12, 1)]
    indices = graft.add("Range", *bounds)
    zeros = graft.add("Mul", indices, graft.constant(np.int64(0)))
    name = graft.constant(np.ones((1, 4), np.float32))
    for axis in range(4):
        name = graft.add("Gather", name, zeros, axis=0)
        name = graft.add("Unsqueeze", name, graft.constant([0]))
    return graft.add("ReduceMax", name, keepdims=0)


def many_wide_constants(random, graft):
    """Constants of 2 ** 24 elements, as many as are needed."""
    name = graft.constant(np.int64(1))
    shape = graft.constant([2**24])
    for _ in range(12):
        name = graft.add("Expand", graft.add("Add", name, graft.constant(np.int64(1))), shape)
        name = graft.add("Gather", name, graft.constant(np.int64(0)))
    return graft.add("Cast", name, to=TensorProto.FLOAT)


def split(random, graft):
    sizes = random.choice([
        [2**62] * 4, [-1, 5], [0, 0], [2**63 - 1, 1], [1] * 1000, [4, 4], [], [HUGE, -HUGE + 8],
    ])
    return graft.add(
        "Split", graft.value, graft.constant(np.array(sizes, np.int64)), outputs=max(1, len(sizes)),
        axis=random.choice([0, -1, 1]),
    )


def slice_(random, graft):
    number = lambda: random.choice(NUMBERS)
    count = random.choice([1, 1, 2, 5])
    lists = [[number() for _ in range(count)] for _ in range(2)]
    lists.append([random.choice([-1, 0, 1, 2, *NUMBERS]) for _ in range(count)])
    lists.append([random.choice([1, -1, 0, 2, *NUMBERS]) for _ in range(count)])
    if random.random() < 0.2:
        lists[random.randrange(4)].append(1)
    source = random.choice([graft.value, graft.constant(np.arange(24.0).reshape(2, 3, 4))])
    return graft.add("Slice", source, *(graft.constant(list_) for list_ in lists))


def gather(random, graft):
    indices = random.choice([
        [random.choice(NUMBERS)], np.int64(random.choice(NUMBERS)), np.zeros([0], np.int64),
        np.zeros([1] * 50, np.int64), [0] * 2**20, [-1, 0, 1],
    ])
    source = random.choice([graft.value, graft.constant(np.ones((3, 4), np.float32))])
    return graft.add("Gather", source, graft.constant(indices), axis=random.choice([0, -1, 1, 2]))


def reduce_(random, graft):
    axes = random.choice([[-1, -1], [0, 0], [-1, -1, -1], [-1, 2], [2, 2, 2], list(range(-9, 9)), []])
    keep = random.choice([0, 0, 1])
    if not axes or random.random() < 0.4:
        axes = graft.constant(np.array(axes, np.int64))
        return graft.add("ReduceSum", graft.value, axes, keepdims=keep)
    operator = random.choice(["ReduceMax", "ReduceMean", "ReduceProd", "ReduceLogSumExp"])
    return graft.add(operator, graft.value, axes=axes, keepdims=keep)


def axes_of_shapes(random, graft):
    operator = random.choice(["Squeeze", "Unsqueeze"])
    axes = random.choice([
        [0, 0], [-1, -1], [2**62], [-(2**63)], [3, 3], [0] * 1000, list(range(1000)), [9], [], [1, 3],
        [-4, 3],
    ])
    source = random.choice([graft.value, graft.constant(np.ones((1, 2, 1), np.float32))])
    return graft.add(operator, source, graft.constant(np.array(axes, np.int64)))


def top_k(random, graft):
    k = graft.constant([random.choice([0, -1, 1, 2, 3, 2**31, 2**62, 2**63 - 1])])
    return graft.add("TopK", graft.value, k, outputs=2, axis=random.choice([-1, 2, 1]))


def integers(random, graft):
    """Arithmetic of integers that is not defined or does not fit."""
    number = lambda: graft.constant(np.int64(random.choice([0, -1, 1, 2**62, 2**63 - 1, -(2**63)])))
    ints = graft.add("Cast", graft.value, to=random.choice([TensorProto.INT64, TensorProto.INT32]))
    left, right = random.choice([(ints, number()), (number(), ints), (number(), number())])
    made = graft.add(random.choice(["Div", "Mod", "Mul", "Add", "Sub", "Pow", "Max"]), left, right)
    return graft.add("Cast", made, to=TensorProto.FLOAT)


def cast(random, graft):
    made = graft.add("Cast", graft.value, to=random.choice([*range(0, 24), 2**31, 2**62, -1]))
    return graft.add("Cast", made, to=TensorProto.FLOAT)


def recurrence(random, graft):
    """An LSTM of sizes that do not fit, or of none."""
    size, input_size = random.choice([(0, 4), (4, 0), (1, 1), (8, 8), (2, 4)])
    w = graft.constant(np.zeros((1, 4 * size, input_size), np.float32))
    r = graft.constant(np.zeros((1, 4 * size, size), np.float32))
    made = graft.add("LSTM", graft.value, w, r, hidden_size=size)
    return graft.add("Squeeze", made, graft.constant([1]))


def any_constant(random):
    """A constant of any type and shape that is small."""
    shape = [random.choice([0, 1, 1, 2, 3, 4, 4, 8, 8]) for _ in range(random.randrange(5))]
    count = int(np.prod(shape))
    kind = random.choice(["ints", "ints", "int32", "floats", "floats", "bools"])
    if kind == "floats":
        return np.array([random.gauss(0, 1) for _ in range(count)], np.float32).reshape(shape)
    if kind == "bools":
        return np.array([random.random() < 0.5 for _ in range(count)], bool).reshape(shape)
    ints = [random.choice([-1, 0, 1, 2, 3, random.choice(NUMBERS)]) for _ in range(count)]
    return np.array(ints, np.int64).astype(np.int32 if kind == "int32" else np.int64).reshape(shape)


def pairs(random, graft):
    """A value and the same with axes elsewhere: rows of all pairs of steps, or of steps and sequences."""
    change = random.choice(["turned", "turned", "apart", "far apart"])
    if change == "turned":
        perm = random.choice([[1, 0, 2], [2, 1, 0], [0, 2, 1], [2, 0, 1], [1, 0]])
        return graft.add("Transpose", graft.value, perm=perm)
    axis = random.choice([0, 1, 2])
    left = graft.add("Unsqueeze", graft.value, graft.constant([axis]))
    right = graft.add("Unsqueeze", graft.value, graft.constant([0, 1] if change == "far apart" else [1]))
    return graft.add(random.choice(["Add", "Mul", "Max", "Concat"]), left, right)


def chosen_step(random, graft):
    """Steps chosen by number, of a value that is also read as a whole."""
    indices = random.choice([0, 1, 2, 5, -1, -2, -9, [0], [0, 1], [-1, 0], [[0]], [1] * 20])
    indices = graft.constant(np.array(indices, np.int64))
    name = graft.add(random.choice(["Tanh", "Identity", "Relu"]), graft.value)
    name = graft.add("Gather", name, indices, axis=random.choice([0, 0, 1]))
    if random.random() < 0.5:
        name = graft.add("Sigmoid", name)
    return name


def chosen_slice(random, graft):
    """Some of the steps, or of the sequences."""
    starts, ends = random.choice([(0, 1), (1, 3), (-1, 2**63 - 1), (-2, -1), (0, 2**40), (3, 0)])
    lists = [[starts], [ends], [random.choice([0, 1])], [random.choice([1, 1, 2, -1])]]
    return graft.add("Slice", graft.value, *(graft.constant(list_) for list_ in lists))


# Operators that recurrent networks are made of.
COMMON = (
    "Add ArgMax BatchNormalization Cast Clip Concat ConstantOfShape Div Equal Expand Flatten Gather Gemm "
    "GRU LayerNormalization LSTM MatMul Max Mod Mul OneHot Pow Range ReduceMax ReduceMean ReduceSum "
    "Reshape RNN Shape Size Slice Softmax Split Squeeze Sub Sum TopK Transpose Unsqueeze Where"
).split()


def any_operator(random, graft, names=()):
    """An operator of ONNX with inputs of any kind: a value, constants, or nothing."""
    schema = SCHEMAS[random.choice(random.choice([sorted(SCHEMAS), COMMON, COMMON]))]
    attributes = {
        name: any_attribute(random, name, known.type.value)
        for name, known in sorted(schema.attributes.items())
        if random.random() < (0.9 if known.required else 0.2)
    }
    inputs = [random.choice([graft.value, graft.value, *names])]
    most = max(schema.min_input, min(schema.max_input, 6))
    for _ in range(random.randint(schema.min_input, most) - 1):
        inputs.append(
            random.choice([graft.value, "", *names, *[None] * 8])
            or graft.constant(any_constant(random))
        )
    if random.random() < 0.15:
        inputs[0] = graft.constant(any_constant(random))
    count = random.randint(1, max(1, min(schema.max_output, 3)))
    made = graft.add(schema.name, *inputs[: schema.max_input], outputs=count)
    for attribute in attributes.values():
        if attribute.type != onnx.AttributeProto.INT or random.random() < 0.5:
            graft.nodes[-1].attribute.append(attribute)
        else:
            small = helper.make_attribute(attribute.name, random.choice([-2, -1, 0, 1, 2, 3]))
            graft.nodes[-1].attribute.append(small)
    return made


@graph_way
def any_operators(random, graph):
    """Many nodes at once, all of which are outputs: one that is refused does not hide the others."""
    graft = Graft(random, graph)
    names = []
    for _ in range(30):
        names.append(any_operator(random, graft, names[-5:]))
    graft.put(graft.value, "instead")
    graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    return ", ".join(sorted({node.op_type for node in graft.nodes}))[:200]


for make in (
    any_operator, pairs, chosen_step, chosen_slice, constant_of_shape, expand, expand_a_value,
    range_, range_of_reals, tile, pad, one_hot, reshape, doubled_constant, doubled_value,
    doubled_exponent, doubled_sum, outer_product, outer_comparison, gathered_again,
    many_wide_constants, split, slice_, gather, reduce_, axes_of_shapes, top_k, integers, cast,
    recurrence,
):
    graft_way(f"grafted_{make.__name__.rstrip('_')}", make)


@graph_way
def very_many_nodes(random, graph):
    graft = Graft(random, graph)
    operator = random.choice(["Relu", "Identity", "Tanh", "Nothing", "Neg", "LayerNormalization"])
    count, name = random.choice([2000, 20_000]), graft.value
    for _ in range(count):
        name = graft.add(operator, name)
    graft.put(name, "instead")
    return f"{count} of {operator} before {graft.consumer.op_type}"


@graph_way
def very_many_recurrent_nodes(random, graph):
    graft = Graft(random, graph)
    w, r = (graft.constant(np.ones((1, 8, 8), np.float32)) for _ in range(2))
    count, name, one = random.choice([50, 500]), graft.value, graft.constant([1])
    for _ in range(count):
        name = graft.add("Squeeze", graft.add("RNN", name, w, r, hidden_size=8), one)
    graft.put(name, "instead")
    return f"{count} before {graft.consumer.op_type}"


@graph_way
def very_many_constants(random, graph):
    for number in range(20_000):
        graph.initializer.append(numpy_helper.from_array(np.float32([1]), f"constant_{number}"))
    return "20000"


@graph_way
def very_many_operands(random, graph):
    graft = Graft(random, graph)
    operator, attributes = random.choice([("Concat", {"axis": -1}), ("Sum", {}), ("Max", {})])
    graft.put(graft.add(operator, *[graft.value] * 20_000, **attributes), "instead")
    return f"{operator} of 20000 before {graft.consumer.op_type}"


@way
def branches_nested_deeply(random, case):
    """An `If` in a branch of an `If`, and so on."""
    path = onnx_file(random, case)
    depth = random.choice([2, 30, 300, 3000])
    with edited(path) as model:
        graft = Graft(random, model.graph)
        yes = graft.constant(np.array(True))
        graft.put(graft.add("Here", graft.value), "instead")
        here = graft.nodes[-1].output[0]

    def text(number, value):
        return [number, 2, value.encode()]

    def branch(name, graph):
        return [5, 2, write([text(1, name), [6, 2, graph], [20, 0, onnx.AttributeProto.GRAPH]])]

    def graph(node, output):
        return write([[1, 2, node], text(2, "branch"), [12, 2, write([text(1, output)])]])

    def leaf(operator, output):
        return write([text(1, graft.value), text(2, output), text(4, operator)])

    node = leaf("Tanh", "if_0")
    for level in range(1, depth + 1):
        branches = [
            branch("then_branch", graph(node, f"if_{level - 1}")),
            branch("else_branch", graph(leaf("Relu", "other"), "other")),
        ]
        output = here if level == depth else f"if_{level}"
        node = write([text(1, yes), text(2, output), text(4, "If"), *branches])
    with messages(path) as all_:
        for fields in all_:
            for field in fields:
                if field[0] == 1 and isinstance(field[2], list) and text(4, "Here") in field[2]:
                    field[2] = node
    return f"{depth} in {path.name} before {graft.consumer.op_type}"
