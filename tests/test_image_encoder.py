"""Images to vectors: what transformers makes of them, for images of all shapes, and what is no good."""

import importlib.util
import json
import pathlib
import shutil
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmem_jax import ArgumentTypeError, ArgumentValueError, MissingExtraError
from dmem_jax.encoders import Encoder, ImageEncoder, pixels

Image = pytest.importorskip("PIL.Image", reason="needs the extra `image`")
safetensors = pytest.importorskip("safetensors.numpy", reason="needs the extra `image`")

FOLDER = pathlib.Path(__file__).parent / "data" / "clip"
IMAGES = 6

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason="compares with torch and transformers where both are installed; the committed reference is compared always",
)


@pytest.fixture(scope="module")
def encoder() -> ImageEncoder:
    return ImageEncoder.from_pretrained(FOLDER, batch_size=4)


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "reference.npz") as found:
        return dict(found)


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(FOLDER, tmp_path / "model"))


def images_of(reference: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [reference[f"image_{i}"] for i in range(IMAGES)]


def change(file: pathlib.Path, **fields: Any) -> None:
    """In a JSON file; None takes a field out."""
    changed = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


# ---- What transformers makes of them ---------------------------------------------------------------------------------


@pytest.mark.quick
def test_pixels_are_those_of_transformers(encoder, reference):
    prepare = encoder.preprocessing
    made = np.stack([prepare("image", image) for image in images_of(reference)])
    assert made.dtype == np.uint8
    seen = (made * prepare.factor - np.array(prepare.mean)) / np.array(prepare.deviation)
    # One level is 0.0146 here: they are the same levels.
    np.testing.assert_allclose(seen.transpose(0, 3, 1, 2), reference["pixels"], atol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_vectors_are_those_of_torch(act, copy, reference):
    change(copy / "config.json", hidden_act=act)
    found = ImageEncoder.from_pretrained(copy, batch_size=4)(images_of(reference))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference[act], atol=2e-6)
    assert np.abs(reference["gelu"] - reference["quick_gelu"]).max() > 1e-3  # the two are told apart
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_batches_and_kinds_of_image_change_nothing(encoder, reference):
    given = images_of(reference)
    whole = encoder(given)
    one_by_one = np.concatenate([encoder([image]) for image in given])
    np.testing.assert_allclose(one_by_one, whole, atol=2e-6)
    np.testing.assert_array_equal(encoder([Image.fromarray(image) for image in given]), whole)
    np.testing.assert_array_equal(encoder(image for image in given), whole)
    np.testing.assert_array_equal(encoder([jnp.asarray(image) for image in given]), whole)
    np.testing.assert_array_equal(encoder([image[:, ::-1][:, ::-1] for image in given]), whole)  # not contiguous
    np.testing.assert_array_equal(encoder(np.stack([given[0], given[0]])), whole[[0, 0]])


def test_images_without_three_colours_get_them(encoder):
    grey = np.arange(0, 240, 3, dtype=np.uint8).reshape(8, 10)
    in_colour = encoder([np.repeat(grey[:, :, None], 3, axis=2)])
    picture = Image.fromarray(grey)
    np.testing.assert_array_equal(encoder([picture]), in_colour)
    np.testing.assert_array_equal(encoder([picture.convert("RGBA")]), in_colour)


def test_embed_is_pure_and_maps_over_agents(encoder):
    frames = jax.random.randint(jax.random.key(0), (3, 2, 8, 8, 3), 0, 256).astype(jnp.uint8)
    found = jax.jit(jax.vmap(encoder.embed, in_axes=(None, 0)))(encoder.variables, frames)
    assert found.shape == (3, 2, encoder.dim)
    np.testing.assert_allclose(found[1], encoder(np.asarray(frames[1])), atol=2e-6)
    slope = jax.grad(lambda variables: encoder.embed(variables, frames[0])[:, 0].sum())(encoder.variables)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(slope["params"]["layer_0"]["fc1"]))


def test_it_is_an_encoder_and_none_makes_none(encoder):
    assert isinstance(encoder, Encoder)
    assert encoder.dim == 5
    assert encoder.name.startswith("clip@")
    for nothing in ([], (), np.zeros((0, 8, 8, 3), np.uint8)):
        found = encoder(nothing)
        assert found.shape == (0, 5)
        assert found.dtype == np.float32


@needs_torch
@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_a_whole_clip_of_today_is_read(act, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    processing = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": 24, "intermediate_size": 30, "num_attention_heads": 2}
    vision = sizes | {"num_hidden_layers": 3, "image_size": 21, "patch_size": 5, "hidden_act": act}
    text = sizes | {"num_hidden_layers": 1, "vocab_size": 11, "max_position_embeddings": 6}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=9)
    model = transformers.CLIPModel(config).eval()
    model.save_pretrained(tmp_path)
    processor = processing.CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 21, "width": 21})
    processor.save_pretrained(tmp_path)
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in ((30, 40), (99, 25), (10, 11))]
    given = torch.tensor(np.stack(processor(images)["pixel_values"]))
    with torch.no_grad():
        hidden = model.vision_model(given).pooler_output
        expected = model.visual_projection(hidden).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(ImageEncoder.from_pretrained(tmp_path)(images), expected, atol=2e-6)


