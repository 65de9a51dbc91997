"""The functions of the source tree that turn external bytes or text into values.

They are found by name, since decoders have similar names, and by their calls: a function that
passes bytes to a decoding library is a decoder, whatever its name.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("riacho", "service", "storage", "lambdas")

NAMED = re.compile(
    r"_?(decode|decoded|parse|parsed|unseal|unpack|unpacked|decompress|inflated)(_.*)?"
)
CALLED = re.compile(
    r"msgspec\.(msgpack|json)\.decode|msgspec\.convert|_[A-Z_]+\.decode|decoder\.decode"
    r"|json\.loads?|pickle\.loads|(pa\.)?ipc\.(open_stream|open_file|read_message|read_record_batch)"
    r"|pa\.(decompress|CompressedInputStream)|pq\.(read_metadata|ParquetFile)"
    r"|[\w.]*\.unpack(_from)?|[\w.]*\.iter_unpack|parse_qsl|bytes\.fromhex|(base64\.)?b64decode"
    r"|frames\.unseal|frames\.unpack|\w+\.model_validate(_json)?"
)


def decoders() -> Iterator[str]:
    """Yield the dotted names of all functions that decode."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield from decoders_in(path.read_text(), module)


def decoders_in(source: str, module: str) -> Iterator[str]:
    return _decoders(ast.parse(source), module)


def exists(name: str) -> bool:
    """Whether a function or method with this dotted name exists."""
    for depth in (1, 2):
        module, *inside = name.rsplit(".", depth)
        if (ROOT / Path(*module.split("."))).with_suffix(".py").exists():
            found = importlib.import_module(module)
            return callable(reduce(lambda at, part: getattr(at, part, None), inside, found))
    return False


def _decoders(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _decoders(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _decodes(node):
            yield f"{name}.{node.name}"


def _decodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(NAMED.fullmatch(function.name)) or any(map(CALLED.fullmatch, _calls(function)))


def _calls(function: ast.AST) -> Iterator[str]:
    """Yield the calls of a function and of the functions within it."""
    return (ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call))
