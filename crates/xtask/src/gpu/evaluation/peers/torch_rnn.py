"""LSTM and GRU of PyTorch, which chooses an algorithm of cuDNN. The reset gate comes after the product."""

import torch

MODULES = {"lstm": "LSTM", "gru": "GRU"}


class Peer:
    def about(self):
        gpu = torch.cuda.get_device_name()
        return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {gpu}"

    def prepare(self, job):
        """What runs a batch of whole sequences: `[steps, batch, hidden]`."""
        module = MODULES.get(job["cell"])
        if module is None:
            raise NotImplementedError(f"PyTorch has no {job['cell']}")
        hidden = job["hidden"]
        network = getattr(torch.nn, module)(hidden, hidden, job["layers"]).cuda().eval()
        x = torch.randn(job["steps"], job["batch"], hidden, device="cuda")
        return lambda: network(x)
