"""The coding agent: its world is what it says, its sandbox holds, and the agent learns; small, with --quick."""

import http.server
import itertools
import json
import threading

import numpy as np
import pytest

from dmem_jax.encoders import Encoder
from examples.coder import __main__ as coder
from examples.coder import report
from examples.coder.agent import TRIES, Choice, votes_of
from examples.coder.chat import ChatChooser, ChatError
from examples.coder.memories import Backend, Hint, Nearest
from examples.coder.sandbox import BUDGET, CPU_SECONDS, Outcome, measure, run_tests
from examples.coder.tasks import DEFAULT, HOLE, ROUTINE, STRATEGIES, load_tasks
from examples.coder.world import MEETINGS, ROUTINE_SHARE, reward_of, stream
from examples.encoding import HashedWords, Once

TASKS = load_tasks()
BY_NAME = {task.name: task for task in TASKS}
KIND_OUTCOMES = {
    "right": Outcome(3, 3, 0.001, ""),
    "wrong": Outcome(2, 3, 0.001, "f(): expected 1, got 2"),
    "slow": Outcome(3, 3, 1.0, "f(): right, but the tests took too long"),
}


@pytest.fixture(scope="module")
def outcomes():
    """All changes' tests, really run."""
    return measure(TASKS, workers=2)


def supposed_outcomes(tasks):
    """What the tests would say, without running them."""
    outcomes: dict[tuple[str, str | None], Outcome] = {}
    for task in tasks:
        outcomes[task.name, None] = Outcome(1, 3, 0.001, f"{task.name}(): expected 1, got 2")
        outcomes |= {(task.name, name): KIND_OUTCOMES[kind] for name, kind in task.kinds.items()}
    return outcomes


def supposed_world(tasks):
    encoder = HashedWords()
    return coder.World(tasks, supposed_outcomes(tasks), Once(encoder))


# ---- the world


def test_tasks_come_in_families_whose_first_idea_is_a_trap_and_in_routine_ones():
    assert len(TASKS) == len(BY_NAME) >= 40
    families = {task.family for task in TASKS} - {ROUTINE}
    rights = {}
    for task in TASKS:
        assert set(task.kinds) <= set(STRATEGIES)
        assert len(task.kinds) == 4
        assert list(task.kinds.values()).count("right") == 1
        assert DEFAULT in task.kinds
        assert HOLE in task.code
        assert HOLE not in task.source(None)
        rights.setdefault(task.family, set()).add(task.right)
        if task.family != ROUTINE:
            assert len(task.wordings) == MEETINGS
    assert rights.pop(ROUTINE) == {DEFAULT}
    assert set(rights) == families
    for family, right in rights.items():  # what helped in one task helps in its kin
        assert len(right) == 1
        assert DEFAULT not in right
        assert [task.family for task in TASKS].count(family) >= 3
    traps = {name for task in TASKS for name, kind in task.kinds.items() if kind != "right"}
    assert len(traps & {name for right in rights.values() for name in right}) > 10  # elsewhere they are traps


@pytest.mark.parametrize("name", BY_NAME)
def test_the_right_change_solves_its_task_and_each_trap_is_one(name, outcomes):
    task = BY_NAME[name]
    right = outcomes[name, task.right]
    assert right.solved, right
    assert not outcomes[name, None].solved
    assert outcomes[name, None].message
    for strategy, kind in task.kinds.items():
        outcome = outcomes[name, strategy]
        if kind == "wrong":
            assert outcome.passed < outcome.tests, (strategy, outcome)
        if kind == "slow":
            assert not outcome.solved, (strategy, outcome)
            hit_the_limit = outcome.seconds >= CPU_SECONDS
            assert hit_the_limit or outcome.passed == outcome.tests, (strategy, outcome)
            assert hit_the_limit or outcome.seconds > 3 * right.seconds, (strategy, outcome, right)


