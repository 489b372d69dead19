"""The keyword leg against BM25 written down plainly, and texts that mean harm."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmem_jax.agent import keywords
from dmem_jax.agent.keywords import Keywords, tokens

pytestmark = pytest.mark.quick


def bm25(documents: dict[int, str], query: set[str], k1: float = 1.2, b: float = 0.75) -> dict[int, float]:
    """Of words that blanks divide; with the idf that is never negative."""
    bags = {document: Counter(text.split()) for document, text in documents.items()}
    mean_length = sum(bag.total() for bag in bags.values()) / max(1, len(bags))
    scores: dict[int, float] = {}
    for term in query:
        having = sum(term in bag for bag in bags.values())
        idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
        for document, bag in bags.items():
            if bag[term]:
                length = k1 * (1 - b + b * bag.total() / mean_length)
                scores[document] = scores.get(document, 0.0) + idf * bag[term] * (k1 + 1) / (bag[term] + length)
    return scores


def scored(index: Keywords, text: str, limit: int = 256) -> dict[int, float]:
    found, scores = index.scores(text, limit)
    assert found.dtype == np.int32
    assert scores.dtype == np.float32
    return dict(zip(found.tolist(), scores.tolist(), strict=True))


WORDS = ["ann", "bob", "cat", "dog", "3.5", "don't", "猫", "or", "near", "not"]
some_texts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
changes = st.lists(st.tuples(st.integers(0, 12), st.none() | some_texts), max_size=60)


@given(changes, some_texts, st.integers(0, 20))
def test_bm25_after_every_change(changes, query, limit):
    index, documents = Keywords(), {}
    for document, text in changes:
        if text is None:
            index.remove(document)
            documents.pop(document, None)
        else:
            index.set(document, text)
            documents[document] = text
    assert len(index) == len(documents)
    expected = bm25(documents, set(query.split()))
    found = scored(index, query, limit)
    assert len(found) == min(limit, len(expected))
    assert found == pytest.approx({document: expected[document] for document in found}, rel=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    left_out = [score for document, score in expected.items() if document not in found]
    assert not left_out or not found or max(left_out) <= min(found.values()) * (1 + 1e-5)
    assert all(score > 0 for score in found.values())


@given(st.data())
def test_frequent_terms_are_left_out_and_nothing_else_changes(data):
    documents = {i: data.draw(some_texts) for i in range(20)}
    query = data.draw(some_texts)
    index = Keywords()
    for document, text in documents.items():
        index.set(document, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keywords, "_CHEAP", 0)
        patch.setattr(keywords, "_FREQUENT", 0.3)
        found = scored(index, query)
    having = {term: sum(term in text.split() for text in documents.values()) for term in query.split()}
    there = {term: n for term, n in having.items() if n}
    rarest = sorted(there, key=lambda term: (there[term], term))[:1]
    rare = {term for term, n in there.items() if n <= 6} | set(rarest)
    assert found == pytest.approx(bm25(documents, rare), rel=1e-5)


def test_equal_scores_are_ordered_by_document():
    index = Keywords()
    for document in (7, 3, 9, 5):
        index.set(document, "cat")
    assert index.scores("cat", 3)[0].tolist() == [3, 5, 7]
    assert index.scores("cat", 0)[0].tolist() == []


def test_cleared():
    index = Keywords()
    index.set(1, "cat")
    index.clear()
    assert len(index) == 0
    assert scored(index, "cat") == {}
    index.set(2, "cat dog")
    assert list(scored(index, "cat")) == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The cat_sat", ["the", "cat", "sat"]),
        ("José Müller's Straße", ["jose", "muller", "strasse"]),
        ("don't DON\u2019T we're", ["don't", "don't", "we're"]),
        ("l'allergie O'Brien 'quoted' it's", ["l", "allergie", "o", "brien", "quoted", "it"]),
        ("3.5 mg, 1.2.3. 2026-11-30", ["3.5", "mg", "1.2.3", "2026", "11", "30"]),
        ("王小明", ["王", "小", "明", "王小", "小明"]),
        ("买iPhone吧", ["买", "iphone", "吧"]),
        ("\uff21\uff22\uff11 ｶﾞｽ", ["ab1", "ガ", "ス", "ガス"]),
        ("친구가", ["친", "구", "가", "친구", "구가"]),
        ("हिन्दी।", ["हिन्दी"]),
        ("\ud800\0x\u202ey 😀 ???", ["x", "y"]),
        ("x" * 100_000, ["x" * 64]),
    ],
)
def test_tokens(text: str, expected: list[str]):
    assert tokens(text) == expected


@given(st.text(st.characters(), max_size=60))
def test_every_text_can_be_found_by_itself(text):
    index = Keywords()
    index.set(1, text)
    index.set(2, "other")
    assert (1 in scored(index, text)) == bool(tokens(text))
    index.remove(1)
    assert 1 not in scored(index, text)


def test_a_chinese_name_among_its_characters():
    index = Keywords()
    others = ["小王明天来", "明天小李见王总", "王总说小事一桩，明白", "今天天气很好", "他喜欢吃苹果"] * 4
    for document, text in enumerate(others):
        index.set(document, text)
    index.set(99, "王小明对花生过敏")
    assert index.scores("王小明能吃什么？")[0][0] == 99
    assert index.scores("小明过敏吗")[0][0] == 99


@pytest.mark.parametrize(
    "hostile",
    ['cat" OR "dog', "cat AND bird", "NEAR(cat bird)", "cat*", "^cat", "said:cat", "words : cat", "-cat", "cat NOT cat",
     "(cat", 'cat"', "cat\0dog", "cat\ud800", "{words}: cat", "cat + bird", "cat 😀", "cat'); DROP TABLE said; --"],
)  # fmt: skip
def test_nothing_of_a_query_is_an_operator(hostile: str):
    index = Keywords()
    documents = {1: "cat tail", 2: "dog tail", 3: "category", 4: "none of them", 5: hostile, 6: "drop table"}
    for document, text in documents.items():
        index.set(document, text)
    cut = {document: " ".join(tokens(text)) for document, text in documents.items()}
    assert scored(index, hostile) == pytest.approx(bm25(cut, set(tokens(hostile))), rel=1e-5)
    assert 1 in scored(index, hostile)
    assert 3 not in scored(index, hostile)


def test_a_query_of_a_books_length():
    index = Keywords()
    for document in range(300):
        index.set(document, " ".join(f"word{n}" for n in range(document, document + 10)))
    found = index.scores(" ".join(f"word{n}" for n in range(20_000)))[0]  # well above 100 KB
    assert len(found) == 256
    assert index.scores("( " * 100_000)[0].size == 0


def test_rows_that_are_left_behind_go():
    index, documents = Keywords(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keywords, "_LEFT_BEHIND", 3)
        for number in range(60):
            text = " ".join(WORDS[:: 1 + number % 4])
            index.set(number % 5, text)
            documents[number % 5] = text
            assert len(index._documents) <= 2 * 5 + 3 + 1
            assert scored(index, "cat near") == pytest.approx(bm25(documents, {"cat", "near"}), rel=1e-5)
