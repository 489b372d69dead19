"""What an exchange was worth: the tone of the reply, a like or dislike, and how long the user stayed, as one number.

The lexicon is a short general one, of the kind of AFINN (valences -3 .. 3). It knows nothing of allergies or hobbies:
what it hears in "my throat closes up" is nothing at all, while "collapsed" and "grinned" are among its words.
"""

import math
import re

from examples.assistant.world import Exchange

SENTIMENT, BUTTON, ENGAGEMENT = 0.6, 0.2, 0.2  # shares of the reward; they sum to 1
USUAL_MINUTES = 2.0  # a stay of this length says nothing

_VALENCES = {
    3: """adore amazing bliss brilliant delighted excellent fantastic glorious happiest heaven joy love loved lovely
       loveliest magic marvellous overjoyed perfect superb thrilled wonderful""",
    2: """beautiful best celebrate cheerful delicious enjoy enjoyed fun funny glad great happy happier laugh laughed
       glowing grin grinned grinning proud relieved smile smiled smiles thanks treasure won yay beaming""",
    1: "calm clear cosy fair fine good interesting kind like neat nice okay pleasant quiet right sure thank well yes",
    -1: """bit boring busy cold delay delayed dull late long lost meh mistake queue slow sorry strange tired tiring
       unfortunately wait wet wrong""",
    -2: """accident afraid attack attacks alone blind bloody choke collapsed crash angry annoyed annoying argument
       ashamed bad broke cried crying disappointed embarrassing failed faint fear infected injured frightened
       frightens grumpy hurt ill mess missed nasty noisy pain rude ruined sad scared scary screaming shock sick
       stop suffer unfair upset worried worse""",
    -3: """agony awful catastrophe desperate devastated disaster disgusting dreadful furious hate hated horrible
       horrified kill killed miserable nightmare nightmares panic ruins shaking terrible terrified terrifying worst""",
}
LEXICON = {word: valence for valence, words in _VALENCES.items() for word in words.split()}
_NEGATIONS = frozenset(["no", "not", "never", "nothing", "hardly", "without"])


def sentiment(text: str) -> float:
    """The tone of a text in (-1, 1): the valences of its words summed and squashed; 0 where it knows no word.

    A negation within two words before turns a valence round at half its weight ("not good", "never a bad word").

    >>> sentiment("The bus came at nine.")
    0.0
    >>> sentiment("That was awful!") < 0 < sentiment("I love it.")
    True
    """
    words = re.findall(r"[a-z']+", text.lower())
    total = 0.0
    for place, word in enumerate(words):
        valence = LEXICON.get(word, 0)
        negated = any(before in _NEGATIONS for before in words[max(0, place - 2) : place])
        total += -0.5 * valence if negated else valence
    return total / math.sqrt(total * total + 15.0)


def engagement(minutes: float) -> float:
    """How much longer or shorter than usual the user stayed, in [-1, 1]; eight times as long is 1."""
    return min(1.0, max(-1.0, math.log(minutes / USUAL_MINUTES) / math.log(8.0)))


def reward(exchange: Exchange) -> float:
    """One number in [-1, 1] from the three signals; a button that was not pressed counts 0."""
    return SENTIMENT * sentiment(exchange.reply) + BUTTON * exchange.button + ENGAGEMENT * engagement(exchange.minutes)