def test_a_stream_is_mostly_routine_and_depends_on_its_seed_alone():
    messages = {task.name: f"{task.name} failed" for task in TASKS}
    once, again, other = (stream(TASKS, messages, seed) for seed in (3, 3, 4))
    assert once == again
    assert [ticket.task.name for ticket in once] != [ticket.task.name for ticket in other]
    families = [ticket.task.family for ticket in once]
    assert families.count(ROUTINE) / len(families) == pytest.approx(ROUTINE_SHARE, abs=0.01)
    for task in TASKS:
        met = [ticket.text for ticket in once if ticket.task is task]
        if task.family != ROUTINE:
            assert len(met) == MEETINGS
            assert all(any(wording in text for text in met) for wording in task.wordings)
        assert all(messages[task.name] in text for text in met)


def test_rewards_tell_solved_slow_failed_and_endless_apart():
    endless = Outcome(1, 3, CPU_SECONDS, "f(): no answer")
    kinds = [KIND_OUTCOMES["right"], KIND_OUTCOMES["slow"], KIND_OUTCOMES["wrong"], endless]
    rewards = np.array([[reward_of(kind, np.random.default_rng(seed)) for seed in range(50)] for kind in kinds])
    assert (np.abs(rewards) <= 1).all()
    assert (rewards.std(1) > 0.02).all()  # a rating is noisy
    assert (np.diff(rewards.mean(1)) < -0.2).all()


# ---- the sandbox


def test_a_hanging_candidate_is_killed_and_what_passed_before_counts():
    outcome = run_tests("def f():\n    while True: pass", ["1 == 1", "f() == 1", "2 == 2"], cpu_seconds=1)
    assert (outcome.passed, outcome.tests) == (1, 3)
    assert outcome.seconds >= 1
    assert outcome.message == "f(): no answer in 1 s"
    assert not outcome.solved


def test_a_sleeping_candidate_is_killed_by_the_wall_clock():
    outcome = run_tests("import time\ntime.sleep(600)", ["1 == 1"], wall_seconds=2.0)
    assert outcome.passed == 0
    assert outcome.seconds > BUDGET


@pytest.mark.parametrize(
    "source",
    [
        "def f(:",
        "import os\nos._exit(0)",
        "raise SystemExit",
        "def f(): raise KeyboardInterrupt",
        "print('[true, 0.0, \"\"]', flush=True)",
        "def f(): return [0] * 10**11",
        "def f(): return f()",
        "import examples.coder\ndef f(): return 1",  # nothing of this checkout is there
        "import os\ndef f(): return 1 if os.environ.get('HOME') or os.listdir() else 0",
        "class Shy:\n    def __repr__(self): raise ValueError\ndef f(): return Shy()",
        "",
    ],
)
def test_whatever_a_candidate_does_is_an_outcome(source):
    outcome = run_tests(source, ["f() == 1"])
    assert outcome.passed == 0
    assert outcome.message.startswith(("f(): ", "the code cannot be run: "))


def test_code_runs_in_an_empty_folder_without_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.txt").touch()
    source = "import os, sys\ndef f(): return os.listdir(), 'OPENAI_API_KEY' in os.environ, sys.flags.isolated"
    assert run_tests(source, ["f() == ([], False, 1)"]).solved


# ---- memories and the vote


def test_the_hashing_encoder_is_an_encoder_of_unit_vectors():
    encoder = HashedWords(64)
    assert isinstance(encoder, Encoder)
    vectors = encoder(["Sort the names", "sort the NAMES!", "names the sort", "", "数学"])
    assert vectors.shape == (5, 64)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0, 1], rtol=1e-6)
    assert vectors[0] @ vectors[1] > 0.999 > vectors[0] @ vectors[2] > 0.3
    assert encoder([]).shape == (0, 64)


