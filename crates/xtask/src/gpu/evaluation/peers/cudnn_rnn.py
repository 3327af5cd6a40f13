"""LSTM and GRU of cuDNN by an algorithm of one's choice: `cudnnRNNForward` in inference, in f32.

cuDNN's functions are called in the library that PyTorch brings; memory is PyTorch's tensors.
Descriptors are set as PyTorch sets them: padded input and output, two biases, no projection of h, no
dropout; and multiply-adds of f32, no tensor cores. Signatures and values are those of `cudnn_adv.h`,
`cudnn_ops.h` and `cudnn_graph.h`, cuDNN 9.19.
"""

import ctypes
import importlib.util
import pathlib
from ctypes import byref, c_float, c_int, c_int32, c_size_t, c_uint32, c_ulonglong, c_void_p

# cudnnRNNAlgo_t.
ALGORITHMS = {"standard": 0, "persist-static": 1, "persist-dynamic": 2, "persist-static-small-h": 3}
# cudnnRNNMode_t.
MODES = {"lstm": 2, "gru": 3}
DOUBLE_BIAS, UNIDIRECTIONAL, LINEAR_INPUT, DATA_FLOAT, FMA_MATH = 2, 0, 0, 0, 3
PADDED_IO_ENABLED, SEQ_MAJOR_UNPACKED, INFERENCE = 1, 0, 0

SIZE = ctypes.POINTER(c_size_t)
HANDLE = ctypes.POINTER(c_void_p)
INTEGERS = ctypes.POINTER(c_int)
SIGNATURES = {
    "cudnnCreate": [HANDLE],
    "cudnnSetStream": [c_void_p, c_void_p],
    "cudnnCreateDropoutDescriptor": [HANDLE],
    "cudnnSetDropoutDescriptor": [c_void_p, c_void_p, c_float, c_void_p, c_size_t, c_ulonglong],
    "cudnnCreateRNNDescriptor": [HANDLE],
    # rnnDesc; algo, cellMode, biasMode, dirMode, inputMode, dataType, mathPrec, mathType; inputSize,
    # hiddenSize, projSize, numLayers; dropoutDesc, auxFlags.
    "cudnnSetRNNDescriptor_v8": [c_void_p, *[c_int] * 8, *[c_int32] * 4, c_void_p, c_uint32],
    "cudnnBuildRNNDynamic": [c_void_p, c_void_p, c_int],
    "cudnnCreateRNNDataDescriptor": [HANDLE],
    # rnnDataDesc, dataType, layout, maxSeqLength, batchSize, vectorSize, seqLengthArray (of the host),
    # paddingFill.
    "cudnnSetRNNDataDescriptor": [c_void_p, *[c_int] * 5, INTEGERS, c_void_p],
    "cudnnCreateTensorDescriptor": [HANDLE],
    "cudnnSetTensorNdDescriptor": [c_void_p, c_int, c_int, INTEGERS, INTEGERS],
    "cudnnGetRNNWeightSpaceSize": [c_void_p, c_void_p, SIZE],
    # handle, rnnDesc, fwdMode, xDesc, workSpaceSize, reserveSpaceSize.
    "cudnnGetRNNTempSpaceSizes": [c_void_p, c_void_p, c_int, c_void_p, SIZE, SIZE],
    # handle, rnnDesc, fwdMode, devSeqLengths; xDesc, x; yDesc, y; hDesc, hx, hy; cDesc, cx, cy; weights,
    # work and reserve, each the size before the address.
    "cudnnRNNForward": [c_void_p, c_void_p, c_int, *[c_void_p] * 11, *[c_size_t, c_void_p] * 3],
}


def libraries():
    """Names and paths to try: the library that PyTorch has loaded, then that of NVIDIA's package."""
    yield from ("libcudnn.so.9", "libcudnn.so.8")
    try:
        package = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        package = None
    for folder in package.submodule_search_locations if package else ():
        yield from map(str, sorted(pathlib.Path(folder, "lib").glob("libcudnn.so.*")))


class Library:
    """cuDNN's functions, which raise an error for any status but success."""

    def __init__(self):
        self.library = self._load()
        self.library.cudnnGetVersion.restype = c_size_t
        self.library.cudnnGetErrorString.restype = ctypes.c_char_p
        self.library.cudnnGetErrorString.argtypes = [c_int]
        for name, types in SIGNATURES.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = types, c_int

    @staticmethod
    def _load():
        tried = []
        for name in libraries():
            try:
                return ctypes.CDLL(name)
            except OSError as error:
                tried.append(str(error))
        raise RuntimeError("cuDNN does not load: " + "; ".join(tried))

    def version(self):
        return self.library.cudnnGetVersion()

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            words = self.library.cudnnGetErrorString(status).decode()
            raise RuntimeError(f"{name}: {words}")

    def create(self, name, *arguments):
        """A handle or a descriptor. Processes are short: none is destroyed."""
        made = c_void_p()
        self(name, byref(made), *arguments)
        return made


