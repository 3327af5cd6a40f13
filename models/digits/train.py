"""Trains `digits`, a small convolutional network with two early exits, and exports it to ONNX.

The images are the 1,797 handwritten digits of 8 by 8 pixels that the package scikit-learn holds (Optical Recognition of
Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0). Every third one is held out of
training; it serves for the final figures only.

The network is a trunk of convolutions with three heads: after the first convolution, after the second, and at the end. All three
are trained at once, as in BranchyNet (Teerapittayanon et al., ICPR 2016). A head gives probabilities, and the confidence that an
exit is decided by: the greatest of them.

One CPU core, about a minute; one seed gives one model on one machine and torch version.

Needs: python >= 3.9, numpy, torch, onnx, scikit-learn.
Writes: model.onnx.
"""

import argparse
import pathlib

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent


class Head(nn.Module):
    """Probabilities of the ten digits, of which the greatest is the confidence."""

    def __init__(self, channels, size):
        super().__init__()
        self.pool = nn.AvgPool2d(2)
        self.linear = nn.Linear(channels * (size // 2) ** 2, 10)

    def forward(self, x):
        return self.linear(self.pool(x).flatten(1))


class Digits(nn.Module):
    """Images [batch, 1, 8, 8] with pixels of 0 to 1."""

    def __init__(self):
        super().__init__()
        convolution = lambda inputs, outputs: nn.Conv2d(inputs, outputs, 3, padding=1)
        self.first = nn.Sequential(convolution(1, 8), nn.ReLU())
        self.second = nn.Sequential(convolution(8, 24), nn.ReLU(), nn.MaxPool2d(2))
        self.third = nn.Sequential(
            convolution(24, 64), nn.ReLU(), convolution(64, 64), nn.ReLU(), convolution(64, 64), nn.ReLU()
        )
        self.heads = nn.ModuleList([Head(8, 8), Head(24, 4), Head(64, 4)])

    def logits(self, x):
        first = self.first(x)
        second = self.second(first)
        third = self.third(second)
        return [head(y) for head, y in zip(self.heads, (first, second, third))]

    def forward(self, x):
        first = self.first(x)
        early = self.heads[0](first).softmax(1)
        second = self.second(first)
        later = self.heads[1](second).softmax(1)
        last = self.heads[2](self.third(second)).softmax(1)
        return last, early, early.amax(1), later, later.amax(1)


def images():
    """Training and held-out images and labels."""
    data = load_digits()
    x = torch.from_numpy((data.images / 16).astype(np.float32))[:, None]
    y = torch.from_numpy(data.target)
    held_out = torch.arange(len(y)) % 3 == 2
    return (x[~held_out], y[~held_out]), (x[held_out], y[held_out])


def shifted(x, generator):
    """Each image moved by up to a pixel."""
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2, len(x)), generator=generator)
    return torch.stack([image[:, d : d + 8, r : r + 8] for image, d, r in zip(padded, down, right)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1998)
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "model.onnx")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    (x, y), (held_out, labels) = images()
    network = Digits()
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = arguments.epochs * -(-len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for epoch in range(arguments.epochs):
        network.train()
        for batch in torch.randperm(len(x), generator=generator).split(64):
            loss = sum(
                nn.functional.cross_entropy(logits, y[batch], label_smoothing=0.02)
                for logits in network.logits(shifted(x[batch], generator))
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    network.eval()
    with torch.no_grad():
        for name, logits in zip(("exit 1", "exit 2", "the end"), network.logits(held_out)):
            print(f"{name}: {(logits.argmax(1) == labels).float().mean().item():.2%} of {len(labels)} held out")
    outputs = ["probabilities", "probabilities_1", "confidence_1", "probabilities_2", "confidence_2"]
    torch.onnx.export(
        network,
        torch.zeros(2, 1, 8, 8),
        str(arguments.output),
        input_names=["image"],
        output_names=outputs,
        dynamic_axes={name: {0: "batch"} for name in ["image", *outputs]},
        opset_version=17,
        dynamo=False,
    )
    onnx.checker.check_model(onnx.load(arguments.output), full_check=True)
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
