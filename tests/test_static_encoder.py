"""A table of words: the mean of a text's tokens, of length 1."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import encoders
from dmem_jax.encoders import StaticEncoder, static, weights

pytest.importorskip("tokenizers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

WORDS = ["<unk>", "<s>", "key", "door", "red"]
TABLE = np.array([[0, 0, 0], [9, 9, 9], [3, 4, 0], [0, 0, 2], [1, 0, 0]], np.float16)
WORDLLAMA = weights.folder_in_packages(["wordllama"], static.WEIGHTS)

with_wordllama = pytest.mark.skipif(
    WORDLLAMA is None, reason="wordllama's table is not here: pip install --no-deps wordllama"
)


def folder(path: Path, table: Any = TABLE, name: str = "embedding.weight") -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="<s> $A", pair=None, special_tokens=[("<s>", 1)]
    )
    for part in ("weights", "tokenizers"):
        (path / part).mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizers" / static.TOKENIZER))
    safetensors_numpy.save_file({name: table}, path / "weights" / static.WEIGHTS)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StaticEncoder:
    return StaticEncoder.from_pretrained(folder(tmp_path_factory.mktemp("models") / "small"))


@pytest.mark.quick
def test_a_text_is_the_mean_of_its_tokens(small: StaticEncoder):
    found = small(["key", "key key", "door red", "", "nothing known", "red door key"])
    means = np.array([[3, 4, 0], [3, 4, 0], [0.5, 0, 1], [0, 0, 0], [0, 0, 0], [4, 4, 2]])
    expected = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert found.dtype == np.float32
    assert isinstance(small, encoders.Encoder)
    assert (small.dim, small([]).shape) == (3, (0, 3))


def test_one_jit_from_token_ids_to_a_recall(small: StaticEncoder):
    config = dmem.Config(embedding_dim=3, core_capacity=4, buffer_capacity=4, top_k=1)
    params, memory = dmem.Params.default(config), dmem.init(config)
    for vector in small(["key", "door", "red"]):
        memory, _ = dmem.write(config, params, memory, dmem.experience(config, vector, rpe=5.0))

    @jax.jit
    def recalled(variables: Any, memory: dmem.Memory, ids: jax.Array, mask: jax.Array) -> dmem.Recall:
        return dmem.recall(config, params, memory, dmem.query(config, small.embed(variables, ids, mask)[0]))

    found = [int(recalled(small.variables, memory, *small.tokenize([text])).id[0]) for text in ("red", "door", "key")]
    assert found == [2, 1, 0]


def test_tokens_beyond_max_length_are_not_seen(tmp_path: Path):
    encoder = StaticEncoder.from_pretrained(folder(tmp_path), max_length=3)
    np.testing.assert_array_equal(encoder(["key " * 3 + "door " * 30_000]), encoder(["key key key"]))


def test_several_threads_share_an_encoder(small: StaticEncoder):
    texts = [["key door red key"[: 4 * (1 + (i + j) % 4)] for j in range(i % 9)] for i in range(40)]
    expected = [small(some) for some in texts]
    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(small, texts), expected, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_text_is_refused(small: StaticEncoder):
    with pytest.raises(dmem.ArgumentTypeError, match=r"texts\[1\]: expected a string, got 3"):
        small(["fine", 3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(dmem.ArgumentValueError, match=r"texts\[0\]: expected Unicode text, got a lone surrogate"):
        small(["\udfff"])


@with_wordllama
def test_wordllama_gives_the_mean_of_its_table():
    from tokenizers import Tokenizer

    assert WORDLLAMA is not None
    encoder = StaticEncoder.from_pretrained("wordllama")
    assert encoder.name == "wordllama@64b47a2dc493"
    assert encoder.dim == 256
    table = safetensors_numpy.load_file(WORDLLAMA / static.WEIGHTS)["embedding.weight"].astype(np.float32)
    tokenizer = Tokenizer.from_file(str(WORDLLAMA.parent / "tokenizers" / static.TOKENIZER))
    texts = ["key", "The door was locked.", "我今天找到了一本书", "🙂 ok", "word " * 300]
    means = np.stack([table[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in texts])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder(texts), expected, rtol=0, atol=1e-5)
    found = encoder(["the cat sat on the mat", "a kitten lay on the rug", "quarterly earnings fell"])
    assert found[0] @ found[1] > found[0] @ found[2] + 0.2


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"name": "other"}, "has no tensor 'embedding.weight'"),
        ({"table": TABLE[0]}, r"expected 'embedding.weight' of shape \[0, 0\]"),
        ({"table": TABLE[:3]}, "has 5 tokens, the table 3 rows"),
        ({"table": np.where(TABLE == 2, np.float16(np.inf), TABLE)}, "finite floats"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, made: dict[str, Any], said: str):
    with pytest.raises(dmem.ArgumentValueError, match=said):
        StaticEncoder.from_pretrained(folder(tmp_path, **made))


def test_missing_and_damaged_files_are_named(tmp_path: Path):
    file = folder(tmp_path) / "tokenizers" / static.TOKENIZER
    file.write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(dmem.ArgumentValueError, match=f"{static.TOKENIZER} can't be read as a tokenizer"):
        StaticEncoder.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(dmem.ArgumentValueError, match=f"there is no .*{static.TOKENIZER}"):
        StaticEncoder.from_pretrained(tmp_path)
    (tmp_path / "weights" / static.WEIGHTS).unlink()
    with pytest.raises(dmem.ArgumentValueError, match=f"holds no {static.WEIGHTS}"):
        StaticEncoder.from_pretrained(tmp_path)


def test_a_name_that_no_package_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(dmem.ArgumentValueError, match="expected a folder or 'wordllama', got 'other'"):
        StaticEncoder.from_pretrained("other")
    monkeypatch.setattr(weights, "folder_in_packages", lambda *_: None)
    with pytest.raises(dmem.ArgumentValueError, match="pip install --no-deps wordllama"):
        StaticEncoder.from_pretrained()


def test_a_digest_is_held_against_the_weights(tmp_path: Path):
    with pytest.raises(dmem.ArgumentValueError, match=f"sha256: .* expected {'a' * 64}, it has"):
        StaticEncoder.from_pretrained(folder(tmp_path), sha256="a" * 64)