class Layers:
    """Descriptors of layers of one cell, each as wide as its input. They take no GPU."""

    def __init__(self, cudnn, algorithm, job, dropout):
        self.cudnn = cudnn
        hidden, layers = job["hidden"], job["layers"]
        self.rnn = cudnn.create("cudnnCreateRNNDescriptor")
        modes = (algorithm, MODES[job["cell"]], DOUBLE_BIAS, UNIDIRECTIONAL, LINEAR_INPUT)
        numbers = (DATA_FLOAT, DATA_FLOAT, FMA_MATH)
        sizes_and_rest = (hidden, hidden, hidden, layers, dropout, PADDED_IO_ENABLED)
        cudnn("cudnnSetRNNDescriptor_v8", self.rnn, *modes, *numbers, *sizes_and_rest)
        # x and y alike.
        self.data = cudnn.create("cudnnCreateRNNDataDescriptor")
        steps, batch = job["steps"], job["batch"]
        lengths = (c_int * batch)(*[steps] * batch)
        shape = (DATA_FLOAT, SEQ_MAJOR_UNPACKED, steps, batch, hidden)
        cudnn("cudnnSetRNNDataDescriptor", self.data, *shape, lengths, None)
        # h and c alike: [layers, batch, hidden].
        self.states = cudnn.create("cudnnCreateTensorDescriptor")
        axes, strides = (c_int * 3)(layers, batch, hidden), (c_int * 3)(batch * hidden, hidden, 1)
        cudnn("cudnnSetTensorNdDescriptor", self.states, DATA_FLOAT, 3, axes, strides)


class Peer:
    def __init__(self, algorithm):
        import torch

        if algorithm not in ALGORITHMS:
            raise NotImplementedError(f"cuDNN has no algorithm {algorithm}")
        self.name, self.algorithm = algorithm, ALGORITHMS[algorithm]
        # PyTorch's own first call has its library loaded.
        torch.backends.cudnn.version()
        self.cudnn = Library()
        self.handle = self.cudnn.create("cudnnCreate")
        self.cudnn("cudnnSetStream", self.handle, torch.cuda.current_stream().cuda_stream)
        self.dropout = self.cudnn.create("cudnnCreateDropoutDescriptor")
        self.cudnn("cudnnSetDropoutDescriptor", self.dropout, self.handle, 0.0, None, 0, 0)

    def about(self):
        return f"cuDNN {self.cudnn.version()}, algorithm {self.name}"

    def prepare(self, job):
        """What runs a batch of whole sequences from zero states."""
        import torch

        if job["cell"] not in MODES:
            raise NotImplementedError(f"cuDNN has no {job['cell']}")
        layers = Layers(self.cudnn, self.algorithm, job, self.dropout)
        if self.name == "persist-dynamic":
            self.cudnn("cudnnBuildRNNDynamic", self.handle, layers.rnn, job["batch"])
        weights, work, reserve = c_size_t(), c_size_t(), c_size_t()
        self.cudnn("cudnnGetRNNWeightSpaceSize", self.handle, layers.rnn, byref(weights))
        of_layers = (self.handle, layers.rnn, INFERENCE, layers.data)
        self.cudnn("cudnnGetRNNTempSpaceSizes", *of_layers, byref(work), byref(reserve))

        shape = (job["steps"], job["batch"], job["hidden"])
        x, y = torch.randn(shape, device="cuda"), torch.full(shape, float("nan"), device="cuda")
        lengths = torch.full((job["batch"],), job["steps"], dtype=torch.int32, device="cuda")
        weight_space = torch.randn(weights.value // 4, device="cuda") / job["hidden"] ** 0.5
        spaces = [weight_space]
        for size in (work, reserve):
            spaces.append(torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda"))
        memory = []
        for size, space in zip((weights, work, reserve), spaces):
            memory += [size.value, space.data_ptr() if size.value else None]

        def run():
            x_and_y = (layers.data, x.data_ptr(), layers.data, y.data_ptr())
            # No first states: zeros. The last ones are not kept.
            states = (layers.states, None, None) * 2
            before = (self.handle, layers.rnn, INFERENCE, lengths.data_ptr())
            self.cudnn("cudnnRNNForward", *before, *x_and_y, *states, *memory)
            # They live as long as this function.
            return spaces

        run()
        torch.cuda.synchronize()
        if not torch.isfinite(y).all().item():
            raise RuntimeError("it leaves outputs that are no numbers")
        return run
