"""What runs one padded batch: ONNX Runtime or PyTorch, each on the CPU.

An executor has one method, `run(x, lengths) -> h`: x [time, batch, input] float32 and contiguous,
padded behind each member; lengths [batch] int32; h [batch, directions*hidden] float32, the last
layer's hidden states of every member: forward after its own last step, in reverse after its first.
`h` is valid until the next call.

Each library is imported by its own class, so that a process holds one pool of threads.
"""

import numpy as np

import make_lstm
from model import ModelError


class OnnxRuntime:
    """The file's operators, each LSTM with `sequence_lens`; the last one's only output is `Y_h`.

    The lengths make the reverse direction begin at each member's own last step, in every layer.
    `run` with arrays is used, not `IOBinding`: it takes the same time in batches of 64 and 3 to
    7 % less in batches of 1 and 8 at hidden 256 (2 % less in batches of 1 at 1024), since the
    addresses and shapes would have to be bound again for every batch.
    """

    def __init__(self, weights, threads):
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        info = helper.make_tensor_value_info
        layers, directions = len(weights.layers), weights.directions
        nodes = make_lstm.nodes(weights.hidden_size, layers, directions == 2)
        for node in nodes:
            if node.op_type == "LSTM":
                node.input.append("lengths")
        graph = helper.make_graph(
            nodes,
            "lstm",
            [
                info("x", TensorProto.FLOAT, ["time", "batch", weights.input_size]),
                info("lengths", TensorProto.INT32, ["batch"]),
            ],
            [info("h_n", TensorProto.FLOAT, [directions, "batch", weights.hidden_size])],
            # As initializers the runtime packs them once, when the session is made.
            [
                numpy_helper.from_array(array, name)
                for layer, names in zip(weights.layers, make_lstm.weight_names(layers))
                for array, name in zip((layer.w, layer.r, layer.b), names)
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, x, lengths):
        (h,) = self._session.run(["h_n"], {"x": x, "lengths": lengths})
        # A view where there is one direction.
        return h.swapaxes(0, 1).reshape(len(lengths), -1)


class PyTorch:
    """`torch.nn.LSTM` on a time-major padded batch; each member's state is taken at its last step.

    Inference takes the oneDNN path, the fastest in batches of 64, lengths 21..30, two threads:
    14.8 ms at hidden 256 (PyTorch's own kernels 22.9 ms, packed sequences 19.7 ms) and 221 ms at
    hidden 1024 (289 ms, 232 ms). Batch-first is the same path and the same time. PyTorch lays out
    the weights for oneDNN anew in each call; the private operators that would keep them gain
    nothing at this batch size. Forward only: padding would come first in the reverse direction.
    """

    def __init__(self, weights, threads):
        import torch

        if weights.directions != 1:
            raise ModelError("a bidirectional LSTM is run by onnxruntime only")
        self._torch = torch
        torch.set_num_threads(threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        layers = weights.layers
        self._lstm = torch.nn.LSTM(weights.input_size, weights.hidden_size, len(layers)).eval()

        def gates(a):
            """Rows of ONNX's gate order (i, o, f, c) in PyTorch's (i, f, g, o); g is c."""
            i, o, f, c = np.split(a, 4)
            return torch.from_numpy(np.concatenate([i, f, c, o]))

        parameters = {}
        for number, layer in enumerate(layers):
            b_input, b_hidden = np.split(layer.b[0], 2)
            parameters |= {
                f"weight_ih_l{number}": gates(layer.w[0]),
                f"weight_hh_l{number}": gates(layer.r[0]),
                f"bias_ih_l{number}": gates(b_input),
                f"bias_hh_l{number}": gates(b_hidden),
            }
        self._lstm.load_state_dict(parameters)

    def run(self, x, lengths):
        torch = self._torch
        with torch.inference_mode():
            y, _ = self._lstm(torch.from_numpy(x))  # [time, batch, hidden]
            last = torch.from_numpy(lengths).long() - 1
            return y[last, torch.arange(len(lengths))].numpy()


EXECUTORS = {"onnxruntime": OnnxRuntime, "pytorch": PyTorch}
