"""Times of work on a GPU that PyTorch drives."""

import statistics
import time

import torch

WARM_UPS = 5


def use_gpu(number):
    """Has a GPU do the work, with products in f32 and not in TF32."""
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA device")
    torch.cuda.set_device(number)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def times_ms(run, repeats):
    """Medians over `repeats` runs: `ms` between events of the GPU, `wall_ms` of the host until the end."""
    gpu, wall = [], []
    with torch.inference_mode():
        for turn in range(WARM_UPS + repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begun = time.perf_counter()
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            if turn >= WARM_UPS:
                wall.append((time.perf_counter() - begun) * 1e3)
                gpu.append(start.elapsed_time(end))
    return {"ms": statistics.median(gpu), "wall_ms": statistics.median(wall)}
