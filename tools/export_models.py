"""PyTorch models that `compare_exports.py` exports: the usual ones, of any width and depth.

Each entry of `MODELS` gives a net, its loss, the shape of its data, the number of classes and the
mode of its normalisations. Blocks are those of the papers; `FULL` has the sizes of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn


class Residual(nn.Module):
    """The sum of two branches, through Relu if wanted."""

    def __init__(self, deep, short=None, last=None):
        super().__init__()
        self.deep, self.short, self.last = deep, short or nn.Identity(), last or nn.Identity()

    def forward(self, x):
        return self.last(self.short(x) + self.deep(x))


class Excite(nn.Module):
    """Channels scaled by a gate of their means."""

    def __init__(self, c, hidden, act=nn.ReLU, gate=nn.Hardsigmoid):
        super().__init__()
        first, second = nn.Conv2d(c, hidden, 1), nn.Conv2d(hidden, c, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), first, act(), second, gate())

    def forward(self, x):
        return x * self.gate(x)


def norm_conv(c, d, k, *last, stride=1, groups=1):
    conv = nn.Conv2d(c, d, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(d), *last)


def classifier(c, n_class, *parts):
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(c, n_class)
    )


def inverted(c, d, k, stride, wide, act, excite=None):
    """Inverted residual block: wider, by channel, narrower."""
    parts = [norm_conv(c, wide, 1, act())] if wide != c else []
    parts += [norm_conv(wide, wide, k, act(), stride=stride, groups=wide)]
    parts += [excite(wide)] if excite else []
    block = nn.Sequential(*parts, norm_conv(wide, d, 1))
    return Residual(block) if stride == 1 and c == d else block


def eight(c):
    """A number of channels as a multiple of 8 that is within a tenth."""
    near = max(8, int(c + 4) // 8 * 8)
    return near + 8 if near < 0.9 * c else near


def mlp(*last):
    layers = (nn.Linear(6, 16), nn.LeakyReLU(0.1), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 3))
    return nn.Sequential(*layers, *last)


def lenet():
    first = (nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2))
    second = (nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    head = (nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*first, *second, *head)


def digits():
    """A small MobileNet for images of 8 x 8: one inverted residual with a gate."""
    block = inverted(8, 8, 3, 1, 24, nn.SiLU, partial(Excite, hidden=4, act=nn.SiLU))
    first = norm_conv(1, 8, 3, nn.SiLU())
    return classifier(16, 10, first, block, norm_conv(8, 16, 3, nn.SiLU(), stride=2))


def resnet18(width=64, n_class=1000, stages=4):
    def block(c, d, stride):
        deep = nn.Sequential(norm_conv(c, d, 3, nn.ReLU(), stride=stride), norm_conv(d, d, 3))
        short = norm_conv(c, d, 1, stride=stride) if c != d or stride > 1 else None
        return Residual(deep, short, nn.ReLU())

    parts, c = [norm_conv(3, width, 7, nn.ReLU(), stride=2), nn.MaxPool2d(3, 2, 1)], width
    for k in range(stages):
        d = width << k
        parts += [block(c, d, 2 if k else 1), block(d, d, 1)]
        c = d
    return classifier(c, n_class, *parts)


def mobilenet_v2(width=1.0, n_class=1000):
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    rows += [(6, 160, 3, 2), (6, 320, 1, 1)]
    c = eight(32 * width)
    parts = [norm_conv(3, c, 3, nn.ReLU6(), stride=2)]
    for wider, d, n, stride in rows:
        for k in range(n):
            end = eight(d * width)
            parts.append(inverted(c, end, 3, 1 if k else stride, wider * c, nn.ReLU6))
            c = end
    last = eight(1280 * max(width, 1.0)) if width >= 1 else eight(1280 * width)
    return classifier(last, n_class, *parts, norm_conv(c, last, 1, nn.ReLU6()))


def mobilenet_v3(width=1.0, n_class=1000):
    """The small one."""
    rows = [(3, 16, 16, True, "R", 2), (3, 72, 24, False, "R", 2), (3, 88, 24, False, "R", 1)]
    rows += [(5, 96, 40, True, "H", 2), (5, 240, 40, True, "H", 1), (5, 240, 40, True, "H", 1)]
    rows += [(5, 120, 48, True, "H", 1), (5, 144, 48, True, "H", 1), (5, 288, 96, True, "H", 2)]
    rows += [(5, 576, 96, True, "H", 1), (5, 576, 96, True, "H", 1)]
    c = eight(16 * width)
    parts = [norm_conv(3, c, 3, nn.Hardswish(), stride=2)]
    for k, wide, d, excite, act, stride in rows:
        wide, end = eight(wide * width), eight(d * width)
        gate = partial(Excite, hidden=eight(wide // 4)) if excite else None
        parts.append(
            inverted(c, end, k, stride, wide, nn.ReLU if act == "R" else nn.Hardswish, gate)
        )
        c = end
    wide, last = 6 * c, eight(1024 * width)
    parts += [norm_conv(c, wide, 1, nn.Hardswish()), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    head = (nn.Linear(wide, last), nn.Hardswish(), nn.Dropout(0.0), nn.Linear(last, n_class))
    return nn.Sequential(*parts, *head)


def efficientnet_b0(width=1.0, n_class=1000):
    rows = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    rows += [(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    c = eight(32 * width)
    parts = [norm_conv(3, c, 3, nn.SiLU(), stride=2)]
    for wider, d, n, stride, k in rows:
        for i in range(n):
            end = eight(d * width)
            gate = partial(Excite, hidden=max(1, c // 4), act=nn.SiLU, gate=nn.Sigmoid)
            parts.append(inverted(c, end, k, 1 if i else stride, wider * c, nn.SiLU, gate))
            c = end
    last = eight(1280 * width)
    return classifier(last, n_class, *parts, norm_conv(c, last, 1, nn.SiLU()))


class ViT(nn.Module):
    """Patches, a class token, positions, encoder layers."""

    def __init__(self, size=224, patch=16, d=768, heads=12, layers=12, n_class=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, d))
        self.places = nn.Parameter(0.1 * torch.randn(1, (size // patch) ** 2 + 1, d))
        more = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, **more)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, n_class)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.places
        return self.head(self.norm(self.layers(h))[:, 0])


class Block(nn.Module):
    """One block of a language model: causal attention and two products."""

    def __init__(self, d, heads, n, fused):
        super().__init__()
        self.first, self.last = nn.LayerNorm(d), nn.LayerNorm(d, bias=False)
        self.qkv, self.out, self.heads, self.fused = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            heads,
            fused,
        )
        self.up, self.down, self.gelu = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.GELU("tanh")
        self.register_buffer("mask", torch.tril(torch.ones(n, n, dtype=torch.bool)))

    def forward(self, x):
        b, n, d = x.shape
        parts = self.qkv(self.first(x)).split(d, 2)
        q, k, v = (t.view(b, n, self.heads, d // self.heads).transpose(1, 2) for t in parts)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
            scores = scores.masked_fill(~self.mask[:n, :n], float("-inf"))
            mixed = torch.softmax(scores, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, d))
        return x + self.down(self.gelu(self.up(self.last(x))))


class GPT(nn.Module):
    """Tokens to the logits of the next ones; the head shares the embedding's weights."""

    def __init__(self, n_token=50257, n=1024, d=768, heads=12, layers=12, fused=True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(n_token, d), nn.Embedding(n, d)
        self.blocks = nn.Sequential(*(Block(d, heads, n, fused) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, n_token, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h))).flatten(0, 1)


