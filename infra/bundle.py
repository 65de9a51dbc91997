"""Builds the packages to deploy: a directory for the functions, an archive for the Spark job.

Only wheels are used, for the machines that will run them and not for this one, so neither docker
nor a compiler is needed. A function may have 250 MB, unzipped and with its layers. All wheels
together exceed that, so files that no gateway needs are left out: Arrow's Flight, S3 and header
files, the AWS SDK's models of other services, a faster event loop, tests.
"""

import gzip
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from infra.parameters import ROOT, Architecture, WrongParameter

PACKAGES: Final = ("lambdas", "riacho", "service", "storage")
UNZIPPED_BYTES_MAX: Final = 250 * 1024 * 1024
ADAPTER_BYTES: Final = 10 * 1024 * 1024
"""Room for the layer of the Lambda Web Adapter, which is smaller."""

GLIBC: Final = "2_28"
"""Required by Arrow's wheels. Amazon Linux 2023 has 2.34."""

SPARK_NEEDS: Final = ("pandas>=2.2,<3",)
"""Spark is installed where the job runs."""

SECURITY: Final = ("--extra", "security")
"""Tokens and encrypted topics."""

SERVICES: Final = frozenset(
    {
        "dynamodb",
        "emr-serverless",
        "kms",
        "s3",
        "secretsmanager",
        "signin",
        "sso",
        "sso-oidc",
        "sts",
    }
)
"""The services whose models are kept: those we call, and those that give credentials."""

UNREACHABLE: Final = (
    "pyarrow/include",
    "pyarrow/includes",
    "pyarrow/src",
    "pyarrow/_flight.*",
    "pyarrow/libarrow_flight.so.*",
    "pyarrow/libarrow_python_flight.so*",
    "pyarrow/_s3fs.*",
    "pyarrow/libarrow_s3.so.*",
    "pyarrow/_pyarrow_cpp_tests.*",
    "pyarrow/libarrow_python.so",  # Two names of one library, which a wheel stores three times.
    "pyarrow/libarrow_python.so.*.*.*",
    "pyarrow/libarrow_python_parquet_encryption.so",
    "pyarrow/libarrow_python_parquet_encryption.so.*.*.*",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/f2py",
    "boto3/examples",
    "pygments/lexers/[!_p]*.py",  # Of those that colour languages, Python's colours tracebacks.
    "uvloop*",  # uvicorn takes asyncio's loop where this is missing.
    "bin/[!p]*",
    "bin/p[!r]*",  # All but protoc, which compiles Protobuf schemas.
    ".lock",
    "**/tests",
    "**/*.pxd",
    "**/*.pxi",
    "**/*.pyi",
    "**/*.pyx",
    "**/__pycache__",
)

OF_COMMANDS: Final = (
    "asn1crypto*",
    "markdown_it*",
    "mdurl*",
    "pygments*",
    "rich*",
    "scramp*",
    "shellingham*",
    "typer*",
)
"""What only the command line imports, which no function runs; and what only tests do."""


COMPILED_FIRST: Final = (
    *PACKAGES,
    *("numpy", "pyarrow", "msgspec", "pydantic", "pydantic_settings", "botocore", "aiobotocore"),
    *("aiohttp", "starlette", "anyio"),
)
"""What a cold start imports. The rest is compiled as long as there is room."""


EXTRAS: Final = ("schemas", "connect")
"""Extras of `pyproject.toml` whose libraries functions may have besides."""


class TooLarge(Exception):
    """The package does not fit into a function."""


def build_functions(
    target: Path, *, python: str, architecture: Architecture, libraries: Sequence[str] = ()
) -> int:
    """Fill `target` with the package of the functions; return its size in bytes.

    `libraries` are what it has besides security: extras, or requirements of theirs by name. Raises
    `WrongParameter`, and `TooLarge` if Lambda would refuse the package.
    """
    more = (*SECURITY, *requirements(libraries))
    _install(target, more, python=python, architecture=architecture)
    trim(target)
    for pattern in OF_COMMANDS:
        for path in list(target.glob(pattern)):
            _remove(path)
    bytes_max = UNZIPPED_BYTES_MAX - ADAPTER_BYTES
    size = size_of(target)
    if size > bytes_max:
        raise TooLarge(
            f"{target} has {size} bytes, and there is room for {bytes_max}: choose fewer libraries"
            f" than {','.join(libraries)!r}, or architecture=arm64, whose are smaller"
        )
    return size + compile_what_fits(target, python, bytes_max - size)


