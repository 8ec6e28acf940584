"""Nobody outside their room names a protocol: what differs, its object says."""

import ast
from collections.abc import Iterator
from pathlib import Path

from outrider.protocols.registry import PROTOCOLS

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "outrider" / "protocols"
# Modules of the room for everybody: the others are of one protocol, or parts of several.
DOORS = {"outrider.protocols.registry", "outrider.protocols.protocol", "outrider.protocols.payload"}
SHARED = {
    "outrider.protocols.corrections",  # what devices draw corrections from
    "outrider.protocols.fixed_point",
    "outrider.protocols.hidden_states",  # what heads learn from
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in ("outrider", "actors", "serve_app", "cluster", "edge"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.is_relative_to(ROOM):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def test_no_module_says_a_protocol_s_name() -> None:
    said = {
        (path, node.value)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PROTOCOLS
    }
    assert not said


def test_only_the_room_s_doors_are_imported() -> None:
    imported = {
        (path, node.module)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outrider.protocols")
    }
    assert {module for _, module in imported} <= DOORS | SHARED
    assert imported, "or this test sees nothing"
