"""Probabilistic circuits: structures, exact likelihoods, flows, learning.

A circuit is built of node vectors (`inputs`, `product`, `sum`) or by a structure (`hmm`, `hclt`,
`rat_spn`, `pd`, `mixture`), and compiled by `Circuit`.
"""

from rpukit.circuits.blocking import reblock
from rpukit.circuits.chow_liu import chow_liu_tree, hclt, mutual_information, pd_hclt
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
from rpukit.circuits.regions import pd, random_regions, region_graph
from rpukit.circuits.rules import Rule
from rpukit.circuits.structures import hmm, mixture, rat_spn
from rpukit.circuits.transform import deepcopy, grow, merge, prune

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
    "Rule",
    "SumNodes",
    "chow_liu_tree",
    "deepcopy",
    "grow",
    "hclt",
    "hmm",
    "inputs",
    "merge",
    "mixture",
    "mutual_information",
    "pd",
    "pd_hclt",
    "product",
    "prune",
    "random_regions",
    "rat_spn",
    "reblock",
    "region_graph",
    "sum",
]
