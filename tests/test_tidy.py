"""House rules that no linter knows: which layer and folder may import what, docstrings, length.

    lambdas ──▶ service ──▶ storage
    riacho  ──▶ the pure modules of storage, and over HTTP the service
    infra   ──▶ nothing of ours: it deploys the rest

What a module imports inside a function it pays for only when that is called, so a few commands
of the CLI may reach further there: `riacho serve` is the service, `riacho doctor` and `riacho
fsck` open stores.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from storage.topics.all_heads import COLLECTIONS

ROOT = Path(__file__).parent.parent
LAYERS = ("infra", "lambdas", "riacho", "service", "storage")
FUNCTION_LINES_MAX = 60
ROOM_ENTRIES_MAX = 16
"""Files and folders of one folder: more of them, and a reader searches instead of seeing."""
DOORS = {"connect", "console", "kafka", "registry", "rest"}
"""Folders of `service/` that are a door each, and do not count: ARCHITECTURE.md lists them."""

MAY_IMPORT = {
    "infra": {"infra"},
    "storage": {"storage"},
    "service": {"service", "storage"},
    "lambdas": {"lambdas", "service", "storage"},
    "riacho": {"riacho", "storage"},
}

PURE = {
    "storage.crypto.envelope",
    "storage.formats.compacted",
    "storage.formats.compacted_footer",
    "storage.formats.entries",
    "storage.errors",
    "storage.formats.frames",
    "storage.keys",
    "storage.formats.kafka.batches",
    "storage.formats.kafka.columns",
    "storage.formats.kafka.compression",
    "storage.formats.kafka.decoding",
    "storage.formats.kafka.encoding",
    "storage.formats.kafka.layout",
    "storage.formats.kafka.small",
    "storage.formats.kafka.varints",
    "storage.formats.kafka.walk",
    "storage.formats.partitioner",
    "storage.formats.partitions",
    "storage.schemas.avro.codec",
    "storage.schemas.avro.logical",
    "storage.schemas.avro.parsing",
    "storage.schemas.avro.reading",
    "storage.schemas.avro.sizes",
    "storage.schemas.avro.types",
    "storage.schemas.avro.unions",
    "storage.schemas.avro.writing",
    "storage.schemas.carried",
    "storage.schemas.codec",
    "storage.schemas.codecs",
    "storage.schemas.columns",
    "storage.schemas.columns_avro",
    "storage.schemas.columns_json",
    "storage.schemas.columns_of",
    "storage.schemas.columns_protobuf",
    "storage.schemas.columns_rows",
    "storage.schemas.framing",
    "storage.schemas.protobuf.codec",
    "storage.schemas.protobuf.sizes",
    "storage.schemas.refused",
    "storage.schemas.source",
    "storage.stores.ranges",
    "storage.formats.records",
    "storage.formats.segment_list",
    "storage.formats.slices",
    "storage.formats.zone_sets",
    "storage.schemas.json_schema.codec",
    "storage.schemas.json_schema.documents",
    "storage.schemas.json_schema.drafts",
    "storage.schemas.json_schema.engine",
    "storage.schemas.json_schema.limits",
    "storage.schemas.json_schema.reading",
    "storage.schemas.json_schema.values",
    "storage.schemas.protobuf.misfits",
}
"""What the client may import: modules that compute, and know neither stores nor the service."""

JOB = {
    "service.jobs",
    "service.jobs.runners.choice",
    "service.jobs.commands",
    "service.jobs.work",
    "service.settings",
}

LAZILY = {
    # It runs connectors on the very stores, as a gateway would.
    "riacho/cli/connect/running.py": {
        "service.connect.running.process",
        "service.process.stores",
        "service.settings",
        "service.world.durations",
    },
    "riacho/cli/serve.py": {
        "service.kafka.listener.address",
        "service.security.tls.files",
        "service.security.tls.listening",
        "service.security.tls.self_signed",
        "service.serve",
        "service.world.clock",
        "service.world.durations",
    },
    # The doctor examines the very stores that the service would open with these settings.
    "riacho/cli/maintenance/doctor.py": {
        "service.world.clock",
        "service.settings",
        "service.process.stores",
        "storage.stores.doctor",
        "storage.stores.dynamodb.table",
    },
    "riacho/cli/maintenance/fsck.py": {
        "service.world.clock",
        "service.jobs.fsck",
        "service.jobs.runners.choice",
        "service.jobs.progress",
        "service.jobs.stores",
        "service.settings",
        "storage.maintenance.fsck",
    },
    # The first key is made by whoever owns the stores.
    "riacho/cli/security/keys.py": {"service.settings", "service.world.durations"},
    "riacho/cli/security/store.py": {
        "service.routes.bodies.security",
        "service.security.api_keys.credentials",
        "service.settings",
        "service.process.stores",
        "service.world.clock",
    },
    # Jobs work on the stores, beside gateways.
    "riacho/cli/maintenance/jobs.py": {
        "service.jobs",
        "service.jobs.commands",
        "service.jobs.work",
    },
    "riacho/cli/maintenance/compact.py": JOB,
    "riacho/cli/maintenance/maintain.py": JOB,
    "riacho/cli/maintenance/retention.py": JOB,
    "riacho/cli/maintenance/sweep.py": JOB | {"service.world.durations"},
    "riacho/cli/sql/sql.py": {"service.jobs.runners.spark_session"},
}
"""What a command may import besides, inside a function or for types only."""

SDKS = {"aioboto3", "aiobotocore", "boto3", "botocore", "obstore"}
SPEAK_TO_AWS = {
    "riacho/http/credentials.py",  # Signs requests to a gateway behind one of AWS's doors.
    "service/process/references/secrets_manager.py",
    "service/serverless/emr.py",
    "storage/crypto/kms.py",
    "storage/stores/dynamodb/table.py",
    "storage/stores/s3.py",
}

ON_BOTH_SIDES = {
    "Beat",
    "CommittedOffset",
    "End",
    "Fetched",
    "Gateway",
    "Group",
    "GroupOffsets",
    "GroupSummary",
    "Located",
    "LogStart",
    "PartitionCounts",
    "PartitionInfo",
    "ProducerIds",
    "SchemaReference",
    "StoredRange",
    "Topic",
    "TopicPartition",
    "Transaction",
    "TransactionInfo",
    "Transactions",
}
"""Classes of the client that are named after what the service calls so: the same thing, seen from
the other side of HTTP."""

IN_TWO_PROTOCOLS = {"Known", "Window"}
"""Of groups and of transactions (and windows of a lane): each protocol has its own."""

KEY = re.compile(rf"({'|'.join(COLLECTIONS)})/[^ ]*$|[0-9a-f]/(hot|index|log|zone)/")
"""How keys of items and of objects begin."""

STARTS_TASKS = {
    "service/app.py",  # For the life of the process.
    "service/controller/leading.py",
    "service/process/limits/heavy_work.py",  # Its caller waits in any case.
    "storage/tasks.py",
}

MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
ROOMS = sorted({path.parent for path in MODULES})


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a module; it is the same object for all who ask, so leave it as it is."""
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield every module that is imported, and whether that happens when the file is loaded."""
    at_load = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the layer"
            module = node.module or ""
            for each in node.names:
                # `from storage.head import head` names a module by its package.
                name = f"{module}.{each.name}"
                yield name if _is_module(name) else module, id(node) in at_load
        elif isinstance(node, ast.Import):
            for each in node.names:
                yield each.name, id(node) in at_load


@cache
def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


# A rule yields every place that breaks it, so that one run of a test shows them all.


def broken(rule: Callable[[str, ast.Module], Iterator[str]]) -> list[str]:
    """Return the modules that break a rule, each with where and how."""
    return [
        f"{name_of(path)}: {what}" for path in MODULES for what in rule(name_of(path), parsed(path))
    ]


def test_imports_point_one_way() -> None:
    def rule(name: str, tree: ast.Module) -> Iterator[str]:
        layer = name.split("/")[0]
        for module, at_load in imported(tree):
            package = module.split(".")[0]
            if package not in LAYERS or (not at_load and module in LAZILY.get(name, ())):
                continue
            if package not in MAY_IMPORT[layer]:
                yield f"{layer} may not import {module}"
            elif layer == "riacho" and package == "storage" and module not in PURE:
                yield f"{module} is not one of the pure modules"

    assert broken(rule) == []


def test_only_the_modules_for_aws_know_an_sdk() -> None:
    def rule(name: str, tree: ast.Module) -> Iterator[str]:
        if name not in SPEAK_TO_AWS:
            packages = {module.split(".")[0] for module, _ in imported(tree)}
            yield from (f"imports {package}" for package in packages & SDKS)

    assert broken(rule) == []


def test_tasks_are_begun_where_a_host_can_wait_for_them() -> None:
    """A host that freezes the process must know all tasks that it would lose."""

    def rule(name: str, tree: ast.Module) -> Iterator[str]:
        elsewhere = ("riacho/", "infra/", "service/jobs/", "storage/maintenance/")
        if name.startswith(elsewhere) or name in STARTS_TASKS:
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in {"create_task", "ensure_future"}:
                yield f"line {node.lineno}: use storage.tasks.begin"

    assert broken(rule) == []


def test_keys_are_made_in_one_place() -> None:
    def rule(name: str, tree: ast.Module) -> Iterator[str]:
        if name == "storage/keys.py" or name.startswith(("infra/", "riacho/")):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and KEY.match(str(node.value)):
                yield f"line {node.lineno}: use storage.keys"

    assert broken(rule) == []


def test_a_module_says_what_it_is_for() -> None:
    def rule(_: str, tree: ast.Module) -> Iterator[str]:
        if not ast.get_docstring(tree):
            yield "has no docstring: even an empty __init__.py says what its folder holds"

    assert broken(rule) == []


def test_functions_are_short() -> None:
    def rule(_: str, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = _body_lines(node)
                if lines >= FUNCTION_LINES_MAX:
                    yield f"{node.name} has {lines} lines"

    assert broken(rule) == []


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines a function does its work in: without its parameters, its docstring
    and functions inside it, which are judged by themselves."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if has_docstring else function.body
    inner = [n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = [(n.end_lineno or 0) - n.lineno + 1 for n in inner]
    return (function.end_lineno or 0) - body[0].lineno + 1 - sum(spans) if body else 0


def test_a_name_means_one_thing() -> None:
    """A public class of the log, the service and the client is defined once."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        name = str(path.relative_to(ROOT))
        if not name.startswith(("storage/", "service/", "riacho/")):
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)

    for name, paths in places.items():
        theirs = [path for path in paths if path.startswith("riacho/")]
        if name in ON_BOTH_SIDES:
            assert len(theirs) == 1, f"{name}: {paths}"
            paths = [path for path in paths if path not in theirs]
        assert len(paths) == 1 or name in IN_TWO_PROTOCOLS, f"{name}: {paths}"


