"""Networks over images."""

import torch
from torch import nn
from torch.nn import functional

from architecture import Architecture, sizes


class BidirectionalLSTM(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.rnn = nn.LSTM(width, hidden, bidirectional=True)
        self.embedding = nn.Linear(2 * hidden, out)

    def forward(self, x):
        recurrent, _ = self.rnn(x)
        steps, batch, width = recurrent.size()
        return self.embedding(recurrent.view(steps * batch, width)).view(steps, batch, -1)


class CRNN(nn.Module):
    """Text in a picture: convolutions until the height is 1, two LSTMs, CTC."""

    def __init__(self):
        super().__init__()
        layers, width = [], 1
        for out, pool in [(16, 2), (32, 2), (48, (2, 1)), (48, (2, 1))]:
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(True), nn.MaxPool2d(pool)]
            width = out
        self.cnn = nn.Sequential(*layers, nn.Conv2d(width, 64, (2, 1)), nn.ReLU(True))
        self.rnn = nn.Sequential(BidirectionalLSTM(64, 32, 32), BidirectionalLSTM(32, 32, 37))

    def forward(self, image):
        x = self.cnn(image).squeeze(2).permute(2, 0, 1)
        return functional.log_softmax(self.rnn(x), dim=2)


def double_conv(width, out):
    layers = []
    for k in (width, out):
        layers += [nn.Conv2d(k, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Up by a transposed convolution, by nn.Upsample, or by interpolate to the size of the other branch."""

    def __init__(self, up):
        super().__init__()
        self.up, widths = up, [8, 16, 32]
        self.inc = double_conv(3, widths[0])
        self.downs = nn.ModuleList(double_conv(a, b) for a, b in zip(widths, widths[1:]))
        self.pool = nn.MaxPool2d(2)
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        if up == "transposed":
            self.ups = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        else:
            enlarge = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.ups = nn.ModuleList(
                nn.Sequential(nn.Identity() if up == "interpolate" else enlarge, nn.Conv2d(a, b, 1)) for a, b in pairs
            )
        self.convs = nn.ModuleList(double_conv(2 * b, b) for a, b in pairs)
        self.outc = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image):
        kept = [self.inc(image)]
        for down in self.downs:
            kept.append(down(self.pool(kept[-1])))
        x = kept.pop()
        for up, conv in zip(self.ups, self.convs):
            other = kept.pop()
            if self.up == "interpolate":
                x = functional.interpolate(x, size=other.shape[2:], mode="nearest")
            x = up(x)
            if self.up != "interpolate":
                rows, columns = other.size(2) - x.size(2), other.size(3) - x.size(3)
                x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
            x = conv(torch.cat([other, x], dim=1))
        return self.outc(x)


class ViT(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, stride=8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class BasicBlock(nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or width != out:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(16), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layers = nn.Sequential(BasicBlock(16, 16), BasicBlock(16, 32, 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(32, 10)

    def forward(self, image):
        x = self.layers(self.maxpool(self.relu(self.bn1(self.conv1(image)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Detector(nn.Module):
    """The best ten boxes of a head without anchors."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU()
        )
        self.scores, self.boxes = nn.Conv2d(32, 5, 3, padding=1), nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, image):
        x = self.stem(image)
        rows, columns = x.shape[2:]
        y, x_ = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centres = (torch.stack([x_, y], dim=-1).reshape(1, -1, 2).to(x) + 0.5) * 4
        scores = self.scores(x).flatten(2).transpose(1, 2).sigmoid()
        sides = functional.softplus(self.boxes(x).flatten(2).transpose(1, 2)) * 4
        boxes = torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], dim=-1)
        best, labels = scores.max(dim=-1)
        best, index = best.topk(10, dim=1)
        return boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4)), best, labels.gather(1, index)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(16 * 7 * 7, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, image):
        return self.classifier(self.features(image))


IMAGE, AREAS = "image floats batch 3 height width", sizes(height=[32, 40, 48, 33], width=[48, 36, 32, 45])
ARCHITECTURES = [
    Architecture(
        "crnn", CRNN, "image floats batch 1 32 width", "log_probabilities steps batch 37",
        sizes(width=[64, 100, 37, 80]),
    ),
    *(
        Architecture(f"unet_{up}", lambda up=up: UNet(up), IMAGE, "mask batch 2 height width", AREAS)
        for up in ["transposed", "upsample", "interpolate"]
    ),
    Architecture("vit", ViT, "image floats batch 3 32 32", "logits batch 10", sizes()),
    Architecture("resnet", ResNet, IMAGE, "logits batch 10", AREAS),
    Architecture("detector", Detector, IMAGE, "boxes batch 10 4, scores batch 10, labels batch 10", AREAS),
    Architecture(
        "quantised_cnn", SmallCNN, "image floats batch 1 28 28", "logits batch 10", sizes(), quantise="static"
    ),
]
