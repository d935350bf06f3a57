"""Probabilistic circuits: structures, exact likelihoods, flows, learning.

A circuit is built of node vectors (`inputs`, `product`, `sum`) or by a structure (`hmm`, `hclt`,
`rat_spn`, `pd`, `mixture`), and compiled by `Circuit`.
"""

from rpukit.circuits.chow_liu import chow_liu_tree, hclt, mutual_information
from rpukit.circuits.circuit import Circuit
from rpukit.circuits.densities import Gaussian, Poisson
from rpukit.circuits.leaves import (
    Bernoulli,
    Binomial,
    Categorical,
    DiscreteLogistic,
    Indicator,
    Leaf,
    MaskedCategorical,
)
from rpukit.circuits.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.structures import hmm, mixture, pd, rat_spn

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "DiscreteLogistic",
    "Gaussian",
    "Indicator",
    "InputNodes",
    "Leaf",
    "MaskedCategorical",
    "Nodes",
    "Poisson",
    "ProductNodes",
    "SumNodes",
    "chow_liu_tree",
    "hclt",
    "hmm",
    "inputs",
    "mixture",
    "mutual_information",
    "pd",
    "product",
    "rat_spn",
    "sum",
]
