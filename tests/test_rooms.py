"""Rooms keep to themselves: no class of `experience` inherits from another file, few private
members are read across files, and nobody asks objects of the protocol what they have."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import fedlsvi
from fedlsvi import FedLSVI

PACKAGE = Path(fedlsvi.__file__).parent
TREES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
OPEN = {"Protocol", "NamedTuple", "ABC"}
"""Bases that any class may have."""

OF_LIBRARIES = {"_replace", "_asdict", "_private"}
"""NamedTuple's, and Ray's."""

OPEN_ROOMS = ("envs/", "features/")
"""Where what users and Gymnasium give is asked."""

ASKED = {
    # what users give: data frames, functions, observers, classes of their own
    "algorithms/shared/contract.py": {"party"},
    "bandits/contexts.py": {"X", "learner"},
    "learner.py": {"observe"},
    "logs/clinical.py": {"data"},
    "logs/sources.py": {"data", "data[action]", "kind"},
    "registry.py": {"self.constructor", "made"},
    "report/rerun.py": {"entry(name).constructor"},
    "storage/run_header.py": {"_function(phi)", "phi"},
    # rows of a registry, and names of their constructors
    "errors.py": {"row", "made"},
    # Python's own, and other libraries'
    "cli/__init__.py": {"error"},
    "cli/command.py": {"parameter"},
    "experiments/processes.py": {"os"},
    "json_log.py": {"record", "error"},
    "observers/progress.py": {"shell"},
    "remote/flare/console.py": {"system", "getattr(system, 'server_info', None)"},
    "remote/flare/received_streams.py": {"kind.map_lock"},
    "remote/ray/tcp.py": {"socket"},
    "report/plotting.py": {"ax"},
}
"""What may be asked whether it has something, by file; none is an object of ours."""

ASKED_MODULES = {"module", "sys.modules.get(path.stem)"}

PARTIES = {
    "env", "first", "like", "one", "phi", "plan", "problem", "cohort", "experience", "memory",
    "source", "transport", "server", "message", "start", "upload", "session", "player", "run",
    "policy", "values", "world", "worlds", "learner", "settings", "plan.world",
}  # fmt: skip
"""How objects of the protocol are called, or what their last attribute is: none of their members is
read by a name that is computed."""

FIELDS_BY_NAME = {"storage/run_header.py": {"phi"}}
"""Parameters of a registered class, which its signature names."""


def every() -> Iterator[tuple[str, ast.AST]]:
    """All nodes, each with its file."""
    for name, tree in TREES.items():
        yield from ((name, node) for node in ast.walk(tree))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_LIBRARIES


def definitions() -> dict[str, set[str]]:
    """The files in which a private member is defined."""
    where = defaultdict(set)
    for name, node in every():
        if isinstance(node, ast.FunctionDef):
            where[node.name].add(name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) in ("self", "cls"):
                where[node.attr].add(name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    where[target.id].add(name)
    return where


def test_no_class_of_experience_inherits_from_another_file() -> None:
    for name, tree in TREES.items():
        if name.startswith("experience/"):
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            here = {node.name for node in classes} | OPEN
            for node in classes:
                assert {ast.unparse(base) for base in node.bases} <= here, f"{name}: {node.name}"


def test_at_most_ten_private_members_are_read_across_files() -> None:
    """Inherited ones too."""
    where, read = definitions(), []
    for name, node in every():
        if isinstance(node, ast.Attribute) and private(node.attr):
            files = where.get(node.attr, set())
            if files and name not in files:
                read.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    assert len(read) <= 10, "\n".join(read)


def asks() -> Iterator[tuple[str, ast.Call, bool]]:
    """Calls of `getattr` and `hasattr`, each with its file, and whether it asks: for a name that
    stands there, or for one that may be missing."""
    for name, node in every():
        if not isinstance(node, ast.Call) or name.startswith(OPEN_ROOMS):
            continue
        asked = ast.unparse(node.func)
        if asked in ("getattr", "hasattr"):
            named = isinstance(node.args[1], ast.Constant)
            yield name, node, named or asked == "hasattr" or len(node.args) == 3


def test_nobody_asks_objects_of_the_package_what_they_have() -> None:
    unknown = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, node, asking in asks()
        if asking and ast.unparse(node.args[0]) not in ASKED.get(name, set()) | ASKED_MODULES
    ]
    assert not unknown, "\n".join(unknown)


def test_whoever_may_be_asked_is_asked() -> None:
    """No entry outlives its reason."""
    found = defaultdict(set)
    for name, node, asking in asks():
        if asking:
            found[name].add(ast.unparse(node.args[0]))
    assert {name: ASKED[name] - found[name] for name in ASKED if ASKED[name] - found[name]} == {}


def test_no_member_of_a_party_is_read_by_a_computed_name() -> None:
    read = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, node, asking in asks()
        if not asking
        and ast.unparse(node.args[0]).rpartition(".")[2] in PARTIES
        and ast.unparse(node.args[0]) not in FIELDS_BY_NAME.get(name, set())
    ]
    assert not read, "\n".join(read)


def test_a_newcomer_meets_at_most_twelve_parameters() -> None:
    shown = inspect.signature(FedLSVI).parameters.values()
    assert sum(p.kind is not inspect.Parameter.VAR_KEYWORD for p in shown) <= 12
