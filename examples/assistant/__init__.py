"""A dialogue assistant that, weeks later, still avoids what harmed and offers what delighted: `python -m examples.assistant`."""
