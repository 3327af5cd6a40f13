"""Prints the microseconds of a step of PyTorch's LSTM and GRU on a GPU, for each size of a list, as JSON.

A sequence is given at once, so that cuDNN projects all inputs together and may keep weights on the chip. Numbers are f32, without TF32.
"""

import json
import statistics
import sys

import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
STEPS = int(sys.argv[1])


def microseconds(kind, hidden, batch):
    network = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](hidden, hidden).cuda().eval()
    x = torch.randn(STEPS, batch, hidden, device="cuda")
    times = []
    with torch.inference_mode():
        for turn in range(15):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            network(x)
            end.record()
            torch.cuda.synchronize()
            if turn >= 5:
                times.append(start.elapsed_time(end) * 1e3 / STEPS)
    return statistics.median(times)


print(json.dumps([microseconds(*size) for size in json.loads(sys.argv[2])]))
