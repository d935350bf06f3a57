"""Plans of the reference models, and what training by them gives."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np

from rpukit import tiled
from tests.reference.models import load, train


@cache
def model(name):
    """A reference model as a training with values to begin with, and its mini-batches."""
    reference = load(name)
    training = tiled.training_from_onnx(reference.file("train"), reference.file("optimizer"))
    tensors = training.train.tensors
    start = {
        key: np.asarray(value, np.float32).reshape(tensors[key].shape)
        for key, value in reference.start(training.parameters).items()
    }
    batches = []
    for number in range(reference.n_batches):
        pair = zip((training.data, training.target), reference.batch(number), strict=True)
        batches.append(
            tuple(np.asarray(v, tensors[n].dtype).reshape(tensors[n].shape) for n, v in pair)
        )
    return replace(training, initial=start), batches, reference.n_accum


@cache
def untiled(name):
    """Losses and final parameters of the reference: node by node, each as one tile."""
    training = model(name)[0]
    losses, _, final = train(training, load(name), dict(training.initial))
    return losses, final


def plan_of(name, l1, buffering, **options):
    """A plan over two levels, or over three where the model is large."""
    training = model(name)[0]
    size = sum(training.train.tensors[n].nbytes for n in training.parameters)
    levels = tiled.siracusa_l2(l1=l1) if size < 200_000 else tiled.siracusa_l3(l1=l1, l2=400_000)
    return tiled.plan(training, levels, buffering=buffering, **options)


def trained(name, plan, *, checked=True, **options):
    """Train by a plan: losses and final parameters; unchecked, a plan that is wrong as well."""
    training, batches, n_accumulate = model(name)
    proof = "rpukit.tiled.runtime.executor.check_programs"
    with nullcontext() if checked else mock.patch(proof):
        trainer = plan.trainer(training, n_accumulate=n_accumulate, **options)
    return trainer.fit(batches), trainer.parameters()
