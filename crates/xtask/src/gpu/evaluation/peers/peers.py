"""Times recurrent layers of one system on a GPU, for `cargo xtask gpu --only evaluation`.

Prints a line of JSON for each job as soon as it has run: the job with `ms`, the milliseconds of the GPU
for all steps of a batch, and `wall_ms`, those of the host from its call until the GPU is done, both
medians; or with `left_out`, the reason why there is no time. The first line says what was measured.
Numbers are f32.

    python peers.py --peer pytorch --jobs \
        '[{"cell": "lstm", "hidden": 256, "batch": 10, "steps": 100, "layers": 1}]'
"""

import argparse
import json
import os
import signal
import sys
import threading

KEYS = ("cell", "hidden", "batch", "steps", "layers")
CUDNN = "cudnn-"


def peer_named(name):
    """A peer: `about()` describes it, and `prepare(job)` returns what runs a job once."""
    if name == "pytorch":
        import torch_rnn

        return torch_rnn.Peer()
    if name.startswith(CUDNN):
        import cudnn_rnn

        return cudnn_rnn.Peer(name.removeprefix(CUDNN))
    import flash_rnn

    return flash_rnn.Peer(name)


def reason(error):
    """An error in one line, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__


def measure(peer, job, repeats):
    """A job's times, or why there are none."""
    import clock

    try:
        return clock.times_ms(peer.prepare(job), repeats)
    except Exception as error:  # One job that fails leaves the others.
        return {"left_out": reason(error)}


def results_file():
    """The standard output, which from now on nothing else writes to: compilers print to it."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return results


def stop_after(seconds):
    """Ends this process and those that it started, such as compilers, once the time is over."""
    os.setpgid(0, 0)
    timer = threading.Timer(seconds, os.killpg, (0, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--peer", required=True, help="pytorch, cudnn-ALGORITHM or flashrnn-BACKEND")
    option("--jobs", required=True, type=json.loads, help="a JSON list of jobs")
    option("--gpu", type=int, default=0, help="the number of the GPU (default: %(default)s)")
    option("--repeats", type=int, default=15, help="of which medians count (default: %(default)s)")
    option("--seconds", type=float, help="end after this time, whatever is done")
    option("--dry-run", action="store_true", help="leave every job out, without PyTorch")
    arguments = parser.parse_args(arguments)
    for job in arguments.jobs:
        if missing := [key for key in KEYS if key not in job]:
            parser.error(f"--jobs: a job has no {missing[0]}")
    return arguments


def main(arguments=None, results=None):
    arguments = parsed(arguments)
    results = results or results_file()
    write = lambda of: print(json.dumps(of), file=results, flush=True)
    if arguments.seconds:
        stop_after(arguments.seconds)
    if arguments.dry_run:
        for job in arguments.jobs:
            write(job | {"left_out": "a dry run"})
        return
    try:
        import clock

        clock.use_gpu(arguments.gpu)
        peer = peer_named(arguments.peer)
        write({"about": peer.about()})
    except Exception as error:
        for job in arguments.jobs:
            write(job | {"left_out": reason(error)})
        return
    for job in arguments.jobs:
        write(job | measure(peer, job, arguments.repeats))


if __name__ == "__main__":
    sys.exit(main())
