"""Makes text_minilm.npz and text_tiny.npz: what torch and transformers compute, for test_text_encoder.py to compare.

    python -m venv torchenv
    torchenv/bin/pip install torch==2.13.0 transformers==5.24.0
    torchenv/bin/python tests/data/make_text_references.py FOLDER_OF_ALL_MINILM_L6_V2

With --stdout it writes the vectors of MiniLM alone, as an .npy file on stdout.
"""
# pyright: reportMissingImports=false

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaModel

HERE = Path(__file__).parent
TEXTS = [
    "",
    "key",
    "   The key\tis under\nthe mat.  ",
    "The door on the third floor was locked, so the agent went back for the red key.",
    "我今天在图书馆里找到了一本很有意思的书。",
    "こんにちは世界、今日はとても暑いですね",
    "🙂🔥 what a day 👩‍👩‍👧‍👦!!",
    "Ünïcödé, naïve café: Straße; Ελληνικά, русский язык, עברית, العربية",
    "x = {k: v for k, v in zip(a, b)}  # https://example.org/?q=1&r=2",
    "antidisestablishmentarianism " * 9,
    "Alice asked Bob whether the meeting on Tuesday had been moved, and he said that nobody had told him. " * 6,
    "one two three four five six seven eight nine ten " * 200,
]
MAX_LENGTH = 256


def minilm(folder: str) -> np.ndarray:
    """The mean of all tokens, of length 1: as sentence-transformers does it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder).eval()
    vectors = []
    for text in TEXTS:
        inputs = tokenizer([text], truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        vectors.append(torch.nn.functional.normalize(hidden.mean(dim=1))[0].numpy())
    return np.stack(vectors)


def tiny() -> dict[str, np.ndarray]:
    """A BERT of random weights, as it is and with other activations, and the same weights as a RoBERTa."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-5, "attn_implementation": "eager",
    }  # fmt: skip
    weights = BertModel(BertConfig(**sizes), add_pooling_layer=False).state_dict()
    weights = {name: 0.7 * torch.randn(w.shape) for name, w in weights.items() if w.is_floating_point()}
    ids = torch.randint(5, 40, (5, 16))
    mask = torch.arange(16)[None] < torch.tensor([16, 1, 2, 9, 15])[:, None]
    models = {
        "bert-gelu": BertModel(BertConfig(**sizes), add_pooling_layer=False),
        "bert-gelu_new": BertModel(BertConfig(hidden_act="gelu_new", **sizes), add_pooling_layer=False),
        "bert-relu": BertModel(BertConfig(hidden_act="relu", **sizes), add_pooling_layer=False),
        "roberta-gelu": RobertaModel(RobertaConfig(pad_token_id=1, **sizes), add_pooling_layer=False),
    }
    made = {f"weight/{name}": w.numpy() for name, w in weights.items()} | {"ids": ids.numpy(), "mask": mask.numpy()}
    for name, model in models.items():
        model.load_state_dict(weights, strict=False)
        padded = torch.where(mask, ids, model.config.pad_token_id)
        with torch.no_grad():
            hidden = model.eval()(padded, attention_mask=mask.long()).last_hidden_state
        shown = torch.where(mask[:, :, None], hidden, 0.0)
        count = mask.sum(1, keepdim=True)
        made[f"{name}/mean"] = (shown.sum(1) / count).numpy()
        made[f"{name}/mean_sqrt_len"] = (shown.sum(1) / count.sqrt()).numpy()
        made[f"{name}/max"] = torch.where(mask[:, :, None], hidden, -torch.inf).max(1).values.numpy()
        made[f"{name}/cls"] = hidden[:, 0].numpy()
    return made


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("--stdout", action="store_true")
    given = arguments.parse_args()
    if given.stdout:
        np.save(sys.stdout.buffer, minilm(given.folder))
    else:
        np.savez_compressed(HERE / "text_minilm.npz", texts=np.array(TEXTS), vectors=minilm(given.folder))
        arrays: dict[str, Any] = tiny()
        np.savez_compressed(HERE / "text_tiny.npz", **arrays)
