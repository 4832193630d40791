"""The names that users import. To add one is a decision; to lose one breaks somebody's code."""

from __future__ import annotations

from importlib import import_module

import pytest

PUBLIC = {
    "fedlsvi": "FedLSVI FedLSVIError PEVI Run STOP __version__ load offline resume",
    "fedlsvi.algorithms": """
        AlgorithmEntry Comparator Explorer LSVISums LinearSettings Play RandomisedSettings Segment
        SingleAgentSettings TabularSettings check_algorithm entry make names packed_size register
    """,
    "fedlsvi.bandits": """
        AsyncLinUCB DecisionLog Decisions DisLinUCB Estimate FedLinTS FedLinUCB LoggedDecisions
        Replayed estimate_value replay
    """,
    "fedlsvi.checks": "boolean choice integer number",
    "fedlsvi.envs": """
        CombinationLock ContinuousLinearMDP ContinuousMDP DeepSea Environment FiniteMDP Garnet
        GymMDP GymWorld HardChain LinearMDP LinearMixtureMDP LoggedWorld NChain RandomLinearMDP
        RandomLinearMixtureMDP RandomMDP RiverSwim XiCloseMDP as_environment check_env from_spec
        gymnasium logged_worlds make names record_episodes register restrict write_records xi_close
    """,
    "fedlsvi.features": """
        AggregateFeatures CallableFeatures DescribedFeatures EmbeddingFeatures FeatureMap
        FourierBasis FourierFeatures HatFeatures LowRankFeatures OneHot PolynomialFeatures
        RBFFeatures SklearnFeatures TableFeatures TileFeatures TorchFeatures check_features make
        names register resolve scale visit_recovery
    """,
    "fedlsvi.observers": "CSVLog JSONLLog MLflow Prometheus TensorBoard Trackio WandB metrics",
    "fedlsvi.report": "Comparison compare_regret figure write_report",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_pinned(module: str) -> None:
    found = import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC[module].split())
    for name in found.__all__:
        assert getattr(found, name) is not None
