"""Networks over sound: recognition, synthesis, detection, enhancement."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from architecture import Architecture, sizes
from text import LanguageModel


class BatchRNN(nn.Module):
    def __init__(self, width, hidden, normed):
        super().__init__()
        self.norm = nn.BatchNorm1d(width) if normed else None
        self.rnn = nn.GRU(width, hidden, bidirectional=True, bias=False)

    def forward(self, x):
        if self.norm is not None:
            steps, batch = x.size(0), x.size(1)
            x = self.norm(x.view(steps * batch, -1)).view(steps, batch, -1)
        x, _ = self.rnn(x)
        return x.view(x.size(0), x.size(1), 2, -1).sum(2).view(x.size(0), x.size(1), -1)


class DeepSpeech2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(8, 8, (7, 5), (2, 1), (3, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20, inplace=True),
        )
        self.rnns = nn.Sequential(BatchRNN(64, 32, False), BatchRNN(32, 32, True), BatchRNN(32, 32, True))
        self.fc = nn.Linear(32, 29, bias=False)

    def forward(self, spectrogram):
        x = self.conv(spectrogram)
        x = x.view(x.size(0), x.size(1) * x.size(2), x.size(3))
        x = self.rnns(x.transpose(1, 2).transpose(0, 1).contiguous())
        return functional.log_softmax(self.fc(x).transpose(0, 1), dim=-1)


class TacotronEncoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(40, width)
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width)) for _ in range(3)
        )
        self.lstm = nn.LSTM(width, width // 2, 1, batch_first=True, bidirectional=True)

    def forward(self, text, lengths):
        x = self.embedding(text).transpose(1, 2)
        for conv in self.convs:
            x = functional.dropout(functional.relu(conv(x)), 0.5, self.training)
        packed = pack_padded_sequence(x.transpose(1, 2), lengths.cpu(), batch_first=True)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class TacotronStep(nn.Module):
    """One frame: a prenet, an LSTM of attention, attention by location, an LSTM."""

    def __init__(self, mel=16, width=32):
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(mel, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.attention_rnn, self.decoder_rnn = nn.LSTMCell(16 + width, width), nn.LSTMCell(2 * width, width)
        self.query, self.v = nn.Linear(width, 24, bias=False), nn.Linear(24, 1, bias=False)
        self.location_conv = nn.Conv1d(2, 8, 15, padding=7, bias=False)
        self.location_dense = nn.Linear(8, 24, bias=False)
        self.projection, self.gate = nn.Linear(2 * width, mel), nn.Linear(2 * width, 1)

    def forward(self, frame, attention_h, attention_c, decoder_h, decoder_c, context, weights, weights_sum,
                memory, processed_memory, padding):
        x = torch.cat((self.prenet(frame), context), -1)
        attention_h, attention_c = self.attention_rnn(x, (attention_h, attention_c))
        location = self.location_conv(torch.cat((weights.unsqueeze(1), weights_sum.unsqueeze(1)), dim=1))
        location = self.location_dense(location.transpose(1, 2))
        energies = self.v(torch.tanh(self.query(attention_h.unsqueeze(1)) + location + processed_memory)).squeeze(-1)
        weights = functional.softmax(energies.masked_fill(padding, -float("inf")), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        decoder_h, decoder_c = self.decoder_rnn(torch.cat((attention_h, context), -1), (decoder_h, decoder_c))
        y = torch.cat((decoder_h, context), dim=1)
        return (self.projection(y), self.gate(y), attention_h, attention_c, decoder_h, decoder_c, context,
                weights, weights_sum + weights)


class FeedForward(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))


class ConvolutionModule(nn.Module):
    def __init__(self, width, kernel=7):
        super().__init__()
        self.norm, self.pointwise1 = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.pointwise2 = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x, pad):
        x = self.norm(x).transpose(1, 2).masked_fill(pad.unsqueeze(1), 0.0)
        x = self.depthwise(functional.glu(self.pointwise1(x), dim=1))
        return self.pointwise2(functional.silu(self.batch_norm(x))).transpose(1, 2)


class Attention(nn.Module):
    """With relative positions as in Transformer-XL, or without."""

    def __init__(self, width, heads, relative):
        super().__init__()
        self.heads, self.head, self.relative = heads, width // heads, relative
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        if relative:
            self.pos = nn.Linear(width, width, bias=False)
            self.bias_u, self.bias_v = (nn.Parameter(torch.randn(heads, self.head)) for _ in range(2))

    def shift(self, x):
        zeros = torch.zeros((*x.size()[:3], 1), device=x.device, dtype=x.dtype)
        padded = torch.cat([zeros, x], dim=-1).view(*x.size()[:2], x.size(3) + 1, x.size(2))
        return padded[:, :, 1:].view_as(x)[:, :, :, : x.size(-1) // 2 + 1]

    def forward(self, x, pad, positions):
        batch = x.size(0)
        q = self.q(x).view(batch, -1, self.heads, self.head)
        k = self.k(x).view(batch, -1, self.heads, self.head).transpose(1, 2)
        v = self.v(x).view(batch, -1, self.heads, self.head).transpose(1, 2)
        if self.relative:
            p = self.pos(positions).view(1, -1, self.heads, self.head).transpose(1, 2)
            by_content = torch.matmul((q + self.bias_u).transpose(1, 2), k.transpose(-2, -1))
            scores = by_content + self.shift(torch.matmul((q + self.bias_v).transpose(1, 2), p.transpose(-2, -1)))
        else:
            scores = torch.matmul(q.transpose(1, 2), k.transpose(-2, -1))
        pad = pad.unsqueeze(1).unsqueeze(2)
        scores = (scores / math.sqrt(self.head)).masked_fill(pad, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1).masked_fill(pad, 0.0)
        return self.out(torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, -1, self.heads * self.head))


class ConformerBlock(nn.Module):
    def __init__(self, width, relative):
        super().__init__()
        self.first, self.second = FeedForward(width), FeedForward(width)
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 4, relative)
        self.convolution, self.last = ConvolutionModule(width), nn.LayerNorm(width)

    def forward(self, x, pad, positions):
        x = x + 0.5 * self.first(x)
        x = x + self.attention(self.norm(x), pad, positions)
        x = x + self.convolution(x, pad)
        return self.last(x + 0.5 * self.second(x))


def sinusoids(positions, width):
    scale = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * -(math.log(10000.0) / width))
    angles = positions[:, None] * scale
    return torch.stack([angles.sin(), angles.cos()], dim=-1).view(-1, width)


class Conformer(nn.Module):
    """A quarter of the frames, sinusoids that are added or relative, two blocks, CTC."""

    def __init__(self, relative, width=32):
        super().__init__()
        self.relative = relative
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.out = nn.Linear(8 * 5, width)
        self.blocks = nn.ModuleList(ConformerBlock(width, relative) for _ in range(2))
        self.ctc = nn.Linear(width, 30)
        positions = torch.arange(49.0, -50.0, -1.0) if relative else torch.arange(50.0)
        self.register_buffer("pe", sinusoids(positions, width).unsqueeze(0))

    def forward(self, features, lengths):
        x = self.conv(features.unsqueeze(1))
        batch, channels, steps, width = x.size()
        x = self.out(x.transpose(1, 2).contiguous().view(batch, steps, channels * width))
        lengths = ((lengths - 1) // 2 - 1) // 2
        pad = torch.arange(steps, device=x.device).unsqueeze(0) >= lengths.unsqueeze(1)
        x = x * math.sqrt(x.size(-1))
        if self.relative:
            positions = self.pe[:, 50 - steps : 49 + steps]
        else:
            positions, x = None, x + self.pe[:, :steps]
        for block in self.blocks:
            x = block(x, pad, positions)
        return functional.log_softmax(self.ctc(x), dim=-1), lengths


class Wav2Vec2(nn.Module):
    """Samples to frames, a grouped convolution as positions, a transformer with a mask of the frames."""

    def __init__(self, width=32):
        super().__init__()
        shapes = [(1, 10, 5), (16, 3, 2), (16, 3, 2)]
        self.convs = nn.ModuleList(nn.Conv1d(a, 16, k, s, bias=False) for a, k, s in shapes)
        self.group_norm, self.norm, self.project = nn.GroupNorm(16, 16), nn.LayerNorm(16), nn.Linear(16, width)
        self.positions = weight_norm(nn.Conv1d(width, width, 16, padding=8, groups=4), name="weight", dim=2)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.head = nn.Linear(width, 64), nn.Linear(64, width), nn.Linear(width, 32)

    def frames(self, samples):
        for conv in self.convs:
            samples = torch.div(samples - conv.kernel_size[0], conv.stride[0], rounding_mode="floor") + 1
        return samples

    def forward(self, input_values, attention_mask):
        x = input_values[:, None]
        for number, conv in enumerate(self.convs):
            x = functional.gelu(self.group_norm(conv(x)) if number == 0 else conv(x))
        x = self.project(self.norm(x.transpose(1, 2)))
        lengths = self.frames(attention_mask.sum(-1)).to(torch.long)
        keep = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        keep[(torch.arange(x.shape[0], device=x.device), lengths - 1)] = 1
        keep = keep.flip([-1]).cumsum(-1).flip([-1]).bool()
        x = x * keep.unsqueeze(-1)
        x = x + functional.gelu(self.positions(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2)
        q, k, v = (f(x).view(x.size(0), -1, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(x.size(0), -1, 32)))
        x = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return self.head(x)


class TransducerEncoder(nn.Module):
    """LSTMs with half the steps after the first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(20, 32, batch_first=True), nn.LSTM(64, 32, batch_first=True)
        self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 24)

    def forward(self, features):
        x, _ = self.first(features)
        x = x[:, : x.size(1) // 2 * 2]
        x, _ = self.second(x.reshape(x.size(0), x.size(1) // 2, -1))
        return self.out(self.norm(x))


class TransducerJoiner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 30)

    def forward(self, encoder_out, predictor_out):
        if encoder_out.dim() == 3:
            encoder_out, predictor_out = encoder_out.unsqueeze(2), predictor_out.unsqueeze(1)
        return self.fc(torch.tanh(encoder_out + predictor_out))


class TCN(nn.Module):
    """Causal convolutions of growing dilation: padded on the left, or on both sides and cut."""

    def __init__(self, cut):
        super().__init__()
        self.cut, pairs = cut, [(8, 16, 1), (16, 16, 2), (16, 16, 4)]
        make = lambda a, b, d: weight_norm(nn.Conv1d(a, b, 3, padding=2 * d if cut else 0, dilation=d))
        self.convs = nn.ModuleList(nn.ModuleList([make(a, b, d), make(b, b, d)]) for a, b, d in pairs)
        self.shorts = nn.ModuleList(nn.Conv1d(a, b, 1) if a != b else nn.Identity() for a, b, _ in pairs)
        self.fc = nn.Linear(16, 4)

    def forward(self, features):
        x = features.transpose(1, 2)
        for convs, short in zip(self.convs, self.shorts):
            y = x
            for conv in convs:
                width = 2 * conv.dilation[0]
                y = conv(y)[:, :, :-width].contiguous() if self.cut else conv(functional.pad(y, (width, 0)))
                y = functional.relu(y)
            x = functional.relu(y + short(x))
        return self.fc(x.transpose(1, 2))


class WaveNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.dilations = nn.Conv1d(1, width, 1), [1, 2, 4, 8]
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.dilations)
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.dilations)
        self.skips = nn.ModuleList(nn.Conv1d(width, 24, 1) for _ in self.dilations)
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(24, 24, 1), nn.ReLU(), nn.Conv1d(24, 32, 1))

    def forward(self, samples):
        x, total = self.first(samples), 0
        for dilation, gate, residual, skip in zip(self.dilations, self.gates, self.residuals, self.skips):
            a, b = gate(functional.pad(x, (dilation, 0))).chunk(2, dim=1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            x = x + residual(y)
        return self.end(total)


class QuartzBlock(nn.Module):
    def __init__(self, width, out, kernel, repeat=2):
        super().__init__()
        layers = []
        for a in [width] + [out] * (repeat - 1):
            layers.append(nn.Conv1d(a, a, kernel, padding=kernel // 2, groups=a, bias=False))
            layers += [nn.Conv1d(a, out, 1, bias=False), nn.BatchNorm1d(out, eps=1e-3), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.short = nn.Sequential(nn.Conv1d(width, out, 1, bias=False), nn.BatchNorm1d(out, eps=1e-3))

    def forward(self, x):
        return functional.relu(self.layers(x) + self.short(x))


class QuartzNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(20, 20, 11, stride=2, padding=5, groups=20), nn.Conv1d(20, 32, 1), nn.BatchNorm1d(32), nn.ReLU()
        )
        self.blocks = nn.Sequential(QuartzBlock(32, 32, 11), QuartzBlock(32, 48, 13))
        self.dilated = nn.Conv1d(48, 48, 9, padding=8, dilation=2, groups=48)
        self.decoder = nn.Conv1d(48, 29, 1)

    def forward(self, features):
        x = self.decoder(self.dilated(self.blocks(self.stem(features))))
        return functional.log_softmax(x.transpose(1, 2), dim=-1)


class VAD(nn.Module):
    """One chunk of sound: an STFT as a convolution, convolutions, a step of an LSTM."""

    def __init__(self, window=64):
        super().__init__()
        self.window = window
        angles = 2 * math.pi * torch.arange(window // 2 + 1)[:, None] * torch.arange(window) / window
        basis = torch.cat([angles.cos(), -angles.sin()]) * torch.hann_window(window)
        self.register_buffer("basis", basis.unsqueeze(1))
        layers = []
        for a, b, stride in [(33, 32, 1), (32, 24, 2), (24, 24, 2), (24, 32, 1)]:
            layers += [nn.Conv1d(a, b, 3, stride, 1), nn.ReLU()]
        self.encoder, self.rnn = nn.Sequential(*layers), nn.LSTMCell(32, 32)
        self.decoder = nn.Sequential(nn.ReLU(), nn.Conv1d(32, 1, 1), nn.Sigmoid())

    def forward(self, chunk, state):
        x = functional.pad(chunk, (0, self.window // 2), mode="reflect").unsqueeze(1)
        x = functional.conv1d(x, self.basis, stride=self.window // 2)
        real, imaginary = x[:, : self.window // 2 + 1], x[:, self.window // 2 + 1 :]
        x = self.encoder(torch.sqrt(real**2 + imaginary**2)).mean(-1)
        h, c = self.rnn(x, (state[0], state[1]))
        return self.decoder(h.unsqueeze(-1)).squeeze(-1), torch.stack([h, c])


class Enhancer(nn.Module):
    def __init__(self, frequencies=33):
        super().__init__()
        self.norm, self.gru = nn.LayerNorm(frequencies), nn.GRU(frequencies, 48, num_layers=2, batch_first=True)
        self.fc = nn.Linear(48, frequencies)

    def forward(self, magnitude):
        x, _ = self.gru(self.norm(torch.log1p(magnitude.abs())))
        mask = torch.sigmoid(self.fc(x))
        return mask * magnitude, mask


class MelFrontEnd(nn.Module):
    """Logarithms of mel energies, by a product with the basis of a DFT; less their mean over time."""

    def __init__(self, unfold, window=64, mels=16):
        super().__init__()
        self.unfold, self.window = unfold, window
        angles = 2 * math.pi * torch.arange(window)[:, None] * torch.arange(window // 2 + 1) / window
        hann = torch.hann_window(window)[:, None]
        self.register_buffer("cos", hann * angles.cos())
        self.register_buffer("sin", hann * angles.sin())
        self.register_buffer("mel", torch.rand(window // 2 + 1, mels) / 8)

    def forward(self, samples):
        hop = self.window // 2
        if self.unfold:
            frames = samples.unfold(-1, self.window, hop)
        else:
            blocks = samples[:, : samples.size(1) // hop * hop].reshape(samples.size(0), -1, hop)
            frames = torch.cat([blocks[:, :-1], blocks[:, 1:]], dim=-1)
        power = (frames @ self.cos).pow(2) + (frames @ self.sin).pow(2)
        x = torch.log(torch.clamp(power @ self.mel, min=1e-6))
        return x - x.mean(dim=1, keepdim=True)


TIMES = sizes(time=[9, 23, 40, 12])
LONG, SAMPLES = sizes(time=[40, 57, 90, 64]), sizes(time=[320, 415, 640, 352])
TRANSDUCER = sizes(time=[9, 23, 40, 12], labels=[4, 6, 3, 5])
STATES = ["attention_h", "attention_c", "decoder_h", "decoder_c", "context"]

ARCHITECTURES = [
    Architecture(
        "deepspeech2", DeepSpeech2, "spectrogram floats batch 1 32 time", "log_probabilities batch steps 29", LONG
    ),
    Architecture(
        "tacotron_encoder", TacotronEncoder, "text ids<40 batch time, lengths sorted_lengths batch",
        "memory batch time 32", TIMES,
    ),
    Architecture(
        "tacotron_decoder_step", TacotronStep,
        "frame floats batch 16, " + "".join(f"{name} states batch 32, " for name in STATES)
        + "weights states batch time, weights_sum states batch time, memory states batch time 32, "
        "processed_memory states batch time 24, padding padding batch time",
        "mel batch 16, gate batch 1, " + "".join(f"{name}_out batch 32, " for name in STATES)
        + "weights_out batch time, weights_sum_out batch time", TIMES,
    ),
    *(
        Architecture(
            name, lambda relative=relative: Conformer(relative),
            "features floats batch time 23, lengths lengths>=12 batch",
            "log_probabilities batch steps 30, lengths_out batch", LONG,
        )
        for name, relative in [("conformer_sinusoidal", False), ("conformer_relative", True)]
    ),
    Architecture(
        "wav2vec2", Wav2Vec2, "input_values floats batch time, attention_mask mask>=100 batch time",
        "logits batch steps 32", SAMPLES,
    ),
    Architecture(
        "transducer_encoder", TransducerEncoder, "features floats batch time 20", "encoder_out batch steps 24", TIMES
    ),
    Architecture(
        "transducer_predictor", lambda: LanguageModel(1, 30, 24),
        "token ids<30 batch labels, h0 states 1 batch 32, c0 states 1 batch 32",
        "predictor_out batch labels 24, h 1 batch 32, c 1 batch 32", TRANSDUCER,
    ),
    Architecture(
        "transducer_joiner", TransducerJoiner,
        "encoder_out states batch time 24, predictor_out states batch labels 24", "logits batch time labels 30",
        TRANSDUCER,
    ),
    Architecture(
        "transducer_joiner_step", TransducerJoiner, "encoder_out states batch 24, predictor_out states batch 24",
        "logits batch 30", sizes(),
    ),
    *(
        Architecture(name, lambda cut=cut: TCN(cut), "features floats batch time 8", "logits batch time 4", TIMES)
        for name, cut in [("tcn", False), ("tcn_cut", True)]
    ),
    Architecture("wavenet", WaveNet, "samples floats batch 1 time", "logits batch 32 time", LONG),
    Architecture("quartznet", QuartzNet, "features floats batch 20 time", "log_probabilities batch steps 29", LONG),
    Architecture(
        "vad_step", VAD, "chunk floats batch 256, state states 2 batch 32", "probability batch 1, state_out 2 batch 32",
        sizes(),
    ),
    Architecture(
        "enhancer", Enhancer, "magnitude floats batch time 33", "clean batch time 33, mask batch time 33", TIMES
    ),
    Architecture(
        "mel_front_end", lambda: MelFrontEnd(False), "samples floats batch time", "log_mel batch steps 16", SAMPLES,
        make_dynamo=lambda: MelFrontEnd(True),  # the older exporter cannot write unfold
    ),
]
