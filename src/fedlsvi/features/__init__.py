"""Feature maps φ(x,a): tables, one-hot, groups of states, e_a ⊗ ψ(x), any callable."""

from fedlsvi.features.aggregate import AggregateFeatures
from fedlsvi.features.base import CallableFeatures, FeatureMap
from fedlsvi.features.binding import resolve
from fedlsvi.features.box import FourierBasis, PolynomialFeatures, TileFeatures
from fedlsvi.features.conformance import check_features
from fedlsvi.features.embedding import (
    DescribedFeatures,
    EmbeddingFeatures,
    SklearnFeatures,
    TorchFeatures,
)
from fedlsvi.features.fourier import FourierFeatures
from fedlsvi.features.hat import HatFeatures
from fedlsvi.features.lowrank import LowRankFeatures
from fedlsvi.features.rbf import RBFFeatures
from fedlsvi.features.registry import make, names, register
from fedlsvi.features.scaling import scale
from fedlsvi.features.tabular import OneHot, TableFeatures

__all__ = [
    "AggregateFeatures",
    "CallableFeatures",
    "DescribedFeatures",
    "EmbeddingFeatures",
    "FeatureMap",
    "FourierBasis",
    "FourierFeatures",
    "HatFeatures",
    "LowRankFeatures",
    "OneHot",
    "PolynomialFeatures",
    "RBFFeatures",
    "SklearnFeatures",
    "TableFeatures",
    "TileFeatures",
    "TorchFeatures",
    "check_features",
    "make",
    "names",
    "register",
    "resolve",
    "scale",
]