# ---- Files that fit no encoder, or not together ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "bert"}, "model_type: expected clip or clip_vision_model, got 'bert'"),
        ({"model_type": None}, "model_type: expected .* got None"),
        ({"hidden_act": "relu"}, "hidden_act: expected quick_gelu or gelu, got 'relu'"),
        ({"hidden_size": "12"}, "hidden_size: expected an integer, got '12'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected at least 1, got 0"),
        ({"num_hidden_layers": 3}, r"model.safetensors has no tensor 'vision_model.encoder.layers.2"),
        ({"num_attention_heads": 5}, "hidden_size: expected a multiple of num_attention_heads"),
        ({"patch_size": 9}, "image_size: expected at least patch_size"),
        ({"num_channels": 1}, "num_channels: expected 3, got 1"),
        ({"hidden_act": 3}, "hidden_act: expected .* got 3"),
        ({"layer_norm_eps": 0}, "layer_norm_eps: expected"),
        ({"projection_dim": 6}, r"'visual_projection.weight' of shape \[6, 12\].* got \[5, 12\]"),
        ({"image_size": 16}, "preprocessor_config.json: expected images of 16 x 16"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_name(copy, fields, message):
    change(copy / "config.json", **fields)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=message):
        ImageEncoder.from_pretrained(copy)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"do_resize": False}, "do_resize: expected true"),
        ({"do_center_crop": False}, "expected images of 8 x 8"),
        ({"crop_size": {"height": 8, "width": 9}}, "expected images of 8 x 8"),
        ({"size": {"shortest_edge": 7}}, "expected images of 8 x 8"),
        ({"size": {"shortest_edge": "8"}}, "size: expected an integer"),
        ({"size": {"longest_edge": 8}}, "expected images of 8 x 8"),
        ({"size": {"height": 9, "width": 9}}, "expected images of 8 x 8"),
        ({"resample": 9}, "resample: expected one of Pillow's filters"),
        ({"image_mean": [0.5, 0.5]}, "image_mean: expected 3 finite numbers"),
        ({"image_mean": [0.5, 0.5, float("nan")]}, "image_mean: expected 3 finite numbers"),
        ({"image_std": [0.5, 0.5, 0.0]}, "image_std: expected numbers above 0"),
        ({"image_std": None}, "image_std: expected 3 finite numbers, got None"),
        ({"rescale_factor": "x"}, "rescale_factor: expected 1 finite number"),
    ],
)
def test_a_preprocessing_that_does_not_fit_is_refused_by_name(copy, fields, message):
    change(copy / "preprocessor_config.json", **fields)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=message):
        ImageEncoder.from_pretrained(copy)


def test_other_spellings_of_the_same_preprocessing(copy, encoder, reference):
    given = images_of(reference)
    change(copy / "preprocessor_config.json", size=8, crop_size=8)  # as the first CLIPs have it
    np.testing.assert_array_equal(ImageEncoder.from_pretrained(copy, batch_size=4)(given), encoder(given))
    read = json.loads((copy / "preprocessor_config.json").read_text())
    (copy / "processor_config.json").write_text(json.dumps({"image_processor": read}))
    (copy / "preprocessor_config.json").unlink()
    np.testing.assert_array_equal(ImageEncoder.from_pretrained(copy, batch_size=4)(given), encoder(given))


def test_a_preprocessing_that_only_resizes_sees_the_whole_image(copy, encoder):
    square = {"height": 8, "width": 8}
    change(copy / "preprocessor_config.json", size=square, do_center_crop=False)
    whole = ImageEncoder.from_pretrained(copy)
    image = np.zeros((8, 40, 3), np.uint8)
    image[:, :4] = 255  # at the edge, which a middle has not
    assert whole.preprocessing("image", image).max() > 0
    assert encoder.preprocessing("image", image).max() == 0


def rewrite(folder: pathlib.Path, name: str, array: np.ndarray | None) -> None:
    arrays = safetensors.load_file(folder / "model.safetensors")
    arrays.pop(name)
    safetensors.save_file(arrays | ({} if array is None else {name: array}), folder / "model.safetensors")


def test_weights_that_are_missing_misshapen_or_damaged_are_named(copy):
    name = "vision_model.post_layernorm.bias"
    for array, message in (
        (None, f"has no tensor '{name}'"),
        (np.zeros(7, np.float32), rf"'{name}' of shape \[12\].*got \[7\]"),
        (np.full(12, np.nan, np.float32), f"'{name}' to be finite"),
        (np.zeros(12, np.int32), f"'{name}' to be finite floats"),
    ):
        shutil.copy(FOLDER / "model.safetensors", copy / "model.safetensors")
        rewrite(copy, name, array)
        with pytest.raises(ArgumentValueError, match=message):
            ImageEncoder.from_pretrained(copy)
    whole = (FOLDER / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:-9])
    with pytest.raises(ArgumentValueError, match="can't be read as safetensors"):
        ImageEncoder.from_pretrained(copy)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(ArgumentValueError, match=r"holds no model.safetensors. There is pytorch_model.bin"):
        ImageEncoder.from_pretrained(copy)


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
def test_a_json_file_that_is_missing_or_none_is_named(copy, file):
    for text in ("{", "[]"):
        (copy / file).write_text(text)
        with pytest.raises(ArgumentValueError, match=file):
            ImageEncoder.from_pretrained(copy)
    (copy / file).unlink()
    with pytest.raises(ArgumentValueError, match=f"holds no {file}"):
        ImageEncoder.from_pretrained(copy)


