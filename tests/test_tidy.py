"""House rules that no linter knows: which layer may import what, docstrings, length.

    lambdas ──▶ service ──▶ storage
    riacho  ──▶ the pure modules of storage, and over HTTP the service
    infra   ──▶ nothing of ours: it deploys the rest

What a module imports inside a function it pays for only when that is called, so a few commands
of the CLI may reach further there: `riacho serve` is the service, `riacho doctor` and `riacho
fsck` open stores.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("infra", "lambdas", "riacho", "service", "storage")
LINES_MAX = 400

MAY_IMPORT = {
    "infra": {"infra"},
    "storage": {"storage"},
    "service": {"service", "storage"},
    "lambdas": {"lambdas", "service", "storage"},
    "riacho": {"riacho", "storage"},
}

PURE = {
    "storage.compacted",
    "storage.compacted_footer",
    "storage.entries",
    "storage.errors",
    "storage.frames",
    "storage.keys",
    "storage.partitioner",
    "storage.ranges",
    "storage.records",
    "storage.segment_list",
    "storage.slices",
}
"""What the client may import: modules that compute, and know neither stores nor the service."""

JOB = {
    "service.jobs",
    "service.jobs.choice",
    "service.jobs.work",
    "service.settings",
}

LAZILY = {
    "riacho/cli/serve.py": {"service.durations", "service.serve"},
    # The doctor examines the very stores that the service would open with these settings.
    "riacho/cli/doctor.py": {
        "service.clock",
        "service.settings",
        "service.stores",
        "storage.doctor",
        "storage.dynamodb",
    },
    "riacho/cli/fsck.py": {
        "service.clock",
        "service.fsck",
        "service.jobs.choice",
        "service.jobs.progress",
        "service.jobs.stores",
        "service.settings",
        "storage.fsck",
    },
    # Jobs work on the stores, beside gateways.
    "riacho/cli/jobs.py": {"service.jobs", "service.jobs.commands", "service.jobs.work"},
    "riacho/cli/compact.py": JOB,
    "riacho/cli/maintain.py": JOB,
    "riacho/cli/retention.py": JOB,
    "riacho/cli/sweep.py": JOB | {"service.durations"},
    "riacho/cli/sql.py": {"service.jobs.spark"},
}
"""What a command may import besides, inside a function or for types only."""

SDKS = {"aioboto3", "aiobotocore", "boto3", "botocore", "obstore"}
SPEAK_TO_AWS = {
    "riacho/credentials.py",  # Signs requests to a gateway behind one of AWS's doors.
    "service/serverless/emr.py",
    "storage/dynamodb.py",
    "storage/s3.py",
}

MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))


def imported(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield every module that is imported, and whether that happens when the file is loaded."""
    at_load = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the layer"
            module = node.module or ""
            # `from storage import head` names a module by its package.
            names = [f"{module}.{each.name}" for each in node.names] if "." not in module else []
            for name in names if module in LAYERS else [module]:
                yield name, id(node) in at_load
        elif isinstance(node, ast.Import):
            for each in node.names:
                yield each.name, id(node) in at_load


@each_module
def test_imports_point_one_way(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    layer = name.split("/")[0]

    for module, at_load in imported(ast.parse(path.read_text())):
        package = module.split(".")[0]
        if package not in LAYERS or (not at_load and module in LAZILY.get(name, ())):
            continue
        assert package in MAY_IMPORT[layer], f"{layer} may not import {module}"
        if layer == "riacho" and package == "storage":
            assert module in PURE, f"{module} is not one of the pure modules"


@each_module
def test_only_the_modules_for_aws_know_an_sdk(path: Path) -> None:
    packages = {module.split(".")[0] for module, _ in imported(ast.parse(path.read_text()))}

    assert not packages & SDKS or str(path.relative_to(ROOT)) in SPEAK_TO_AWS


@each_module
def test_a_module_says_what_it_is_for_and_needs_no_table_of_contents(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)

    assert ast.get_docstring(tree) or not tree.body
    assert len(text.splitlines()) <= LINES_MAX


@pytest.mark.parametrize("module", sorted(PURE))
def test_the_pure_modules_import_only_each_other(module: str) -> None:
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    ours = {name for name, at_load in imported(tree) if at_load and name.split(".")[0] in LAYERS}

    assert ours <= PURE
