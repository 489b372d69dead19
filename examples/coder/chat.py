"""A chat model that chooses, or writes, the change: any server with OpenAI's interface, by the standard library."""

import json
import os
import urllib.error
import urllib.request

from examples.coder.agent import Choice
from examples.coder.memories import Hint
from examples.coder.tasks import DEFAULT, STRATEGIES, Task
from examples.coder.world import Ticket

SECONDS = 60.0  # a reply may take
INSTRUCTIONS = """You repair small Python functions. You are told what happened when similar changes were tried \
before: prefer what helped there and avoid what harmed. Answer with one JSON object and nothing else: either \
{"strategy": NAME} with a name from the menu, whose change is then made for you, or \
{"strategy": NAME, "code": ALL OF THE REPAIRED CODE} if you write the change yourself."""


class ChatError(RuntimeError):
    """The server could not be asked, or its answer is none. The message says which and why."""


class ChatChooser:
    """Asks a chat model. A reply that names nothing on the menu counts in `unusable`, and the first idea is tried."""

    def __init__(self, base_url: str, key: str, model: str):
        self._url, self._key, self._model = base_url.rstrip("/") + "/chat/completions", key, model
        self.unusable = 0

    @classmethod
    def from_environment(cls) -> "ChatChooser | None":
        """By OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL (gpt-4o-mini); None where the first two are not set."""
        base_url, key = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY")
        return cls(base_url, key, os.environ.get("OPENAI_MODEL", "gpt-4o-mini")) if base_url and key else None

    def __call__(self, ticket: Ticket, menu: list[str], hints: list[Hint], advice: str) -> Choice:
        choice = _choice_in(self._ask(_question(ticket, menu, advice)), menu)
        if choice is None:
            self.unusable += 1
            return Choice(DEFAULT if DEFAULT in menu else menu[0])
        return choice

    def _ask(self, question: str) -> str:
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
        request = urllib.request.Request(
            self._url,
            json.dumps({"model": self._model, "messages": messages, "temperature": 0}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                return str(json.load(reply)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            with error:
                raise ChatError(
                    f"{self._url} answered {error.code}: {error.read(200).decode(errors='replace')}"
                ) from error
        except (OSError, ValueError, LookupError, TypeError) as error:  # no connection, no JSON, no choices in it
            raise ChatError(f"{self._url}: {error}") from error


def _question(ticket: Ticket, menu: list[str], advice: str) -> str:
    task: Task = ticket.task
    listed = "\n".join(f"- {name}: {STRATEGIES[name]}" for name in menu)
    remembered = f"What you remember:\n{advice}\n\n" if advice else ""
    return f"{remembered}Ticket: {ticket.text}\n\nCode:\n{task.source(None)}\nMenu:\n{listed}"


def _choice_in(reply: str, menu: list[str]) -> Choice | None:
    """What a reply says, whatever stands around its JSON."""
    start, end = reply.find("{"), reply.rfind("}")
    try:
        said = json.loads(reply[start : end + 1])
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("strategy") not in menu:
        return None
    strategy, code = said["strategy"], said.get("code")
    return Choice(strategy, code if isinstance(code, str) and code.strip() else None)
