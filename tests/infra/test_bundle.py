"""Packages hold what is needed and nothing else; the image is built as it should be."""

import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from infra import bundle
from infra.parameters import ROOT, WrongParameter
from service.process.version import VERSION


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "installed"
    for name in (
        "botocore/data/dynamodb/2012-08-10/service-2.json.gz",
        "botocore/data/ec2/2016-11-15/service-2.json.gz",
        "botocore/data/endpoints.json",
        "numpy/__init__.py",
        "numpy/lib/tests/test_io.py",
        "pyarrow/include/arrow/api.h",
        "pyarrow/lib.cpython-313-x86_64-linux-gnu.so",
        "pyarrow/lib.pyx",
        "pyarrow/libarrow.so.2600",
        "pyarrow/libarrow_flight.so.2600",
        "pyarrow/libarrow_python.so",
        "pyarrow/libarrow_python.so.2600",
        "pyarrow/libarrow_python.so.2600.1.0",
        "service/__pycache__/app.cpython-311.pyc",
        "service/app.py",
        "uvloop/loop.cpython-313-x86_64-linux-gnu.so",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def test_what_nobody_imports_is_left_out(installed: Path) -> None:
    bundle.trim(installed)

    assert files(installed) == {
        "botocore/data/dynamodb/2012-08-10/service-2.json.gz",
        "botocore/data/endpoints.json",
        "numpy/__init__.py",
        "pyarrow/lib.cpython-313-x86_64-linux-gnu.so",
        "pyarrow/libarrow.so.2600",
        "pyarrow/libarrow_python.so.2600",
        "service/app.py",
    }


def test_a_package_knows_its_version(tmp_path: Path) -> None:
    bundle.name_version(tmp_path)

    [found] = metadata.distributions(path=[str(tmp_path)])
    assert (found.name, found.version) == ("riacho", VERSION)


def test_an_archive_of_the_same_files_has_the_same_bytes(installed: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.tgz", tmp_path / "2.tgz"
    bundle.pack(installed, first)
    (installed / "service/app.py").touch()
    bundle.pack(installed, second)

    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert set(archive.getnames()) == files(installed)


def test_the_dockerfile_is_as_hadolint_wants_it() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"

    told = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, check=False)

    assert (told.stdout, told.returncode) == (b"", 0)


def test_the_image_gets_every_package_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        name
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }

    assert let_in == copied
    assert copied > set(bundle.PACKAGES)


def test_a_container_has_no_way_to_change_itself() -> None:
    [service] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "\nUSER 10001\n" in stages[-1]


def test_libraries_are_extras_or_requirements_of_theirs() -> None:
    assert bundle.requirements(["schemas"]) == ["--extra", "schemas"]
    [found] = bundle.requirements(["sqlalchemy"])
    assert found.startswith("SQLAlchemy>=")
    with pytest.raises(WrongParameter, match="there is no 'sqlalchemi'; there are schemas"):
        bundle.requirements(["sqlalchemi"])


def test_what_does_not_fit_is_not_compiled(tmp_path: Path) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, count in (("service", 1), ("another", 1000)):
        (tmp_path / name).mkdir()
        lines = [f"name_{number} = {number}\n" for number in range(count)]
        (tmp_path / name / "module.py").write_text("".join(lines))

    size = bundle.compile_what_fits(tmp_path, python, 5000)

    assert [path.parts[-3] for path in tmp_path.rglob("*.pyc")] == ["service"]
    assert 0 < size <= 5000
