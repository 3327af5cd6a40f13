"""Draws latency-lstm-1024.svg: latency against throughput of BatchMaker, ONNX Runtime and PyTorch,
from the table "Hidden size 1024" of ../results.md. Needs the standard library alone.

usage: python3 docs/figures/latency.py
"""

import math
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent
HEADING = "### Hidden size 1024"
# Colours that the colour-blind can tell apart (Okabe and Ito, 2008).
SYSTEMS = {"BatchMaker": "#0072b2", "ONNX Runtime": "#d55e00", "PyTorch": "#009e73"}
SHIFT = 6  # pixels between the points of systems with equal throughput
WIDTH, HEIGHT = 820, 440
LEFT, RIGHT, TOP, BOTTOM = 80, 40, 62, 60
RATES = range(160, 301, 20)  # requests a second
LATENCY = "latency (ms): p90, bars from p50 to p99"
TIMES_MS = [10, 30, 100, 300, 1000, 3000, 10000]


def points(markdown):
    """{system: [(throughput, p50, p90, p99, is_sustained)]} of the rows with a rate; throughput in
    requests a second, latencies in milliseconds."""
    table = markdown.split(HEADING + "\n", 1)[1].split("\n#", 1)[0]
    found, has_rate = {system: [] for system in SYSTEMS}, False
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 6:
            continue
        system = next((name for name in SYSTEMS if cells[1].startswith(name)), None)
        if system is None:
            continue
        has_rate = cells[0].endswith(")") if cells[0] else has_rate
        if has_rate:
            numbers = [float(re.match(r"[\d.]+", cell)[0]) for cell in cells[2:6]]
            found[system].append((*numbers, not cells[2].endswith("*")))
    if not all(len(of) > 1 for of in found.values()):
        raise SystemExit(f"{HEADING}: expected rows with rates of {', '.join(SYSTEMS)}, got {found}")
    return found


def x(rate):
    share = (rate - RATES[0]) / (RATES[-1] - RATES[0])
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def y(time_ms):
    share = math.log(time_ms / TIMES_MS[0]) / math.log(TIMES_MS[-1] / TIMES_MS[0])
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def text(at_x, at_y, words, anchor="middle", size=13, more=""):
    return (
        f'<text x="{at_x}" y="{at_y}" text-anchor="{anchor}" font-size="{size}" fill="#222" {more}>'
        f"{words}</text>"
    )


def line(x1, y1, x2, y2, colour, width, more=""):
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}" {more}/>'
    )


def figure(found):
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(middle_x, 22, "An LSTM of hidden size 1024, sentences of 1 to 330 words, 2 cores", size=15),
        text(middle_x, HEIGHT - 14, "throughput (requests a second)"),
        text(20, middle_y, LATENCY, more=f'transform="rotate(270 20 {middle_y})"'),
    ]
    for rate in RATES:
        parts.append(line(x(rate), TOP, x(rate), HEIGHT - BOTTOM, "#ddd", 1))
        parts.append(text(x(rate), HEIGHT - BOTTOM + 20, rate))
    for time_ms in TIMES_MS:
        parts.append(line(LEFT, y(time_ms), WIDTH - RIGHT, y(time_ms), "#ddd", 1))
        parts.append(text(LEFT - 8, y(time_ms) + 4, f"{time_ms:,}", "end"))
    legend_x = LEFT
    for shift, (system, colour) in zip((SHIFT, 0, -SHIFT), SYSTEMS.items(), strict=True):
        track = " ".join(f"{x(rate) + shift},{y(p90)}" for rate, _, p90, _, _ in found[system])
        parts.append(f'<polyline points="{track}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for rate, p50, p90, p99, is_sustained in found[system]:
            at = x(rate) + shift
            parts.append(line(at, y(p50), at, y(p99), colour, 2, 'stroke-opacity="0.5"'))
            fill = colour if is_sustained else "#fff"
            parts.append(
                f'<circle cx="{at}" cy="{y(p90)}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
            )
        parts.append(f'<circle cx="{legend_x + 6}" cy="43" r="5" fill="{colour}"/>')
        parts.append(text(legend_x + 17, 47, system, "start"))
        legend_x += 40 + 8 * len(system)
    parts += [
        f'<circle cx="{legend_x + 6}" cy="43" r="5" fill="#fff" stroke="#222" stroke-width="2"/>',
        text(legend_x + 17, 47, "not sustained: the queue grew until the end", "start"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    found = points((FOLDER.parent / "results.md").read_text())
    (FOLDER / "latency-lstm-1024.svg").write_text(figure(found))
