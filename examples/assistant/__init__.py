"""A dialogue assistant that remembers for weeks: `python -m examples.assistant`; `__main__.py` tells more."""
