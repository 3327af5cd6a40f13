"""Makes tables and plots of Figures 14 to 16, 20 and 21 of the DVABatch paper for this machine: networks in stages beside batches that run as a
whole, with `batchmaker bench`; or plots of Figures 14 and 16 in virtual time, from what `cargo xtask dvabatch --json` printed.

Figures 14 and 16: mean and 99th percentile of latency at a quarter, three fifths and nine tenths of ZeroBatch's peak under a quality of service.
Figure 15: latency while the load steps up and down. Figure 20: by the number of stages. Figure 21: a closed loop, one client.

ZeroBatch and DelayBatch (`zero`, `delay`) are not padded: images are of one size. The window of DelayBatch is the one with the highest peak.
Policies take turns. Means and 90th percentiles of Figures 14 and 21 are medians of the turns.
Networks have random weights; nothing else may run on the machine. Needs the packages of `requirements.txt` beside this file.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import make_networks
import numpy as np
import plots

SHARES = [0.25, 0.6, 0.9]
WINDOWS_MS = [1, 2, 5, 10, 20]
STEPS = [0.2, 0.5, 0.9, 0.5, 0.2]
STEP_SECONDS_MIN = 5
TURN_SECONDS_MIN = 1
POLICIES = ["zero", "cellular", "staged"]
IMAGES = 8


def request(pixels, seed):
    """A request of one random image."""
    image = np.random.default_rng(seed).standard_normal((1, 3, pixels, pixels), np.float32)
    tensor = {"name": "image", "shape": image.shape, "datatype": "FP32", "data": image.round(3).ravel().tolist()}
    return json.dumps({"inputs": [tensor]})


class Bench:
    """One network, and `batchmaker` to measure it with."""

    def __init__(self, arguments, name):
        self.arguments, self.name = arguments, name
        self.path = arguments.out / name / f"{name}.onnx"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        make_networks.write(name, self.path, arguments.thin, arguments.pixels)
        self.requests = self.path.parent / "requests.jsonl"
        self.requests.write_text("".join(request(arguments.pixels, seed) + "\n" for seed in range(IMAGES)))

    def run(self, command, *options, text=False):
        line = [self.arguments.batchmaker, command, self.path, *map(str, options)]
        print(f"> {' '.join(map(str, line))}", file=sys.stderr, flush=True)
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout if text else [json.loads(row) for row in done.stdout.splitlines()]

    def profile(self, stages=None):
        self.run("profile", "--precision", "f32", *(["--stages", stages] if stages else []), text=True)

    def bench(self, *options, policies=POLICIES):
        chosen = [option for policy in policies for option in ("--policy", policy)]
        return self.run("bench", "--json", "--replay", self.requests, "--qos", self.arguments.qos, *chosen, *options)

    def latencies_of_turns(self, policies, *load, rate=0):
        """Returns the latencies of each policy under a load, of `rate` requests a second if that is given, in ms: `[turn, request]`."""
        file = self.path.parent / "latencies.jsonl"
        turns = self.arguments.turns
        # Each turn begins with an empty queue.
        requests = turns * round(max(self.arguments.requests / turns, rate * TURN_SECONDS_MIN))
        load += ("--rate", f"{rate:.2f}") if rate else ()
        self.bench(*load, "--requests", requests, "--turns", turns, "--write-latencies", file, policies=policies)
        latencies = {policy: [] for policy in policies}
        for line in file.read_text().splitlines():
            answer = json.loads(line)
            latencies[answer["policy"]].append(answer["latency_ms"])
        return {policy: np.array(times).reshape(turns, -1) for policy, times in latencies.items()}

    def peaks(self, policies):
        seconds = ["--seconds", self.arguments.seconds]
        return {row["policy"]: row["peak_rps"] for row in self.bench("--peak", *seconds, policies=policies)}


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def figures_14_and_16(bench):
    """Mean and 99th percentile at three loads, and whether `staged` is as good as the better of the others."""
    windows = bench.peaks([f"delay:window={ms}ms" for ms in WINDOWS_MS])
    delay = max(windows, key=windows.get)
    peak = bench.peaks(["zero"])["zero"]
    policies, body, latency = [*POLICIES, delay], [], {}
    print(f"\n{bench.name}: mean / p90 / p99 in ms; `{delay}` has the highest peak of the windows tried, {windows[delay]:.1f}/s")
    for share in SHARES:
        turns = bench.latencies_of_turns(policies, rate=share * peak)
        of = {policy: latency_of(turns[policy]) for policy in policies}
        for policy in policies:
            latency.setdefault(policy, []).append(of[policy])
        show = [" / ".join(f"{value:.1f}" for value in of[policy].values()) for policy in policies]
        ratio = [of["staged"][key] / min(of[name][key] for name in ("zero", "cellular")) for key in ("mean", "p90")]
        body.append([f"{share * peak:.1f}", *show, f"{ratio[0]:.2f} / {ratio[1]:.2f}"])
    table(["requests/s", *policies, "staged beside the better of zero and cellular, mean / p90"], body)
    plot_figures_14_and_16(bench.path.parent / "figure", bench.name, SHARES, latency)


def latency_of(turns):
    """Returns the median over turns of the mean and of the 90th percentile, as the machine may be slow for a while; the 99th percentile is of all."""
    of_turns = {"mean": np.mean, "p90": lambda times: np.percentile(times, 90)}
    medians = {key: float(np.median([of(times) for times in turns])) for key, of in of_turns.items()}
    return medians | {"p99": float(np.percentile(turns.ravel(), 99))}


def plot_figures_14_and_16(stem, title, shares, latency):
    """Bars of the mean and of the 99th percentile (`{policy: [{"mean": ms, "p99": ms} a share]}`), to `stem`14.svg and 16.svg."""
    groups = [f"{share:g} of the peak" for share in shares]
    for figure, key in ((14, "mean"), (16, "p99")):
        series = {policy: [of[key] for of in of_shares] for policy, of_shares in latency.items()}
        plots.bars(stem.with_name(f"{stem.name}{figure}.svg"), f"{title}, {key} latency", groups, series, "ms")


def figure_15(bench):
    """Mean latency in each tenth of the time, while the load steps."""
    peak = bench.peaks(["zero"])["zero"]
    seconds = bench.arguments.requests / len(STEPS) / peak
    steps = ",".join(f"{share * peak:.2f}:{max(seconds / share / 2, STEP_SECONDS_MIN):.2f}" for share in STEPS)
    file = bench.path.parent / "stepping.jsonl"
    bench.bench("--stepping", steps, "--write-latencies", file)
    answers = [json.loads(line) for line in file.read_text().splitlines()]
    end, bins = max(answer["at_s"] for answer in answers) + 1e-9, 10
    print(f"\n{bench.name}: the load steps through {steps} (rate:seconds); mean latency in ms in each tenth of the time")
    body, series = [], {}
    for policy in POLICIES:
        tenths = [[] for _ in range(bins)]
        own = sorted((of for of in answers if of["policy"] == policy), key=lambda of: of["at_s"])
        series[policy] = tuple([answer[key] for answer in own] for key in ("at_s", "latency_ms"))
        for answer in own:
            tenths[int(bins * answer["at_s"] / end)].append(answer["latency_ms"])
        body.append([policy, *(f"{sum(times) / len(times):.1f}" if times else "-" for times in tenths)])
    table(["policy", *(f"{at + 1}" for at in range(bins))], body)
    rates, times = zip(*(map(float, step.split(":")) for step in steps.split(",")))
    load = ("requests/s", [0, *np.cumsum(times)], [*rates, rates[-1]])
    plots.lines(bench.path.parent / "figure15.svg", f"{bench.name}, a load that steps", series, "s", "latency, ms", load)


def figure_20(bench):
    """Peak and mean latency at three fifths of it, by the number of stages."""
    body = []
    for stages in bench.arguments.stages:
        bench.profile(stages)
        peak = bench.peaks(["staged"])["staged"]
        options = ["--rate", f"{0.6 * peak:.2f}", "--requests", bench.arguments.requests]
        (run,) = bench.bench(*options, policies=["staged"])
        body.append([str(stages), f"{peak:.1f}", f"{run['latency_ms']['mean']:.1f}"])
    print(f"\n{bench.name}")
    table(["stages", "peak, requests/s", "mean latency at 0.6 of it, ms"], body)
    x, peaks, means = ([float(row[at]) for row in body] for at in range(3))
    plots.lines(bench.path.parent / "figure20-peak.svg", bench.name, {"peak": (x, peaks)}, "stages", "requests/s")
    plots.lines(bench.path.parent / "figure20-latency.svg", bench.name, {"mean at 0.6 of the peak": (x, means)}, "stages", "ms")
    bench.profile()


def figure_21(bench):
    """Latency of one client who waits for each reply."""
    turns = bench.latencies_of_turns(POLICIES, "--saturate", "--in-flight", 1)
    return [bench.name, *(latency_of(turns[policy])["mean"] for policy in POLICIES)]


def simulated(file, out):
    """Plots of Figures 14 and 16 in virtual time."""
    out.mkdir(parents=True, exist_ok=True)
    for line in file.read_text().splitlines():
        network = json.loads(line)
        loads, name = network["loads"], network["name"]
        of = lambda latency: {key: latency[f"{key}_ms"] for key in ("mean", "p99")}
        latency = {policy: [of(load[policy]) for load in loads] for policy in ("zero", "delay", "staged")}
        plot_figures_14_and_16(out / f"simulated-{name}-figure", f"{name} in virtual time", [load["share"] for load in loads], latency)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  python figures.py --networks resnet152,unet,linknet --pixels 64 --out figures\n"
        "  cargo xtask dvabatch --json > simulated.jsonl && python figures.py --simulated simulated.jsonl --out figures",
    )
    option = parser.add_argument
    networks = lambda text: text.split(",")
    option("--batchmaker", default=pathlib.Path("target/release/batchmaker"), type=pathlib.Path)
    option("--out", required=True, type=pathlib.Path, help="the folder for networks, profiles and latencies")
    option("--networks", default=["resnet152", "unet", "linknet"], type=networks, help="some of " + ", ".join(make_networks.NETWORKS))
    option("--figures", default=["14", "15", "20", "21"], type=networks, help="some of 14 (with 16), 15, 20, 21")
    option("--pixels", type=int, default=64, help="a side of images (default: 64)")
    option("--thin", type=int, default=1, help="what widths are divided by (default: 1)")
    option("--requests", type=int, default=1000, help="requests of each policy and rate, and more where turns would be shorter than a second (default: 1000)")
    option("--turns", type=int, default=10, help="turns of each rate, of which medians are taken (default: 10)")
    option("--seconds", type=float, default=4, help="the time that each rate of a search is measured (default: 4)")
    option("--stages", default=[1, 2, 4, 8], type=lambda text: [int(n) for n in text.split(",")], help="numbers of stages of Figure 20")
    option("--simulated", type=pathlib.Path, metavar="FILE", help="measure nothing: plot this output of `cargo xtask dvabatch --json`")
    option("--qos", default="p99:200ms", help="the quality of service of peaks (default: p99:200ms)")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - set(make_networks.NETWORKS):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    if arguments.simulated:
        return simulated(arguments.simulated, arguments.out)
    closed = []
    for name in arguments.networks:
        bench = Bench(arguments, name)
        bench.profile()
        if "14" in arguments.figures:
            figures_14_and_16(bench)
        if "15" in arguments.figures:
            figure_15(bench)
        if "20" in arguments.figures:
            figure_20(bench)
        if "21" in arguments.figures:
            closed.append(figure_21(bench))
    if closed:
        print("\nOne client, who waits for each reply: mean latency in ms")
        over = lambda row: f"{100 * (row[1 + POLICIES.index('staged')] / row[1] - 1):+.1f} %"
        series = {policy: [row[1 + at] for row in closed] for at, policy in enumerate(POLICIES)}
        plots.bars(arguments.out / "figure21.svg", "One client, who waits for each reply", [row[0] for row in closed], series, "mean latency, ms")
        table(["network", *POLICIES, "staged over zero"], [[row[0], *(f"{ms:.2f}" for ms in row[1:]), over(row)] for row in closed])


if __name__ == "__main__":
    main()
