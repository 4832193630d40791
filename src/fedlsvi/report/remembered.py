"""What a policy goes by: w·φ in the states that were seen most, or its largest weights by name."""

from __future__ import annotations

import numpy as np

from fedlsvi.core.statistics import DenseFactor, factorise
from fedlsvi.errors import FedLSVIError
from fedlsvi.experience.values import TabularValues
from fedlsvi.report import html
from fedlsvi.report.html import number
from fedlsvi.run import Run

SHOWN = 8
"""Rows of the table."""
MOST, MOST_NUMBERS = 500, 20_000_000
"""The largest d, and the largest H·S·A·d, for which the page waits."""
ACTIONS = 6
"""Actions that have a column of their own; where there are more, the policy's is shown."""

BY_STATE = (
    "Values w·φ of the actions in the states that were seen most, each at the step at which it "
    "was; ← is what the policy does. A visit is an action that was tried, or as much as other "
    "visits say about it."
)
ALL_STEPS = (
    "Values w·φ of the actions, at the first step, in the states that were seen most at all steps "
    "together; ← is what the policy does. A visit is an action that was tried, or as much as other "
    "visits say about it."
)
BY_NAME = (
    "The largest weights, each at the step at which its feature was seen most. Σφ² is how much the "
    "agents have seen of it."
)


def remembered(run: Run, which: str = "") -> list[str]:
    """The section; nothing where the model cannot be read.

    Args:
        run: The run.
        which: Behind the heading, where the page is of several runs.
    """
    w = run.w if run.policy_w is None else run.policy_w
    if w.ndim != 2 or not 0 < w.shape[1] <= MOST or not np.any(w):
        return []
    try:
        values = run.policy.values
    except (FedLSVIError, ImportError):  # a folder whose environment cannot be made here
        return []
    lam = run.parameters.lam
    if not isinstance(values, TabularValues):
        names = values.features.get_feature_names_out()
        if len(names) != w.shape[1]:
            return []
        seen = np.einsum("hii->hi", run.gram) - lam
        text, table = BY_NAME, largest(w, seen, names)
    else:
        phi = np.eye(w.shape[1])[values.index] if values.index.size else values.phi
        if phi.shape[2] != w.shape[1] or len(w) * phi.size > MOST_NUMBERS:
            return []
        actions = run.policy.action_names or [f"action {a}" for a in range(phi.shape[1])]
        visits = np.array([visited(gram, phi, lam) for gram in run.gram])
        text = ALL_STEPS if run.parameters.matrices == 1 else BY_STATE
        table = states(w, visits, phi, values.policy, actions)
    return [html.heading(f"What the policy goes by{which}"), html.paragraph(text), table]


def largest(w: np.ndarray, seen: np.ndarray, names: np.ndarray) -> str:
    """A table of features by the size of their weights.

    Args:
        w: (H, d).
        seen: (H, d) Σφ².
        names: (d,) of the features.
    """
    step, every = seen.argmax(axis=0), np.arange(len(names))
    weight, often = w[step, every], np.maximum(seen[step, every], 0.0)
    order = np.argsort(-np.abs(weight), kind="stable")[:SHOWN]
    rows = [
        (str(names[i]), number(float(weight[i])), f"{step[i] + 1}", number(round(often[i], 1)))
        for i in order.tolist()
    ]
    return html.table(("feature", "weight", "step", "Σφ²"), rows, stack=True)


def states(
    w: np.ndarray, visits: np.ndarray, phi: np.ndarray, policy: np.ndarray, names: list[str]
) -> str:
    """A table of states with the values of their actions.

    Args:
        w: (H, d).
        visits: (H, S).
        phi: (S, A, d).
        policy: (H, S) the actions taken.
        names: Of the actions.
    """
    step, every = visits.argmax(axis=0), np.arange(len(phi))
    rows, few = [], len(names) <= ACTIONS
    for x in np.argsort(-visits[step, every], kind="stable")[:SHOWN].tolist():
        h = int(step[x])
        q, taken = phi[x] @ w[h], int(policy[h, x])
        cells = [f"{q[a]:.3f}" + " ←" * (a == taken) for a in range(len(names))]
        if not few:
            cells = [f"{q[taken]:.3f} {names[taken]}"]
        rows.append((f"state {x}", f"{h + 1}", f"{visits[h, x]:,.0f}", *cells))
    head = ("state", "step", "visits", *(names if few else ["the policy's action"]))
    return html.table(head, rows, stack=True)


def visited(gram: np.ndarray, phi: np.ndarray, lam: float) -> np.ndarray:
    """(S,) Σ_a (1/‖φ(x,a)‖²_{Λ⁻¹} − λ/‖φ(x,a)‖²): the visits to x where features are one-hot."""
    factor = factorise(gram)
    assert isinstance(factor, DenseFactor)
    rows = np.ascontiguousarray(phi.reshape(-1, phi.shape[2]))
    y = factor.whiten(rows)
    widths, norms = np.einsum("ni,ni->n", y, y), np.einsum("ni,ni->n", rows, rows)
    known = np.divide(1.0, widths, out=np.zeros_like(widths), where=widths > 0.0)
    before = np.divide(lam, norms, out=np.zeros_like(norms), where=norms > 0.0)
    visits: np.ndarray = (known - before).reshape(phi.shape[:2]).sum(axis=1)
    return visits
