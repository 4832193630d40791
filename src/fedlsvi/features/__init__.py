"""Feature maps φ(x,a): tables, one-hot, groups of states, e_a ⊗ ψ(x), any callable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlsvi.registry import lazy_exports

if TYPE_CHECKING:
    from fedlsvi.features.aggregate import AggregateFeatures as AggregateFeatures
    from fedlsvi.features.base import CallableFeatures as CallableFeatures
    from fedlsvi.features.base import FeatureMap as FeatureMap
    from fedlsvi.features.base import resolve as resolve
    from fedlsvi.features.box import FourierBasis as FourierBasis
    from fedlsvi.features.box import PolynomialFeatures as PolynomialFeatures
    from fedlsvi.features.box import TileFeatures as TileFeatures
    from fedlsvi.features.conformance import check_features as check_features
    from fedlsvi.features.embedding import DescribedFeatures as DescribedFeatures
    from fedlsvi.features.embedding import EmbeddingFeatures as EmbeddingFeatures
    from fedlsvi.features.embedding import SklearnFeatures as SklearnFeatures
    from fedlsvi.features.embedding import TorchFeatures as TorchFeatures
    from fedlsvi.features.fourier import FourierFeatures as FourierFeatures
    from fedlsvi.features.hat import HatFeatures as HatFeatures
    from fedlsvi.features.lowrank import LowRankFeatures as LowRankFeatures
    from fedlsvi.features.rbf import RBFFeatures as RBFFeatures
    from fedlsvi.features.recovery import visit_recovery as visit_recovery
    from fedlsvi.features.registry import make as make
    from fedlsvi.features.registry import names as names
    from fedlsvi.features.registry import register as register
    from fedlsvi.features.scaling import scale as scale
    from fedlsvi.features.tabular import OneHot as OneHot
    from fedlsvi.features.tabular import TableFeatures as TableFeatures

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "aggregate": "AggregateFeatures",
        "base": "CallableFeatures FeatureMap resolve",
        "box": "FourierBasis PolynomialFeatures TileFeatures",
        "conformance": "check_features",
        "embedding": "DescribedFeatures EmbeddingFeatures SklearnFeatures TorchFeatures",
        "fourier": "FourierFeatures",
        "hat": "HatFeatures",
        "lowrank": "LowRankFeatures",
        "rbf": "RBFFeatures",
        "recovery": "visit_recovery",
        "registry": "make names register",
        "scaling": "scale",
        "tabular": "OneHot TableFeatures",
    },
)
