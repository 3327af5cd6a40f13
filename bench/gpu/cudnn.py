"""Times the LSTM and the GRU of cuDNN, called by PyTorch, in microseconds a step.

One layer whose input is as wide as its hidden state runs over whole sequences, all steps given at
once, the input projection included. Float32 is computed in float32: TF32 is off. The modules
are in the mode of inference, without gradients.

    python cudnn.py
    python cudnn.py --kinds lstm --types float16 --hidden 256,1024 --batch 1,8,64
"""

import argparse
import statistics

import torch

KINDS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

HIDDEN = (64, 256, 512, 1024, 2048)
BATCH = (1, 8, 10, 20, 64, 512)

WARM_UPS = 3


def flat_module(kind, hidden, dtype):
    """The module on the GPU, its weights in one run of memory, as cuDNN wants them.

    PyTorch flattens no weights of types outside this set, which lacks bfloat16, but would compact
    them at every call instead.
    """
    torch.backends.cudnn.CUDNN_TENSOR_DTYPES.add(dtype)
    module = KINDS[kind](hidden, hidden).cuda().to(dtype).eval()
    module.flatten_parameters()
    return module


def median_ms(run, repeats):
    """Milliseconds of the GPU between two events around a run."""
    for _ in range(WARM_UPS):
        run()
    torch.cuda.synchronize()
    times_ms = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times_ms.append(start.elapsed_time(stop))
    return statistics.median_high(times_ms)


def us_a_step(kind, type_name, hidden, batch, steps, repeats):
    """Microseconds a step of one size."""
    dtype = TYPES[type_name]
    module = flat_module(kind, hidden, dtype)
    x = torch.randn(steps, batch, hidden, device="cuda", dtype=dtype)
    return median_ms(lambda: module(x), repeats) * 1e3 / steps


def names(text, known, option, parser):
    """The names of a list with commas, each of them known."""
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            parser.error(f"{option}: {name} is none of {', '.join(known)}")
    return chosen


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: python cudnn.py --kinds lstm --types float16 --hidden 256,1024 --batch 1,8,64",
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: %(default)s")
    parser.add_argument("--types", default=",".join(TYPES), help="default: %(default)s")
    parser.add_argument("--hidden", default=",".join(map(str, HIDDEN)), help="default: %(default)s")
    parser.add_argument("--batch", default=",".join(map(str, BATCH)), help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=100, help="default: %(default)s")
    parser.add_argument(
        "--repeats", type=int, default=10, help="of which the median counts (default: %(default)s)"
    )
    arguments = parser.parse_args()

    kinds = names(arguments.kinds, KINDS, "--kinds", parser)
    types = names(arguments.types, TYPES, "--types", parser)
    hidden_sizes = [int(size) for size in arguments.hidden.split(",")]
    batches = [int(size) for size in arguments.batch.split(",")]
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device")

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False

    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
        f"cuDNN {torch.backends.cudnn.version()}"
    )
    print(f"us a step, {arguments.steps} steps, one layer, input projection included\n")
    print(f"{'kind':5}{'type':9}{'hidden':>7}" + "".join(f"{f'b={batch}':>9}" for batch in batches))
    for kind in kinds:
        for type_name in types:
            for hidden in hidden_sizes:
                print(f"{kind:5}{type_name:9}{hidden:7}", end="", flush=True)
                for batch in batches:
                    us = us_a_step(
                        kind, type_name, hidden, batch, arguments.steps, arguments.repeats
                    )
                    print(f"{us:9.2f}", end="", flush=True)
                print()


if __name__ == "__main__":
    with torch.no_grad():
        main()
