"""`learn` takes what it learns from as one object, or as keywords."""

from __future__ import annotations

import numpy as np

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.data import Data
from fedlsvi.envs import RandomMDP, record_episodes
from fedlsvi.errors import InvalidInput


def test_an_object_is_the_same_as_its_keywords() -> None:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    log = record_episodes(env, 20)
    mask = np.ones((4, 3), bool)
    mask[1, 2] = False
    columns = {"observation": "state"}
    renamed = {columns.get(key, key): part for key, part in log.items()}
    given = {"columns": columns, "allowed": mask}
    learner, common = FedLSVI(n_agents=2), {"episodes": 30, "progress": False}
    flat = learner.learn(env, data=[renamed, None], **common, **given)
    whole = learner.learn(env, data=Data(logs=[renamed, None], **given), **common)
    assert flat.w.tobytes() == whole.w.tobytes()
    assert flat.taus == whole.taus
    assert not np.array_equal(flat.w, learner.learn(env, **common).w)


def test_data_is_given_once() -> None:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    with refused(InvalidInput, "data-twice", "allowed, at_least"):
        FedLSVI().learn(env, 5, data=Data(), allowed=np.ones((4, 3), bool), at_least=2)
