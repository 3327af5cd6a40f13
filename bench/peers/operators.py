"""Times recurrent operators: BatchMaker's CPU device beside ONNX Runtime and PyTorch.

BatchMaker's side is a process of its own (crates/cpu/examples/operators.rs), told what to run by
lines on its standard input. All three run a batch of whole sequences, all steps given at once, the
input projection included, every output of the operator written. They take turns; the one whose
turn it is has the machine to itself.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

GATES = {"lstm": 4, "gru": 3, "gru0": 3}
STATES = {"lstm": 2, "gru": 1, "gru0": 1}

HIDDEN = (64, 128, 256, 512, 1024, 2048)
BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# A turn repeats the operator for about this long, after a rest in which the threads of the turn
# before stop spinning: those of ONNX Runtime go on for tens of milliseconds.
TURN_S = 0.03
REST_S = 0.01


class Ours:
    """BatchMaker's process."""

    name = "batchmaker"

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"operators.py: BatchMaker's process ended at {line!r}")
        return answer.strip()

    def load(self, case, threads):
        numbers = (case.hidden, case.layers, case.batch, case.steps, threads)
        self.tell(f"load {case.kind} " + " ".join(map(str, numbers)))

    def run(self, times):
        return int(self.tell(f"run {times}")) / 1e9