def test_a_folder_can_be_read_at_a_glance() -> None:
    crowded: dict[str, int] = {}
    for room in ROOMS:
        names = {path.name for path in room.iterdir() if not path.name.startswith("__")}
        if room == ROOT / "service":
            names -= DOORS
        if len(names) > ROOM_ENTRIES_MAX:
            crowded[name_of(room)] = len(names)

    assert crowded == {}


@pytest.mark.parametrize("layer", ["storage", "service", "riacho"])
def test_rooms_do_not_import_each_other_in_turn(layer: str) -> None:
    """The folders of a layer have an order: each imports, when it is loaded, only those below."""
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / layer).rglob("*.py")):
        here = _room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        imports = imported(parsed(path))
        below = {_room(name) for name, at_load in imports if at_load and name.startswith(layer)}
        graph.setdefault(here, set()).update(below - {here, layer})

    # Raises CycleError, which names the rooms.
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def _room(module: str) -> str:
    """Return the folder below the layer, or the module if it stands in the layer itself."""
    parts = module.removesuffix(".__init__").split(".")
    return ".".join(parts[:2])


def test_the_pure_modules_import_only_each_other() -> None:
    for module in sorted(PURE):
        tree = parsed(ROOT / f"{module.replace('.', '/')}.py")
        names = {name for name, at_load in imported(tree) if at_load}
        ours = {name for name in names if name.split(".")[0] in LAYERS}

        assert ours <= PURE, module