def requirements(libraries: Sequence[str]) -> list[str]:
    """Return what installs these libraries. Raises `WrongParameter` for an unknown one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {
        re.split(r"[^\w-]", each)[0].lower(): each
        for extra in EXTRAS
        for each in project["optional-dependencies"][extra]
    }
    found: list[str] = []
    for name in libraries:
        if name in EXTRAS:
            found += ("--extra", name)
        elif name.lower() in known:
            found.append(known[name.lower()])
        else:
            names = ", ".join((*EXTRAS, *sorted(known)))
            raise WrongParameter(f"libraries: there is no {name!r}; there are {names}")
    return found


def build_job(target: Path, *, python: str, architecture: Architecture) -> int:
    """Write the archive of the Spark job to `target`; return its size in bytes."""
    folder = target.with_name(target.name.split(".")[0])
    _install(folder, (*SPARK_NEEDS, *SECURITY), python=python, architecture=architecture)
    trim(folder)
    pack(folder, target)
    shutil.rmtree(folder)
    return target.stat().st_size


def trim(folder: Path) -> None:
    """Remove files that are never imported from `folder`, which holds installed wheels."""
    for pattern in UNREACHABLE:
        for path in list(folder.glob(pattern)):
            _remove(path)
    models = folder / "botocore" / "data"
    for path in models.iterdir() if models.exists() else ():
        if path.is_dir() and path.name not in SERVICES:
            _remove(path)


def pack(folder: Path, target: Path) -> None:
    """Write `folder` as a .tgz; the same files always give the same bytes."""
    with (
        target.open("wb") as sink,
        gzip.GzipFile(filename="", mode="wb", fileobj=sink, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=_stream(zipped), mode="w") as archive,
    ):
        for path in sorted(_files(folder)):
            archive.add(path, path.relative_to(folder), filter=_anonymous)


def name_version(folder: Path) -> None:
    """Write the metadata of Riacho's version into `folder`, as an installation would."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    info = folder / f"riacho-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: riacho\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _install(
    folder: Path, more: tuple[str, ...], *, python: str, architecture: Architecture
) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    machine = "aarch64" if architecture == "arm64" else "x86_64"
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder)),
            *("--python-version", python, "--python-platform", f"{machine}-manylinux_{GLIBC}"),
            *("--only-binary", ":all:", "--requirement", str(ROOT / "pyproject.toml"), *more),
        ],
        check=True,
    )
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    name_version(folder)


def compile_what_fits(folder: Path, python: str, bytes_max: int) -> int:
    """Compile what fits, if this machine has the same Python, to shorten cold starts.

    Returns how many bytes that adds. The uploaded archive changes the times of files, so Python
    must not compare them.
    """
    found = _interpreter(python)
    if found is None:
        sys.stderr.write(f"no python{python} here: functions will start more slowly\n")
        return 0
    mode = ("--invalidation-mode", "unchecked-hash")
    first = [folder / name for name in COMPILED_FIRST]
    left = bytes_max
    for path in (*first, *sorted(set(folder.iterdir()) - set(first))):
        if path.is_dir():
            command = [found, "-m", "compileall", "-q", "-j", "0", *mode, str(path)]
            subprocess.run(command, check=True)
            left -= _kept(path, left)
    return bytes_max - left


def _kept(folder: Path, bytes_max: int) -> int:
    """Return the size of what was compiled; 0 if that was too much, and was removed again."""
    compiled = [path for path in folder.rglob("*.pyc") if path.is_file()]
    size = sum(path.stat().st_size for path in compiled)
    if size <= bytes_max:
        return size
    for path in compiled:
        path.unlink()
    return 0


def _interpreter(python: str) -> str | None:
    """Return a Python of that version; uv finds it, or downloads it if it can."""
    uv = (sys.executable, "-m", "uv", "python")
    for prepare in ((), ("install", "--quiet", python)):
        if prepare:
            subprocess.run([*uv, *prepare], capture_output=True, check=False)
        found = subprocess.run([*uv, "find", python], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _stream(zipped: gzip.GzipFile) -> IO[bytes]:
    return zipped  # type: ignore[return-value]