class OnnxRuntime:
    """The operator in a session, with bound inputs and outputs."""

    name = "onnxruntime"

    def load(self, case, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            onnx_model(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.binding = self.session.io_binding()
        x = np.random.default_rng(1).uniform(-1, 1, (case.steps, case.batch, case.hidden))
        self.x = onnxruntime.OrtValue.ortvalue_from_numpy(x.astype(np.float32))
        self.binding.bind_ortvalue_input("x", self.x)
        for output in self.session.get_outputs():
            last = output.name.startswith("last")
            shape = (1 if last else case.steps, case.batch, case.hidden)
            if not last:
                shape = (case.steps, 1, case.batch, case.hidden)
            value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
            self.binding.bind_ortvalue_output(output.name, value)

    def run(self, times):
        start = time.perf_counter()
        for _ in range(times):
            self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start


class PyTorch:
    """The module under inference mode."""

    name = "pytorch"

    def load(self, case, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case.kind]
        self.module = module(case.hidden, case.hidden, case.layers).eval()
        self.x = torch.rand(case.steps, case.batch, case.hidden) * 2 - 1

    def run(self, times):
        with torch.inference_mode():
            start = time.perf_counter()
            for _ in range(times):
                self.module(self.x)
            return time.perf_counter() - start


class Case:
    """One operator at one size."""

    def __init__(self, kind, hidden, layers, batch, steps):
        self.kind, self.hidden, self.layers = kind, hidden, layers
        self.batch, self.steps = batch, steps

    def flops(self):
        """Operations of the products of one run."""
        products = 2 * GATES[self.kind] * self.hidden * 2 * self.hidden
        return products * self.layers * self.batch * self.steps

    def weight_bytes(self):
        """Bytes of weights that every step reads at least: those of h."""
        return 4 * GATES[self.kind] * self.hidden * self.hidden * self.layers


def onnx_model(case):
    """Layers of the operator over `x` [time, batch, hidden], with random weights."""
    random = np.random.default_rng(0)
    scale = 1 / np.sqrt(case.hidden)
    gates, hidden = GATES[case.kind], case.hidden
    nodes, constants, outputs = [], [], []

    def constant(name, *shape):
        values = random.uniform(-scale, scale, shape).astype(np.float32)
        constants.append(numpy_helper.from_array(values, name))

    below = "x"
    for layer in range(case.layers):
        constant(f"w{layer}", 1, gates * hidden, hidden)
        constant(f"r{layer}", 1, gates * hidden, hidden)
        constant(f"b{layer}", 1, 2 * gates * hidden)
        attributes = {"hidden_size": hidden}
        if case.kind == "gru":
            attributes["linear_before_reset"] = 1
        last = [f"last{layer}_{state}" for state in range(STATES[case.kind])]
        nodes.append(
            helper.make_node(
                "LSTM" if case.kind == "lstm" else "GRU",
                [below, f"w{layer}", f"r{layer}", f"b{layer}"],
                [f"y{layer}", *last],
                **attributes,
            )
        )
        outputs += [(name, (1, "batch", hidden)) for name in last]
        below = f"y{layer}"
        if layer + 1 < case.layers:
            if layer == 0:
                constants.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
            nodes.append(helper.make_node("Squeeze", [below, "axis"], [f"x{layer + 1}"]))
            below = f"x{layer + 1}"
    outputs.append((below, ("time", 1, "batch", hidden)))

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "operators",
        [info("x", ("time", "batch", hidden))],
        [info(*output) for output in outputs],
        constants,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def measure(systems, case, threads, repeats):
    """Seconds a run of each system, one number a turn, the turns interleaved; and the register-only
    loop's GFLOP/s right after each turn of BatchMaker, the first of them."""
    times = {}
    for system in systems:
        system.load(case, threads)
        # BatchMaker tries its ways of dividing the work; the peers allocate and pack.
        warm, turns = 0.0, 0
        while turns < 20 or warm < 4 * TURN_S:
            warm += system.run(1)
            turns += 1
            if warm > 3 and turns >= 13:
                break
        times[system.name] = max(1, round(TURN_S * turns / warm))
    seconds, peaks = {system.name: [] for system in systems}, []
    for repeat in range(repeats):
        turn = repeat % len(systems)
        for system in systems[turn:] + systems[:turn]:
            rest()
            count = times[system.name]
            system.run(max(1, count // 8))
            seconds[system.name].append(system.run(count) / count)
            if system is systems[0]:
                peaks.append(float(system.tell("multiply-adds")))
    return seconds, peaks


def rest():
    """Waits until this process's threads have gone to sleep."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(REST_S)
        if time.process_time() - before < 0.05 * REST_S:
            return


def report(case, seconds, peaks_gflops, read_gbs):
    """A line for people and one for programs."""
    median = {name: statistics.median(values) for name, values in seconds.items()}
    mine = seconds["batchmaker"]
    ratios = {
        name: statistics.median(peer / own for peer, own in zip(values, mine, strict=True))
        for name, values in seconds.items()
        if name != "batchmaker"
    }
    gflops = case.flops() / median["batchmaker"] * 1e-9
    read = case.weight_bytes() * case.steps / median["batchmaker"] * 1e-9
    result = {
        "kind": case.kind,
        "hidden": case.hidden,
        "layers": case.layers,
        "batch": case.batch,
        "steps": case.steps,
        "us_a_step": {name: value / case.steps * 1e6 for name, value in median.items()},
        "ratio": ratios,
        "ratio_to_better": min(ratios.values()),
        "gflops": gflops,
        "share_of_peak": statistics.median(
            case.flops() / own * 1e-9 / peak for own, peak in zip(mine, peaks_gflops, strict=True)
        ),
        "peak_gflops": statistics.median(peaks_gflops),
        "weights_gbs": read,
        "read_gbs": read_gbs,
    }
    steps = " ".join(f"{result['us_a_step'][name]:10.1f}" for name in seconds)
    shown = " ".join(f"{ratios[name]:6.2f}" if name in ratios else "" for name in seconds)
    print(
        f"{case.kind:5} {case.hidden:5} {case.layers:2} {case.batch:4} {case.steps:4} {steps}  "
        f"{shown}  {gflops:6.1f} {result['share_of_peak']:5.2f}  {read:6.1f}",
        flush=True,
    )
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="BatchMaker's side: the example `operators` of crates/cpu")
    parser.add_argument("--kinds", default="lstm,gru", help="of lstm, gru, gru0 (default: %(default)s)")
    parser.add_argument("--hidden", default=",".join(map(str, HIDDEN)))
    parser.add_argument("--batch", default=",".join(map(str, BATCH)))
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="also write one object a line to this file")
    arguments = parser.parse_args()

    unknown = [kind for kind in arguments.kinds.split(",") if kind not in GATES]
    if unknown:
        parser.error(f"--kinds: {unknown[0]} is none of {', '.join(GATES)}")
    ours = Ours(arguments.program)
    file = open(arguments.json, "w") if arguments.json else None
    print(
        "kind  hidden layers batch steps   us a step: batchmaker, peers   peers / batchmaker   "
        "GFLOP/s, of peak, weights GB/s"
    )
    ratios = {}
    for kind in arguments.kinds.split(","):
        peers = [OnnxRuntime()] + ([PyTorch()] if kind != "gru0" else [])
        for hidden in map(int, arguments.hidden.split(",")):
            for batch in map(int, arguments.batch.split(",")):
                case = Case(kind, hidden, arguments.layers, batch, arguments.steps)
                # Large operators: fewer steps, so that a run takes no seconds.
                while case.flops() > 1.2e11 and case.steps > 4:
                    case.steps //= 2
                seconds, peaks = measure([ours, *peers], case, arguments.threads, arguments.repeats)
                result = report(case, seconds, peaks, float(ours.tell("read")))
                ratios.setdefault(kind, []).append(result["ratio_to_better"])
                if file:
                    file.write(json.dumps(result) + "\n")
                    file.flush()
    for kind, values in ratios.items():
        print(
            f"{kind}: {len(values)} sizes, ratio to the better peer: geometric mean "
            f"{statistics.geometric_mean(values):.2f}, least {min(values):.2f}, "
            f"below 0.95: {sum(value < 0.95 for value in values)}"
        )


if __name__ == "__main__":
    main()
