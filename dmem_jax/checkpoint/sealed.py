"""JSON files with a checksum over what they say, so that a changed byte is an error and not another setting."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

from dmem_jax.errors import CheckpointError


def write(path: Path, content: Any) -> None:
    """Writes `content` to `path` and to the disk."""
    text = _text(content)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"crc32": {zlib.crc32(text.encode())}, "content": {text}}}\n')
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> Any:
    """What `write` wrote. Raises CheckpointError where it is anything else, FileNotFoundError where it is missing."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        content, expected = given["content"], given["crc32"]
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: damaged, or no file of a checkpoint ({error}).") from error
    if zlib.crc32(_text(content).encode()) != expected:
        raise CheckpointError(f"{path}: damaged, its checksum is another one.")
    return content


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True)
