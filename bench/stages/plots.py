"""Plots of figures, as SVG files."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen before)


def bars(path, title, groups, series, unit):
    """Bars of each series (`{name: [height a group]}`) side by side in each group."""
    figure, axes = plt.subplots(figsize=(7, 3.5))
    width = 0.8 / len(series)
    for at, (name, heights) in enumerate(series.items()):
        places = [group + (at - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, heights, width, label=name)
    axes.set_xticks(range(len(groups)), groups)
    finish(figure, axes, path, title, unit)


def lines(path, title, series, axis, unit, behind=None):
    """Lines of each series (`{name: (x, y)}`); `behind`, a name with x and y, is drawn as steps against an axis on the right."""
    figure, axes = plt.subplots(figsize=(7, 3.5))
    for name, (x, y) in series.items():
        axes.plot(x, y, marker="." if len(x) < 50 else None, linewidth=1, label=name)
    if behind:
        name, x, y = behind
        right = axes.twinx()
        right.step(x, y, where="post", color="0.7", linestyle="--")
        right.set_ylabel(name)
        right.set_ylim(bottom=0)
    axes.set_xlabel(axis)
    finish(figure, axes, path, title, unit)


def finish(figure, axes, path, title, unit):
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    print(f"plotted {path}", flush=True)
