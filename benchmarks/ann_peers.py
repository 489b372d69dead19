"""Approximate search by others: hnswlib as it comes, faiss's HNSW, usearch. All have the links and the breadth of
building that `dmem_jax.ann` has by default, and all threads. Each has `search`, which gives the ids [Q, k]."""

import importlib
from typing import Any

import numpy as np

from benchmarks.output import progress

M, EF_CONSTRUCTION = 16, 200


class Hnswlib:
    def __init__(self, vectors: np.ndarray, room: int):
        import hnswlib

        self.index = hnswlib.Index(space="cosine", dim=vectors.shape[1])
        self.index.init_index(
            room,
            M=M,
            ef_construction=EF_CONSTRUCTION,
            allow_replace_deleted=True,  # pyright: ignore[reportCallIssue]  (its stub is behind its code)
        )
        self.index.add_items(vectors, np.arange(len(vectors)))

    def search(self, queries: np.ndarray, k: int, ef: int) -> np.ndarray:
        self.index.set_ef(max(k, ef))
        return self.index.knn_query(queries, k)[0]

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        self.index.add_items(vectors, ids)

    def replace(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        self.index.add_items(vectors, ids)

    def delete(self, ids: np.ndarray) -> None:
        for label in ids.tolist():
            self.index.mark_deleted(label)

    def nbytes(self) -> int:
        return self.index.index_file_size()


class FaissHnsw:
    def __init__(self, vectors: np.ndarray, room: int):
        import faiss

        self.faiss, self.index = faiss, faiss.IndexHNSWFlat(vectors.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = EF_CONSTRUCTION
        self.index.add(_directions(vectors))

    def search(self, queries: np.ndarray, k: int, ef: int, kept: np.ndarray | None = None) -> np.ndarray:
        how = self.faiss.SearchParametersHNSW(efSearch=max(k, ef))
        if kept is not None:
            bits = np.packbits(kept, bitorder="little")
            how.sel = self.faiss.IDSelectorBitmap(bits)
        return self.index.search(_directions(queries), k, params=how)[1]

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        self.index.add(_directions(vectors))

    def nbytes(self) -> int:
        return len(self.faiss.serialize_index(self.index))


class Usearch:
    def __init__(self, vectors: np.ndarray, room: int):
        from usearch.index import Index

        self.index: Any = Index(
            ndim=vectors.shape[1], metric="cos", dtype="f32", connectivity=M, expansion_add=EF_CONSTRUCTION
        )
        self.index.add(np.arange(len(vectors)), vectors)

    def search(self, queries: np.ndarray, k: int, ef: int) -> np.ndarray:
        self.index.expansion_search = max(k, ef)
        return self.index.search(queries, k).keys.reshape(len(queries), k)

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        self.index.add(ids, vectors)

    def delete(self, ids: np.ndarray) -> None:
        self.index.remove(ids)

    def nbytes(self) -> int:
        return self.index.memory_usage


def _directions(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


PEERS: dict[str, tuple[Any, str]] = {
    "hnswlib": (Hnswlib, "hnswlib"),
    "faiss_hnsw": (FaissHnsw, "faiss"),
    "usearch": (Usearch, "usearch"),
}


def installed() -> dict[str, Any]:
    """The peers; one that isn't installed is named on stderr and left out."""
    found = {}
    for name, (peer, module) in PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError:
            progress(f'{name}: {module} is not installed; in the checkout: pip install -e ".[bench]"')
        else:
            found[name] = peer
    return found