def test_delights_speak_for_a_strategy_and_disasters_against_it_the_nearer_the_louder():
    hints = [Hint("a", 0.9, 1.0), Hint("b", 0.9, -1.0), Hint("c", 0.3, 1.0), Hint("gone", 1.0, 1.0), Hint("d", -1, 1.0)]
    votes = votes_of(hints, ["a", "b", "c", "d"])
    assert votes["a"] > votes["c"] > votes["d"] == 0 > votes["b"]


def test_similarity_keeps_the_latest_and_recalls_the_nearest():
    encoder = HashedWords()
    memory = Nearest(Once(encoder), capacity=2)
    kept = [memory.keep(text, text, 1.0) for text in ("old news", "red apples", "green pears")]
    assert memory.held() == 2
    assert [hint.action for hint in memory.recall("red apples and pears")] == ["red apples", "green pears"]
    assert kept[0].rpe == pytest.approx(1.0)
    assert 0 < kept[1].rpe < 1  # what is usual is expected


def test_a_text_is_encoded_once():
    asked = []
    encoder = HashedWords()

    class Asked(HashedWords):
        def __call__(self, things, /):
            asked.extend(things)
            return super().__call__(things)

    once = Once(Asked())
    np.testing.assert_array_equal(once(["a", "b", "a"]), encoder(["a", "b", "a"]))
    once(["b"])
    assert asked == ["a", "b"]


# ---- lives


@pytest.mark.parametrize("policy", coder.POLICIES)
def test_lives_are_deterministic_by_seed(policy):
    world = supposed_world([task for task in TASKS if task.family in ("boundaries", ROUTINE)])
    once, again, other = (coder.run_life(world, policy, 16, seed) for seed in (1, 1, 2))

    def told(life):
        return [(one.ticket.text, one.menu, one.choice, one.reward, one.kept.route, one.held) for one in life]

    assert told(once) == told(again)
    assert told(once) != told(other)
    for one in once:
        assert one.attempt < TRIES
        assert one.choice.strategy in one.menu
    for first, second in itertools.pairwise(once):
        if second.attempt:
            assert not first.outcome.solved
            assert first.choice.strategy not in second.menu


@pytest.mark.slow
def test_what_surprised_avoids_traps_that_no_memory_always_falls_into():
    world = supposed_world(TASKS)
    ours, nearest, nothing = (coder.run_life(world, policy, 64, 11) for policy in ("dmem_jax", "similarity", "none"))
    late = report.MEASURES["traps_solved_late"]
    assert late(nothing) == 0
    assert late(ours) > late(nearest)
    assert max(one.held for one in ours) <= 64
    routes = report.routes([ours])
    assert routes["dropped"] > 0.3  # routine
    kept = np.array([one.kept.route in ("core", "buffer") for one in ours])
    routine = np.array([one.ticket.task.family == ROUTINE for one in ours])
    assert kept[~routine].mean() > 2 * kept[routine].mean()


def test_the_backend_counts_what_it_holds():
    encoder = HashedWords()
    memory = Backend(Once(encoder), (2, 4))
    rng = np.random.default_rng(0)
    for i in range(30):
        memory.keep(f"ticket {i} about {rng.integers(5)}", str(rng.choice(["a", "b"])), float(rng.normal()))
    assert memory.held() == len(memory._backend.list())
    memory.close()


