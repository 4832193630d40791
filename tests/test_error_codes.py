"""Every refusal has a code of its own, so that tests and programs need not read its sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fedlsvi
from fedlsvi import errors

ROOT = Path(fedlsvi.__file__).parent
KINDS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.FedLSVIError) and not kind.code
} - {"UnknownName"}
"""Those without a code of their class; that of an unknown name says of what."""


def test_every_raise_has_a_code() -> None:
    lacking = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else None
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if call.func.id in KINDS and "code" not in given:
                lacking.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            code = given.get("code")
            if isinstance(code, ast.Constant):
                assert re.fullmatch(r"[a-z0-9]+([-_][A-Za-z0-9_]+)*", str(code.value)), code.value
    assert lacking == []
