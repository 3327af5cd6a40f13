"""Networks over tokens and characters, and of attention."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from architecture import Architecture, sizes


class Classifier(nn.Module):
    """With lengths in any order, or without."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 32, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.fc = nn.Linear(64, 5)

    def forward(self, token, lengths=None):
        x = self.embedding(token)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(x)
        return self.fc(torch.cat((h[-2], h[-1]), dim=1))


class Encoder(nn.Module):
    """Of a translator; its decoder's step is below."""

    def __init__(self):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(40, 32), nn.Dropout(0.1)
        self.gru = nn.GRU(32, 32, batch_first=True)

    def forward(self, token):
        return self.gru(self.dropout(self.embedding(token)))


class DecoderStep(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(40, 32), nn.GRU(32 + hidden, hidden, batch_first=True)
        self.w, self.u, self.v = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.out = nn.Linear(hidden, 40)

    def forward(self, token, hidden, encoder_outputs):
        query = hidden.permute(1, 0, 2)
        scores = self.v(torch.tanh(self.w(query) + self.u(encoder_outputs))).squeeze(2).unsqueeze(1)
        weights = functional.softmax(scores, dim=-1)
        context = torch.bmm(weights, encoder_outputs)
        output, hidden = self.gru(torch.cat((self.embedding(token), context), dim=2), hidden)
        return self.out(output), hidden, weights


class CharTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.conv = nn.Embedding(30, 12, padding_idx=0), nn.Conv1d(12, 24, 3, padding=1)
        self.lstm = nn.LSTM(24, 32, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(64, 9)

    def forward(self, characters):
        batch, words, chars = characters.shape
        x = self.embedding(characters.view(batch * words, chars)).transpose(1, 2)
        x = functional.relu(self.conv(x)).max(dim=2)[0].view(batch, words, -1)
        return self.fc(self.lstm(x)[0]).log_softmax(-1)


class LanguageModel(nn.Module):
    """States in and out; the predictor of a transducer too."""

    def __init__(self, layers=2, tokens=40, out=40):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(tokens, 32), nn.LSTM(32, 32, num_layers=layers, batch_first=True)
        self.decoder = nn.Linear(32, out)
        if out == tokens:
            self.decoder.weight = self.embedding.weight

    def forward(self, token, h0, c0):
        y, (h, c) = self.lstm(self.embedding(token), (h0, c0))
        return self.decoder(y), h, c


class Layer(nn.Module):
    """A transformer's layer with a mask that is added to the scores."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.norm1, self.norm2 = nn.Linear(width, width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.head)).permute(0, 2, 1, 3)

    def forward(self, x, added):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head) + added
        context = torch.matmul(functional.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (self.heads * self.head,))
        x = self.norm1(x + self.dense(context))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words, self.positions = nn.Embedding(60, width), nn.Embedding(64, width)
        self.types = nn.Embedding(2, width)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)))
        self.norm, self.layers = nn.LayerNorm(width), nn.ModuleList(Layer(width, 4) for _ in range(2))
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids, attention_mask, token_type_ids):
        x = self.words(input_ids) + self.types(token_type_ids)
        x = self.norm(x + self.positions(self.position_ids[:, : input_ids.size(1)]))
        added = attention_mask[:, None, None, :].to(x.dtype)
        added = (1.0 - added) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, added)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Albert(nn.Module):
    """One layer's weights three times, a narrow embedding, a classifier."""

    def __init__(self, width=32):
        super().__init__()
        self.words, self.positions = nn.Embedding(60, 16), nn.Embedding(64, 16)
        self.norm, self.project, self.layer = nn.LayerNorm(16), nn.Linear(16, width), Layer(width, 4)
        self.pre_classifier, self.classifier = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, input_ids, attention_mask):
        positions = torch.arange(input_ids.size(1), device=input_ids.device).unsqueeze(0).expand_as(input_ids)
        x = self.project(self.norm(self.words(input_ids) + self.positions(positions)))
        added = torch.zeros_like(attention_mask, dtype=x.dtype).masked_fill(attention_mask == 0, -1e4)
        for _ in range(3):
            x = self.layer(x, added[:, None, None, :])
        return self.classifier(functional.relu(self.pre_classifier(x[:, 0])))


class TransformerClassifier(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        angles = torch.arange(64)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("pe", torch.stack([angles.sin(), angles.cos()], dim=-1).view(1, 64, width))
        layer = nn.TransformerEncoderLayer(d_model=width, nhead=4, dim_feedforward=64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.fc = nn.Linear(width, 4)

    def forward(self, token, padding_mask):
        x = self.embedding(token) * math.sqrt(32) + self.pe[:, : token.size(1)]
        x = self.encoder(x, src_key_padding_mask=padding_mask)
        keep = (~padding_mask).unsqueeze(-1).to(x.dtype)
        return self.fc((x * keep).sum(1) / keep.sum(1))


class Perceiver(nn.Module):
    """Latents that attend to a sequence, twice."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.latents = heads, nn.Parameter(torch.randn(8, width))
        self.project, self.norm = nn.Linear(12, width), nn.LayerNorm(width)
        self.to_q, self.to_kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.to_out, self.fc = nn.Linear(width, width), nn.Linear(width, 6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def cross(self, x, context):
        k, v = self.to_kv(context).chunk(2, dim=-1)
        q, k, v = (t.reshape(*t.shape[:2], self.heads, -1).permute(0, 2, 1, 3) for t in (self.to_q(x), k, v))
        attention = torch.einsum("bhid,bhjd->bhij", q, k * q.shape[-1] ** -0.5).softmax(dim=-1)
        y = torch.einsum("bhij,bhjd->bhid", attention, v)
        return self.to_out(y.permute(0, 2, 1, 3).flatten(2))

    def forward(self, features):
        context = self.norm(self.project(features))
        x = self.latents.unsqueeze(0).repeat(features.shape[0], 1, 1)
        for _ in range(2):
            x = x + self.cross(x, context)
            x = x + self.self_attention(x, x, x, need_weights=False)[0]
        return self.fc(x.mean(dim=1))


class LastStep(nn.Module):
    """The last step within each length, and a row of a table that an input chooses."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(40, 24), nn.GRU(24, 32, batch_first=True)
        self.domains = nn.Parameter(torch.randn(6, 32))
        self.fc = nn.Linear(32, 4)

    def forward(self, token, lengths, domain):
        y, _ = self.gru(self.embedding(token))
        index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, y.size(2))
        last = y.gather(1, index).squeeze(1)
        chosen = torch.index_select(self.domains, 0, domain)
        return self.fc(torch.where((domain > 2).unsqueeze(1), last * chosen, last + chosen))


class EarlyExit(nn.Module):
    """Goes on with the second half only if the first is unsure."""

    def __init__(self):
        super().__init__()
        self.first, self.exit = nn.Linear(16, 32), nn.Linear(32, 5)
        self.second, self.fc = nn.Linear(32, 32), nn.Linear(32, 5)

    def front(self, features):
        x = torch.relu(self.first(features)).mean(dim=1)
        return x, self.exit(x).softmax(dim=-1)

    def forward(self, features):
        x, early = self.front(features)
        if bool(early.max() > 0.225):
            result = early
        else:
            result = self.fc(torch.tanh(self.second(x))).softmax(dim=-1)
        return result


class EarlyExitCond(EarlyExit):
    def forward(self, features):
        x, early = self.front(features)
        later = lambda x, early: self.fc(torch.tanh(self.second(x))).softmax(dim=-1)
        return torch.cond(early.max() > 0.225, lambda x, early: early.clone(), later, (x, early))


TIMES = sizes(time=[9, 23, 40, 12])
TOKEN, LENGTHS = "token ids<40 batch time", "lengths lengths batch"
BERT = "input_ids ids<60 batch time, attention_mask mask batch time"
ARCHITECTURES = [
    Architecture("packed_classifier", Classifier, f"{TOKEN}, {LENGTHS}", "logits batch 5", TIMES),
    Architecture("seq2seq_encoder", Encoder, TOKEN, "outputs batch time 32, hidden 1 batch 32", TIMES),
    Architecture(
        "seq2seq_decoder_step", DecoderStep,
        "token ids<40 batch 1, hidden states 1 batch 32, encoder_outputs states batch time 32",
        "logits batch 1 40, hidden_out 1 batch 32, weights batch 1 time", TIMES,
    ),
    Architecture(
        "char_tagger", CharTagger, "characters ids<30 batch words chars", "tags batch words 9",
        sizes(words=[5, 12, 20, 7], chars=[8, 6, 11, 4]),
    ),
    Architecture(
        "language_model", LanguageModel, f"{TOKEN}, h0 states 2 batch 32, c0 states 2 batch 32",
        "logits batch time 40, h 2 batch 32, c 2 batch 32", TIMES,
    ),
    Architecture(
        "bert", Bert, f"{BERT}, token_type_ids ids<2 batch time",
        "last_hidden_state batch time 32, pooler_output batch 32", TIMES,
    ),
    Architecture("albert_classifier", Albert, BERT, "logits batch 3", TIMES),
    Architecture(
        "transformer_classifier", TransformerClassifier, f"{TOKEN}, padding_mask padding batch time", "logits batch 4",
        TIMES,
    ),
    Architecture("perceiver", Perceiver, "features floats batch time 12", "logits batch 6", TIMES),
    Architecture("last_step", LastStep, f"{TOKEN}, {LENGTHS}, domain ids<6 batch", "logits batch 4", TIMES),
    Architecture(
        "early_exit", EarlyExit, "features floats batch time 16", "probabilities batch 5", TIMES, scripted=True,
        make_dynamo=EarlyExitCond,
    ),
    Architecture("quantised_lstm", Classifier, TOKEN, "logits batch 5", TIMES, quantise="dynamic"),
]
