"""The model class of a comparison: one model for all steps of an episode, or one for each.

Where no law depends on the step, a learner that pools the data of all steps has H times as many
samples for each estimate. Regrets then compare algorithms only where all of them pool, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlsvi.algorithms import registry
from fedlsvi.errors import FedLSVIError, InvalidInput
from fedlsvi.report.groups import Group, job_of

MODEL = "one model for"
"""The head of the column whose cells `ModelClass.row` gives."""


@dataclass(frozen=True)
class ModelClass:
    """Who of a comparison pools steps, and who cannot.

    Attributes:
        pooled: Whether each learned one model for all steps, by label.
        unable: Those that cannot, in an environment where no law depends on the step.
        unproven: Those for which no bound on regret is known.
    """

    pooled: Mapping[str, bool]
    unable: Sequence[str] = ()
    unproven: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What all have in common; "mixed" where that is nothing."""
        kinds = set(self.pooled.values())
        return "mixed" if len(kinds) > 1 else "all steps" if True in kinds else "each step"

    def row(self, label: str) -> str:
        """What one of them learned a model for."""
        if self.pooled[label]:
            return "all steps"
        return "each step (cannot pool)" if label in self.unable else "each step"

    def sentence(self) -> str:
        """Which class it is, who decided that, and who promises nothing."""
        text = f"Model class: one model for {self.name}"
        if self.name == "mixed":
            text = "The model classes differ between settings"
        elif self.unable:
            text += f"; {', '.join(self.unable)} cannot pool the steps of this environment"
        if self.unproven:
            text += f". No guarantee on regret: {', '.join(self.unproven)}"
        return f"{text}."

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        said = {"one_model_for": self.name, "cannot_pool": list(self.unable)}
        return said | ({"no_guarantee": list(self.unproven)} if self.unproven else {})


def model_class(groups: Sequence[Group]) -> ModelClass:
    """That of groups of runs.

    Raises:
        InvalidInput: Two algorithms have no class in common. Settings of one algorithm may differ
            in it, and be compared for that.
    """
    kinds: dict[str, set[bool]] = {}
    for group in groups:
        kinds.setdefault(group.first.algorithm, set()).add(_pools(group))
    if not set.intersection(*kinds.values()):
        pooling = [name for name, pooled in kinds.items() if pooled == {True}]
        others = [name for name, pooled in kinds.items() if pooled == {False}]
        raise InvalidInput(
            f"{', '.join(pooling)} learned one model for all steps and {', '.join(others)} one for "
            "each step, which needs many times the data: play all of them with stationary=False, "
            "or with stationary=True if all can, or report them one by one",
            code="model-classes-differ",
        )
    pooled = {group.label: _pools(group) for group in groups}
    unable = [group.label for group in groups if _cannot_pool(group)]
    unproven = unguaranteed({group.label: group.first.algorithm for group in groups})
    return ModelClass(pooled, unable, unproven)


def unguaranteed(algorithms: Mapping[str, str]) -> list[str]:
    """The labels of algorithms for which no bound on regret is known; what is not registered here
    may have one."""
    known = {name for name in registry.names() if not registry.entry(name).guarantee}
    return [label for label, name in algorithms.items() if name in known]


def _pools(group: Group) -> bool:
    """Whether it has fewer models than steps; with a single step the two classes are one."""
    return group.first.parameters.matrices < group.first.parameters.horizon


def _cannot_pool(group: Group) -> bool:
    """Whether one that does not pool could not, where others might; unknown counts as no."""
    run = group.first
    if _pools(group) or run.parameters.horizon == 1:
        return False
    try:
        if run.plan is not None:
            env = run.plan.world
        elif run.world is not None:
            env = run.world()
        else:
            return False
        return env.stationary and not job_of(run).learner().can_pool(env)
    except (FedLSVIError, ImportError):
        return False
