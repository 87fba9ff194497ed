"""Archives of `torch.save`, checked before torch maps them: it takes their word for every size."""

from __future__ import annotations

import pickle
import struct
import zipfile
from typing import IO, Any

_CHUNK_BYTES = 1 << 22
_ITEMSIZE_BYTES = {
    "BFloat16": 2, "Bool": 1, "Byte": 1, "Char": 1, "ComplexDouble": 16, "ComplexFloat": 8, "Double": 8,
    "Float": 4, "Half": 2, "Int": 4, "Long": 8, "QInt32": 4, "QInt8": 1, "QUInt2x4": 1, "QUInt4x2": 1,
    "QUInt8": 1, "Short": 2, "Untyped": 1,
}  # fmt: skip
"""The item sizes of torch's storages; later dtypes are written as untyped ones."""


def is_sound_archive(path: str) -> bool:
    """Whether a file is an archive, which is checked; nothing in it is run.

    Raises:
        OSError: it cannot be read.
        ValueError: the archive contradicts itself, or is not as torch writes it: a record is compressed,
            occurs twice or does not fit its checksum, or a tensor's record has another size than it should.
    """
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
        try:
            with zipfile.ZipFile(file) as archive:
                records = archive.infolist()
                sizes = {record.filename: record.file_size for record in records}
                if len(sizes) < len(records):
                    raise ValueError("the archive holds a record twice")
                if any(record.compress_type != zipfile.ZIP_STORED for record in records):
                    raise ValueError("the archive was compressed; load it and save it again with torch.save")
                for record in records:
                    _check_sum(archive, record)
                _check_sizes(archive, sizes)
        except (zipfile.BadZipFile, struct.error, OSError) as error:
            raise ValueError(f"the archive is damaged ({error})") from None
    return True


def _check_sum(archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    if not record.CRC:  # saved without checksums, after torch.serialization.set_crc32_options(False)
        del record.CRC
        return
    with archive.open(record) as file:
        while file.read(_CHUNK_BYTES):
            pass


def _check_sizes(archive: zipfile.ZipFile, sizes: dict[str, int]) -> None:
    for name in sizes:
        folder, slash, last = name.rpartition("/")
        if last == "data.pkl":
            with archive.open(name) as file:
                storages = _storages(file)
            for key, size in storages.items():
                found = sizes.get(f"{folder}{slash}data/{key}")
                if found != size:
                    has = "has no record" if found is None else f"has a record of {found} bytes"
                    raise ValueError(f"the storage {key!r} of {size} bytes {has}")


def _storages(file: IO[bytes]) -> dict[str, int]:
    """By its key, the bytes of every storage that a pickle refers to."""
    reader = _Reader(file)
    try:
        reader.load()
    except Exception as error:  # whatever a pickle can do wrong
        raise ValueError(f"its pickle is damaged ({type(error).__name__})") from None
    return reader.sizes


class _Reader(pickle.Unpickler):
    """Knows no class and no function: only what a pickle says of storages is kept."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.sizes: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        return type(name, (_Anything,), {"module": module})

    def persistent_load(self, pid: Any) -> Any:
        """Note a storage: ('storage', its class, key, device, number of elements)."""
        _, kind, key, _, count = pid
        size = count * _ITEMSIZE_BYTES[kind.__name__.removesuffix("Storage")]
        if self.sizes.setdefault(key, size) != size:
            raise ValueError("one storage has two sizes")
        return _Anything()


class _Anything:
    """Stands for whatever a pickle makes, and takes whatever it does with it."""

    module = ""

    def __new__(cls, *_: Any, **__: Any) -> _Anything:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        return

    def __setstate__(self, _state: Any) -> None:
        return

    def __setitem__(self, _key: Any, _value: Any) -> None:
        return

    def append(self, _item: Any) -> None:
        return

    def extend(self, _items: Any) -> None:
        return
