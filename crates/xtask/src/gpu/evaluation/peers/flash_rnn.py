"""The LSTM of FlashRNN 1.0.8 (PyPI), without the products of x, which it is given.

`flashrnn-cuda_fused` is its persistent kernel. In f32 its products are TF32's, in tiles of 16 rows.
`flashrnn-cuda` alternates between a product of cuBLAS and a kernel of the gates. Both are compiled for
each size when they first run, which takes nvcc and minutes. Tensors have the order of axes that the
backend wants, so that nothing is transposed in the measured time.
"""

import math

# Axes: T steps, B rows, H heads (one), G gates, D and P units.
SHAPES = {
    "cuda_fused": {"input": "TBHDG", "recurrent": "HDGP", "bias": "HDG"},
    "cuda": {"input": "TBHGD", "recurrent": "HPGD", "bias": "HGD"},
}


class Peer:
    def __init__(self, name):
        # Imported first: without it there is nothing to measure.
        import flashrnn

        self.package = flashrnn
        self.backend = name.removeprefix("flashrnn-")
        self.shapes = SHAPES[self.backend]

    def about(self):
        import importlib.metadata

        version = importlib.metadata.version("flashrnn")
        return f"FlashRNN {version}, {self.backend}, without the products of x"

    def prepare(self, job):
        """What runs a batch of whole sequences from zero states."""
        import torch

        if job["cell"] != "lstm" or job["layers"] != 1:
            raise NotImplementedError("only one layer of LSTM is measured")
        hidden = job["hidden"]
        sizes = {"T": job["steps"], "B": job["batch"], "H": 1, "G": 4, "D": hidden, "P": hidden}
        tensors = [
            torch.randn([sizes[axis] for axis in axes], device="cuda") / math.sqrt(hidden)
            for axes in self.shapes.values()
        ]
        config = self.package.FlashRNNConfig(
            backend=self.backend,
            function="lstm",
            head_dim=hidden,
            num_heads=1,
            batch_size=job["batch"],
            dtype="float32",
            input_shape=self.shapes["input"],
            recurrent_shape=self.shapes["recurrent"],
            bias_shape=self.shapes["bias"],
            output_shape="STBHD",
        )
        return lambda: self.package.flashrnn(*tensors, config=config)