class Recurrent(nn.Module):
    """A recurrent network over a sequence, and a head on its last result."""

    def __init__(self, kind, **more):
        super().__init__()
        self.net = kind(5, 7, batch_first=True, **more)
        self.head = nn.Linear(7 * (2 if more.get("bidirectional") else 1), 3)

    def forward(self, x):
        return self.head(self.net(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, **more)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class Every(nn.Module):
    """Functions of one element, one after the other."""

    def __init__(self, *parts):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        h = self.first(x)
        return self.last(sum(part(h) for part in self.parts))


class Sums(nn.Module):
    """Reductions, products by letters, running sums, and parts of tensors."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        h = self.first(x)
        rows = h.view(-1, 3, 4)
        found = torch.einsum("bij,bkj->bik", rows, rows.cumsum(1))
        ends = [rows.amax(2), rows.amin(2), rows.norm(dim=2), torch.logsumexp(rows, 2)]
        ends += [found.flatten(1)[:, 2:8], (rows[..., 1:] * rows[..., :-1]).prod(2)]
        ends += [torch.maximum(h, h.abs().flip(1).clamp(max=0.5))[:, :3]]
        return self.last(h + torch.cat(ends, 1)[:, :12] * torch.cat(ends, 1)[:, -12:])


def autoencoder():
    """Convolutions down, resizing and turned convolutions up."""
    down = (nn.Conv2d(3, 6, 3, 2, 1), nn.GroupNorm(2, 6), nn.ELU())
    up = (
        nn.Upsample(scale_factor=2),
        nn.ConvTranspose2d(6, 4, 3, 1, 1),
        nn.InstanceNorm2d(4, affine=True),
    )
    last = (
        nn.Upsample(scale_factor=1.5, mode="bilinear"),
        nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False),
    )
    return nn.Sequential(*down, *up, *last)


def line():
    """Convolutions along one axis."""
    first = (nn.Conv1d(3, 6, 5, 2, 2), nn.BatchNorm1d(6), nn.ReLU(), nn.MaxPool1d(2))
    return nn.Sequential(
        *first, nn.Conv1d(6, 8, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def activations():
    parts = (
        nn.ELU(0.7),
        nn.SELU(),
        nn.CELU(1.5),
        nn.Softplus(),
        nn.Softsign(),
        nn.Mish(),
        nn.PReLU(),
    )
    more = (nn.GELU("tanh"), nn.GELU(), nn.Hardtanh(), nn.LogSigmoid(), nn.Tanhshrink(), nn.SiLU())
    return Every(*parts, *more, nn.Hardswish(), nn.ReLU6())


def weighted():
    return nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]))


@dataclass
class Model:
    """A net, its loss, the shape of its data and the number of its classes.

    Without classes the targets are numbers, of the shape of the result.
    """

    net: Any
    shape: tuple[int, ...]
    n_class: int = 0
    loss: Any = nn.CrossEntropyLoss
    training: bool = False
    tokens: bool = False


IMAGE = (2, 3, 32, 32)
TINY = {"size": 16, "patch": 4, "d": 16, "heads": 2, "layers": 2, "n_class": 5}
SHORT = {"n_token": 17, "n": 8, "d": 16, "heads": 2, "layers": 2}
MODELS = {
    "mlp": Model(mlp, (8, 6), 3),
    "mlp, weights and ignored labels": Model(mlp, (8, 6), 3, weighted),
    "mlp, label smoothing": Model(
        mlp, (8, 6), 3, partial(nn.CrossEntropyLoss, label_smoothing=0.1)
    ),
    "mlp, NLLLoss": Model(lambda: mlp(nn.LogSoftmax(-1)), (8, 6), 3, nn.NLLLoss),
    "mlp, MSELoss": Model(mlp, (8, 6), 0, nn.MSELoss),
    "mlp, L1Loss": Model(mlp, (8, 6), 0, nn.L1Loss),
    "mlp, SmoothL1Loss": Model(mlp, (8, 6), 0, nn.SmoothL1Loss),
    "mlp, BCEWithLogitsLoss": Model(mlp, (8, 6), 0, nn.BCEWithLogitsLoss),
    "mlp, BCELoss": Model(lambda: mlp(nn.Sigmoid()), (8, 6), 0, nn.BCELoss),
    "lenet": Model(lenet, (2, 1, 28, 28), 10),
    "digits, training": Model(digits, (16, 1, 8, 8), 10, training=True),
    "resnet18": Model(partial(resnet18, 4, 5), IMAGE, 5),
    "resnet18, training": Model(partial(resnet18, 4, 5, 3), (4, 3, 32, 32), 5, training=True),
    "mobilenet_v2": Model(partial(mobilenet_v2, 0.1, 5), IMAGE, 5),
    "mobilenet_v2, training": Model(
        partial(mobilenet_v2, 0.1, 5), (4, 3, 64, 64), 5, training=True
    ),
    "mobilenet_v3": Model(partial(mobilenet_v3, 0.1, 5), IMAGE, 5),
    "efficientnet_b0": Model(partial(efficientnet_b0, 0.1, 5), IMAGE, 5),
    "vit": Model(partial(ViT, **TINY), (2, 3, 16, 16), 5),
    "gpt": Model(partial(GPT, **SHORT, fused=False), (2, 6), 17, tokens=True),
    "gpt, fused attention": Model(partial(GPT, **SHORT), (2, 8), 17, tokens=True),
    "encoder layer": Model(partial(Encoder, batch_first=True), (2, 5, 8), 3),
    "encoder layer, sequence first": Model(Encoder, (2, 5, 8), 3),
    "lstm": Model(partial(Recurrent, nn.LSTM), (4, 5, 5), 3),
    "lstm, two ways": Model(
        partial(Recurrent, nn.LSTM, num_layers=2, bidirectional=True), (4, 5, 5), 3
    ),
    "gru": Model(partial(Recurrent, nn.GRU, bidirectional=True), (4, 5, 5), 3),
    "rnn": Model(partial(Recurrent, nn.RNN, nonlinearity="relu"), (4, 5, 5), 3),
    "autoencoder": Model(autoencoder, (2, 3, 8, 8), 0, nn.MSELoss),
    "convolutions of sequences": Model(line, (4, 3, 20), 5),
    "activations": Model(activations, (4, 6), 3),
    "sums": Model(Sums, (4, 6), 3),
}
PICTURE = (1, 3, 224, 224)
FULL = {
    "resnet18": Model(resnet18, PICTURE, 1000),
    "mobilenet_v2": Model(mobilenet_v2, PICTURE, 1000),
    "mobilenet_v3": Model(mobilenet_v3, PICTURE, 1000),
    "efficientnet_b0": Model(efficientnet_b0, PICTURE, 1000),
    "vit": Model(ViT, PICTURE, 1000),
    "gpt": Model(GPT, (1, 128), 50257, tokens=True),
}
