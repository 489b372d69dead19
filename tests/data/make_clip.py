"""Makes tests/data/clip: a tiny CLIP image tower with random weights, as transformers saves it, and what torch and
transformers make of a few images. Run with torch, transformers, safetensors and Pillow installed, from anywhere:

    python tests/data/make_clip.py
"""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

FOLDER = Path(__file__).parent / "clip"
SIZES: dict[str, Any] = {
    **{"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"projection_dim": 5, "image_size": 8, "patch_size": 4},
}
SHAPES = ((8, 8), (9, 14), (23, 7), (8, 17), (5, 6), (2, 5))  # height, width: larger and smaller than the network sees


def main() -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model: Any = CLIPVisionModelWithProjection(CLIPVisionConfig(**SIZES, hidden_act="quick_gelu")).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from what layers start with, so that each of them matters
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.5)
    model.half().save_pretrained(FOLDER)
    processor: Any = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    processor.save_pretrained(FOLDER)

    images = [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    pixels = torch.tensor(np.stack(processor(images)["pixel_values"]))
    found: dict[str, Any] = {"pixels": pixels.numpy()}
    for act in ("quick_gelu", "gelu"):
        model = CLIPVisionModelWithProjection.from_pretrained(FOLDER, hidden_act=act, dtype=torch.float32).eval()
        with torch.no_grad():
            vectors = model(pixels).image_embeds
        found[act] = (vectors / vectors.norm(dim=1, keepdim=True)).numpy()
    given: dict[str, Any] = {f"image_{i}": image for i, image in enumerate(images)}
    np.savez_compressed(FOLDER / "reference.npz", **given, **found)


if __name__ == "__main__":
    main()