def test_intervals_hold_the_mean_and_narrow_with_more_seeds():
    samples = np.random.default_rng(0).normal(size=100)
    few, many = report.interval(samples[:10]), report.interval(samples)
    for told in (few, many):
        assert told["low"] < told["mean"] < told["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]


def test_a_quick_run_writes_a_table_results_and_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    coder.main(["--quick", "--seeds", "2", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert set(results["policies"]) == set(coder.POLICIES)
    assert results["policies"]["none"]["routine_solved"]["mean"] == 1
    assert 0 < results["policies"]["dmem_jax"]["traps_solved_late"]["mean"] <= 1
    assert (tmp_path / "out/coder.png").stat().st_size > 10_000
    for told in ("recalled (score", "votes:", "x the average surprise", "similarity, all"):
        assert told in printed


@pytest.mark.parametrize("arguments", [["--seeds", "1"], ["--capacity", "0"], ["--out", "/dev/null/x"]])
def test_bad_arguments_are_named(arguments, capsys):
    with pytest.raises(SystemExit):
        coder.parse(arguments)
    assert f"{arguments[0]}: expected" in capsys.readouterr().err


# ---- a chat model


class Server:
    """A chat server that answers what `reply(question)` says."""

    def __init__(self, reply):
        questions = self.questions = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                questions.append((self.path, self.headers["Authorization"], asked))
                text = reply(asked["messages"][-1]["content"])
                body = json.dumps({"choices": [{"message": {"content": text}}]}).encode() if text else b"{}"
                self.send_response(200 if text is not None else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


GREETING = BY_NAME["greeting"]


def ask(reply, menu=(DEFAULT, "round it"), advice=""):
    ticket = stream([GREETING, *TASKS[:1]], {GREETING.name: "", TASKS[0].name: ""}, 0)[0]
    with Server(reply) as server:
        chooser = ChatChooser(server.url, "key", "model")
        return chooser(ticket, list(menu), [], advice), chooser, server.questions


def test_a_chat_model_chooses_from_the_menu_and_sees_what_is_remembered():
    choice, chooser, [(path, key, asked)] = ask(lambda _: 'I say {"strategy": "round it"}.', advice="it went wrong")
    assert choice == Choice("round it")
    assert (path, key, asked["model"]) == ("/v1/chat/completions", "Bearer key", "model")
    question = asked["messages"][-1]["content"]
    for told in ("it went wrong", "def ", "- round it: Round the result."):
        assert told in question
    assert chooser.unusable == 0


@pytest.mark.parametrize(
    "reply", ["no idea", "{", "[]", '{"strategy": "pray"}', '{"strategy": ["round it"]}', "{}", "{]}"]
)
def test_a_reply_that_names_nothing_on_the_menu_counts(reply):
    choice, chooser, _ = ask(lambda _: reply)
    assert choice == Choice(DEFAULT)
    assert chooser.unusable == 1


@pytest.mark.parametrize("reply", [None, ""])
def test_a_server_that_fails_is_named(reply):
    with pytest.raises(ChatError, match=r"127\.0\.0\.1"):
        ask(lambda _: reply)
    with pytest.raises(ChatError, match="127"):
        ChatChooser("http://127.0.0.1:9/v1", "key", "model")(
            stream(TASKS, {t.name: "" for t in TASKS}, 0)[0], [DEFAULT], [], ""
        )


def test_code_that_a_model_writes_runs_in_the_sandbox_alone():
    code = 'import os\nFOLDER = os.getcwd()\ndef greet(name):\n    return "Hello, " + name\n'
    choice, _, _ = ask(lambda _: json.dumps({"strategy": DEFAULT, "code": code}))
    assert choice == Choice(DEFAULT, code)
    assert supposed_world([GREETING]).run(GREETING, choice).solved
    assert not supposed_world([GREETING]).run(GREETING, Choice(DEFAULT, "os._exit(0)")).solved


@pytest.mark.slow
def test_with_a_server_in_the_environment_the_scenario_asks_it(tmp_path, capsys, monkeypatch):
    def reply(question):
        menu = [line[2:].partition(":")[0] for line in question.rpartition("Menu:\n")[2].splitlines()]
        return json.dumps({"strategy": menu[-1]})

    with Server(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        coder.main(["--quick", "--tickets", "12", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["policies"]) == {"dmem_jax", "none"}
    remembered = ["What you remember" in asked["messages"][-1]["content"] for _, _, asked in server.questions]
    assert any(remembered)
    assert not all(remembered)
    assert "replies that named nothing on the menu: 0" in capsys.readouterr().out