def test_without_its_packages_it_says_what_to_install(monkeypatch):
    for module, package in (("PIL.Image", "pillow"), ("safetensors.numpy", "safetensors")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'dmem-jax\[image\]'"):
                ImageEncoder.from_pretrained(FOLDER)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"needs huggingface_hub: pip install 'dmem-jax\[image\]'"):
        ImageEncoder.from_pretrained("some/model")


@pytest.mark.usefixtures("unchecked")
def test_other_arguments(copy):
    with pytest.raises(ArgumentValueError, match="sha256"):
        ImageEncoder.from_pretrained(copy, sha256="0" * 64)
    with pytest.raises(ArgumentValueError, match="batch_size"):
        ImageEncoder.from_pretrained(copy, batch_size=0)
    wrong: Any = 3
    with pytest.raises(ArgumentTypeError, match="folder_or_name"):
        ImageEncoder.from_pretrained(wrong)


# ---- What is no image ------------------------------------------------------------------------------------------------

GOOD = np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (None, TypeError, r"images\[1\]: expected a PIL image or an array uint8 \[H, W, 3\], got None"),
        ("photo.png", TypeError, r"images\[1\]: expected a PIL image.*got 'photo.png'"),
        ([[[0, 0, 0]]], TypeError, r"images\[1\]: expected a PIL image"),
        (np.zeros((8, 8, 3), np.float32), TypeError, r"images\[1\]: expected uint8.*got float32. For floats in"),
        (np.full((8, 8, 3), np.nan, np.float32), TypeError, r"images\[1\]: .*got float32. It has pixels that are not"),
        (np.zeros((8, 8, 3), np.int32), TypeError, r"images\[1\]: expected uint8, levels of 0 .. 255, got int32\.$"),
        (np.zeros((3, 8, 8), np.uint8), ValueError, r"images\[1\]: expected \[H, W, 3\], got \[3, 8, 8\]"),
        (np.zeros((8, 8), np.uint8), ValueError, r"images\[1\]: expected \[H, W, 3\], got \[8, 8\]"),
        (np.zeros((8, 8, 4), np.uint8), ValueError, r"images\[1\]: expected \[H, W, 3\], got \[8, 8, 4\]"),
        (np.zeros((0, 8, 3), np.uint8), ValueError, r"images\[1\]: expected \[H, W, 3\], got \[0, 8, 3\]"),
        (Image.new("F", (8, 8)), TypeError, r"images\[1\]: expected an image of 8 bits a channel, .* mode 'F'"),
        (Image.new("I;16", (8, 8)), TypeError, r"images\[1\]: .* mode 'I;16'"),
        (Image.new("RGB", (0, 8)), ValueError, r"images\[1\]: expected pixels, got an image of 0 x 8"),
    ],
)
def test_what_is_no_image_is_named(encoder, image, error, message):
    with pytest.raises(error, match=message):
        encoder([GOOD, image])


@pytest.mark.parametrize("images", [GOOD, Image.new("RGB", (8, 8)), jnp.zeros((8, 8, 3), jnp.uint8), "photo", 3, None])
def test_one_image_alone_or_none_at_all_is_refused(encoder, images):
    with pytest.raises(ArgumentTypeError, match="images: expected a list of images"):
        encoder(images)


@pytest.mark.usefixtures("unchecked")
def test_embed_takes_pixels_of_its_size_alone(encoder):
    for wrong in (
        jnp.zeros((2, 8, 8, 3), jnp.float32),
        jnp.zeros((2, 9, 8, 3), jnp.uint8),
        jnp.zeros((8, 8, 3), jnp.uint8),
    ):
        with pytest.raises(ArgumentValueError, match=r"pixels: expected uint8\[n, 8, 8, 3\]"):
            jax.jit(encoder.embed)(encoder.variables, wrong)


@pytest.mark.quick
def test_a_picture_twice_as_large_shows_the_same():
    """Where one knows what must come out: resizing an image of one colour and cutting it changes no pixel."""
    prepare = pixels.Preprocessing(size=8, shortest=10, resample=3, factor=1.0, mean=(0, 0, 0), deviation=(1, 1, 1))
    colour = np.array([250, 3, 77], np.uint8)
    for shape in ((8, 8), (16, 16), (100, 37), (3, 50), (1, 1)):
        np.testing.assert_array_equal(
            prepare("image", np.broadcast_to(colour, (*shape, 3))), np.tile(colour, (8, 8, 1))
        )
