"""The assistant's answer from the prompt: by a chat model where one is named, else a plain sentence."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence

from dmem_jax.agent import Recalled

MODEL = "gpt-4o-mini"
SYSTEM = (
    "You are a personal assistant. Below is what you remember of this user. Never suggest what harmed them; gladly "
    "offer what delighted them where it fits. Answer in at most three sentences."
)


class ChatError(RuntimeError):
    """The chat model could not be asked, or gave no answer."""


def available() -> bool:
    """Whether OPENAI_BASE_URL and OPENAI_API_KEY name a chat model."""
    return bool(os.environ.get("OPENAI_BASE_URL") and os.environ.get("OPENAI_API_KEY"))


def answer(question: str, prompt: str, recalled: Sequence[Recalled]) -> str:
    """What the assistant says to the question, with `prompt` telling what it remembers.

    Raises:
      ChatError: a chat model is named and fails.
    """
    if available():
        return complete([{"role": "system", "content": f"{SYSTEM}\n\n{prompt}"}, {"role": "user", "content": question}])
    said = []
    for begin, heads in (("I keep clear of this", -1), ("I remember what you loved", 1)):
        first = next((each.observation for each in recalled if each.rpe * heads > 0), None)
        if first is not None:
            said.append(f"{begin}: “{first}”")
    return " ".join(said) or "I remember nothing that matters here."


def complete(messages: list[dict[str, str]], *, timeout: float = 60.0) -> str:
    """One completion of OpenAI's chat API, or of any server that speaks it; the model is OPENAI_MODEL.

    Raises:
      ChatError: no connection, a status other than 200, or an answer without text.
    """
    url = f"{os.environ['OPENAI_BASE_URL'].rstrip('/')}/chat/completions"
    asked = {"model": os.environ.get("OPENAI_MODEL", MODEL), "messages": messages}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["choices"][0]["message"]["content"].strip()
    except urllib.error.HTTPError as error:
        with error:
            raise ChatError(f"{url} answered {error.code}: {error.read(500).decode(errors='replace')}") from error
    except OSError as error:
        raise ChatError(f"{url} cannot be reached: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ChatError(f"{url} gave no chat completion: {error!r}") from error
