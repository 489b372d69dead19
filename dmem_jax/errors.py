"""The exceptions that dmem_jax raises: each is also a standard type, so `except ValueError` works."""


class DmemError(Exception):
    """Base of all errors of this library."""


class ArgumentValueError(DmemError, ValueError):
    """An argument has a value, a shape or a structure that cannot be used. The message names the argument."""


class ArgumentTypeError(DmemError, TypeError):
    """An argument is of the wrong kind (a bool for a float, a float for an integer). The message names the argument."""


class ProcessLostError(DmemError, RuntimeError):
    """Another process of a run over several is gone. The message says what to do."""


class MissingExtraError(DmemError, ImportError):
    """An optional part was asked for whose packages are not installed. The message names the extra to install."""


class CheckpointError(DmemError, OSError):
    """A checkpoint, or a saved index, is damaged, or could not be written. The message names the file or folder."""


class ClosedError(DmemError, RuntimeError):
    """A backend was used after it was closed."""


class DatabaseError(DmemError, OSError):
    """The database cannot be opened, read or written, or is not ours. The message names it; nothing of it was lost."""


class UnknownMemoryError(DmemError, KeyError):
    """No memory has this id (any more). The message names it."""

    __str__ = Exception.__str__  # KeyError's own shows a message in quotes


def shown(given: object) -> str:
    """What came, short enough to stand in a message."""
    try:
        text = repr(given)
    except Exception:  # Python prints no integer of thousands of digits, and an object's own repr may fail
        return f"an unprintable {type(given).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({type(given).__name__})"
