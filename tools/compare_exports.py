"""Compare gradients of models that PyTorch exports with autograd.

Usage: ``python tools/compare_exports.py [name ...]``.

Each model is exported with its loss, read by `rpukit.tiled`, trained for one step over a small L1,
and its gradients are compared with those of autograd in float64. PyTorch has to be installed.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rpukit import tiled


class WithLoss(nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, t):
        return self.loss(self.net(x), t)


class Residual(nn.Module):
    """The sum of two branches, through Relu if wanted."""

    def __init__(self, deep, short=None, last=None):
        super().__init__()
        self.deep, self.short, self.last = deep, short or nn.Identity(), last or nn.Identity()

    def forward(self, x):
        return self.last(self.short(x) + self.deep(x))


class Excite(nn.Module):
    """Channels scaled by a gate of their means."""

    def __init__(self, c):
        super().__init__()
        first, second = nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, c, 1)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), first, nn.ReLU(), second, nn.Hardsigmoid()
        )

    def forward(self, x):
        return x * self.gate(x)


class Vision(nn.Module):
    """Patches, a class token, an encoder layer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        more = {"activation": "gelu", "batch_first": True, "norm_first": True}
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, **more)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(h), -1, -1), h], 1)
        return self.head(self.layer(h)[:, 0])


class Causal(nn.Module):
    """One block of a language model, from embeddings on."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.LayerNorm(8), nn.LayerNorm(8, bias=False)
        self.qkv, self.out, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 11)
        self.up, self.down, self.gelu = nn.Linear(8, 32), nn.Linear(32, 8), nn.GELU("tanh")
        self.register_buffer("mask", torch.tril(torch.ones(6, 6, dtype=torch.bool)))

    def forward(self, x):
        b, n, d = x.shape
        parts = self.qkv(self.first(x)).split(d, 2)
        q, k, v = (t.view(b, n, 2, 4).transpose(1, 2) for t in parts)
        scores = (q @ k.transpose(-2, -1) / 2).masked_fill(~self.mask, float("-inf"))
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(mixed)
        return self.head(self.last(x + self.down(self.gelu(self.up(x))))).view(b * n, -1)


def norm_conv(c, d, k, *last, stride=1, groups=1):
    conv = nn.Conv2d(c, d, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(d), *last)


def classifier(c, *parts):
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(c, 5)
    )


def mlp(*last):
    layers = (nn.Linear(6, 16), nn.LeakyReLU(0.1), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 3))
    return nn.Sequential(*layers, *last)


def resnet():
    deep = nn.Sequential(norm_conv(4, 8, 3, nn.ReLU(), stride=2), norm_conv(8, 8, 3))
    block = Residual(deep, norm_conv(4, 8, 1, stride=2), nn.ReLU())
    return classifier(8, norm_conv(3, 4, 7, nn.ReLU(), stride=2), nn.MaxPool2d(3, 2, 1), block)


def mobile():
    wide = norm_conv(24, 24, 3, nn.Hardswish(), Excite(24), groups=24)
    block = Residual(nn.Sequential(norm_conv(8, 24, 1, nn.ReLU6()), wide, norm_conv(24, 8, 1)))
    return classifier(8, norm_conv(3, 8, 3, nn.SiLU(), stride=2), block)


def lenet():
    first = (nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(4, 8, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(*first, *second, nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 5))


ENTROPY, WEIGHTED = nn.CrossEntropyLoss, lambda: nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]))
IMAGE = (4, 3, 12, 12)
# name -> net, loss, shape of the data, classes (0: targets like the result), training mode
MODELS = {
    "mlp": (mlp, ENTROPY, (8, 6), 3, False),
    "mlp, weights and ignored labels": (mlp, WEIGHTED, (8, 6), 3, False),
    "mlp, NLLLoss": (lambda: mlp(nn.LogSoftmax(-1)), nn.NLLLoss, (8, 6), 3, False),
    "mlp, MSELoss": (mlp, nn.MSELoss, (8, 6), 0, False),
    "mlp, BCEWithLogitsLoss": (mlp, nn.BCEWithLogitsLoss, (8, 6), 0, False),
    "lenet": (lenet, ENTROPY, (4, 1, 14, 14), 5, False),
    "resnet, inference": (resnet, ENTROPY, IMAGE, 5, False),
    "resnet, training": (resnet, ENTROPY, IMAGE, 5, True),
    "mobile, inference": (mobile, ENTROPY, IMAGE, 5, False),
    "mobile, training": (mobile, ENTROPY, IMAGE, 5, True),
    "vision": (Vision, ENTROPY, IMAGE, 5, False),
    "causal": (Causal, ENTROPY, (2, 6, 8), 11, False),
}


def compare(name: str, folder: Path) -> str:
    """Export a model, train it for one step, and compare with autograd."""
    make, criterion, shape, n_class, training = MODELS[name]
    torch.manual_seed(0)
    net = WithLoss(make(), criterion()).train(training)
    for p in net.parameters():
        p.data += 0.1 * torch.randn_like(p)
    x = torch.randn(shape)
    rows = shape[0] * (shape[1] if len(shape) == 3 else 1)
    t = torch.randint(0, n_class, (rows,)) if n_class else torch.rand(rows, 3)
    if "ignored" in name:
        t[1::3] = -100
    wide = copy.deepcopy(net).double()
    path = folder / "model.onnx"
    mode = torch.onnx.TrainingMode
    names = {"input_names": ["x", "t"], "output_names": ["loss"], "do_constant_folding": False}
    names["training"] = mode.TRAINING if training else mode.PRESERVE  # EVAL loses parameters
    torch.onnx.export(net, (x, t), path, dynamo=False, opset_version=17, **names)
    builder = tiled.Builder.from_onnx(path, [key for key, _ in net.named_parameters()])
    graphs = builder.training("loss", tiled.SGD(lr=1.0))
    trainer = tiled.plan(graphs, tiled.siracusa_l2(l1=16_000)).trainer(graphs)
    found = trainer.step((x.numpy(), t.numpy()))
    want = wide(x.double(), t if n_class else t.double())
    want.backward()
    slopes = {key: p.grad.numpy() for key, p in wide.named_parameters()}
    most = max(np.abs(slope).max() for slope in slopes.values())
    ends = trainer.parameters()
    far = max(np.abs(graphs.initial[k] - ends[k] - slope).max() for k, slope in slopes.items())
    loss, n = abs(found - float(want.detach())), len(graphs.train.nodes)
    return f"{name:32}loss {loss:.1e}  gradients {far / most:.1e}  nodes {n}"


def main() -> int:
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or MODELS:
            print(compare(name, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
