"""torch's part of `encoder`, a script run by a Python that has torch: reads a length a line, writes what a round took.

usage: encoder_torch.py FOLDER BATCH THREADS
"""

import json
import sys
import time
from typing import Any

import numpy as np


def token_ids(batch: int, length: int) -> np.ndarray:
    """int32 [batch, length], the same for both: ordinary words of BERT's uncased vocabulary."""
    return np.random.default_rng(length).integers(1996, 30522, (batch, length), dtype=np.int32)


def main(folder: str, batch: int, threads: int) -> None:
    import torch
    from transformers import BertModel

    torch.set_num_threads(threads)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()

    def embed(ids: Any, mask: Any) -> Any:
        with torch.no_grad():
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            shown = mask[:, :, None].to(hidden.dtype)
            mean = (hidden * shown).sum(1) / shown.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean)

    for line in sys.stdin:
        asked = json.loads(line)
        if not asked:
            answer = {"version": torch.__version__}
        else:
            ids = torch.from_numpy(token_ids(batch, asked["length"])).long()
            mask = torch.ones_like(ids)
            start = time.perf_counter()
            for _ in range(asked["batches"] - 1):
                embed(ids, mask)
            vectors = embed(ids, mask)
            seconds = (time.perf_counter() - start) / asked["batches"]
            answer = {"seconds": seconds, "first": vectors[0].tolist()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
